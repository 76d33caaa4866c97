"""Summary of the training of a run, finished, stopped or still running, read from its files.

    train.json      step, tokens, seconds, best score        written with every checkpoint
    metrics.json    the same and more                         written at the end
    log.jsonl       the validations: the learning curve

Inference reads these as plain JSON, so that it need not import training. `info` prints the summary;
`read_log` and `read_series` are for everything that reads a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.disk import read_json_if_exists
from regard.errors import CheckpointError
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.task import ValidationMetric


def summarise_training(run: RunDirectory, run_config: RunConfig, metric: ValidationMetric) -> dict[str, Any]:
    """Return step, best score and learning curve of a run; nothing for a model that was not trained here."""
    progress = read_json_if_exists(run.progress_path)
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
    steps, values = read_series(read_log(log_path), key)
    return {"metric": key, "steps": steps, "values": values}


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; a last line that is being written is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    try:
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged ({error}); delete it, or restore it from a copy") from None


def read_series(lines: Iterable[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Return the steps at which a value was logged, and the values; null stands for one that was not finite."""
    points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    return [step for step, _ in points], [value for _, value in points]
