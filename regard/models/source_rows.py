"""Encoded sources of a decoder state, one per row: cross-attention masks, keys and values, as sentences come and go."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor

from regard.nn import AttentionMask, KeyValue


def select_mask_rows(attention_mask: AttentionMask, rows: Tensor) -> AttentionMask:
    """Return the mask of these rows, in this order."""
    mask = None if attention_mask.mask is None else attention_mask.mask[rows]
    fully_masked = None if attention_mask.fully_masked is None else attention_mask.fully_masked[rows]
    return AttentionMask(attention_mask.query_position[rows], attention_mask.key_position[rows], mask, fully_masked)


def complete_mask(attention_mask: AttentionMask) -> tuple[Tensor, Tensor]:
    """Return `mask` and `fully_masked`, even if they are omitted because every query may attend to every key."""
    b, n_keys = attention_mask.key_position.shape
    everything = torch.ones(b, 1, 1, n_keys, dtype=torch.bool, device=attention_mask.key_position.device)
    mask = everything if attention_mask.mask is None else attention_mask.mask
    nothing = torch.zeros_like(everything[..., :1])
    return mask, nothing if attention_mask.fully_masked is None else attention_mask.fully_masked


def extend_mask_rows(one: AttentionMask, other: AttentionMask) -> AttentionMask:
    """Return the cross-attention mask of the sources of both, as wide as the longest of them needs."""
    masks = [complete_mask(each) for each in (one, other)]
    n_keys = max(_count_keys(mask, fully_masked) for mask, fully_masked in masks)
    return AttentionMask(
        torch.cat((one.query_position, other.query_position)),
        torch.cat([fit_columns(each.key_position, n_keys, 1) for each in (one, other)]),
        torch.cat([fit_columns(mask, n_keys, 3) | fully_masked for mask, fully_masked in masks]),
        torch.cat([fully_masked for _, fully_masked in masks]),
    )


def extend_key_values(one: KeyValue, other: KeyValue, n_keys: int) -> KeyValue:
    """Return the keys and values of the sources of both, `n_keys` of each."""
    key, value = (torch.cat([fit_columns(part, n_keys, 2) for part in parts]) for parts in zip(one, other, strict=True))
    return KeyValue(key, value)


def fit_columns(x: Shaped[Tensor, ...], n: int, dim: int) -> Tensor:
    """Return the first `n` columns of a dimension, zeros where there are fewer."""
    missing = n - x.shape[dim]
    return F.pad(x, (0, 0) * (x.ndim - 1 - dim) + (0, missing)) if missing > 0 else x.narrow(dim, 0, n)


def _count_keys(mask: Tensor, fully_masked: Tensor) -> int:
    """Return the number of columns up to the last one that is needed, at least one."""
    used = (mask & ~fully_masked).flatten(0, 2).any(0).nonzero()
    return int(used[-1]) + 1 if len(used) else 1
