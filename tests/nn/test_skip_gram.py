"""The skip-gram loss against its definition, pair by pair, and its gradients against autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.skip_gram import skip_gram_loss

WINDOW, NEGATIVES = 2, 5


def random_block(n_blocks: int = 2, n_centres: int = 4, n_negatives: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(n_blocks, n_centres, 3, generator=generator, dtype=torch.float64)
    columns = torch.randn(n_blocks, n_centres + 2 * WINDOW + n_negatives, 3, generator=generator, dtype=torch.float64)
    n_before, n_after = torch.randint(0, WINDOW + 1, (2, n_blocks, n_centres), generator=generator)
    return centres.requires_grad_(), columns.requires_grad_(), n_before, n_after


def plain_loss(centres: Tensor, columns: Tensor, n_before: Tensor, n_after: Tensor) -> tuple[Tensor, int]:
    """Mikolov et al. 2013, eq. 4, pair by pair, with the mean over a block's negatives for the expectation."""
    total, n_pairs = torch.zeros((), dtype=torch.float64), 0
    for block in range(len(centres)):
        negatives = columns[block, centres.shape[1] + 2 * WINDOW :]
        for i in range(centres.shape[1]):
            centre = centres[block, i]
            reach = range(i - int(n_before[block, i]), i + int(n_after[block, i]) + 1)
            for j in (j for j in reach if j != i):
                total = total - F.logsigmoid(columns[block, j + WINDOW] @ centre)
                total = total - NEGATIVES * F.logsigmoid(-(negatives @ centre)).mean()
                n_pairs += 1
    return total, n_pairs


def test_equals_the_definition() -> None:
    block = random_block()
    loss = skip_gram_loss(*block, window=WINDOW, negatives=NEGATIVES)
    total, n_pairs = plain_loss(*block)
    torch.testing.assert_close(loss.total, total)
    torch.testing.assert_close(loss.nll, total.detach())
    assert int(loss.n_tokens) == n_pairs > 0


def test_gradients_equal_those_of_the_definition() -> None:
    block = random_block()
    loss = skip_gram_loss(*block, window=WINDOW, negatives=NEGATIVES).total
    found = torch.autograd.grad(3 * loss, block[:2])
    expected = torch.autograd.grad(3 * plain_loss(*block)[0], block[:2])
    torch.testing.assert_close(found, expected)


def test_large_scores_stay_finite() -> None:
    centres, columns, n_before, n_after = random_block()
    loss = skip_gram_loss(300 * centres.float(), columns.float(), n_before, n_after, window=WINDOW, negatives=NEGATIVES)
    assert bool(loss.total.isfinite())


@pytest.mark.parametrize("n_negatives", [1, 7])
def test_words_without_a_window_change_nothing(n_negatives: int) -> None:
    """A block is padded with words that have no context."""
    centres, columns, *_ = random_block(n_negatives=n_negatives)
    none = torch.zeros(centres.shape[:2], dtype=torch.int64)
    loss = skip_gram_loss(centres, columns, none, none, window=WINDOW, negatives=NEGATIVES)
    loss.total.backward()
    assert float(loss.nll) == 0
    assert centres.grad is not None
    assert not centres.grad.any()
