"""Masking for masked language modelling: which tokens of a batch are to be predicted, and what stands there instead.

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
"""Shares of the chosen tokens that become [MASK], and another token."""


class MaskedTokens(NamedTuple):
    """Masked tokens: their positions in the flattened batch, their labels, and the input ids with masks."""

    positions: Int[Tensor, " N"]
    labels: Int[Tensor, " N"]
    input_ids: Int[Tensor, "B T"]


class TokenMasker:
    """Draws the tokens to mask; `masked_fraction` is the share of all tokens that are predicted."""

    def __init__(self, tokenizer: Tokenizer, mask_id: int, masked_fraction: float) -> None:
        self.mask_id, self.masked_fraction = mask_id, masked_fraction
        # Plain numbers, for what is compiled cannot ask the tokenizer.
        self._n_tokens, self._special_ids = len(tokenizer), sorted(tokenizer.special_ids)

    def mask_tokens(self, rows: SegmentedRows, generator: torch.Generator | None = None) -> MaskedTokens:
        """Draw the tokens to mask, a fixed number per batch shape; labels of surplus ones are `IGNORE`."""
        by: Any = {} if generator is None else {"generator": generator}  # given None, a compiler has no fast way
        ids, real = rows.ids.flatten(), self.find_maskable(rows).flatten()
        most = math.ceil(self.masked_fraction * ids.numel())
        order = torch.rand(ids.shape, device=ids.device, **by).masked_fill(~real, -1.0)
        places = order.topk(most).indices
        counted = torch.arange(most, device=ids.device) < self.count_masked(real.sum())
        stood = ids[places]
        draw = torch.rand(most, device=ids.device, **by)
        other = torch.randint(self._n_tokens, (most,), device=ids.device, dtype=ids.dtype, **by)
        instead = torch.where(
            draw < MASK_FRACTION, self.mask_id, torch.where(draw < MASK_FRACTION + RANDOM_FRACTION, other, stood)
        )
        shown = ids.scatter(0, places, torch.where(counted, instead, stood).to(ids.dtype))
        return MaskedTokens(places, torch.where(counted, stood, IGNORE).long(), shown.view_as(rows.ids))

    def count_masked(self, n_maskable: Any) -> Any:
        """Return the number of tokens to mask out of so many, for an int or a tensor."""
        few = n_maskable * round(1000 * self.masked_fraction) // 1000
        return max(1, few) if isinstance(few, int) else few.clamp(min=1)

    def find_maskable(self, rows: SegmentedRows) -> Bool[Tensor, "B T"]:
        """Return a mask of the positions that hold a token of the text, not a special one."""
        specials = torch.tensor(self._special_ids, dtype=rows.ids.dtype, device=rows.ids.device)
        return (rows.segment > 0) & (rows.ids[..., None] != specials).all(-1)
