"""The check that the outputs of a model are finite.

Damaged weights, and activations that overflow, give NaN and infinity, which would be printed as probabilities. Every
path from a model to a result passes through here: predict/, and look/ for what it shows. Decoding checks the scores of
the tokens that it chooses (generate/), which it copies from the device anyway.
"""

from __future__ import annotations

from torch import Tensor

from regard.errors import NonFiniteError


def check_finite(outputs: Tensor) -> Tensor:
    """Return the outputs of a model; refuse them if one is NaN or infinite."""
    if not outputs.isfinite().all():
        raise NonFiniteError
    return outputs
