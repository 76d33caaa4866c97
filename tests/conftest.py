"""Shapes in signatures are checked in every test, where beartype is installed; tensors are tiny, so one thread."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
import torch
from shell import Shell

if importlib.util.find_spec("beartype") is not None:
    from jaxtyping import install_import_hook

    install_import_hook(
        [f"regard.{part}" for part in ("data", "nn", "models", "generate", "tasks", "train", "look", "api", "compare")],
        "beartype.beartype",
    )

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def warned_anew() -> None:
    """A warning is said once a process; here, once a test."""
    from regard import progress

    progress._warned.clear()


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """A shell in which commands begin at once and every training is short."""
    shape = ("tokenizer.vocabulary=400", "model.d_model=32", "model.n_layers=2")
    opened = Shell(("train.steps=3", "train.batch_tokens=512"), shape, ("model.n_decoder_layers=2",))
    yield opened
    opened.close()
