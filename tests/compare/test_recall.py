"""The copy task, and verdicts from accuracy curves."""

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
SIZE = CopyTaskSetup(
    longest=6, distances=(1, 3, 6), tokens=9, steps=2, batch=4, tested=50, rate=1e-3, width=16, layers=1
)


class Echo(nn.Module):
    """Copies the source, shifted by `by` positions."""

    def __init__(self, by: int = 0) -> None:
        super().__init__()
        self.by = by
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, source: Rows, target_in: Rows) -> Tensor:
        assert target_in.ids[:, 1:].equal(source.ids[:, :-1])
        return nn.functional.one_hot(source.ids.long().roll(self.by, 1), SIZE.vocabulary_size).float()


class Behind(nn.Module):
    """A language model that copies the token `length` positions before."""

    def forward(self, rows: Rows) -> Tensor:
        length = rows.ids.shape[1] // 2
        after = rows.ids.long().roll(length, 1)
        return nn.functional.one_hot(after, SIZE.vocabulary_size).float()


def copier(model: nn.Module, *, joined: bool = False) -> CopyTaskTrainer:
    return CopyTaskTrainer(model, SIZE, 0, torch.device("cpu"), is_decoder_only=joined)


def test_target_is_the_source() -> None:
    texts = sample_copy_batch(torch.Generator().manual_seed(0), 100, 6, 9)
    assert texts.target_out.equal(texts.source)
    assert texts.target_in[:, 1:].equal(texts.source[:, :-1])
    assert (texts.target_in[:, 0] == SOS).all()
    assert set(texts.source.flatten().tolist()) == set(range(1, 10))


def test_correct_tokens_are_counted_at_every_distance() -> None:
    assert copier(Echo()).count_correct() == [50 * 1, 50 * 3, 50 * 6]
    off = copier(Echo(by=1)).count_correct()
    assert off[0] == 50  # of one token, any position is correct
    assert off[2] < 0.3 * 50 * 6


def test_language_model_reads_source_and_target_concatenated() -> None:
    assert copier(Behind(), joined=True).count_correct() == [50, 150, 300]


def test_all_models_have_about_as_many_parameters() -> None:
    shapes = recall._model_tables(recall.SETUPS["full"])
    assert list(shapes) == NAMES
    counts = [
        recall.count_parameters(recall.build_model(MODEL_ARCHITECTURES[name], shape, 33))
        for name, shape in shapes.items()
    ]
    assert max(counts) < 1.1 * min(counts)


def test_training_is_deterministic_for_a_seed() -> None:
    shapes = recall._model_tables(SIZE)
    for name in (RNN_WITHOUT_ATTENTION, BASELINE_TRANSFORMER, *LANGUAGE_MODELS):
        losses = []
        for _ in range(2):
            model: Any = recall.build_model(MODEL_ARCHITECTURES[name], shapes[name], SIZE.vocabulary_size)
            recall.initialise_weights(model, torch.Generator().manual_seed(0), model.config.init_std)
            losses.append(list(copier(model, joined=MODEL_ARCHITECTURES[name] is CAUSAL_LMS).train_steps()))
        assert losses[0] == losses[1]


def make_measurements(**far: float) -> Measurements:
    """Return curves that fall from 1 to a given accuracy at the greatest distance; others stay at 1."""
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


def test_expected_curves_support_every_claim() -> None:
    findings = recall.judge_claims(
        make_measurements(RNN_one_fixed_vector=0.3, Transformer_none=0.2, recurrent_language_model=0.3)
    )
    assert {each.held for each in findings} == {True}
    assert "30.0%" in one(findings, "One fixed vector holds less").evidence


def test_fixed_vector_with_full_recall_refutes_the_claim() -> None:
    findings = recall.judge_claims(make_measurements())
    assert one(findings, "One fixed vector holds less").held is False
    assert one(findings, "than one vector holds", RNN_ADDITIVE_ATTENTION).held is None
    assert "100.0% against 100.0% at n = 16; only 5.0% apart would be clear" in (
        one(findings, "than one vector holds", RNN_ADDITIVE_ATTENTION).evidence
    )


def test_attention_with_lower_recall_refutes_the_claim() -> None:
    findings = recall.judge_claims(make_measurements(RNN_one_fixed_vector=0.6, RNN_dot_attention=0.3))
    assert one(findings, "than one vector holds", RNN_DOT_ATTENTION).held is False
    assert one(findings, "than one vector holds", RNN_ADDITIVE_ATTENTION).held is True


def test_transformer_with_lower_recall_refutes_the_claim() -> None:
    findings = recall.judge_claims(make_measurements(RNN_one_fixed_vector=0.6, Transformer_sinusoidal=0.4))
    assert one(findings, "at least as much", RNN_WITHOUT_ATTENTION).held is False
    assert one(findings, "at least as much", RNN_ADDITIVE_ATTENTION).held is False
    reaches = one(findings, "sinusoidal positions: any distance")
    assert reaches.held is False
    assert "at worst 40.0%, at n = 16" in reaches.evidence
    assert one(findings, "rotary positions: any distance").held is True


def test_few_sequences_are_undecided() -> None:
    numbers = make_measurements(RNN_one_fixed_vector=0.7, RNN_additive_attention=0.8)
    numbers["tested"] = 10
    for each in numbers["models"]:
        each["right"] = [round(n / 100) for n in each["right"]]
    assert one(recall.judge_claims(numbers), "than one vector holds", RNN_ADDITIVE_ATTENTION).held is None


def test_models_at_chance_are_undecided() -> None:
    numbers = make_measurements()
    for each in numbers["models"]:
        each["right"] = [round(n / 16) for n in each["right"]]
    assert {each.held for each in recall.judge_claims(numbers)} == {None}
    assert (
        "too little was learned to tell"
        in one(recall.judge_claims(numbers), "at least as much", RNN_DOT_ATTENTION).evidence
    )
    assert "too little was learned to tell" in one(recall.judge_claims(numbers), "rotary positions").evidence


def test_transformer_at_chance_beside_a_copying_model_refutes_the_claim() -> None:
    numbers = make_measurements()
    for each in numbers["models"]:
        if each["name"] == BASELINE_TRANSFORMER:
            each["right"] = [round(n / 16) for n in each["right"]]
    assert one(recall.judge_claims(numbers), "at least as much", RNN_DOT_ATTENTION).held is False
    assert one(recall.judge_claims(numbers), "sinusoidal positions").held is None


def test_ties_on_few_sequences_are_undecided() -> None:
    def held(other: float, tested: int) -> bool | None:
        numbers = make_measurements(Transformer_sinusoidal=0.80, RNN_dot_attention=other)
        numbers["tested"] = tested
        for each in numbers["models"]:
            each["right"] = [round(n * tested / 1000) for n in each["right"]]
        return one(recall.judge_claims(numbers), "at least as much", RNN_DOT_ATTENTION).held

    assert held(0.83, 100) is True
    assert held(0.90, 100) is None
    assert held(0.90, 2000) is False
    assert held(0.60, 100) is True


def test_nearly_full_recall_is_undecided() -> None:
    near = one(recall.judge_claims(make_measurements(Transformer_rotary=0.94)), "rotary positions")
    assert near.held is None
    assert "at worst 94.0%, at n = 16" in near.evidence
    assert "only 2.3% below that would be clear" in near.evidence
    assert one(recall.judge_claims(make_measurements(Transformer_rotary=0.96)), "rotary positions").held is True
    assert one(recall.judge_claims(make_measurements(Transformer_rotary=0.90)), "rotary positions").held is False


def test_better_far_but_worse_near_is_undecided() -> None:
    numbers = make_measurements(recurrent_language_model=0.3)
    (model,) = [each for each in numbers["models"] if each["name"] == TRANSFORMER_LM]
    assert one(recall.judge_claims(numbers), "as a language model").held is True
    model["right"][1] = 1000
    finding = one(recall.judge_claims(numbers), "as a language model")
    assert finding.held is None
    assert "100.0% against 30.0% at n = 16; clearly less at n = 8" in finding.evidence
