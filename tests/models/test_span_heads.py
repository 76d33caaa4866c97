"""Span heads: the two texts of pairs are found in packed rows, and packing changes no logit."""

from __future__ import annotations

import pytest
import torch
from parity import by_text, packed
from torch.testing import assert_close

from regard.models.config import TransformerEncoderConfig
from regard.models.span_heads import SPAN_HEADS, locate_pair
from regard.predict.encoder_inference import inputs_to_rows
from regard.text.special_tokens import SpecialTokenTemplate

BERT = SpecialTokenTemplate(cls_id=2, pair_separator_ids=(3,), sep_id=3, pad_id=0)
ROBERTA = SpecialTokenTemplate(cls_id=0, pair_separator_ids=(2, 2), sep_id=2, pad_id=1)
TEXT_PAIRS = [([7, 8], [9, 10, 11]), ([12], [13]), ([7, 7, 7], []), ([8], [9, 9])]


@pytest.mark.parametrize("template", [BERT, ROBERTA], ids=["BERT", "RoBERTa"])
def test_the_texts_of_pairs_are_found(template: SpecialTokenTemplate) -> None:
    rows = packed([template.wrap(*pair) for pair in TEXT_PAIRS], template.pad_id)
    pair = locate_pair(rows, template.sep_id, len(template.pair_separator_ids))
    for number, (first, second) in enumerate(TEXT_PAIRS):
        ids = by_text(rows, rows.ids)[number]
        assert ids[by_text(rows, pair.first)[number]].tolist() == first
        assert ids[by_text(rows, pair.second)[number]].tolist() == second
        assert ids[by_text(rows, pair.cls)[number]].tolist() == [template.cls_id]
    assert not (pair.first | pair.second | pair.cls)[rows.segment == 0].any()


@pytest.mark.parametrize("pooling", SPAN_HEADS)
def test_packing_changes_no_logit(pooling: str) -> None:
    torch.manual_seed(0)
    head = SPAN_HEADS[pooling](
        TransformerEncoderConfig(preset="tiny", d_model=8, n_layers=1, n_heads=1, d_ff=8, dropout=0.0)
    )
    embedding, inputs = torch.nn.Embedding(16, 8), [BERT.wrap(*pair) for pair in TEXT_PAIRS]
    rows = packed(inputs, BERT.pad_id)
    packed_logits = by_text(rows, head(embedding(rows.ids.long()), rows, locate_pair(rows, BERT.sep_id, 1), 2))
    for one, expected in zip(inputs, packed_logits, strict=True):
        alone = inputs_to_rows([one], BERT.pad_id)
        assert_close(head(embedding(alone.ids.long()), alone, locate_pair(alone, BERT.sep_id, 1), 1)[0], expected)


def test_the_question_decides_where_it_is_pooled() -> None:
    torch.manual_seed(0)
    head = SPAN_HEADS["attention"](
        TransformerEncoderConfig(preset="tiny", d_model=8, n_layers=1, n_heads=1, d_ff=8, dropout=0.0)
    )
    embedding = torch.nn.Embedding(16, 8)
    rows = inputs_to_rows([BERT.wrap([7], [9, 10]), BERT.wrap([8], [9, 10])], BERT.pad_id)
    logits = head(embedding(rows.ids.long()), rows, locate_pair(rows, BERT.sep_id, 1), 1)
    assert not torch.allclose(logits[0, 3:5], logits[1, 3:5])
