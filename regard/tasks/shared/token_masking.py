"""Masking for masked language modelling: the tokens of a batch that are to be predicted, and what replaces them.

    of all tokens 15 % are chosen:   80 % become [MASK],   10 % another token,   10 % stay

Drawn on the device, a fixed number per batch shape (Devlin et al. 2019, 3.1); pretrain.py calls this for every batch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batches import SegmentedRows
from regard.nn import IGNORE
from regard.text.tokenizer import Tokenizer

MASK_FRACTION, RANDOM_FRACTION = 0.8, 0.1
"""Fractions of the chosen tokens that become [MASK], and another token."""


class MaskedTokens(NamedTuple):
    """Masked tokens: their positions in the flattened batch, their labels, and the input ids with masks."""

    positions: Int[Tensor, " N"]
    labels: Int[Tensor, " N"]
    input_ids: Int[Tensor, "B T"]


class TokenMasker:
    """Draws the tokens to mask; `masked_fraction` is the fraction of all tokens that are predicted."""

    def __init__(self, tokenizer: Tokenizer, mask_id: int, masked_fraction: float) -> None:
        self.mask_id, self.masked_fraction = mask_id, masked_fraction
        # Plain numbers, for what is compiled cannot ask the tokenizer.
        self._n_tokens, self._special_ids = len(tokenizer), sorted(tokenizer.special_ids)

    def mask_tokens(self, rows: SegmentedRows, generator: torch.Generator | None = None) -> MaskedTokens:
        """Draw the tokens to mask, a fixed number per batch shape; labels of surplus ones are `IGNORE`."""
        # A compiler has no fast implementation of generator=None.
        options: Any = {} if generator is None else {"generator": generator}
        ids, is_maskable = rows.ids.flatten(), self.find_maskable(rows).flatten()
        n_drawn = math.ceil(self.masked_fraction * ids.numel())
        order = torch.rand(ids.shape, device=ids.device, **options).masked_fill(~is_maskable, -1.0)
        positions = order.topk(n_drawn).indices
        is_masked = torch.arange(n_drawn, device=ids.device) < self.count_masked(is_maskable.sum())
        original = ids[positions]
        draw = torch.rand(n_drawn, device=ids.device, **options)
        random = torch.randint(self._n_tokens, (n_drawn,), device=ids.device, dtype=ids.dtype, **options)
        replacement = torch.where(
            draw < MASK_FRACTION, self.mask_id, torch.where(draw < MASK_FRACTION + RANDOM_FRACTION, random, original)
        )
        input_ids = ids.scatter(0, positions, torch.where(is_masked, replacement, original).to(ids.dtype))
        labels = torch.where(is_masked, original, IGNORE).long()
        return MaskedTokens(positions, labels, input_ids.view_as(rows.ids))

    def count_masked(self, n_maskable: Any) -> Any:
        """Return the number of tokens to mask out of that many, for an int or a tensor."""
        n_masked = n_maskable * round(1000 * self.masked_fraction) // 1000
        return max(1, n_masked) if isinstance(n_masked, int) else n_masked.clamp(min=1)

    def find_maskable(self, rows: SegmentedRows) -> Bool[Tensor, "B T"]:
        """Return a mask of the positions that hold a token of the text, not a special one."""
        specials = torch.tensor(self._special_ids, dtype=rows.ids.dtype, device=rows.ids.device)
        return (rows.segment > 0) & (rows.ids[..., None] != specials).all(-1)
