"""Hostile model directories: each is refused in one line that names a path; model_directories.py has the long form."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_counts import FaultCounts
from isolation import is_refusal
from model_directories import REFUSED, Case, Fuzzer


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_directories_are_refused_in_one_line(name: str, fuzzer: Fuzzer) -> None:
    ended = fuzzer.run(Case(name, *REFUSED[name], "load"))
    assert is_refusal(ended), ended.err[-2000:]
    assert ended.err.splitlines()[-1].startswith(f"error: {fuzzer.folder / 'case'}")
    assert len(ended.err) < 1000
    assert ended.memory_bytes < 500 << 20


def test_changed_directories_are_opened_or_refused(fuzzer: Fuzzer) -> None:
    counts = FaultCounts()
    for case, _ in zip(fuzzer.cases(), range(30), strict=False):
        counts.add(case.name, fuzzer.run(case))
    assert counts.faults == []
    assert counts.details["refused"] > 10


def test_unchanged_directories_are_opened(fuzzer: Fuzzer, tmp_path: Path) -> None:
    for base in fuzzer.bases:
        assert fuzzer.run(Case(base, base, lambda _: None)).status == 0
