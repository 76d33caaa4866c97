"""The log of a run, also of one that is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import CheckpointError
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import read_log, read_series


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run, path = RunDirectory(tmp_path), tmp_path / "log.jsonl"
    assert read_log(run) == []
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": null}\n{"step": 3, "loss": 1.5}\n{"step": 4, "lo')
    lines = read_log(run)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert read_series(lines, "loss") == ([1, 3], [2.5, 1.5])
    assert read_series(lines, "bleu") == ([], [])


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1\n{"step": 2}\n')
    with pytest.raises(CheckpointError, match=r"log\.jsonl: damaged \(.*\); restore it from a copy, or delete it: "):
        read_log(RunDirectory(tmp_path))
