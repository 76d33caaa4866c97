"""Outputs of regard's encoders and language models for sample inputs, by the names of Hugging Face's outputs.

The exports of encoders and language models are compared with these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Rows, SegmentedRows, sentences_to_rows
from regard.export.source_model import Ids, SourceModel
from regard.models.encoder import TransformerEncoder
from regard.models.heads import Pooling
from regard.models.language_model import TransformerLM
from regard.models.span_heads import PairMask, span_logits
from regard.predict.encoder_inference import inputs_to_rows
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate

Outputs = dict[str, list[Tensor]]
"""For each output, the value of every input: at its tokens, or of the whole text."""

IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
SENTENCE = "sentence_embedding"


class Samples(NamedTuple):
    """Sample inputs: their lengths, the padded arrays that other engines take, and the outputs of regard."""

    lengths: list[int]
    feeds: dict[str, np.ndarray]
    outputs: Outputs


def compute_samples(source: SourceModel) -> Samples:
    """Return sample inputs of an encoder or a language model with their outputs."""
    if source.is_language_model:
        texts = source.sample_texts(source.task.tokenizers.source, 0)
        lengths = list(map(len, texts))
        return Samples(lengths, pad_inputs(texts, lengths), language_model_outputs(source.network, texts))
    inputs, table = source.sample_inputs(), source.task_table
    pad_id = SpecialTokenTemplate.from_tokenizer(source.task.tokenizers.source).pad_id
    outputs = encoder_outputs(source.network, inputs, pad_id)
    if "normalised" in table:
        options = (table["pooling"], table["normalised"])
        outputs[SENTENCE] = sentence_embeddings(source.network, inputs, pad_id, *options)
    ids, boundaries = [each.ids for each in inputs], [each.token_type_boundary for each in inputs]
    return Samples(list(map(len, ids)), pad_inputs(ids, boundaries, pad_id), outputs)


def pad_inputs(texts: list[Ids], boundaries: list[int], pad_id: int = 0) -> dict[str, np.ndarray]:
    """Return the arrays of texts with their special tokens; tokens from the boundary on have type 1."""
    width = max(map(len, texts))
    ids = np.full((len(texts), width), pad_id, dtype=np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for row, (text, boundary) in enumerate(zip(texts, boundaries, strict=True)):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
        types[row, boundary : len(text)] = 1
    return {IDS: ids, MASK: mask, TYPES: types}


def select_tokens(ours: list[Tensor], theirs: Any) -> list[Any]:
    """Return the rows of a padded output cut to the tokens of each text; those of whole texts as they are."""
    cut = (value[: len(own)] if own.shape != value.shape else value for own, value in zip(ours, theirs, strict=True))
    return list(cut)


@torch.inference_mode()
def encoder_outputs(model: TransformerEncoder, inputs: list[EncodedInput], pad_id: int) -> Outputs:
    """Return hidden states and the output of every head."""
    rows = inputs_to_rows(inputs, pad_id)
    features, heads, hidden = model.features(rows), model.heads, model(rows)
    outputs = {"last_hidden_state": _by_token(hidden, rows)}
    pooled = heads["pooler"](features, rows, 1) if "pooler" in heads else None
    if pooled is not None:
        outputs["pooler_output"] = list(pooled[:, 0])
    if "label" in heads:
        outputs["logits"] = list(heads["label"](pooled)[:, 0])
    if "tags" in heads:
        outputs["logits"] = _by_token(heads["tags"](features), rows)
    if "next" in heads:
        outputs["seq_relationship_logits" if "masked" in heads else "logits"] = list(heads["next"](pooled)[:, 0])
    if "masked" in heads:
        outputs["logits"] = _by_token(heads["masked"](features, model.embedding.tokens.weight), rows)
    if "span" in heads:
        is_text = rows.segment > 0
        logits = span_logits(model, features, rows, PairMask(is_text, is_text, is_text))
        outputs["start_logits"], outputs["end_logits"] = (_by_token(logits[..., i], rows) for i in range(2))
    return outputs


@torch.inference_mode()
def sentence_embeddings(
    model: TransformerEncoder, inputs: list[EncodedInput], pad_id: int, pooling: str, normalised: bool
) -> list[Tensor]:
    """Return the vector of each input, as `regard embed` computes it."""
    rows = inputs_to_rows(inputs, pad_id)
    vectors: Any = Pooling(pooling, model.config.d_model).text_vectors(model(rows), rows, 1)[:, 0]
    return list(F.normalize(vectors, dim=-1) if normalised else vectors)


@torch.inference_mode()
def language_model_outputs(model: TransformerLM, texts: list[list[int]]) -> Outputs:
    """Return the logits of every next token."""
    rows = sentences_to_rows(texts, pad_id=0)
    return {"logits": _by_token(model(rows), rows)}


def _by_token(values: Tensor, rows: Rows | SegmentedRows) -> list[Tensor]:
    return [row[segment > 0] for row, segment in zip(values, rows.segment, strict=True)]
