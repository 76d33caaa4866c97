"""The kernel for few rows and a weight matrix against the product in float64."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.nn import few_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("rows", [2, 17, 64])
@pytest.mark.parametrize(("n_out", "width"), [(768, 768), (3072, 768), (768, 3072), (50257, 768), (5, 64)])
@pytest.mark.parametrize("biased", [False, True])
@torch.inference_mode()
def test_it_is_the_product(rows: int, n_out: int, width: int, biased: bool) -> None:
    """As exact as float32 is."""
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 1, width, device="cuda"), torch.randn(n_out, width, device="cuda")
    bias = torch.randn(n_out, device="cuda") if biased else None
    assert few_rows.usable(x, weight)
    exact = x.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    assert_close(few_rows.product(x, weight, bias).double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max()))


def test_it_is_left_alone_where_it_cannot_serve() -> None:
    x, weight = torch.randn(8, 64, device="cuda"), torch.randn(96, 64, device="cuda")
    assert not few_rows.usable(x, weight)  # gradients are asked for
    with torch.no_grad():
        assert few_rows.usable(x, weight)
        assert not few_rows.usable(x[:1], weight)
        assert not few_rows.usable(x.repeat(9, 1), weight)
        assert not few_rows.usable(x[:, :40], weight[:, :40])
        assert not few_rows.usable(x.half(), weight.half())
