"""Wall-clock times of layers, in interleaved rounds, so that other load on the machine affects all cases alike."""

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
"""Shortest timed interval in seconds; faster cases are called several times in it."""

MIN_AND_MAX_ROUNDS = 3, 25
"""Smallest and largest number of rounds."""

PASSES = ("forward", "forward + backward")


class TimingCase(NamedTuple):
    """A layer of a width over one sequence of a length; fields are keys of cost.json."""

    layer: str
    passes: str
    width: int
    length: int


def time_cases(
    cases: Sequence[TimingCase], time_budget: float, device: torch.device, seed: int
) -> dict[TimingCase, list[float]]:
    """Return the seconds of each case, one per round; rounds are run until the time budget is spent."""
    torch.manual_seed(seed)
    modules = {(case.layer, case.width): LAYERS[case.layer](case.width).to(device) for case in cases}
    prepared = {
        case: _PreparedCase(case, modules[case.layer, case.width], device) for case in track(cases, "preparing layers")
    }
    times: dict[TimingCase, list[float]] = {case: [] for case in cases}
    order, began = list(cases), time.perf_counter()
    with progress_bar("timing layers: rounds") as progress:
        for number in range(MIN_AND_MAX_ROUNDS[1]):
            if number >= MIN_AND_MAX_ROUNDS[0] and time.perf_counter() - began > time_budget:
                break
            random.Random(seed + number).shuffle(order)
            for case in order:
                times[case].append(prepared[case].time_one_call())
            progress.advance()
    return times


class _PreparedCase:
    """A warmed-up case, ready to be timed."""

    def __init__(self, case: TimingCase, module: nn.Module, device: torch.device) -> None:
        self.module = module
        self.has_backward = case.passes != PASSES[0]
        self.x = torch.randn(1, case.length, case.width, device=device, requires_grad=self.has_backward)
        self.device, self.n_calls = device, 1
        self._time_calls()  # warm-up
        self.n_calls = max(1, math.ceil(MIN_TIMED_SECONDS / max(self._time_calls(), 1e-9)))

    def time_one_call(self) -> float:
        """Return the seconds of one call."""
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
        inputs: list[Tensor] = [self.x, *self.module.parameters()]
        torch.autograd.grad(self.module(self.x).sum(), inputs)


def synchronize(device: torch.device) -> None:
    """Wait for the work queued on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
