"""Heads that answer questions by a span of a text: a start and an end logit for every token of a pair.

    SpanHead            two vectors (Devlin et al. 2019, 4.2); needs an encoder that relates question and context
    QuestionSpanHead    two vectors made from the question, pooled by attention (Chen et al. 2017); for recurrent ones

Called by tasks/qa.py for the loss and by predict/question_answering.py.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.data.batches import SegmentedRows
from regard.models.config import EncoderModelConfig
from regard.models.heads import make_text_mask
from regard.models.interfaces import EncoderModel
from regard.nn import AttentionPooling, Linear


class PairMask(NamedTuple):
    """The tokens of the first and of the second text of each pair, without special tokens, and those of all [CLS]."""

    first: Bool[Tensor, "B T"]
    second: Bool[Tensor, "B T"]
    cls: Bool[Tensor, "B T"]


def locate_pair(rows: SegmentedRows, sep_id: int, n_separators: int) -> PairMask:
    """Return the text index of each token of pairs, by the separators before it; RoBERTa has no token types."""
    is_separator, is_text = rows.ids == sep_id, rows.segment > 0
    n_before = is_separator.cumsum(1) - (rows.segment - 1) * (n_separators + 1)
    is_token = is_text & ~is_separator & (rows.position > 0)
    return PairMask(is_token & (n_before == 0), is_token & (n_before == n_separators), is_text & (rows.position == 0))


class SpanHead(nn.Module):
    """A start and an end logit for every token: its products with two vectors (Devlin et al. 2019, 4.2)."""

    def __init__(self, config: EncoderModelConfig) -> None:
        super().__init__()
        self.out = Linear(config.d_model, 2)

    def forward(
        self, hidden: Float[Tensor, "B T D"], rows: SegmentedRows, pair: PairMask, n_texts: int
    ) -> Float[Tensor, "B T 2"]:
        logits: Tensor = self.out(hidden)
        return logits


class QuestionSpanHead(nn.Module):
    """Start and end logits ``h_i (W q + b)`` with the question q pooled by attention (Chen et al. 2017, 3.2)."""

    def __init__(self, config: EncoderModelConfig) -> None:
        super().__init__()
        self.question = AttentionPooling(config.d_model)
        self.out = Linear(config.d_model, 2 * config.d_model)

    def forward(
        self, hidden: Float[Tensor, "B T D"], rows: SegmentedRows, pair: PairMask, n_texts: int
    ) -> Float[Tensor, "B T 2"]:
        mask = make_text_mask(rows, n_texts) & pair.first[:, None]  # (B, S, T)
        vectors = self.out(self.question(hidden, hidden, mask)[:, :, 0])  # (B, S, 2 D)
        text = (rows.segment.long() - 1).clamp(min=0)[..., None]
        by_token = vectors.gather(1, text.expand(-1, -1, vectors.shape[-1])).unflatten(-1, (2, -1))  # (B, T, 2, D)
        logits: Tensor = (by_token * hidden[:, :, None]).sum(-1)
        return logits


SPAN_HEADS = {"none": SpanHead, "attention": QuestionSpanHead}
"""Span heads by the pooling of the question."""


def span_logits(
    model: EncoderModel, hidden: Float[Tensor, "B T D"], rows: SegmentedRows, pair: PairMask, n_texts: int = 1
) -> Float[Tensor, "B T 2"]:
    """Return the start and end logits of a model for question answering; a row holds at most `n_texts` texts."""
    logits: Tensor = model.heads["span"](hidden, rows, pair, n_texts)
    return logits
