"""Devices by name."""

from __future__ import annotations

import pytest
import torch

from regard.errors import InputError
from regard.runs.device import available_memory, describe_device, select_device


def test_cpu_is_always_available() -> None:
    cpu = select_device("cpu")
    assert cpu == torch.device("cpu")
    assert available_memory(cpu) > 2**20
    assert describe_device(cpu).startswith("cpu, ")


def test_auto_prefers_a_gpu() -> None:
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    assert (select_device("auto").type == "cpu") == (not has_gpu)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cpu:1", "mps:0", ""])
def test_unknown_device(name: str) -> None:
    with pytest.raises(InputError, match=rf"^device '{name}' is unknown; accepted: auto, cpu, cuda, cuda:N, mps$"):
        select_device(name)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in (torch.cuda, torch.backends.mps):
        monkeypatch.setattr(backend, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps"])
def test_torch_without_support_of_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in (torch.backends.cuda, torch.backends.mps):
        monkeypatch.setattr(backend, "is_built", lambda: False)
    kind = name[:4].upper()
    fix = f"this torch is built without {kind}; install a build that has it, or pass --device auto"
    with pytest.raises(InputError, match=rf"^device '{name}' is not available: {fix}$"):
        select_device(name)
    assert select_device("auto").type == "cpu"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("cuda", "check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES"),
        ("cuda:1", "check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES"),
        ("mps", "macOS may be too old for it: update that"),
    ],
)
def test_torch_that_finds_no_gpu(name: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in (torch.backends.cuda, torch.backends.mps):
        monkeypatch.setattr(backend, "is_built", lambda: True)
    problem = rf"torch finds no (Apple )?GPU; {fix}, or pass --device auto"
    with pytest.raises(InputError, match=rf"^device '{name}' is not available: {problem}$"):
        select_device(name)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pretend that there are two GPUs; returns the indices that are made current."""
    current: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    return current


def test_gpu_by_index(two_gpus: list[int]) -> None:
    assert select_device("cuda:1") == torch.device("cuda", 1)
    assert two_gpus == [1]
    assert select_device("cuda") == torch.device("cuda")
    assert two_gpus == [1]


def test_gpu_index_out_of_range(two_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^device 'cuda:2' does not exist; this machine has cuda:0 to cuda:1$"):
        select_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=r"^device 'cuda:1' does not exist; this machine has cuda:0$"):
        select_device("cuda:1")
    assert two_gpus == []
