"""Wall-clock times of layers: many small cases in turn, over and over, so that a busy moment hits all alike."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.compare.layers import LAYERS
from regard.progress import bar, track

SHORTEST = 0.002
"""Seconds that are timed at once, at least: what takes less is called several times."""

ROUNDS = 3, 25
"""How often each case is timed, at least and at most."""

PASSES = ("forward", "forward + backward")


class Case(NamedTuple):
    """A layer of some width over so many tokens, in one row."""

    layer: str
    passes: str
    width: int
    length: int


def timed(cases: Sequence[Case], seconds: float, device: torch.device, seed: int) -> dict[Case, list[float]]:
    """The seconds of each case, one for each round; rounds go on until the time is over."""
    torch.manual_seed(seed)
    modules = {(case.layer, case.width): LAYERS[case.layer](case.width).to(device) for case in cases}
    ready = {case: _Ready(case, modules[case.layer, case.width], device) for case in track(cases, "preparing layers")}
    times: dict[Case, list[float]] = {case: [] for case in cases}
    order, began = list(cases), time.perf_counter()
    with bar("timing layers: rounds") as shown:
        for number in range(ROUNDS[1]):
            if number >= ROUNDS[0] and time.perf_counter() - began > seconds:
                break
            random.Random(seed + number).shuffle(order)
            for case in order:
                times[case].append(ready[case].seconds())
            shown.advance()
    return times


class _Ready:
    """A case that has been run once, to be timed any number of times."""

    def __init__(self, case: Case, module: nn.Module, device: torch.device) -> None:
        self.module = module
        self.backward = case.passes != PASSES[0]
        self.x = torch.randn(1, case.length, case.width, device=device, requires_grad=self.backward)
        self.device, self.calls = device, 1
        self._clocked()  # the first call also makes what later ones find ready
        self.calls = max(1, math.ceil(SHORTEST / max(self._clocked(), 1e-9)))

    def seconds(self) -> float:
        """Of one call."""
        return self._clocked() / self.calls

    def _clocked(self) -> float:
        wait(self.device)
        began = time.perf_counter()
        for _ in range(self.calls):
            self._call()
        wait(self.device)
        return time.perf_counter() - began

    def _call(self) -> None:
        if not self.backward:
            with torch.inference_mode():
                self.module(self.x)
            return
        wanted: list[Tensor] = [self.x, *self.module.parameters()]
        torch.autograd.grad(self.module(self.x).sum(), wanted)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
