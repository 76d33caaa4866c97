"""The learning curve of a run, drawn from its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import MissingExtra
from regard.tasks.task import Goal
from regard.train.run import RunDirectory

COLOURS = ("#009E73", "#CC79A7", "#56B4E9")


def draw_curve(run: RunDirectory, goal: Goal) -> Path:
    """Draw ``curve.png`` in the run directory: training and validation loss, and what else validation tells."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("the learning curve", "plot") from None
    lines = [json.loads(line) for line in run.log.read_text(encoding="utf-8").splitlines()]
    likelihood = any("valid_perplexity" in line for line in lines)
    figure = Figure(figsize=(7, 4), layout="constrained")
    losses = figure.add_subplot(xlabel="step", ylabel="loss (nats)" if likelihood else "loss")
    losses.plot(*_series(lines, "loss"), color="#0072B2", linewidth=1, label="training loss")
    losses.plot(*_series(lines, "valid_loss"), color="#D55E00", marker="o", markersize=3, label="validation loss")
    if told := _told(lines, goal):
        scores = losses.twinx()
        scores.set_ylabel(f"validation {goal.label}" if goal.metric in told else "share")
        for colour, (metric, label) in zip(COLOURS, told.items(), strict=False):
            steps, reached = _series(lines, metric)
            scores.plot(steps, reached, color=colour, linestyle="--", marker="s", markersize=3, label=label)
        if min(value for metric in told for value in _series(lines, metric)[1]) >= 0:
            scores.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    losses.set_ylim(bottom=0)
    path = run.path / "curve.png"
    figure.savefig(path, dpi=150)
    return path


def _told(lines: list[dict[str, Any]], goal: Goal) -> dict[str, str]:
    """The goal and what it is called; where that is the loss, all accuracies that validation measured."""
    if goal.metric not in ("valid_loss", "valid_perplexity"):
        return {goal.metric: f"validation {goal.label}"} if _series(lines, goal.metric)[0] else {}
    measured = {key: key.replace("_", " ") for line in lines for key in line if key.endswith("accuracy")}
    return {key: label for key, label in measured.items() if _series(lines, key)[0]}


def _series(lines: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """The steps at which there was such a number, and the numbers; null stands for one that was not finite."""
    found = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    return [step for step, _ in found], [value for _, value in found]
