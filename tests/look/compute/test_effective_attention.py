"""Effective attention against its definition: a full singular value decomposition, row by row, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.look.compute.effective_attention import compact_head_values, effective_attention


def by_definition(weights: Tensor, carried: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of one head: each row without its projection onto the left null space of T at its visible keys; and the ranks."""
    out, ranks = torch.zeros_like(weights), []
    for row, (a, seen) in enumerate(zip(weights, mask, strict=True)):
        keys = seen.nonzero().squeeze(-1)
        t = carried[keys]
        u, s, _ = torch.linalg.svd(t, full_matrices=True)
        rank = int((s > torch.finfo(t.dtype).eps * max(t.shape) * s.max()).sum()) if len(keys) else 0
        null = u[:, rank:]
        out[row, keys] = a[keys] - (a[keys] @ null) @ null.T
        ranks.append(rank)
    return out, torch.tensor(ranks)


def head(seed: int, queries: int, keys: int, d_value: int, d_model: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(queries, keys, generator=generator, dtype=torch.float64).softmax(-1)
    value = torch.randn(keys, d_value, generator=generator, dtype=torch.float64)
    return weights, value, torch.randn(d_model, d_value, generator=generator, dtype=torch.float64)


def masked(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(~mask, -torch.inf).log_softmax(-1).exp().nan_to_num(0.0)


VISIBLE = {
    "all": lambda q, k: torch.ones(q, k, dtype=torch.bool),
    "causal": lambda q, k: torch.arange(k) <= torch.arange(q)[:, None],
    "packed": lambda q, k: torch.arange(k)[None] % 3 == torch.arange(q)[:, None] % 3,
}


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    queries=st.integers(1, 9),
    keys=st.integers(1, 12),
    d_value=st.integers(1, 8),
    mask=st.sampled_from(sorted(VISIBLE)),
    keep=st.booleans(),
)
def test_projection_equals_the_definition(
    seed: int, queries: int, keys: int, d_value: int, mask: str, keep: bool
) -> None:
    """For keys below, at and above the width of the values; what it carries, T, is d_model wide here."""
    weights, value, output = head(seed, queries, keys, d_value, 10)
    attention_mask = VISIBLE[mask](queries, keys)
    weights = masked(weights, attention_mask)
    whole = value @ output.T
    if keep:
        whole = torch.cat((whole, torch.ones(keys, 1, dtype=whole.dtype)), 1)
    expected, ranks = by_definition(weights, whole, attention_mask)
    got, found = effective_attention(
        weights, compact_head_values(value, output, keep_row_sums=keep), attention_mask, len(output)
    )
    assert_close(got, expected, rtol=0, atol=1e-9)
    assert torch.equal(found.rank, ranks)
    assert torch.equal(found.keys, attention_mask.sum(-1))
    assert torch.equal(found.null, found.keys - found.rank)
    assert_close(got @ whole, weights @ whole, rtol=0, atol=1e-9)
    assert (got[~attention_mask] == 0).all()
    norm = weights.norm(dim=-1)
    assert_close(
        found.null_fraction, torch.where(norm > 0, (weights - got).norm(dim=-1) / norm, 0.0), rtol=0, atol=1e-9
    )
    if keep:
        assert_close(got.sum(-1), weights.sum(-1), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("keys", "identifiable"), [(4, True), (8, True), (9, False), (30, False)])
def test_identifiable_while_keys_do_not_exceed_the_value_width(keys: int, identifiable: bool) -> None:
    weights, value, output = head(1, 5, keys, 8, 16)
    got, found = effective_attention(
        weights, compact_head_values(value, output), torch.ones(5, keys, dtype=torch.bool), 16
    )
    assert torch.allclose(got, weights, atol=1e-10) is identifiable
    assert (found.null == max(0, keys - 8)).all()
    assert ((found.null_fraction < 1e-10) == identifiable).all()


def test_batched_heads_equal_single_heads() -> None:
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 3, 6, 6, generator=generator, dtype=torch.float64)
    value = torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.float64)
    output = torch.randn(2, 3, 12, 4, generator=generator, dtype=torch.float64)
    mask = VISIBLE["causal"](6, 6)
    got, found = effective_attention(weights * mask, compact_head_values(value, output), mask, 12)
    for layer in range(2):
        for h in range(3):
            one = compact_head_values(value[layer, h], output[layer, h])
            alone, at = effective_attention(weights[layer, h] * mask, one, mask, 12)
            assert_close(got[layer, h], alone)
            assert torch.equal(found.rank[layer, h], at.rank)


def test_single_precision_has_its_own_threshold() -> None:
    """Values of rank 3 but for rounding: float32 counts 3."""
    weights, value, output = head(5, 4, 20, 8, 16)
    flat = (value[:, :3] @ torch.randn(3, 8, dtype=torch.float64)).float()
    everything = torch.ones(4, 20, dtype=torch.bool)
    found = effective_attention(weights.float(), compact_head_values(flat, output.float()), everything, 16)[1]
    assert (found.rank == 3).all()
