"""Models and batches beyond the memory of the device: refused, before anything of that size is allocated."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
import torch
from tiny_runs import ready, recipe

from regard.errors import ConfigError
from regard.training import memory
from regard.training.memory import check_batch_fits, format_bytes

CPU = torch.device("cpu")


def test_model_beyond_the_memory_is_refused_without_any(tmp_path: Path) -> None:
    """A thousand layers of the largest width: 10^13 parameters."""
    tables = recipe(tmp_path, {"model": {"d_model": 65536, "d_ff": 65536, "n_layers": 1000, "n_heads": 1}})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError) as refused:
        ready(tables, tmp_path / "run")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < 500 << 20
    message = str(refused.value)
    assert message.startswith("model.d_model = 65536, model.n_layers = 1000, ")
    assert message.endswith("; choose a smaller model")
    assert " parameters take " in message
    assert not (tmp_path / "run").exists()


def test_model_that_just_fits_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_parameters = sum(each.numel() for each in ready(recipe(tmp_path), tmp_path / "run").model.parameters())
    monkeypatch.setattr(memory, "total_memory", lambda device: 16 * n_parameters)
    ready(recipe(tmp_path), tmp_path / "fits")
    monkeypatch.setattr(memory, "total_memory", lambda device: 16 * n_parameters - 1)
    with pytest.raises(ConfigError, match=f"{n_parameters:,} parameters take "):
        ready(recipe(tmp_path), tmp_path / "beyond")


def test_batch_beyond_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ready(recipe(tmp_path), tmp_path / "run").config
    monkeypatch.setattr(memory, "total_memory", lambda device: 3 << 30)
    check_batch_fits(3 << 30, config, CPU)
    with pytest.raises(ConfigError, match=r"^train.batch_tokens = \d+: takes about 3.5 GiB, but cpu has 3.0"):
        check_batch_fits(7 << 29, config, CPU)
    check_batch_fits(7 << 29, config, torch.device("cuda"))


def test_sizes() -> None:
    assert [format_bytes(size) for size in (3 << 20, (1 << 30) - 1, 1 << 30)] == ["3 MiB", "1024 MiB", "1.0 GiB"]
