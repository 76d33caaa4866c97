"""Recurrence and distance: the majority task, attributions against plain definitions, and verdicts from curves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.compare import distance, majority_task
from regard.compare.compared_models import (
    FINAL_VECTOR_MODELS,
    GRU_ENCODER,
    LSTM_ENCODER,
    LSTM_POOLING,
    TRANSFORMER_ENCODER,
    build_model,
    count_parameters,
)
from regard.compare.distance_claims import judge_claims
from regard.compare.experiment import Finding, Measurements
from regard.compare.majority_task import (
    END,
    MAJORITY,
    FinalVectorClassifier,
    MajorityBatch,
    MajorityTaskSetup,
    sample_majority_batch,
)
from regard.models.architectures import ENCODER_MODELS
from regard.nn import Tap

LENGTH, SYMBOLS = 8, 4
SETUP = MajorityTaskSetup(LENGTH, SYMBOLS, 2, 4, 5, 1e-3, 16, 2)
WEIGHTS = torch.arange(1.0, LENGTH + 1)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Module()
        self.embedding.out = Tap()


class WeightedSum(FinalVectorClassifier):
    """A final vector that is a weighted sum of one-hot embeddings, the end token left out."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.encoder: Any = Encoder()

    def final_vector(self, ids: Tensor) -> Tensor:
        one_hot = nn.functional.one_hot(ids, SYMBOLS + 1).double().requires_grad_()
        embedded = self.encoder.embedding.out(one_hot)
        return torch.einsum("t,btd->bd", WEIGHTS.double(), embedded[:, :-1])

    def forward(self, ids: Tensor) -> Tensor:
        return self.final_vector(ids)[:, 1:]


@pytest.fixture
def batch() -> MajorityBatch:
    return sample_majority_batch(torch.Generator().manual_seed(0), 16, LENGTH, SYMBOLS)


def test_every_position_counts_equally() -> None:
    texts = sample_majority_batch(torch.Generator().manual_seed(0), 20_000, LENGTH, SYMBOLS)
    assert texts.ids.shape == (20_000, LENGTH + 1)
    assert (texts.ids[:, -1] == END).all()
    is_class = (texts.ids[:, :-1] == texts.labels[:, None] + 1).double().mean(0)
    assert is_class.numpy() == pytest.approx(MAJORITY, abs=0.015)
    offsets = (texts.ids[:, :-1] - 1 - texts.labels[:, None]) % SYMBOLS
    fractions = [(offsets == offset).double().mean().item() for offset in range(1, SYMBOLS)]
    assert fractions == pytest.approx([(1 - MAJORITY) / 3] * 3, abs=0.01)


def test_removal_moves_a_weighted_sum_by_its_weights(batch: MajorityBatch) -> None:
    """Another symbol moves a sum of one-hot vectors by sqrt(2) times the weight of its position."""
    model = WeightedSum()
    fractions = majority_task.removal_fractions(model, batch.ids, torch.Generator().manual_seed(1), SYMBOLS)
    assert torch.allclose(fractions, (WEIGHTS / WEIGHTS.sum()).double())


def test_gradient_times_input_is_the_part_of_the_squared_norm(batch: MajorityBatch) -> None:
    model = WeightedSum()
    expected = []
    for ids in batch.ids[:, :-1].tolist():
        weight_of = {symbol: sum(WEIGHTS[t].item() for t, other in enumerate(ids) if other == symbol) for symbol in ids}
        parts = [WEIGHTS[t].item() * weight_of[symbol] for t, symbol in enumerate(ids)]
        expected.append([part / sum(parts) for part in parts])
    fractions = majority_task.gradient_input_fractions(model, batch.ids)
    assert fractions.tolist() == pytest.approx(torch.tensor(expected).mean(0).tolist(), rel=1e-5)


def test_gradient_norms_of_a_weighted_sum_follow_its_weights(batch: MajorityBatch) -> None:
    """The gradient at position t is the weight of t times softmax minus one-hot, computed here text by text."""
    model = WeightedSum()
    error = model(batch.ids).softmax(-1) - nn.functional.one_hot(batch.labels, SYMBOLS)
    expected = WEIGHTS * error.norm(dim=-1).mean().item()
    assert majority_task.gradient_norms(model, batch).tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("name", FINAL_VECTOR_MODELS)
def test_classifiers_read_every_symbol_and_learn(name: str) -> None:
    setup = MajorityTaskSetup(8, 8, 60, 32, 64, 1e-2, 16, 1)
    model = distance._build_classifier(name, distance._model_tables(setup)[name], setup, 0)
    losses = list(majority_task.train_steps(model, setup, 0, torch.device("cpu")))
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    after = distance._measure_distances(model, setup, 0, torch.device("cpu"))
    assert after["accuracy"] > 0.4  # chance is 0.125
    for method in ("removal", "gradient_input"):
        assert sum(after[method]) == pytest.approx(1, abs=1e-6)
    assert min(after["gradient_norm"]) > 0


def test_distances_count_from_the_end() -> None:
    """Recurrence that has learned nothing yet owes most of its last state to the last symbol."""
    setup = MajorityTaskSetup(10, 3, 0, 1, 32, 1e-3, 16, 1)
    model = distance._build_classifier(GRU_ENCODER, distance._model_tables(setup)[GRU_ENCODER], setup, 0)
    before = distance._measure_distances(model, setup, 0, torch.device("cpu"))
    for quantity in ("removal", "gradient_input", "gradient_norm"):
        assert before[quantity][0] > 3 * before[quantity][-1]


def test_all_models_have_about_as_many_parameters() -> None:
    setup = distance.SETUPS["full"]
    counts = [
        count_parameters(build_model(ENCODER_MODELS, table, setup.vocabulary_size))
        for table in distance._model_tables(setup).values()
    ]
    assert max(counts) < 1.1 * min(counts)


def make_measurements(fractions: list[float], gradients: list[float], accuracy: float = 0.9) -> Measurements:
    """Return curves of four tokens: a seed for each fraction of the last token and ratio of first to last gradient."""
    runs = []
    for seed, (last, ratio) in enumerate(zip(fractions, gradients, strict=True)):
        parts = [last, *[(1 - last) / 3] * 3]
        quantities = {"removal": parts, "gradient_input": parts, "gradient_norm": [2.0, 1.0, 1.0, 2.0 * ratio]}
        measured = {"accuracy": accuracy, **quantities}
        runs.append({"seed": seed, "before": measured, "after": measured})
    setup = {**vars(SETUP), "length": 4, "seeds": len(runs)}
    return {**setup, "models": [{"name": name, "parameters": 1, "runs": runs} for name in FINAL_VECTOR_MODELS]}


def verdicts(measurements: Measurements, word: str, model: str) -> list[bool | None]:
    return [each.held for each in judge_claims(measurements) if word in each.claim and f"{model}," in each.claim]


def test_recency_and_vanishing_gradients_support_the_claims() -> None:
    measurements = make_measurements([0.6, 0.65, 0.7], [0.001, 0.002, 0.001])
    for name in (LSTM_ENCODER, GRU_ENCODER):
        assert verdicts(measurements, "last tokens contribute most", name) == [True, True]
        assert verdicts(measurements, "Gradients vanish", name) == [True, True]
    for name in (LSTM_POOLING, TRANSFORMER_ENCODER):
        assert verdicts(measurements, "no position contributes more", name) == [False]
        assert verdicts(measurements, "gradients do not vanish", name) == [False, False]


def test_equal_fractions_and_gradients_refute_the_claims() -> None:
    measurements = make_measurements([0.24, 0.241, 0.24], [1.0, 1.1, 0.9])
    assert verdicts(measurements, "last tokens contribute most", LSTM_ENCODER) == [False, False]
    assert verdicts(measurements, "Gradients vanish", LSTM_ENCODER) == [False, False]
    assert verdicts(measurements, "no position contributes more", TRANSFORMER_ENCODER) == [True]
    assert verdicts(measurements, "gradients do not vanish", TRANSFORMER_ENCODER) == [True, True]


def test_seeds_that_disagree_decide_nothing() -> None:
    findings = judge_claims(make_measurements([0.1, 0.6, 0.3], [0.001, 1.0, 2.0]))
    assert {each.held for each in findings} == {None}


def test_untrained_models_decide_nothing_about_trained_ones() -> None:
    measurements = make_measurements([0.6, 0.65, 0.7], [0.001, 0.002, 0.001], accuracy=0.3)
    after = [each for each in judge_claims(measurements) if "after training" in each.claim]
    assert {each.held for each in after} == {None}
    assert all("too little was learned to tell (accuracy 30%, chance 25%)" in each.evidence for each in after)
    assert verdicts(measurements, "last tokens contribute most", LSTM_ENCODER)[0] is True


def test_evidence_names_interval_and_rule() -> None:
    finding: Finding = judge_claims(make_measurements([0.6, 0.65, 0.7], [0.001, 0.001, 0.001]))[0]
    assert "last 1 of 4 tokens contribute, in %, 65.0 (52.6 to 77.4) by removal" in finding.evidence
    assert "equal fractions would be 25.0" in finding.evidence
    gradient = next(each for each in judge_claims(make_measurements([0.5] * 3, [0.001] * 3)) if "vanish" in each.claim)
    assert "0.001 (0.001 to 0.001) times that at the last, 0.100 per step" in gradient.evidence
