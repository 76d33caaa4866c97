"""Which tensors kernels take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.nn import kernels


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with such a GPU."""
    monkeypatch.setattr(kernels, "COMPILES", True)
    monkeypatch.setattr(kernels, "_generation", lambda device: 9)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.usefixtures("hopper")
def test_kernels_take_what_is_on_a_gpu_of_their_generations() -> None:
    with FakeTensorMode():
        on_gpu, elsewhere = torch.empty(1, device="cuda:0"), torch.empty(1, device="cuda:1")
    assert kernels.runnable(on_gpu)
    assert kernels.runnable(on_gpu, (9, 10))
    assert not kernels.runnable(on_gpu, (10,))
    assert not kernels.runnable(torch.ones(1))
    assert not kernels.runnable(elsewhere)


@pytest.mark.usefixtures("hopper")
def test_the_generation_is_a_constant_of_what_is_compiled() -> None:
    def doubled(x: Tensor) -> Tensor:
        return 2 * x if kernels.generation(x.device) in (9, 10) else x

    assert torch.compile(doubled, fullgraph=True, backend="eager")(torch.ones(1)) == 2
