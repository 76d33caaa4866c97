"""The kernel for few rows and a weight matrix against the product in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn import Linear, Recording, few_rows

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("rows", [2, 17, 64])
@pytest.mark.parametrize(("n_out", "width"), [(777, 768), (1536, 384), (768, 3072), (8191, 256), (50257, 768), (5, 64)])
@pytest.mark.parametrize("biased", [False, True])
@torch.inference_mode()
def test_it_is_the_product(rows: int, n_out: int, width: int, biased: bool) -> None:
    """As exact as float32 is."""
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 1, width, device="cuda"), torch.randn(n_out, width, device="cuda")
    bias = torch.randn(n_out, device="cuda") if biased else None
    exact = x.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    assert_close(few_rows.product(x, weight, bias).double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max()))


@torch.inference_mode()
def test_run_or_played_it_gives_the_same_each_time() -> None:
    """Parts are added in one order, whichever is ready first, and nothing is left counted."""
    torch.manual_seed(0)
    x, one, other = (torch.randn(n, 768, device="cuda") / 28 for n in (40, 2304, 768))

    def work() -> torch.Tensor:
        return few_rows.product(few_rows.product(x, one)[:, :768], other)

    first, recording = work(), Recording()
    for _ in range(20):
        assert torch.equal(work(), first)
        assert torch.equal(recording(work), first)
    assert not few_rows._ready(x.device).any()


@torch.inference_mode()
def test_graphs_that_others_record_count_for_themselves() -> None:
    x, weight = torch.randn(8, 768, device="cuda"), torch.randn(768, 768, device="cuda")
    wanted, graphs, found = few_rows.product(x, weight), [], []
    for _ in range(2):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            found.append(few_rows.product(x, weight))
    graphs[1].replay()
    assert torch.equal(found[1], wanted)


@torch.inference_mode()
def test_a_layer_takes_it_for_rows_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    used, product = [], few_rows.product
    monkeypatch.setattr(few_rows, "linear", lambda *given: used.append(given) or product(*given))
    layer, x = Linear(768, 768, device="cuda"), torch.randn(8, 3, 768, device="cuda")
    for rows in (x[:, -1], x[:, 1:2], x[:, 0].T.contiguous().T, x[0, :1].expand(8, 768)):
        exact = F.linear(rows.double(), layer.weight.double(), layer.bias.double())
        assert_close(layer(rows).double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max()))
    assert len(used) == 4


def test_it_is_left_alone_where_it_cannot_serve() -> None:
    x, weight = torch.randn(8, 768, device="cuda"), torch.randn(768, 768, device="cuda")
    assert not few_rows.usable(x, weight)  # gradients are asked for
    with torch.no_grad():
        assert few_rows.usable(x, weight)
        assert not few_rows.usable(x[:1], weight)
        assert not few_rows.usable(x.repeat(9, 1), weight)
        assert not few_rows.usable(x, weight[:600])  # small
        assert not few_rows.usable(x, weight.T)
        assert not few_rows.usable(x, torch.randn(9000, 64, device="cuda"))  # another width
        assert not few_rows.usable(x[:, :740], torch.randn(800, 740, device="cuda"))  # no multiple of 64
        assert not few_rows.usable(x.half(), weight.half())
        with torch.autocast("cuda", torch.bfloat16):
            assert not few_rows.usable(x, weight)
