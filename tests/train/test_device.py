"""Naming a device."""

from __future__ import annotations

import pytest
import torch

from regard.errors import InputError
from regard.train.device import describe, device_named, memory_of


def test_the_processor_is_always_there() -> None:
    cpu = device_named("cpu")
    assert cpu == torch.device("cpu")
    assert memory_of(cpu) > 2**20
    assert describe(cpu).startswith("cpu, ")


def test_auto_takes_what_there_is() -> None:
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    assert (device_named("auto").type == "cpu") == (not accelerated)


def test_an_unknown_device() -> None:
    with pytest.raises(InputError, match=r"^device 'gpu' is unknown; accepted: auto, cpu, cuda, mps$"):
        device_named("gpu")


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match=rf"^device '{name}' is not there; pass --device auto, "):
        device_named(name)
    assert device_named("auto").type == "cpu"
