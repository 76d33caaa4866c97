"""The largest differences between the outputs of regard's models and those of `transformers`, for the same inputs.

Theirs take texts padded to one width, with a mask; ours take several texts in one row. The hidden states of every layer
and the outputs of every head are compared at the tokens of the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import Rows, SegmentedRows, build_rows, build_segmented_rows
from regard.data.columns import Column
from regard.data.order import Placement
from regard.models.encoder import TransformerEncoder
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.models.span_heads import PairMask
from regard.nn import record
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate

Ids = Sequence[int]


class Gap(NamedTuple):
    """The largest differences of hidden states and of logits."""

    hidden: float
    logits: float


def texts(frame: SpecialTokenTemplate, size: int, specials: frozenset[int], seed: int = 0) -> list[EncodedInput]:
    """Single texts and pairs of random tokens."""
    draw = np.random.default_rng(seed)
    regular_ids = np.array([index for index in range(size) if index not in specials])
    pairs = [
        (draw.choice(regular_ids, 4).tolist(), None),
        (draw.choice(regular_ids, 3).tolist(), draw.choice(regular_ids, 9).tolist()),
    ]
    pairs += [
        (draw.choice(regular_ids, 1).tolist(), None),
        (draw.choice(regular_ids, 11).tolist(), draw.choice(regular_ids, 2).tolist()),
    ]
    return [frame.wrap(*pair) for pair in pairs]


def sentences(size: int, specials: frozenset[int], lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Texts of random tokens."""
    draw = np.random.default_rng(seed)
    regular_ids = np.array([index for index in range(size) if index not in specials])
    return [draw.choice(regular_ids, length).tolist() for length in lengths]


def make_placement(n_texts: int, width: int) -> Placement:
    """Two texts in the first row, all others in the second."""
    rows = np.array([0, 0, *[1] * (n_texts - 2)])
    return Placement(np.arange(n_texts), rows, 2, (width,))


def packed(inputs: Sequence[EncodedInput], pad: int) -> SegmentedRows:
    column = Column.from_sentences([each.ids for each in inputs])
    boundaries = np.array([each.token_type_boundary for each in inputs], dtype=np.int32)
    width = sum(len(each.ids) for each in inputs)
    return build_segmented_rows(column, boundaries, make_placement(len(inputs), width), width, pad_id=pad)


def packed_sentences(ids: Sequence[Ids], pad: int) -> Rows:
    width = sum(map(len, ids))
    return build_rows(Column.from_sentences(ids), make_placement(len(ids), width), width, pad_id=pad)


def by_text(rows: Rows, values: Tensor) -> list[Tensor]:
    """Return the values at the tokens of each text of packed rows, in order."""
    return [
        values[row][rows.segment[row] == number]
        for row in range(len(rows.ids))
        for number in range(1, int(rows.segment[row].max()) + 1)
    ]


def padded(ids: Sequence[Ids], pad: int) -> tuple[Tensor, Tensor]:
    """Return padded texts and their mask."""
    width = max(map(len, ids))
    filled = torch.tensor([[*each, *[pad] * (width - len(each))] for each in ids])
    mask = torch.tensor([[1] * len(each) + [0] * (width - len(each)) for each in ids])
    return filled, mask


def max_difference(ours: Sequence[Tensor], theirs: Tensor) -> float:
    """Return the largest difference between the values of each text and the row of theirs."""
    assert len(ours) == len(theirs)
    return max(float((own - other[: len(own)]).abs().max()) for own, other in zip(ours, theirs, strict=True))


def inner(ours: dict[str, Tensor], rows: Rows, theirs: Sequence[Tensor]) -> float:
    assert len(ours) == len(theirs), (list(ours), len(theirs))
    pairs = zip(ours.values(), theirs, strict=True)
    return max(max_difference(by_text(rows, own), other) for own, other in pairs)


@torch.no_grad()
def encoder_gap(
    ours: TransformerEncoder, theirs: nn.Module, inputs: Sequence[EncodedInput], pad: int, *, typed: bool
) -> Gap:
    """Return the difference for an encoder; `typed` passes token types."""
    rows = packed(inputs, pad)
    ids, mask = padded([each.ids for each in inputs], pad)
    types = {
        "token_type_ids": torch.tensor(
            [[int(i >= each.token_type_boundary) for i in range(ids.shape[1])] for each in inputs]
        )
    }
    outputs = theirs(ids, attention_mask=mask, output_hidden_states=True, **(types if typed else {}))
    with record(ours, "embedding.out", "encoder.*.out") as recorded:
        hidden = ours(rows)
    return Gap(inner(recorded, rows, outputs.hidden_states), max(_heads(ours, hidden, rows, outputs), default=0.0))


def _heads(ours: TransformerEncoder, hidden: Tensor, rows: SegmentedRows, outputs: Any) -> list[float]:
    """Return the difference of each head's output."""
    n_texts = int(rows.segment.max())
    text_indices = [[row, number] for row in range(2) for number in range(int(rows.segment[row].max()))]

    def of_texts(values: Tensor) -> list[Tensor]:
        return [values[row, number][None] for row, number in text_indices]

    gaps = []
    if "masked" in ours.heads:
        words = ours.heads["masked"](hidden, ours.embedding.tokens.weight)
        theirs = outputs.prediction_logits if "next" in ours.heads else outputs.logits
        gaps.append(max_difference(by_text(rows, words), theirs))
    if "tags" in ours.heads:
        gaps.append(max_difference(by_text(rows, ours.heads["tags"](hidden)), outputs.logits))
    if "span" in ours.heads:
        logits = ours.heads["span"](hidden, rows, PairMask(*[rows.segment > 0] * 3), n_texts)
        gaps.append(max_difference(by_text(rows, logits), torch.stack((outputs.start_logits, outputs.end_logits), -1)))
    if "pooler" in ours.heads:
        pooled = ours.heads["pooler"](hidden, rows, n_texts)
        top = {"next": "seq_relationship_logits" if "masked" in ours.heads else "logits", "label": "logits"}
        for head in top.keys() & ours.heads.keys():
            gaps.append(max_difference(of_texts(ours.heads[head](pooled)), getattr(outputs, top[head])[:, None]))
        if set(ours.heads) == {"pooler"}:
            gaps.append(max_difference(of_texts(pooled), outputs.pooler_output[:, None]))
    return gaps


@torch.no_grad()
def language_gap(ours: TransformerLM, theirs: nn.Module, ids: Sequence[Ids]) -> Gap:
    rows, (filled, mask) = packed_sentences(ids, 0), padded(ids, 0)
    outputs = theirs(filled, attention_mask=mask, output_hidden_states=True)
    with record(ours, "embedding.out", "decoder.*.out") as recorded:
        hidden = ours.hidden_states(rows)
    *_, last = recorded
    recorded[last] = hidden  # transformers returns it after the final norm
    logits = outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state @ theirs.wte.weight.T
    return Gap(inner(recorded, rows, outputs.hidden_states), max_difference(by_text(rows, ours.logits(hidden)), logits))


@torch.no_grad()
def pair_gap(
    ours: TransformerSeq2Seq, theirs: nn.Module, sources: Sequence[Ids], targets: Sequence[Ids], pad: int
) -> Gap:
    rows, target_rows = packed_sentences(sources, pad), packed_sentences(targets, pad)
    (source, mask), (target, target_mask) = padded(sources, pad), padded(targets, pad)
    hf_inputs = {"attention_mask": mask, "decoder_input_ids": target, "decoder_attention_mask": target_mask}
    outputs = theirs(source, **hf_inputs, output_hidden_states=True)
    one, other = (("source_embedding.out", "encoder.*.out"), ("target_embedding.out", "decoder.*.out"))
    with record(ours, *one) as encoded, record(ours, *other) as decoded:
        logits = ours(rows, target_rows)
    for recorded, norm in ((encoded, ours.encoder_norm), (decoded, ours.decoder_norm)):
        last = list(recorded)[-1]
        recorded[last] = norm(recorded[last])  # transformers returns it after the final norm
    hidden = inner(encoded, rows, outputs.encoder_hidden_states)
    hidden = max(hidden, inner(decoded, target_rows, outputs.decoder_hidden_states))
    theirs_logits = outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state @ theirs.shared.weight.T
    return Gap(hidden, max_difference(by_text(target_rows, logits), theirs_logits))


def in_double(theirs: nn.Module) -> nn.Module:
    """Return the transformers model in float64, with its sinusoids recomputed in float64."""
    theirs = theirs.double()
    for module in theirs.modules():
        if type(module).__name__.endswith("SinusoidalPositionalEmbedding"):
            rows, width = module.weight.shape
            angle = np.arange(rows)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
            module.weight.data = torch.from_numpy(np.concatenate((np.sin(angle), np.cos(angle)), 1))
    return theirs


def gap(ours: nn.Module, theirs: nn.Module, task: Any) -> Gap:
    """Return the difference for a model of any kind on random texts; `task` is the one it was imported for."""
    if isinstance(ours, TransformerEncoder):
        inputs = texts(task.template, task.vocabulary_size, task.tokenizer.special_ids)
        return encoder_gap(ours, theirs, inputs, task.template.pad_id, typed=ours.config.n_parts > 1)
    assert isinstance(ours, TransformerSeq2Seq)
    specials = task.tokenizers.target.special_ids
    size = min(len(task.tokenizers.source), len(task.tokenizers.target))
    sources = [task.special_tokens.wrap_source(ids) for ids in sentences(size, specials, (5, 1, 9, 3))]
    targets = [task.special_tokens.wrap_target_in(ids) for ids in sentences(size, specials, (2, 11, 4, 1), 1)]
    return pair_gap(ours, theirs, sources, targets, task.special_tokens.pad_id)
