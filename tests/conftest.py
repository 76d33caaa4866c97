"""Shapes in signatures are checked in every test (shapes.py); tensors are tiny, so one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import shapes
import torch
from commands import skip_flushing
from forks import Forks
from hypothesis import settings
from shell import Shell


def interpret_kernels() -> None:
    """Import the Triton kernels for Triton's interpreter where there is no GPU; tests/nn/kernels/ lets them be chosen.

    The variable must be set when Triton is first imported, and is for this process alone.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    from regard.nn.kernels import triton_support

    del os.environ["TRITON_INTERPRET"]
    triton_support.INTERPRETED = False


shapes.install()
skip_flushing()
torch.set_num_threads(1)
if not torch.cuda.is_available():
    interpret_kernels()
settings.register_profile("regard", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("regard")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is marked `gpu` needs one, of the compute capabilities that the mark names, if any."""
    mark = item.get_closest_marker("gpu")
    if mark is not None and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    wanted = mark.kwargs.get("capabilities") if mark is not None else None
    if wanted is not None and torch.cuda.get_device_capability()[0] not in wanted:
        pytest.skip(f"needs a CUDA device of capability {' or '.join(map(str, wanted))}")


@pytest.fixture(autouse=True)
def begun_anew() -> None:
    """Shapes are checked again, a warning, said once a process, is said once a test, and there is one thread again.

    Libraries and benchmarks may leave another number behind; a fork of this process would wait for threads it lacks.
    """
    from regard import progress

    torch.set_num_threads(1)
    shapes.begin()
    progress._warned.clear()


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, which tell more than their files."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    seen, save = [], figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *rest, **more: (seen.append(self), save(self, *rest, **more)))
    return seen


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Commands as processes that start quickly, for tests that kill them."""
    opened = Forks(tmp_path_factory.mktemp("forks"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """A shell in which commands begin at once and every training is short."""
    shape = ("tokenizer.vocabulary=400", "model.d_model=32", "model.n_layers=2")
    opened = Shell(("train.steps=3", "train.batch_tokens=512"), shape, ("model.n_decoder_layers=2",))
    yield opened
    opened.close()
