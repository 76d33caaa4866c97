"""Comparisons in a folder of their own, with the smallest of everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparisons import TINY

from regard.tasks import translate


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every comparison takes seconds; gives the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(translate, "LONGER", 2)  # a model of two steps writes until it must stop
    for module, size in TINY:
        for pace in module.SIZES:
            monkeypatch.setitem(module.SIZES, pace, size)
    return tmp_path
