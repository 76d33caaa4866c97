"""InfoNCE against its definition in loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from regard.nn import info_nce

GROUPS = torch.tensor([1, 2, 1, 3, 0])
CANDIDATE_GROUPS = torch.tensor([1, 2, 1, 3, 0, 7, 2, 0])
"""Five positives and three hard negatives; pairs 0 and 2 share a text, and a negative belongs to pair 1."""


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_it_is_the_definition(temperature: float) -> None:
    torch.manual_seed(0)
    anchors, candidates = torch.randn(5, 3), torch.randn(8, 3)
    found = info_nce(anchors, candidates, GROUPS, CANDIDATE_GROUPS, temperature)
    for i in range(4):
        compared = [j for j in range(8) if j == i or CANDIDATE_GROUPS[j] not in (0, GROUPS[i])]
        scores = [float(anchors[i].double() @ candidates[j].double()) / temperature for j in compared]
        most = max(scores)
        log_sum = most + math.log(sum(math.exp(score - most) for score in scores))
        assert_close(float(found[i]), log_sum - scores[compared.index(i)], rtol=1e-4, atol=1e-4)
    assert found[4] == 0


def test_padding_and_masked_candidates_have_no_gradient() -> None:
    anchors = torch.randn(5, 3, requires_grad=True)
    candidates = torch.randn(8, 3, requires_grad=True)
    info_nce(anchors, candidates, GROUPS, CANDIDATE_GROUPS, 0.5).sum().backward()
    assert anchors.grad is not None
    assert candidates.grad is not None
    assert anchors.grad.isfinite().all()
    assert (anchors.grad[4] == 0).all()
    assert (candidates.grad[[4, 7]] == 0).all()
    assert (candidates.grad[[0, 5, 6]] != 0).any(1).all()


def test_a_pair_without_negatives_has_no_loss() -> None:
    vectors = torch.randn(3, 4)
    same = torch.tensor([1, 1, 1])
    assert_close(info_nce(vectors, torch.randn(3, 4), same, same, 0.1), torch.zeros(3))
