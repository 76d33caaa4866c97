"""The learning curve of a run, drawn from its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import MissingExtra
from regard.tasks.task import Goal
from regard.train.run import RunDirectory


def draw_curve(run: RunDirectory, goal: Goal) -> Path:
    """Draw ``curve.png`` in the run directory: training and validation loss, and the goal where it is another."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("the learning curve", "plot") from None
    lines = [json.loads(line) for line in run.log.read_text(encoding="utf-8").splitlines()]
    figure = Figure(figsize=(7, 4), layout="constrained")
    losses = figure.add_subplot(xlabel="step", ylabel="loss (nats)")
    losses.plot(*_series(lines, "loss"), color="#0072B2", linewidth=1, label="training loss")
    losses.plot(*_series(lines, "valid_loss"), color="#D55E00", marker="o", markersize=3, label="validation loss")
    steps, reached = _series(lines, goal.metric)
    if reached and goal.metric not in ("valid_loss", "valid_perplexity"):
        scores = losses.twinx()
        scores.set_ylabel(label := f"validation {goal.label}")
        scores.plot(steps, reached, color="#009E73", linestyle="--", marker="s", markersize=3, label=label)
        if min(reached) >= 0:
            scores.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    losses.set_ylim(bottom=0)
    path = run.path / "curve.png"
    figure.savefig(path, dpi=150)
    return path


def _series(lines: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """The steps at which there was such a number, and the numbers; null stands for one that was not finite."""
    found = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    return [step for step, _ in found], [value for _, value in found]
