"""bench/distill.py: calls that train an arm each share a table; scoring takes no time of --minutes."""

from __future__ import annotations

import argparse
import importlib
import signal
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parent.parent.parent / "bench"


@pytest.fixture
def distill(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("distill")


def test_calls_at_the_same_time_share_a_table(
    distill: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = distill.Results(tmp_path), distill.Results(tmp_path)
    one.update("base-6+2", steps=3, bleu={"dev.tsv": 12.5})
    other.update("base-12+1", steps=4)
    distill.print_table(one, argparse.Namespace(dev=["dev.tsv"]))
    _, first, second, _ = capsys.readouterr().out.splitlines()
    assert first.split() == ["base-6+2", "base-6+2", "3", "12.5", "0.0"]
    assert second.split() == ["base-12+1", "base-12+1", "4", "0.0"]


def test_scoring_takes_no_time_of_training(distill: ModuleType) -> None:
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with distill.stop_clock():
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
