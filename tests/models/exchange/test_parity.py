"""Parity with `transformers`: every family, several sizes, both precisions, packed rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from parity import gap, in_double, language_gap, sentences
from theirs import CASES, SIZE, Case, save

from regard.models import exchange
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.runs.model_loading import open_model

SINGLE, DOUBLE = 1e-4, 1e-9

LANGUAGE = [case for case in CASES if case.family == "GPT-2"]
OTHERS = [case for case in CASES if case.family != "GPT-2"]


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_outputs_equal_transformers(case: Case, tmp_path: Path) -> None:
    theirs = save(case, tmp_path)
    _, task, ours = open_model(tmp_path)
    assert max(gap(ours, theirs, task)) <= SINGLE
    assert max(gap(ours.double(), in_double(theirs), task)) <= DOUBLE


@pytest.mark.parametrize("case", LANGUAGE, ids=lambda case: case.name)
def test_language_model_outputs_equal_transformers(case: Case, tmp_path: Path) -> None:
    theirs = save(case, tmp_path)
    checkpoint = exchange.read_hf_directory(tmp_path)
    assert isinstance(checkpoint.config, TransformerLMConfig)
    ours = TransformerLM(checkpoint.config, len(checkpoint.tokenizers.source)).eval()
    checkpoint.load_into(ours)
    ids = sentences(SIZE, checkpoint.tokenizers.source.special_ids, (7, 1, 12, 4))
    assert max(language_gap(ours, theirs, ids)) <= SINGLE
    assert max(language_gap(ours.double(), theirs.double(), ids)) <= DOUBLE


def test_every_weight_changes_the_output(tmp_path: Path) -> None:
    """A change of any weight changes the outputs, so the comparison would notice it."""
    theirs = save(CASES[2], tmp_path)
    _, task, ours = open_model(tmp_path)
    for name, weight in theirs.named_parameters():
        with torch.no_grad():
            original = weight.clone()
            weight.add_(torch.randn_like(weight), alpha=0.1)
            difference = max(gap(ours, theirs, task))
            weight.copy_(original)
        is_free = name.endswith("key.bias")  # adds a constant to all scores of a query
        assert (difference > SINGLE) != is_free, name
