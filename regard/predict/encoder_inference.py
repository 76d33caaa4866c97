"""Batched inference of an encoder: inputs of one row each, in batches of similar length, without padding on a CPU.

Classification, tagging, mask filling and embedding run their models through this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import SegmentedRows, build_segmented_rows
from regard.data.buckets import batch_by_tokens
from regard.data.columns import Column
from regard.data.labels import Labels
from regard.data.order import Placement
from regard.models.finite_outputs import check_finite
from regard.models.interfaces import EncoderModel
from regard.predict.worker_threads import map_batches_in_threads
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = (1 << 8, 1 << 10), 1 << 14
"""Positions of a batch in inference: few on a CPU, so that the activations of a layer stay in its caches."""


@dataclass(frozen=True)
class LabelPredictor:
    """A model of labels, or of scores, with its vocabulary on a device: the base of classification and tagging."""

    model: EncoderModel
    tokenizer: Tokenizer
    labels: Labels
    device: torch.device
    max_length: int
    is_regression: bool = False

    @cached_property
    def template(self) -> SpecialTokenTemplate:
        return SpecialTokenTemplate.from_tokenizer(self.tokenizer)


def forward_batches(
    model: EncoderModel,
    inputs: Sequence[EncodedInput],
    readout: Callable[[Float[Tensor, "B T W"], SegmentedRows], Float[Tensor, "B _"]],
    *,
    pad_id: int,
    device: torch.device,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index and the readout of each input, computed in batches of similar length, one input per row."""

    def one(chosen: list[int]) -> Tensor:
        rows = inputs_to_rows([inputs[i] for i in chosen], pad_id).to(device)
        with torch.inference_mode():
            return check_finite(readout(compute_features(model, rows), rows).cpu())

    batches = make_inference_batches([len(each.ids) for each in inputs], device)
    for chosen, results in map_batches_in_threads(one, batches, device):
        yield from zip(chosen, results, strict=True)


def inputs_to_rows(inputs: Sequence[EncodedInput], pad: int) -> SegmentedRows:
    """Return rows of inputs, one per row."""
    alone, width = np.arange(len(inputs)), max(len(each.ids) for each in inputs)
    placement = Placement(alone, alone, len(inputs), (width,))
    column = Column.from_sentences([each.ids for each in inputs])
    boundaries = np.array([each.token_type_boundary for each in inputs], dtype=np.int32)
    return build_segmented_rows(column, boundaries, placement, width, pad_id=pad)


def make_inference_batches(lengths: Sequence[int], device: torch.device) -> Iterator[list[int]]:
    """Yield batches of texts of similar length, of the size fastest on the device; on a CPU enough for all cores."""
    by_all_cores = sum(lengths) // (8 * torch.get_num_threads())
    return batch_by_tokens(
        lengths,
        min(max(by_all_cores, CPU_BATCH_TOKENS[0]), CPU_BATCH_TOKENS[1]) if device.type == "cpu" else GPU_BATCH_TOKENS,
    )


def unpad_rows(rows: SegmentedRows) -> tuple[SegmentedRows, list[int]]:
    """Return texts of one row each packed into one row without padding, and their lengths."""
    mask = rows.segment > 0
    lengths = mask.sum(1)
    number = torch.arange(1, len(lengths) + 1, dtype=rows.segment.dtype).repeat_interleave(lengths)
    ids, position, part = (each[mask][None] for each in (rows.ids, rows.position, rows.token_type_ids))
    return SegmentedRows(ids, number[None], position, part), lengths.tolist()


def compute_features(model: EncoderModel, rows: SegmentedRows) -> Float[Tensor, "B T W"]:
    """Return the input of the heads for texts of one row each; on a CPU padding is not computed."""
    cpu = rows.ids.device.type == "cpu"
    hidden = model.features(*unpad_rows(rows)) if cpu else model.features(rows)
    if not cpu:
        return hidden
    padded = hidden.new_zeros(*rows.ids.shape, hidden.shape[-1])
    padded[rows.segment > 0] = hidden[0]
    return padded
