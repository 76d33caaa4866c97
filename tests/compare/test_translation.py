"""Buckets of sentences by length, and verdicts from scores by bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.compare import translation
from regard.compare.compared_models import BASELINE_TRANSFORMER, RNN_ADDITIVE_ATTENTION, RNN_WITHOUT_ATTENTION
from regard.compare.experiment import Measurements
from regard.compare.translation import N_BUCKETS, bucket_edges, score_buckets


def test_buckets_partition_lengths_into_about_equal_sizes() -> None:
    edges = bucket_edges(list(range(1, 101)), 5)
    assert edges == [1, 21, 41, 61, 81]
    sources = [" ".join(["word"] * n) for n in range(1, 101)]
    buckets = score_buckets(sources, sources, sources, edges)
    assert [each["n"] for each in buckets] == [20] * 5
    assert [(each["from"], each["to"]) for each in buckets] == [(1, 20), (21, 40), (41, 60), (61, 80), (81, 100)]


def test_equal_lengths_are_in_one_bucket() -> None:
    assert bucket_edges([3] * 50, N_BUCKETS) == [3]
    assert bucket_edges([3] * 90 + [7] * 10, N_BUCKETS) == [3]
    (only,) = score_buckets(["a b c", "d e"], ["a b c", "d e"], ["a b c", "d e"], [2])
    assert (only["n"], only["from"], only["to"]) == (2, 2, 3)


def test_bucket_scores_its_own_sentences() -> None:
    short, long = "one two three four", "one two three four five six seven eight"
    buckets = score_buckets([short, long], [short, "nothing of it at all is right here"], [short, long], [4, 8])
    assert [each["exact"] for each in buckets] == [1.0, 0.0]
    assert buckets[0]["bleu"] == pytest.approx(100)
    assert buckets[1]["bleu"] < 20


def model(name: str, *bleu: float) -> dict[str, Any]:
    buckets = [
        {"from": n, "to": n + 4, "n": 500, "bleu": b, "exact": b / 100} for n, b in zip((1, 5, 10), bleu, strict=True)
    ]
    about = {"name": name, "parameters": 1000, "flops": 1e9, "steps": 10, "tokens": 1, "seconds": 1.0, "curve": []}
    return {**about, "bleu": sum(bleu) / 3, "chrf": 0.0, "exact": 0.5, "signature": "s", "buckets": buckets}


def verdicts(fixed: tuple[float, ...], additive: tuple[float, ...], baseline: tuple[float, ...]) -> list[bool | None]:
    models = [
        model(BASELINE_TRANSFORMER, *baseline),
        model(RNN_WITHOUT_ATTENTION, *fixed),
        model(RNN_ADDITIVE_ATTENTION, *additive),
    ]
    measurements: Measurements = {"models": models}
    return [finding.held for finding in translation.judge_claims(measurements)]


def test_expected_scores_support_every_claim() -> None:
    assert verdicts((30, 15, 5), (35, 33, 30), (45, 44, 43)) == [True, True, True, True]


def test_opposite_scores_refute_every_claim() -> None:
    assert verdicts((30, 35, 40), (40, 41, 42), (10, 10, 10)) == [False, False, False, False]


def test_differences_within_noise_are_undecided() -> None:
    """60 / sqrt(500) = 2.7 would be significant."""
    assert verdicts((30, 30, 32), (30, 30, 32), (30, 30, 32)) == [None, None, None, None]
    assert verdicts((32, 30, 30), (33, 30, 31), (33, 30, 31)) == [None, None, None, None]


def test_difference_of_gains_must_be_significant() -> None:
    assert verdicts((30, 20, 15), (33, 23, 18.1), (40, 40, 40))[1] is None
    assert verdicts((30, 20, 15), (33, 23, 20.8), (40, 40, 40))[1] is True
    assert verdicts((30, 20, 15), (35.8, 23, 18), (40, 40, 40))[1] is False


def test_one_bucket_is_undecided() -> None:
    models = [
        model(BASELINE_TRANSFORMER, 40, 40, 40),
        model(RNN_WITHOUT_ATTENTION, 20, 20, 20),
        model(RNN_ADDITIVE_ATTENTION, 30, 30, 30),
    ]
    for each in models:
        each["buckets"] = each["buckets"][:1]
    falls, longest, *above = translation.judge_claims({"models": models})
    assert [falls.held, longest.held, *(each.held for each in above)] == [None, None, True, True]
    assert "all sentences are about as long" in falls.evidence
    assert "all sentences are about as long" in longest.evidence


def test_shrinking_gain_refutes_the_claim() -> None:
    assert verdicts((30, 20, 15), (60, 40, 20), (60, 40, 20))[1] is False
    assert verdicts((10, 5, 5), (60, 40, 20), (60, 40, 20))[1] is None  # where one learned nothing, there is no gain


def test_undertrained_models_are_undecided() -> None:
    models = [
        model(BASELINE_TRANSFORMER, 3, 1, 0),
        model(RNN_WITHOUT_ATTENTION, 1, 1, 0),
        model(RNN_ADDITIVE_ATTENTION, 2, 1, 1),
    ]
    findings = translation.judge_claims({"models": models})
    assert {finding.held for finding in findings} == {None}
    assert all("too little was learned to tell" in finding.evidence for finding in findings)


def test_close_scores_are_undecided() -> None:
    assert verdicts((30, 15, 5), (40, 40, 40), (41, 40, 40))[3] is None


def test_few_sentences_need_a_larger_difference() -> None:
    assert translation.min_significant_difference(10_000) == translation.MIN_BLEU_DIFFERENCE
    assert translation.min_significant_difference(100) == pytest.approx(6)
    assert translation.min_significant_difference(10_000, 1.0) == 1.0


def test_word_ranges_name_both_ends() -> None:
    measurements: Measurements = {
        "models": [
            model(name, 30, 15, 5) for name in (BASELINE_TRANSFORMER, RNN_WITHOUT_ATTENTION, RNN_ADDITIVE_ATTENTION)
        ]
    }
    evidence = translation.judge_claims(measurements)[0].evidence
    assert "BLEU 30.0 with 1 to 5 words, 5.0 with 10 to 14 words" in evidence
    near = translation.judge_claims(measurements)[2].evidence
    assert near.endswith("BLEU 16.7 against 16.7, with 10 to 14 words 5.0 against 5.0; only 2.0 apart would be clear.")


def test_both_charts_begin_at_zero_and_end_at_their_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    saved: list[Any] = []
    monkeypatch.setattr(figure, "savefig", lambda self, path, **_: (saved.append(self), path.write_bytes(b"")))
    models = [model(BASELINE_TRANSFORMER, 40, 38, 36), model(RNN_WITHOUT_ATTENTION, 30, 29, 28)]
    for each in models:
        for bucket in each["buckets"]:
            bucket["exact"] /= 10
    translation.plot({"models": models}, tmp_path / "by-length.png")
    (bleu_low, bleu_high), (exact_low, exact_high) = (axes.get_ylim() for axes in saved[0].axes)
    assert bleu_low == exact_low == 0.0
    assert 40 < bleu_high < 45
    assert 4 < exact_high < 4.5
