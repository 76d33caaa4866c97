"""Which devices Triton kernels run on, and what is left without Triton."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.nn.kernels import triton_support
from regard.nn.kernels.tracing import constant_in_graphs


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with such a GPU."""
    monkeypatch.setattr(triton_support, "COMPILES", True)
    monkeypatch.setattr(triton_support, "_capability", lambda device: 9)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.usefixtures("hopper")
def test_kernels_run_on_the_current_gpu_if_it_has_their_capability() -> None:
    with FakeTensorMode():
        on_gpu, elsewhere = torch.empty(1, device="cuda:0"), torch.empty(1, device="cuda:1")
    assert triton_support.runs_on(on_gpu.device)
    assert triton_support.runs_on(on_gpu.device, (9, 10))
    assert not triton_support.runs_on(on_gpu.device, (10,))
    assert not triton_support.runs_on(torch.device("cpu"))
    assert not triton_support.runs_on(elsewhere.device)


@pytest.mark.usefixtures("hopper")
def test_the_capability_is_a_constant_of_what_is_compiled() -> None:
    def doubled(x: Tensor) -> Tensor:
        return 2 * x if triton_support.capability(x.device) in (9, 10) else x

    assert torch.compile(doubled, fullgraph=True, backend="eager")(torch.ones(1)) == 2


WITHOUT_TRITON = """
import importlib, sys
sys.modules["triton"] = None
import torch
from regard.nn import kernels
from regard.nn.kernels import dispatch
assert torch.version.cuda or "regard.nn.kernels.triton_support" not in sys.modules  # nor is it looked for
for _, file, _ in dispatch.TABLE:
    importlib.import_module(f"regard.nn.kernels.{file}")
print(kernels.in_use("cuda")["packed_self_attention"])
"""


def test_without_triton_every_kernel_file_can_be_imported() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "pytorch"


def test_constants_of_graphs_are_marked_as_torch_marks_them() -> None:
    def one() -> int:
        return 1

    def other() -> int:
        return 1

    assert vars(constant_in_graphs(one)) == vars(torch.compiler.assume_constant_result(other))
