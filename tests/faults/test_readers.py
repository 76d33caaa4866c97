"""Damaged and hostile files of every format: each is read, or refused in one line; readers.py has the long form."""

from __future__ import annotations

from pathlib import Path

import pytest
from readers import FILE_KINDS, FileKind, run


@pytest.mark.parametrize("kind", FILE_KINDS, ids=lambda kind: kind.name)
def test_undamaged_files_are_read(kind: FileKind, tmp_path: Path) -> None:
    path = tmp_path / kind.name
    path.write_bytes(kind.content)
    assert len(list(kind.read(str(path)))) > 0


def test_damaged_files_are_read_or_refused_in_one_line() -> None:
    counts = run(3 * len(FILE_KINDS), seed=0)
    assert counts.faults == []
    assert counts.details["succeeded"] + counts.details["refused"] == counts.cases == 3 * len(FILE_KINDS)
    assert counts.details["refused"] > len(FILE_KINDS)
