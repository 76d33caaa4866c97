"""What a run will cost, computed before its first step and printed for the user to judge.

Work and memory are not estimated by formula: a training batch is run through the model on torch's meta device, which
has shapes but no numbers, while the products are counted and the tensors kept for the backward pass are weighed. That
holds for any model to come. Where batches differ in shape, a few stand for all. Compiled graphs keep less than this
eager count says.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.data.order import Placement
from regard.train.device import describe, memory_of
from regard.train.prepare import Prepared
from regard.train.step import Objective

BYTES_PER_WEIGHT = 16
"""A float32 weight, its gradient and Adam's two moments."""

COUNTED = 5
"""Batches whose operations are counted, from narrow to wide ones, where not all are of one shape."""


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    parameters: int
    examples: int
    tokens: int
    fill: float
    batches_per_epoch: int
    steps: int
    epochs: float
    flops: float
    memory: int
    memory_there: int
    device: str
    chosen: dict[str, Any]

    def lines(self) -> list[str]:
        """The plan in words."""
        lines = [
            f"model      {self.parameters:,} parameters",
            f"data       {self.examples:,} examples, {self.tokens:,} tokens, rows {self.fill:.1%} full",
            f"training   {self.steps:,} steps, {self.batches_per_epoch:,} batches an epoch, {self.epochs:.1f} epochs",
            f"work       {self.flops:.2e} floating-point operations",
            f"memory     about {_room(self.memory)} of {_room(self.memory_there)} free ({self.device})",
        ]
        if self.chosen:
            lines.append("chosen     " + ", ".join(f"{key} {_short(value)}" for key, value in self.chosen.items()))
            lines.append("           (config.toml in the run directory holds the whole recipe)")
        return lines


def plan(prepared: Prepared) -> Plan:
    """The plan of a prepared run."""
    train = prepared.config.train
    estimate = prepared.order.estimate()
    lengths = prepared.task.lengths(prepared.train)
    flops, activations = _weigh(prepared)
    parameters = sum(weight.numel() for weight in prepared.model.parameters())
    return Plan(
        parameters=parameters,
        examples=len(prepared.train),
        tokens=int(lengths[:, -1].sum()),
        fill=estimate.fill[-1],
        batches_per_epoch=estimate.batches,
        steps=train.steps,
        epochs=train.steps * train.accumulate / estimate.batches,
        flops=flops * train.steps * train.accumulate,
        memory=BYTES_PER_WEIGHT * parameters + activations,
        memory_there=memory_of(prepared.device),
        device=describe(prepared.device),
        chosen=prepared.chosen,
    )


def _weigh(prepared: Prepared) -> tuple[float, int]:
    """Floating-point operations of a batch, on average, and bytes kept for its backward pass, at most."""
    batches = sorted(prepared.order.pool(0, 0), key=lambda each: (max(each.widths), each.n_rows, each.widths))
    typical = [batches[(2 * part + 1) * len(batches) // (2 * COUNTED)] for part in range(COUNTED)]
    with torch.device("meta"):
        model = prepared.task.build(prepared.config.model)
    model = model.to(getattr(torch, prepared.config.train.precision))
    shapes = {(each.n_rows, each.widths): each for each in (*typical, batches[-1])}
    weighed = {shape: _weigh_batch(model, prepared, each) for shape, each in shapes.items()}
    flops = fmean(weighed[each.n_rows, each.widths][0] for each in typical)
    return flops, max(kept for _, kept in weighed.values())


def _weigh_batch(model: nn.Module, prepared: Prepared, placement: Placement) -> tuple[float, int]:
    batch = prepared.task.batch(prepared.train, placement).to(torch.device("meta"))
    objective, kept = Objective(model, prepared.task.loss), _Kept()
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(kept.weigh, lambda x: x):
        objective(batch).total.backward()
    return float(counter.get_total_flops()), kept.bytes(model)


class _Kept:
    """The storages of tensors kept for the backward pass, each counted once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._alive: list[Tensor] = []

    def weigh(self, tensor: Tensor) -> Tensor:
        self._sizes[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        self._alive.append(tensor)
        return tensor

    def bytes(self, model: nn.Module) -> int:
        """All but the weights themselves."""
        weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
        return sum(size for storage, size in self._sizes.items() if storage not in weights)


def _room(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
