"""Every script in bench/ runs with ``--smoke``; all run in this process, so that imports are paid once."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parent.parent.parent / "bench"
SCRIPTS = sorted(path for path in BENCH.glob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def restored_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts import their neighbours by name; what they change of the process is restored."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    n_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(n_threads)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch.compile reads it while it traces
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_runs_with_smoke(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), "--smoke"])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
