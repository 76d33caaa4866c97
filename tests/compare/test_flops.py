"""The published table as it was published, and what ours says beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.compare import flops
from regard.compare.contenders import FIXED, USUAL
from regard.compare.flops import PUBLISHED, flops_to_reach
from regard.compare.part import Found, Setting

SPEC = """
| ByteNet | 23.75 | | | |
| Deep-Att + PosUnk (ensemble) | | 39.2 (40.4) | | 1.0e20 (8.0e20) |
| GNMT + RL (ensemble) | 24.6 (26.30) | 39.92 (41.16) | 2.3e19 (1.8e20) | 1.4e20 (1.1e21) |
| ConvS2S (ensemble) | 25.16 (26.36) | 40.46 (41.29) | 9.6e18 (7.7e19) | 1.5e20 (1.2e21) |
| MoE | 26.03 | 40.56 | 2.0e19 | 1.2e20 |
| Transformer base | 27.3 | 38.1 | 3.3e18 | |
| Transformer big | 28.4 | 41.8 | 2.3e19 | |
"""
"""SPEC 9.3: EN-DE BLEU, EN-FR BLEU, FLOPs EN-DE, FLOPs EN-FR; of ensembles in brackets."""


def test_every_number_of_the_specification_is_there_and_no_other() -> None:
    wanted: dict[str, list[float | None]] = {}
    for line in SPEC.strip().splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        name, both = name.removesuffix(" (ensemble)"), "ensemble" in name
        wanted[name] = [float(cell.split()[0]) if cell else None for cell in cells]
        if both:
            wanted[f"{name}, ensemble"] = [float(cell.split("(")[1].strip(")")) if cell else None for cell in cells]
    assert {row.name: list(row[1:5]) for row in PUBLISHED} == wanted
    assert all(row.ensemble == ("ensemble" in row.name) for row in PUBLISHED)


def run(name: str, bleu: float, curve: list[float], cost: float = 1e12) -> dict[str, Any]:
    steps = len(curve)
    points = [{"step": step + 1, "bleu": float(value), "valid_loss": 1.0} for step, value in enumerate(curve)]
    about = {"name": name, "parameters": 10, "flops": cost, "steps": steps, "tokens": 9, "seconds": 2.0}
    return {**about, "bleu": float(bleu), "curve": points}


def measured(*models: dict[str, Any]) -> Found:
    return flops.measure(
        Setting(Path()), {"translation": {"origin": "somewhere", "n_test": 1000, "models": list(models)}}
    )


def test_operations_grow_with_the_steps() -> None:
    found = measured(run(USUAL, 40, [10, 20, 40, 41]), run(FIXED, 20, [5, 10, 15, 20]))
    assert [point["flops"] for point in found["models"][0]["curve"]] == [0.25e12, 0.5e12, 0.75e12, 1e12]
    assert flops_to_reach(found["models"][0]["curve"], 20.0) == 0.5e12
    assert flops_to_reach(found["models"][0]["curve"], 99.0) is None


def test_the_published_claim_follows_from_the_published_numbers() -> None:
    found = measured(run(USUAL, 40, [40]), run(FIXED, 20, [20]))
    published = flops.findings(found)[0]
    assert published.held is True
    assert "27.3 BLEU for 3.3e+18" in published.because
    assert "best reached 26.36" in published.because
    found["published"][0]["german"] = 30.0
    assert flops.findings(found)[0].held is False


def test_cheaper_and_better_holds_and_dearer_or_worse_does_not() -> None:
    assert flops.findings(measured(run(USUAL, 40, [30, 40]), run(FIXED, 20, [10, 20])))[1].held is True
    lost = flops.findings(measured(run(USUAL, 20, [10, 20]), run(FIXED, 40, [30, 40])))[1]
    assert lost.held is False
    assert "never reached" in lost.because
    assert flops.findings(measured(run(USUAL, 2, [1, 2]), run(FIXED, 1, [1, 1])))[1].held is None


def test_every_table_says_that_scores_do_not_compare_across() -> None:
    shown = flops.show(measured(run(USUAL, 40, [40]), run(FIXED, 20, [20])))
    ours, published = shown.tables
    assert "not across" in ours.note
    assert "Vaswani" in published.note
    assert len(published.rows) == len(PUBLISHED)
    assert ours.rows[0][3] == "1.00e+12"
