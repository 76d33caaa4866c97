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
from regard.progress import progress_bar, track

MIN_TIMED_SECONDS = 0.002
"""Seconds that are timed at once, at least: what takes less is called several times."""

MIN_AND_MAX_ROUNDS = 3, 25
"""How often each case is timed, at least and at most."""

PASSES = ("forward", "forward + backward")


class TimingCase(NamedTuple):
    """A layer of some width over so many tokens, in one row."""

    layer: str
    passes: str
    width: int
    length: int


def time_cases(
    cases: Sequence[TimingCase], time_budget: float, device: torch.device, seed: int
) -> dict[TimingCase, list[float]]:
    """The seconds of each case, one for each round; rounds go on until the time is over."""
    torch.manual_seed(seed)
    modules = {(case.layer, case.width): LAYERS[case.layer](case.width).to(device) for case in cases}
    ready = {
        case: _PreparedCase(case, modules[case.layer, case.width], device) for case in track(cases, "preparing layers")
    }
    times: dict[TimingCase, list[float]] = {case: [] for case in cases}
    order, began = list(cases), time.perf_counter()
    with progress_bar("timing layers: rounds") as shown:
        for number in range(MIN_AND_MAX_ROUNDS[1]):
            if number >= MIN_AND_MAX_ROUNDS[0] and time.perf_counter() - began > time_budget:
                break
            random.Random(seed + number).shuffle(order)
            for case in order:
                times[case].append(ready[case].time_one_call())
            shown.advance()
    return times


class _PreparedCase:
    """A case that has been run once, to be timed any number of times."""

    def __init__(self, case: TimingCase, module: nn.Module, device: torch.device) -> None:
        self.module = module
        self.has_backward = case.passes != PASSES[0]
        self.x = torch.randn(1, case.length, case.width, device=device, requires_grad=self.has_backward)
        self.device, self.n_calls = device, 1
        self._time_calls()  # the first call also makes what later ones find ready
        self.n_calls = max(1, math.ceil(MIN_TIMED_SECONDS / max(self._time_calls(), 1e-9)))

    def time_one_call(self) -> float:
        """Of one call."""
        return self._time_calls() / self.n_calls

    def _time_calls(self) -> float:
        synchronize(self.device)
        began = time.perf_counter()
        for _ in range(self.n_calls):
            self._run_once()
        synchronize(self.device)
        return time.perf_counter() - began

    def _run_once(self) -> None:
        if not self.has_backward:
            with torch.inference_mode():
                self.module(self.x)
            return
        wanted: list[Tensor] = [self.x, *self.module.parameters()]
        torch.autograd.grad(self.module(self.x).sum(), wanted)


def synchronize(device: torch.device) -> None:
    """Until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
