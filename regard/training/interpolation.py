"""Interpolation with the starting weights: a fine-tuned model that stays near what it was (Wortsman et al. 2022).

What is scored and kept are weights between those that training started from and the trained ones: ``start + f (trained
- start)``, f being `train.interpolation`. Training itself goes on from the trained ones. The start is kept in the run
directory, so that a resumed run needs no other. prepare.py writes it, loop.py interpolates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.models.weights import collect_weights, read_model_tensors, write_tensors
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory


def is_interpolated(run_config: RunConfig) -> bool:
    """Return True if a run keeps weights between the start and the trained ones."""
    return bool(run_config.model.start) and run_config.train.interpolation < 1


def write_start(run: RunDirectory, model: nn.Module) -> None:
    """Keep the weights that training starts from."""
    write_tensors(run.start_path, collect_weights(model))


class StartInterpolation:
    """The weights that training started from, and how far from them the kept ones are; without any, nothing changes."""

    def __init__(self, run: RunDirectory, run_config: RunConfig, device: torch.device) -> None:
        self._fraction = run_config.train.interpolation
        tensors = read_model_tensors(run.start_path)[0] if is_interpolated(run_config) else {}
        self._start = {name: tensor.to(device) for name, tensor in tensors.items()}

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Let a model have the interpolated weights, to be scored and saved, and give it back its own."""
        weights = dict(model.named_parameters()) if self._start else {}
        trained = {name: weight.detach().clone() for name, weight in weights.items()}
        _copy({name: torch.lerp(self._start[name], each, self._fraction) for name, each in trained.items()}, weights)
        try:
            yield
        finally:
            _copy(trained, weights)


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], weights: Mapping[str, nn.Parameter]) -> None:
    for name, weight in weights.items():
        weight.copy_(values[name])
