"""The split-K kernel for few rows and a weight matrix against the product in float64, and who owns its semaphores."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn import CudaGraphRunner, Linear
from regard.nn.kernels.workspace import CAPACITY, Workspace, semaphores

gemm = pytest.importorskip("regard.nn.kernels.small_batch_gemm")

SMALL = [(77, 256), (40, 128), (64, 64)]
LARGE = [(777, 768), (1536, 384), (768, 3072), (8191, 256), (50257, 768), (5, 64)]


def assert_is_the_product(rows: int, n_out: int, width: int, biased: bool, device: torch.device) -> None:
    """As exact as float32 is."""
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 1, width, device=device), torch.randn(n_out, width, device=device)
    bias = torch.randn(n_out, device=device) if biased else None
    exact = x.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    with torch.inference_mode():
        found = gemm.linear(x, weight, bias)
    assert_close(found.double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max()))


@pytest.mark.parametrize("rows", [2, 17])
@pytest.mark.parametrize(("n_out", "width"), SMALL)
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_product(rows, n_out, width, biased, device):
    assert_is_the_product(rows, n_out, width, biased, device)


def test_a_vocabulary_is_multiplied_without_split_k(device, monkeypatch):
    monkeypatch.setattr(gemm, "MAX_SPLIT_N", 64)
    assert_is_the_product(3, 77, 256, True, device)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 17, 64])
@pytest.mark.parametrize(("n_out", "width"), LARGE)
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_product_at_size(rows, n_out, width, biased):
    assert_is_the_product(rows, n_out, width, biased, torch.device("cuda"))


@torch.inference_mode()
def test_a_workspace_is_left_as_it_was(device):
    """So the next product can have the same semaphores, and gives the same."""
    x, weight = torch.randn(4, 256, device=device), torch.randn(70, 256, device=device)
    alone, workspace = gemm.linear(x, weight, None), Workspace()
    with workspace.active():
        assert torch.equal(gemm.linear(x, weight, None), alone)
        kept = semaphores(CAPACITY, x.device)
        assert torch.equal(gemm.linear(x, weight, None), alone)
        assert semaphores(3, x.device).data_ptr() == kept.data_ptr()
    assert not kept.any()
    assert semaphores(3, x.device).data_ptr() != kept.data_ptr()


def test_workspaces_nest_and_have_no_more_than_there_is():
    outer, inner, device = Workspace(), Workspace(), torch.device("cpu")
    with outer.active():
        first = semaphores(2, device)
        with inner.active():
            assert semaphores(2, device).data_ptr() != first.data_ptr()
        assert semaphores(2, device).data_ptr() == first.data_ptr()
        assert len(semaphores(CAPACITY + 1, device)) == CAPACITY + 1
        assert semaphores(2, torch.device("meta")).device.type == "meta"


@pytest.mark.gpu
@torch.inference_mode()
def test_eager_or_replayed_it_gives_the_same_each_time():
    """Parts are added in one order, whichever is ready first."""
    torch.manual_seed(0)
    x, one, other = (torch.randn(n, 768, device="cuda") / 28 for n in (40, 2304, 768))

    def work() -> torch.Tensor:
        return gemm.linear(gemm.linear(x, one, None)[:, :768], other, None)

    first, runner, workspace = work(), CudaGraphRunner(), Workspace()
    for _ in range(20):
        assert torch.equal(work(), first)
        assert torch.equal(runner(work), first)
        with workspace.active():
            assert torch.equal(work(), first)


@pytest.mark.gpu
@torch.inference_mode()
def test_graphs_that_others_capture_count_for_themselves():
    x, weight = torch.randn(8, 768, device="cuda"), torch.randn(768, 768, device="cuda")
    wanted, graphs, found = gemm.linear(x, weight, None), [], []
    for _ in range(2):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            found.append(gemm.linear(x, weight, None))
    for _ in range(3):
        graphs[1].replay()
    assert torch.equal(found[1], wanted)


@pytest.mark.gpu
@torch.inference_mode()
def test_streams_without_a_workspace_do_not_meet():
    x, weight = torch.randn(64, 768, device="cuda"), torch.randn(768, 768, device="cuda")
    wanted, streams = gemm.linear(x, weight, None), [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found = []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(gemm.linear(x, weight, None))
    torch.cuda.synchronize()
    assert all(torch.equal(each, wanted) for each in found)


@torch.inference_mode()
def test_a_layer_takes_it_whatever_the_strides_of_its_rows(device, used, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(gemm, "MIN_WEIGHTS", 128 * 64)
    layer, x = Linear(128, 64, device=device), torch.randn(8, 3, 128, device=device)
    for rows in (x[:, -1], x[:, 1:2], x[:, 0].T.contiguous().T, x[0, :1].expand(8, 128)):
        exact = F.linear(rows.double(), layer.weight.double(), layer.bias.double())
        assert_close(layer(rows).double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max()))
    assert used == ["small_batch_gemm"] * 4


def test_it_is_left_alone_where_it_cannot_serve(device):
    x, weight = torch.randn(8, 768, device=device), torch.randn(768, 768, device=device)
    assert not gemm.supports(x, weight, None)  # gradients are asked for
    with torch.no_grad():
        assert gemm.supports(x, weight, None)
        assert not gemm.supports(x[:1], weight, None)
        assert not gemm.supports(x.repeat(9, 1), weight, None)
        assert not gemm.supports(x, weight[:600], None)  # small
        assert not gemm.supports(x, weight.T, None)
        assert not gemm.supports(x, torch.randn(9000, 64, device=device), None)  # another width
        assert not gemm.supports(x[:, :740], torch.randn(800, 740, device=device), None)  # no multiple of 64
        assert not gemm.supports(x.half(), weight.half(), None)
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            assert gemm.supports(x, weight, None) == (device.type == "cpu")
