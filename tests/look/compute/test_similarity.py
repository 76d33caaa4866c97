"""The similarity of a head, by hand."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from regard.look.compute.similarity import compute_similarity


def test_the_form_gives_the_heads_scores() -> None:
    query, key = torch.randn(2, 3, 7, dtype=torch.float64)
    x, y = torch.randn(2, 7, dtype=torch.float64)
    found = compute_similarity(query, key)
    assert_close(x @ found.form @ y, (query @ x) @ (key @ y))
    assert_close(found.symmetric + found.antisymmetric, found.form)
    assert torch.equal(found.symmetric, found.symmetric.T)
    assert torch.equal(found.antisymmetric, -found.antisymmetric.T)
    assert 0 < found.symmetric_fraction < 1


def test_equal_queries_and_keys_are_a_metric_and_others_are_not() -> None:
    query = torch.randn(3, 7)
    found = compute_similarity(query, query)
    assert found.is_positive_semidefinite
    assert found.symmetric_fraction == 1.0
    assert (found.eigenvalues[:-1] >= found.eigenvalues[1:]).all()
    assert not compute_similarity(query, -query).is_positive_semidefinite
    assert not compute_similarity(query, torch.randn(3, 7)).is_positive_semidefinite
