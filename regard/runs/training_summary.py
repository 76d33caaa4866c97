"""Summary of the training of a run, finished, stopped or still running, read from its files.

    train.json      step, tokens, seconds, best score        written with every checkpoint
    metrics.json    the same and more                         written at the end
    log.jsonl       the validations: the learning curve       appended to; train.json has its checksum

Inference reads these as plain JSON, so that it need not import training. `info` prints the summary;
`read_log` and `read_series` are for everything that reads a log.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.disk import RESTORE, damage_error
from regard.errors import CheckpointError
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.task import ValidationMetric

LOG_FIX = f"{RESTORE}, or delete it: nothing else depends on it"
"""The end of a message about a damaged log."""


def summarise_training(run: RunDirectory, run_config: RunConfig, metric: ValidationMetric) -> dict[str, Any]:
    """Return step, best score and learning curve of a run; nothing for a model that was not trained here."""
    progress = run.read_progress()
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
        "curve": _read_curve(run, metric.key),
    }


def _read_curve(run: RunDirectory, key: str) -> dict[str, Any]:
    """Return the steps of the validations and the metric at each of them."""
    steps, values = read_series(read_log(run), key)
    return {"metric": key, "steps": steps, "values": values}


def read_log(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the lines of a run's log; a last line that is being written is left out."""
    progress, path = run.read_progress(), run.log_path
    content = path.read_bytes() if path.exists() else b""
    if content:
        check_log(path, content, progress.get("log_bytes", 0), progress.get("log_crc32"))
    try:
        return [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged ({error}); {LOG_FIX}") from None


def check_log(path: Path, content: bytes, n_bytes: int, expected_crc32: int | None) -> int:
    """Return the CRC-32 of the first bytes of a log, which must be the expected one if there is one."""
    if len(content) < n_bytes:
        raise CheckpointError(f"{path}: shorter than the checkpoint says; {LOG_FIX}")
    crc32 = zlib.crc32(content[:n_bytes])
    if expected_crc32 not in (None, crc32):
        raise damage_error(path, LOG_FIX)
    return crc32


def read_series(lines: Iterable[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Return the steps at which a value was logged, and the values; null stands for one that was not finite."""
    points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    return [step for step, _ in points], [value for _, value in points]
