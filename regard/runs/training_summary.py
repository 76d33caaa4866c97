"""Summary of the training of a run, finished, stopped or still running, read from its files.

    train.json      step, tokens, seconds, best score        written with every checkpoint
    metrics.json    the same and more                         written at the end
    log.jsonl       the validations: the learning curve

Inference reads these as plain JSON, so that it need not import training. Called by `info`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory, damaged_error, read_json
from regard.tasks.task import ValidationMetric


def summarise_training(run: RunDirectory, run_config: RunConfig, metric: ValidationMetric) -> dict[str, Any]:
    """Return step, best score and learning curve of a run; nothing for a model that was not trained here."""
    progress = read_json(run.progress_path)
    if not progress:
        return run.read_metrics()
    best = {metric.key: progress["best"], "step": progress["best_step"], "averaged": progress["averaged"]}
    counts = {"steps": progress["step"], "tokens": progress["tokens"], "seconds": round(progress["seconds"], 1)}
    return {
        "finished": progress["finished"],
        "planned_steps": run_config.train.steps,
        "best": best if progress["best_step"] else {},
        **counts,
        **(run.read_metrics() if progress["finished"] else {}),
        "curve": _read_curve(run.log_path, metric.key),
    }


def _read_curve(log_path: Path, key: str) -> dict[str, Any]:
    """Return the steps of the validations and the metric at each of them."""
    lines = _read_log(log_path)
    points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    return {"metric": key, "steps": [step for step, _ in points], "values": [value for _, value in points]}


def _read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; a last line that is being written is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    try:
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except ValueError as error:
        raise damaged_error(path, error) from None
