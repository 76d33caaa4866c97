"""What an encoder or language model of regard computes for sample inputs, by the names of Hugging Face's outputs.

The exports of encoders and language models are compared with these.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Rows, SegmentedRows, sentences_to_rows
from regard.models.encoder import TransformerEncoder
from regard.models.heads import Pooling
from regard.models.language_model import TransformerLM
from regard.models.span_heads import PairMask, span_logits
from regard.predict.encoder_inference import inputs_to_rows
from regard.text.special_tokens import EncodedInput

Outputs = dict[str, list[Tensor]]
"""For each output, the value of every input: at its tokens, or of the whole text."""


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
    model: TransformerEncoder, inputs: list[EncodedInput], pad_id: int, pooling: str, *, normalised: bool
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
