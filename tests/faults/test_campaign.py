"""The script of all fault campaigns: its table, its files and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import campaign
import pytest
from campaign import CAMPAIGNS, main
from fault_counts import FaultCounts


def test_smoke_runs_every_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--smoke", "--write", str(tmp_path / "faults.json")]) == 0
    assert capsys.readouterr().out.count("| 0 | 0 | 0 | 0 | 0 |") == len(CAMPAIGNS)
    written = {each["name"]: each["cases"] for each in json.loads((tmp_path / "faults.json").read_text())}
    assert written == {name: size.smoke for name, size in CAMPAIGNS.items()}


def test_a_fault_is_counted_and_ends_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = FaultCounts("kills", cases=3)
    faulty.add_fault("lost", "a checkpoint")
    monkeypatch.setattr(campaign, "run_campaign", lambda *_, **__: faulty)
    assert main(["kills", "--write", str(tmp_path / "faults.md")]) == 1
    assert "| kills | 3 | 1 | 0 | 0 | 0 | 0 |" in (tmp_path / "faults.md").read_text()


def test_a_campaign_that_breaks_is_a_fault() -> None:
    assert campaign.run_campaign("no_such_module", 1, 0).tracebacks == 1


def test_a_campaign_that_does_not_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "TIME_LIMIT_SECONDS", 0.1)
    assert campaign.run_campaign("options", 10**6, 0).hangs == 1
