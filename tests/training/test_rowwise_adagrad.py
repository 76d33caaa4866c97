"""Row-wise Adagrad against a loop over rows, and the optimiser that models get."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.training.optimiser import build_optimiser, set_learning_rate
from regard.training.rowwise_adagrad import RowwiseAdagrad


def embedding_with_gradient(rows: list[int], values: torch.Tensor, size: int = 4) -> nn.Embedding:
    table = nn.Embedding(size, 3, sparse=True)
    nn.init.ones_(table.weight)
    (table(torch.tensor(rows)) * values).sum().backward()
    return table


def test_steps_equal_a_loop_over_rows() -> None:
    rows, values = [2, 0, 2], torch.tensor([[1.0, 2, 3], [4, 5, 6], [-1, 0, 1]])
    table = embedding_with_gradient(rows, values)
    optimiser = RowwiseAdagrad(table.parameters())
    expected, sums = torch.ones(4, 3), torch.zeros(4)
    for rate in (0.5, 0.25):
        set_learning_rate(optimiser, rate)
        optimiser.step()
        for row, value in zip(rows, values, strict=True):
            sums[row] += value.square().mean()
        for row, value in zip(rows, values, strict=True):
            expected[row] -= rate * value / sums[row].sqrt()
    torch.testing.assert_close(table.weight.detach(), expected)
    torch.testing.assert_close(optimiser.state[table.weight]["sum_of_squares"], sums)


def test_the_scale_of_gradients_does_not_matter() -> None:
    values = torch.tensor([[1.0, 2, 3]])
    weights = []
    for scale, grad_scale in ((1.0, None), (1e-6, None), (1.0, torch.tensor(7.0))):
        table = embedding_with_gradient([1], scale * values)
        optimiser = RowwiseAdagrad(table.parameters())
        set_learning_rate(optimiser, 0.1)
        optimiser.grad_scale = grad_scale
        optimiser.step()
        weights.append(table.weight.detach())
    torch.testing.assert_close(weights[1], weights[0])
    torch.testing.assert_close(weights[2], weights[0])


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    table = embedding_with_gradient([1], torch.full((1, 3), torch.nan))
    optimiser = RowwiseAdagrad(table.parameters())
    set_learning_rate(optimiser, 0.1)
    optimiser.found_inf = torch.tensor(1.0)
    optimiser.step()
    assert (table.weight == 1).all()
    assert not optimiser.state


@pytest.mark.parametrize("sparse", [True, False])
def test_models_with_sparse_tables_get_it(sparse: bool) -> None:
    optimiser = build_optimiser(nn.Sequential(nn.Embedding(4, 3, sparse=sparse)), 0.0)
    assert isinstance(optimiser, RowwiseAdagrad) == sparse
