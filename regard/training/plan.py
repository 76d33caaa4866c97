"""The training plan: size, work and memory of a run, computed before its first step and printed for the user to judge.

Work and memory are not estimated by formula: a training batch is run through the model on torch's meta device, which
has shapes but no values, while floating-point operations and the bytes saved for the backward pass are counted. That
holds for any new model. Where batches differ in shape, a sample of them is counted. Compiled graphs save fewer tensors
than this eager count.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.config import format_setting
from regard.data.order import Placement
from regard.models.freezing import ParameterCounts, count_parameters, freeze_weights
from regard.models.interfaces import EncoderModel
from regard.nn.kernels import names_in_use
from regard.runs.device import available_memory, describe_device
from regard.runs.import_export import describe_export_problem
from regard.training.feature_cache import CachedEncoder, CachePlan, feature_shape, plan_cache
from regard.training.memory import FROZEN_BYTES, TRAINED_BYTES, format_bytes
from regard.training.prepare import PreparedRun
from regard.training.schedule import sum_micro_batches
from regard.training.step import Objective
from regard.training.unfreezing import GradualUnfreezing

N_PROFILED_BATCHES = 5
"""Batches whose operations are counted, from narrow to wide, where batches differ in shape."""


@dataclass(frozen=True)
class TrainingPlan:
    """Size and cost of a run from `first_step` on; `no_export` is the reason why it cannot be exported, if any."""

    n_parameters: int
    n_frozen_parameters: int
    n_examples: int
    n_tokens: int
    packing_efficiency: float
    batches_per_epoch: int
    first_step: int
    steps: int
    epochs: float
    flops: float
    memory_bytes: int
    available_memory_bytes: int
    device: str
    chosen_settings: dict[str, Any]
    kernels: tuple[str, ...] = ()
    no_export: str = ""
    scored_sample: str = ""
    scoring_note: str = ""
    frozen: str = ""
    unfreezing: str = ""
    letter_case: str = ""

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        steps = f"from step {self.first_step:,} to {self.steps:,}" if self.first_step else f"{self.steps:,} steps"
        rows = f"rows {self.packing_efficiency:.1%} full"
        free = f"{format_bytes(self.available_memory_bytes)} free"
        lines = [
            f"model      {self.n_parameters:,} parameters" + self._describe_frozen_parameters(),
            f"data       {self.n_examples:,} examples, {self.n_tokens:,} tokens, {rows}",
            f"training   {steps}, {self.batches_per_epoch:,} batches an epoch, {self.epochs:.1f} epochs",
            f"work       {self.flops:.2e} floating-point operations",
            f"memory     about {format_bytes(self.memory_bytes)} of {free} ({self.device})",
            f"kernels    {', '.join(self.kernels) or 'none'}; plain PyTorch elsewhere",
        ]
        if self.letter_case:
            lines.append(f"case       {self.letter_case}")
        if self.frozen:
            lines.append(f"frozen     {self.frozen}")
        if self.unfreezing:
            lines.append(f"unfreezing {self.unfreezing}")
        if self.scored_sample:
            lines.append(f"validation {self.scored_sample}")
        if self.scoring_note:
            lines.append(f"scores     {self.scoring_note}")
        if self.no_export:
            lines.append(f"export     {self.no_export}")
        if self.chosen_settings:
            lines.append(
                "chosen     "
                + ", ".join(f"{key} {format_setting(value)}" for key, value in self.chosen_settings.items())
            )
            lines.append("           (config.toml in the run directory holds the whole recipe)")
        return lines

    def _describe_frozen_parameters(self) -> str:
        n_trained = self.n_parameters - self.n_frozen_parameters
        return f": {n_trained:,} trained, {self.n_frozen_parameters:,} frozen" if self.n_frozen_parameters else ""


def make_plan(prepared: PreparedRun, first_step: int = 0) -> TrainingPlan:
    """Return the plan of a prepared run that has taken `first_step` steps already."""
    train = prepared.config.train
    n_batches = max(0, sum_micro_batches(train, train.steps) - sum_micro_batches(train, first_step))
    estimate = prepared.train_order.estimate()
    lengths = prepared.task.example_lengths(prepared.train_store)
    cache = plan_cache(prepared)
    flops, activations = _profile_batches(prepared, cache)
    counts = count_parameters(prepared.model, train.freeze)
    cache_bytes = cache.n_bytes if cache is not None and cache.is_used else 0
    return TrainingPlan(
        n_parameters=sum(counts),
        n_frozen_parameters=counts.frozen,
        n_examples=len(prepared.train_store),
        n_tokens=int(lengths[:, -1].sum()),
        packing_efficiency=estimate.packing_efficiency[-1],
        batches_per_epoch=estimate.n_batches,
        first_step=first_step,
        steps=train.steps,
        epochs=n_batches / estimate.n_batches,
        flops=flops * n_batches,
        memory_bytes=TRAINED_BYTES * counts.trained + FROZEN_BYTES * counts.frozen + activations + cache_bytes,
        available_memory_bytes=available_memory(prepared.device),
        device=describe_device(prepared.device, train.threads),
        chosen_settings=prepared.chosen_settings,
        kernels=tuple(names_in_use(prepared.device, getattr(torch, train.precision))),
        no_export=describe_export_problem(prepared.task, prepared.model),
        scored_sample=_describe_scored_sample(prepared),
        scoring_note=prepared.task.scoring_note,
        frozen=_describe_frozen(counts, cache),
        unfreezing=GradualUnfreezing(prepared).describe(),
        letter_case=_describe_letter_case(prepared),
    )


def _describe_letter_case(prepared: PreparedRun) -> str:
    """Return a warning if words with upper-case letters would be unknown; otherwise nothing."""
    if (
        prepared.config.tokenizer.kind not in ("wordpiece", "words")
        or not prepared.task.tokenizers.source.lacks_upper_case
    ):
        return ""
    return (
        "the vocabulary has no upper-case letters, and words with one are unknown to it; "
        "with tokenizer.lowercase = true they are read in lower case"
    )


def _describe_frozen(counts: ParameterCounts, cache: CachePlan | None) -> str:
    """Return a description of the frozen part; nothing if there is none."""
    if not counts.frozen:
        return ""
    computed = "" if cache is None else f"; {cache.problem or 'hidden states are computed once'}"
    size = f", {format_bytes(cache.n_bytes)}" if cache is not None and cache.is_used else ""
    return f"no dropout in the frozen part{computed}{size}"


def _describe_scored_sample(prepared: PreparedRun) -> str:
    """Return the size of the sample that each validation scores; nothing if it scores all examples."""
    n_scored, n_all = len(prepared.scored_examples), len(prepared.all_scored_examples)
    if n_scored == n_all:
        return ""
    sample = f"metrics on a sample of {n_scored:,} of {n_all:,} {prepared.task.example_unit}, drawn by hash"
    return f"{sample}; at the end on all of them"


def _profile_batches(prepared: PreparedRun, cache: CachePlan | None) -> tuple[float, int]:
    """Return the mean floating-point operations of a batch, and the most bytes saved for its backward pass."""
    batches = sorted(
        prepared.train_order.pool_batches(0, 0), key=lambda each: (max(each.widths), each.n_rows, each.widths)
    )
    typical = [batches[(2 * part + 1) * len(batches) // (2 * N_PROFILED_BATCHES)] for part in range(N_PROFILED_BATCHES)]
    with torch.device("meta"):
        model = prepared.task.build_model(prepared.config.model)
        freeze_weights(model, prepared.config.train.freeze)
        if cache is not None and cache.is_used and isinstance(model, EncoderModel):
            model = CachedEncoder(model, torch.empty((1, *feature_shape(model))))
    model = model.to(getattr(torch, prepared.config.train.precision))
    shapes = {(each.n_rows, each.widths): each for each in (*typical, batches[-1])}
    profiles = {shape: _profile_batch(model, prepared, each) for shape, each in shapes.items()}
    flops = fmean(profiles[each.n_rows, each.widths][0] for each in typical)
    return flops, max(n_bytes for _, n_bytes in profiles.values())


def _profile_batch(model: nn.Module, prepared: PreparedRun, placement: Placement) -> tuple[float, int]:
    batch = prepared.task.make_batch(prepared.train_store, placement).to(torch.device("meta"))
    objective, saved = Objective(model, prepared.task.compute_loss), _SavedTensors()
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(saved.add, lambda x: x):
        objective(batch).total.backward()
    return float(counter.get_total_flops()), saved.n_bytes(model)


class _SavedTensors:
    """The storages of tensors saved for the backward pass, each counted once."""

    def __init__(self) -> None:
        self._storage_bytes: dict[int, int] = {}
        self._references: list[Tensor] = []

    def add(self, tensor: Tensor) -> Tensor:
        self._storage_bytes[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        self._references.append(tensor)
        return tensor

    def n_bytes(self, model: nn.Module) -> int:
        """Return the bytes of all storages but those of the weights."""
        weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
        return sum(size for storage, size in self._storage_bytes.items() if storage not in weights)
