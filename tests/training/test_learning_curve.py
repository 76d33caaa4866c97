"""The learning curve, drawn from the log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.errors import MissingExtra
from regard.runs.run_directory import RunDirectory
from regard.tasks.task import ValidationMetric
from regard.training.learning_curve import draw_learning_curve

BLEU = ValidationMetric("bleu", "BLEU", higher_is_better=True)

LOG = [
    {"step": 1, "loss": 5.0, "learning_rate": 0.1},
    {"step": 2, "loss": 4.0, "learning_rate": 0.1},
    {"step": 2, "valid_loss": 4.5, "valid_perplexity": 90.0, "bleu": 3.0, "exact": 0.1},
    {"step": 4, "valid_loss": 3.5, "valid_perplexity": 33.1, "bleu": 9.0, "exact": 0.5},
]

PERPLEXITY = ValidationMetric("valid_perplexity", "perplexity", higher_is_better=False)


NULLS = [{"step": 3, "loss": None}, {"step": 4, "valid_loss": None, "bleu": None}]


@pytest.mark.parametrize(
    "lines",
    [LOG, LOG[:2], LOG[2:], [], [*LOG, *NULLS], NULLS],
    ids=["all", "no validation", "no loss", "nothing", "some null", "all null"],
)
def test_learning_curve_is_drawn(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = draw_learning_curve(RunDirectory(tmp_path), BLEU)
    assert path == tmp_path / "curve.png"
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 5000


def draw_axes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, goal: ValidationMetric, lines: list[dict[str, Any]]
) -> list[Any]:
    """Return the axes of the figure of a log."""
    figures = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: figures.append(self))
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_learning_curve(RunDirectory(folder), goal)
    axes: list[Any] = figures[0].axes
    return axes


@pytest.mark.parametrize(
    ("goal", "labels"),
    [
        (BLEU, ["loss (nats)", "validation BLEU"]),
        (
            ValidationMetric("exact", "exact matches", higher_is_better=True),
            ["loss (nats)", "validation exact matches"],
        ),
        (PERPLEXITY, ["loss (nats)"]),
    ],
    ids=lambda value: getattr(value, "metric", ""),
)
def test_validation_metric_has_its_own_axis_from_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goal: ValidationMetric, labels: list[str]
) -> None:
    axes = draw_axes(tmp_path, monkeypatch, goal, LOG)
    assert [each.get_ylabel() for each in axes] == labels
    for each in axes:
        top = max(max(line.get_ydata()) for line in each.lines)
        assert each.get_ylim() == pytest.approx((0, top), abs=0.2 * top)
        assert each.get_ylim()[0] == 0


def test_accuracies_are_drawn_if_the_metric_is_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*LOG, {"step": 5, "valid_loss": 3.0, "masked_accuracy": 0.3, "next_accuracy": 0.8}]
    _, fractions = draw_axes(tmp_path, monkeypatch, PERPLEXITY, lines)
    assert fractions.get_ylabel() == "fraction"
    assert {line.get_label(): list(line.get_ydata()) for line in fractions.lines} == {
        "masked accuracy": [0.3],
        "next accuracy": [0.8],
    }


def test_loss_other_than_nll_has_no_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spearman = ValidationMetric("spearman", "Spearman correlation", higher_is_better=True)
    losses, _ = draw_axes(tmp_path, monkeypatch, spearman, [{"step": 1, "valid_loss": 0.9, "spearman": -0.1}])
    assert losses.get_ylabel() == "loss"


def test_missing_matplotlib_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'plot'; run: pip install 'regard\[plot\]'$"):
        draw_learning_curve(RunDirectory(tmp_path), BLEU)
