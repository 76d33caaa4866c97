"""The published table, and verdicts on training cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.compare import flops
from regard.compare.compared_models import BASELINE_TRANSFORMER, RNN_WITHOUT_ATTENTION
from regard.compare.experiment import ComparisonSettings, Finding, Measurements
from regard.compare.flops import PUBLISHED_RESULTS, flops_to_reach

PUBLISHED = """
| ByteNet | 23.75 | | | |
| Deep-Att + PosUnk (ensemble) | | 39.2 (40.4) | | 1.0e20 (8.0e20) |
| GNMT + RL (ensemble) | 24.6 (26.30) | 39.92 (41.16) | 2.3e19 (1.8e20) | 1.4e20 (1.1e21) |
| ConvS2S (ensemble) | 25.16 (26.36) | 40.46 (41.29) | 9.6e18 (7.7e19) | 1.5e20 (1.2e21) |
| MoE | 26.03 | 40.56 | 2.0e19 | 1.2e20 |
| Transformer base | 27.3 | 38.1 | 3.3e18 | |
| Transformer big | 28.4 | 41.8 | 2.3e19 | |
"""
"""Vaswani et al. 2017, table 2: EN-DE BLEU, EN-FR BLEU, FLOPs EN-DE, FLOPs EN-FR; of ensembles in brackets."""


def test_published_numbers_are_complete() -> None:
    expected: dict[str, list[float | None]] = {}
    for line in PUBLISHED.strip().splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        name, both = name.removesuffix(" (ensemble)"), "ensemble" in name
        expected[name] = [float(cell.split()[0]) if cell else None for cell in cells]
        if both:
            expected[f"{name}, ensemble"] = [float(cell.split("(")[1].strip(")")) if cell else None for cell in cells]
    assert {row.name: list(row[1:5]) for row in PUBLISHED_RESULTS} == expected
    assert all(row.ensemble == ("ensemble" in row.name) for row in PUBLISHED_RESULTS)


def run(name: str, bleu: float, curve: list[float], cost: float = 1e12) -> dict[str, Any]:
    """Return a model with a final BLEU and a curve of validations."""
    steps = len(curve)
    points = [{"step": step + 1, "bleu": float(value), "valid_loss": 1.0} for step, value in enumerate(curve)]
    about = {"name": name, "parameters": 10, "flops": cost, "steps": steps, "tokens": 9, "seconds": 2.0}
    return {**about, "bleu": float(bleu), "curve": points}


def measured(*models: dict[str, Any]) -> Measurements:
    return flops.measure(
        ComparisonSettings(Path()),
        {"translation": {"origin": "somewhere", "n_valid": 400, "n_test": 1000, "models": list(models)}},
    )


def test_operations_are_proportional_to_steps() -> None:
    measurements = measured(
        run(BASELINE_TRANSFORMER, 40, [10, 20, 40, 41]), run(RNN_WITHOUT_ATTENTION, 20, [5, 10, 15, 20])
    )
    assert [point["flops"] for point in measurements["models"][0]["curve"]] == [0.25e12, 0.5e12, 0.75e12, 1e12]
    assert flops_to_reach(measurements["models"][0]["curve"], 20.0) == 0.5e12
    assert flops_to_reach(measurements["models"][0]["curve"], 99.0) is None


def test_published_claim_follows_from_published_numbers() -> None:
    measurements = measured(run(BASELINE_TRANSFORMER, 40, [40]), run(RNN_WITHOUT_ATTENTION, 20, [20]))
    published = flops.judge_claims(measurements)[0]
    assert published.held is True
    assert "27.3 BLEU for 3.3e+18" in published.evidence
    assert "best reached 26.36" in published.evidence
    measurements["published"][0]["german"] = 30.0
    assert flops.judge_claims(measurements)[0].held is False


def ours(baseline: dict[str, Any], other: dict[str, Any]) -> Finding:
    return flops.judge_claims(measured(baseline, other))[1]


def test_same_bleu_for_fewer_operations_supports_the_claim() -> None:
    finding = ours(run(BASELINE_TRANSFORMER, 40, [30, 40]), run(RNN_WITHOUT_ATTENTION, 20, [10, 20]))
    assert finding.held is True
    assert (
        "best after 1.0e+12 operations, with BLEU 20.0; the Transformer had 40.0 by then and reached that after 5.0e+11"
        in finding.evidence
    )


def test_operations_are_counted_up_to_the_best_validation() -> None:
    """Both train for as many operations; the other reaches its best after a fifth of them."""
    dearer = ours(
        run(BASELINE_TRANSFORMER, 50, [10, 20, 30, 50, 50]), run(RNN_WITHOUT_ATTENTION, 50, [50, 50, 50, 50, 50])
    )
    assert dearer.held is False
    assert (
        "best after 2.0e+11 operations, with BLEU 50.0; the Transformer had 10.0 by then and reached that after 8.0e+11"
        in dearer.evidence
    )
    assert (
        ours(run(BASELINE_TRANSFORMER, 50, [50] * 5), run(RNN_WITHOUT_ATTENTION, 50, [10, 20, 30, 40, 50])).held is True
    )


def test_never_reaching_the_bleu_refutes_the_claim() -> None:
    lost = ours(run(BASELINE_TRANSFORMER, 20, [10, 20]), run(RNN_WITHOUT_ATTENTION, 40, [30, 40]))
    assert lost.held is False
    assert "had 20.0 by then and never reached that" in lost.evidence


def test_nearly_the_same_bleu_is_undecided() -> None:
    """60 / sqrt(400) = 3 would be significant."""
    near = ours(run(BASELINE_TRANSFORMER, 40, [30, 39]), run(RNN_WITHOUT_ATTENTION, 40, [30, 40]))
    assert near.held is None
    assert "only 3.0 apart would be clear" in near.evidence
    assert (
        ours(run(BASELINE_TRANSFORMER, 40, [30, 40]), run(RNN_WITHOUT_ATTENTION, 40, [30, 40])).held is None
    )  # as far, for as many
    assert (
        ours(run(BASELINE_TRANSFORMER, 30, [41, 42]), run(RNN_WITHOUT_ATTENTION, 40, [30, 40])).held is None
    )  # but clearly worse in the test


def test_very_low_bleu_is_undecided() -> None:
    poor = ours(run(BASELINE_TRANSFORMER, 40, [30, 40]), run(RNN_WITHOUT_ATTENTION, 1, [1, 1]))
    assert poor.held is None
    assert "too little was learned to tell" in poor.evidence


def test_summary_says_that_scores_are_not_comparable_across_data() -> None:
    shown = flops.summarise(measured(run(BASELINE_TRANSFORMER, 40, [40]), run(RNN_WITHOUT_ATTENTION, 20, [20])))
    ours, published = shown.tables
    assert "not across" in ours.note
    assert "Vaswani" in published.note
    assert len(published.rows) == len(PUBLISHED_RESULTS)
    assert ours.rows[0][3] == "1.00e+12"
