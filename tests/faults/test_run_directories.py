"""The campaigns on run directories, in short: bit flips, failing writes, kills, and two processes at once."""

from __future__ import annotations

import bit_flips
import kills
import process_pairs
import pytest
import write_faults
from fault_counts import FaultCounts
from forks import Forks

from regard import disk
from regard.models import weights


def assert_no_fault(counts: FaultCounts, least: int) -> None:
    assert counts.faults == []
    assert counts.cases >= least


def test_every_flipped_bit_is_noticed() -> None:
    assert_no_fault(bit_flips.run(40), 40)


def test_flipped_bits_are_silent_without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign itself: it would notice if nothing were checked."""
    for module in (disk, weights):
        monkeypatch.setattr(module, "check_checksum", lambda *_, **__: None)
    assert bit_flips.run(20).silent > 5


def test_failing_writes_lose_nothing() -> None:
    assert_no_fault(write_faults.run(6, in_process=True), 6)


def test_failing_system_calls_lose_nothing(forks: Forks) -> None:
    assert_no_fault(write_faults.run(2, seed=3, forks=forks), 2)


def test_killed_trainings_are_resumed_exactly(forks: Forks) -> None:
    assert_no_fault(kills.run(2, forks=forks), 2)


def test_two_processes_never_mix(forks: Forks) -> None:
    assert_no_fault(process_pairs.run(1, forks=forks), 1)
