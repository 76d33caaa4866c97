"""The learning curve is a picture of the log."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from regard.errors import MissingExtra
from regard.train.curve import draw_curve
from regard.train.run import RunDirectory

LOG = [
    {"step": 1, "loss": 5.0, "learning_rate": 0.1},
    {"step": 2, "loss": 4.0, "learning_rate": 0.1},
    {"step": 2, "valid_loss": 4.5, "bleu": 3.0, "exact": 0.1},
    {"step": 4, "valid_loss": 3.5, "bleu": 9.0, "exact": 0.5},
]


@pytest.mark.parametrize("lines", [LOG, LOG[:2], LOG[2:], []], ids=["all", "no validation", "no loss", "nothing"])
def test_a_picture_is_drawn(tmp_path: Path, lines: list[dict[str, float]]) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = draw_curve(RunDirectory(tmp_path))
    assert path == tmp_path / "curve.png"
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 5000


def test_without_the_library_the_command_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'plot'; run: pip install 'regard\[plot\]'$"):
        draw_curve(RunDirectory(tmp_path))
