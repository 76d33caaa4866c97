"""Naming a device."""

from __future__ import annotations

import pytest
import torch

from regard.errors import InputError
from regard.runs.device import available_memory, describe_device, select_device


def test_the_processor_is_always_there() -> None:
    cpu = select_device("cpu")
    assert cpu == torch.device("cpu")
    assert available_memory(cpu) > 2**20
    assert describe_device(cpu).startswith("cpu, ")


def test_auto_takes_what_there_is() -> None:
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    assert (select_device("auto").type == "cpu") == (not accelerated)


def test_an_unknown_device() -> None:
    with pytest.raises(InputError, match=r"^device 'gpu' is unknown; accepted: auto, cpu, cuda, mps$"):
        select_device("gpu")


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match=rf"^device '{name}' is not there; pass --device auto, "):
        select_device(name)
    assert select_device("auto").type == "cpu"
