"""The copying task, and what curves of it show: fed with curves where a claim fails, it must say so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.compare import recall
from regard.compare.compared_models import (
    BASELINE_TRANSFORMER,
    LANGUAGE_MODELS,
    MODEL_ARCHITECTURES,
    RNN_ADDITIVE_ATTENTION,
    RNN_DOT_ATTENTION,
    RNN_MODELS,
    RNN_WITHOUT_ATTENTION,
    TRANSFORMER_LM,
    TRANSFORMER_MODELS,
)
from regard.compare.copy_task import SOS, CopyTaskSetup, CopyTaskTrainer, sample_copy_batch
from regard.compare.experiment import Finding, Measurements
from regard.data.batches import Rows
from regard.models.architectures import CAUSAL_LMS

NAMES = [*RNN_MODELS, *TRANSFORMER_MODELS, *LANGUAGE_MODELS]
SIZE = CopyTaskSetup(6, (1, 3, 6), 9, 2, 4, 50, 1e-3, 16, 1)


class Echo(nn.Module):
    """Writes what it read, at the same place, or where `by` is given that many places off."""

    def __init__(self, by: int = 0) -> None:
        super().__init__()
        self.by = by
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, source: Rows, target_in: Rows) -> Tensor:
        assert target_in.ids[:, 1:].equal(source.ids[:, :-1])
        return nn.functional.one_hot(source.ids.long().roll(self.by, 1), SIZE.vocabulary_size).float()


class Behind(nn.Module):
    """A language model that writes what stands `length` places before."""

    def forward(self, rows: Rows) -> Tensor:
        length = rows.ids.shape[1] // 2
        after = rows.ids.long().roll(length, 1)
        return nn.functional.one_hot(after, SIZE.vocabulary_size).float()


def copier(model: nn.Module, *, joined: bool = False) -> CopyTaskTrainer:
    return CopyTaskTrainer(model, SIZE, 0, torch.device("cpu"), is_decoder_only=joined)


def test_what_is_to_come_out_is_what_was_read() -> None:
    texts = sample_copy_batch(torch.Generator().manual_seed(0), 100, 6, 9)
    assert texts.target_out.equal(texts.source)
    assert texts.target_in[:, 1:].equal(texts.source[:, :-1])
    assert (texts.target_in[:, 0] == SOS).all()
    assert set(texts.source.flatten().tolist()) == set(range(1, 10))


def test_right_tokens_are_counted_at_every_distance() -> None:
    assert copier(Echo()).count_correct() == [50 * 1, 50 * 3, 50 * 6]
    off = copier(Echo(by=1)).count_correct()
    assert off[0] == 50  # of one token, any place is the right one
    assert off[2] < 0.3 * 50 * 6


def test_a_language_model_reads_both_as_one_text() -> None:
    assert copier(Behind(), joined=True).count_correct() == [50, 150, 300]


def test_all_have_about_as_many_parameters() -> None:
    shapes = recall._model_tables(recall.SETUPS["full"])
    assert list(shapes) == NAMES
    counts = [
        recall.count_parameters(recall.build_model(MODEL_ARCHITECTURES[name], shape, 33))
        for name, shape in shapes.items()
    ]
    assert max(counts) < 1.1 * min(counts)


def test_training_is_the_same_for_the_same_seed() -> None:
    shapes = recall._model_tables(SIZE)
    for name in (RNN_WITHOUT_ATTENTION, BASELINE_TRANSFORMER, *LANGUAGE_MODELS):
        losses = []
        for _ in range(2):
            model: Any = recall.build_model(MODEL_ARCHITECTURES[name], shapes[name], SIZE.vocabulary_size)
            recall.initialise_weights(model, torch.Generator().manual_seed(0), model.config.init_std)
            losses.append(list(copier(model, joined=MODEL_ARCHITECTURES[name] is CAUSAL_LMS).train_steps()))
        assert losses[0] == losses[1]


def found(**far: float) -> Measurements:
    """Curves that fall from 1 to what is named at the greatest distance; those that are not named stay at 1."""
    models = []
    for name in NAMES:
        end = far.get(name.replace(" ", "_").replace(",", ""), 1.0)
        accuracy = [1.0, (1 + end) / 2, end]
        right = [round(a * 1000 * d) for a, d in zip(accuracy, (1, 8, 16), strict=True)]
        models.append({"name": name, "shape": {}, "parameters": 50_000, "right": right, "losses": []})
    about = {"longest": 16, "tokens": 16, "steps": 10, "batch": 4, "tested": 1000, "rate": 1e-3}
    return {**about, "distances": [1, 8, 16], "models": models}


def one(findings: list[Finding], *words: str) -> Finding:
    chosen = [each for each in findings if all(word in each.claim for word in words)]
    assert len(chosen) == 1, words
    return chosen[0]


def test_the_textbook_curves_hold_every_claim() -> None:
    findings = recall.judge_claims(found(RNN_one_fixed_vector=0.3, Transformer_none=0.2, recurrent_language_model=0.3))
    assert {each.held for each in findings} == {True}
    assert "30.0%" in one(findings, "One fixed vector holds less").evidence


def test_a_vector_that_holds_everything_refutes_the_claim() -> None:
    findings = recall.judge_claims(found())
    assert one(findings, "One fixed vector holds less").held is False
    assert one(findings, "than one vector holds", RNN_ADDITIVE_ATTENTION).held is None
    assert "100.0% against 100.0% at n = 16; only 5.0% apart would be clear" in (
        one(findings, "than one vector holds", RNN_ADDITIVE_ATTENTION).evidence
    )


def test_attention_that_does_worse_is_said_to() -> None:
    findings = recall.judge_claims(found(RNN_one_fixed_vector=0.6, RNN_dot_attention=0.3))
    assert one(findings, "than one vector holds", RNN_DOT_ATTENTION).held is False
    assert one(findings, "than one vector holds", RNN_ADDITIVE_ATTENTION).held is True


def test_a_transformer_that_loses_is_said_to() -> None:
    findings = recall.judge_claims(found(RNN_one_fixed_vector=0.6, Transformer_sinusoidal=0.4))
    assert one(findings, "at least as much", RNN_WITHOUT_ATTENTION).held is False
    assert one(findings, "at least as much", RNN_ADDITIVE_ATTENTION).held is False
    reaches = one(findings, "sinusoidal positions: any distance")
    assert reaches.held is False
    assert "at worst 40.0%, at n = 16" in reaches.evidence
    assert one(findings, "rotary positions: any distance").held is True


def test_few_texts_cannot_tell() -> None:
    numbers = found(RNN_one_fixed_vector=0.7, RNN_additive_attention=0.8)
    numbers["tested"] = 10
    for each in numbers["models"]:
        each["right"] = [round(n / 100) for n in each["right"]]
    assert one(recall.judge_claims(numbers), "than one vector holds", RNN_ADDITIVE_ATTENTION).held is None


def test_models_at_chance_cannot_tell() -> None:
    numbers = found()
    for each in numbers["models"]:
        each["right"] = [round(n / 16) for n in each["right"]]
    assert {each.held for each in recall.judge_claims(numbers)} == {None}
    assert (
        "too little was learned to tell"
        in one(recall.judge_claims(numbers), "at least as much", RNN_DOT_ATTENTION).evidence
    )
    assert "too little was learned to tell" in one(recall.judge_claims(numbers), "rotary positions").evidence


def test_a_transformer_at_chance_beside_one_that_copies_has_lost() -> None:
    numbers = found()
    for each in numbers["models"]:
        if each["name"] == BASELINE_TRANSFORMER:
            each["right"] = [round(n / 16) for n in each["right"]]
    assert one(recall.judge_claims(numbers), "at least as much", RNN_DOT_ATTENTION).held is False
    assert one(recall.judge_claims(numbers), "sinusoidal positions").held is None


def test_at_least_as_much_is_neither_shown_nor_refuted_by_few_texts() -> None:
    def held(other: float, tested: int) -> bool | None:
        numbers = found(Transformer_sinusoidal=0.80, RNN_dot_attention=other)
        numbers["tested"] = tested
        for each in numbers["models"]:
            each["right"] = [round(n * tested / 1000) for n in each["right"]]
        return one(recall.judge_claims(numbers), "at least as much", RNN_DOT_ATTENTION).held

    assert held(0.83, 100) is True
    assert held(0.90, 100) is None
    assert held(0.90, 2000) is False
    assert held(0.60, 100) is True


def test_nearly_whole_recall_cannot_tell() -> None:
    near = one(recall.judge_claims(found(Transformer_rotary=0.94)), "rotary positions")
    assert near.held is None
    assert "at worst 94.0%, at n = 16" in near.evidence
    assert "only 2.3% below that would be clear" in near.evidence
    assert one(recall.judge_claims(found(Transformer_rotary=0.96)), "rotary positions").held is True
    assert one(recall.judge_claims(found(Transformer_rotary=0.90)), "rotary positions").held is False


def test_more_from_afar_but_less_from_near_cannot_tell() -> None:
    numbers = found(recurrent_language_model=0.3)
    (model,) = [each for each in numbers["models"] if each["name"] == TRANSFORMER_LM]
    assert one(recall.judge_claims(numbers), "as a language model").held is True
    model["right"][1] = 1000
    finding = one(recall.judge_claims(numbers), "as a language model")
    assert finding.held is None
    assert "100.0% against 30.0% at n = 16; clearly less at n = 8" in finding.evidence
