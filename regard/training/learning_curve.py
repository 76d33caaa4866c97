"""The learning curve of a run, drawn from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import MissingExtra
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import read_log, read_series
from regard.tasks.task import ValidationMetric

SCORE_COLOURS = ("#009E73", "#CC79A7", "#56B4E9")


def draw_learning_curve(run: RunDirectory, validation_metric: ValidationMetric) -> Path:
    """Draw ``curve.png`` in the run directory: training loss, validation loss and validation metrics."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("the learning curve", "plot") from None
    lines = read_log(run)
    is_likelihood = any("valid_perplexity" in line for line in lines)
    figure = Figure(figsize=(7, 4), layout="constrained")
    losses = figure.add_subplot(xlabel="step", ylabel="loss (nats)" if is_likelihood else "loss")
    losses.plot(*read_series(lines, "loss"), color="#0072B2", linewidth=1, label="training loss")
    losses.plot(*read_series(lines, "valid_loss"), color="#D55E00", marker="o", markersize=3, label="validation loss")
    if labels := _score_labels(lines, validation_metric):
        scores = losses.twinx()
        scores.set_ylabel(f"validation {validation_metric.title}" if validation_metric.key in labels else "fraction")
        for colour, (metric, label) in zip(SCORE_COLOURS, labels.items(), strict=False):
            steps, values = read_series(lines, metric)
            scores.plot(steps, values, color=colour, linestyle="--", marker="s", markersize=3, label=label)
        if min(value for metric in labels for value in read_series(lines, metric)[1]) >= 0:
            scores.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    losses.set_ylim(bottom=0)
    path = run.path / "curve.png"
    figure.savefig(path, dpi=150)
    return path


def _score_labels(lines: list[dict[str, Any]], validation_metric: ValidationMetric) -> dict[str, str]:
    """Return the metric to draw and its label; if it is the loss, all accuracies that validation measured."""
    if validation_metric.key not in ("valid_loss", "valid_perplexity"):
        has_values = bool(read_series(lines, validation_metric.key)[0])
        return {validation_metric.key: f"validation {validation_metric.title}"} if has_values else {}
    measured = {key: key.replace("_", " ") for line in lines for key in line if key.endswith("accuracy")}
    return {key: label for key, label in measured.items() if read_series(lines, key)[0]}
