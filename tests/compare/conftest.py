"""Comparisons at tiny sizes, in a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from comparisons import TINY

from regard.compare import charts, compared_models, training_runs
from regard.predict import translation
from regard.training import plan


@pytest.fixture(scope="module")
def tiny_sizes() -> Iterator[None]:
    """Shrink every experiment so that it takes seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(translation, "MAX_EXTRA_TOKENS", 2)  # a model of two steps writes until it must stop
        for module, name, value in (
            (training_runs, "N_VALIDATIONS", 1),
            (plan, "N_PROFILED_BATCHES", 1),
            (charts, "DPI", 30),
        ):
            patched.setattr(module, name, value)
        patched.setattr(compared_models, "CANDIDATE_WIDTHS", range(16, 65, 16))
        for module, setup in TINY:
            for pace in module.SETUPS:
                patched.setitem(module.SETUPS, pace, setup)
        yield


@pytest.fixture
def tiny(tiny_sizes: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
