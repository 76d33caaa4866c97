"""Comparisons in a folder of their own, with the smallest of everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from comparisons import TINY

from regard.compare import charts, compared_models, training_runs
from regard.tasks import translate
from regard.training import plan


@pytest.fixture(scope="module")
def tiny_sizes() -> Iterator[None]:
    """Every comparison takes seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(translate, "MAX_EXTRA_TOKENS", 2)  # a model of two steps writes until it must stop
        for module, name, less in (
            (training_runs, "N_VALIDATIONS", 1),
            (plan, "N_PROFILED_BATCHES", 1),
            (charts, "DPI", 30),
        ):
            patched.setattr(module, name, less)
        patched.setattr(compared_models, "CANDIDATE_WIDTHS", range(16, 65, 16))
        for module, size in TINY:
            for pace in module.SETUPS:
                patched.setitem(module.SETUPS, pace, size)
        yield


@pytest.fixture
def tiny(tiny_sizes: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
