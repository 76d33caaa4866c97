"""The shape checks that all other tests run with."""

from __future__ import annotations

import pytest
import shapes
import torch
from jaxtyping import TypeCheckError, config

from regard.nn import linear

pytest.importorskip("beartype")


def test_a_wrong_shape_is_caught() -> None:
    with pytest.raises(TypeCheckError, match=r"regard\.nn\.kernels\.dispatch\.linear"):
        linear(torch.zeros(2, 3), torch.zeros(4, 5))


def test_checks_stop_after_a_limit_until_the_next_test() -> None:
    for _ in range(shapes.MOST):
        linear(torch.zeros(2, 3), torch.zeros(4, 3))
    assert config.jaxtyping_disable
    shapes.begin()
    test_a_wrong_shape_is_caught()
