"""Attention and RNNs computed from their defining equations, which support derivatives of every kind.

Fused kernels have no forward-mode or second derivatives, and most of them no rule for `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from regard.nn.attention import ScoreTaps
from regard.nn.rnn import RNNBase
from regard.nn.tap import hook_taps, identity


@contextmanager
def force_unfused(model: nn.Module) -> Iterator[None]:
    """Compute explicit attention weights, and RNNs step by step, in the caller's passes through a model."""
    modules = list(model.modules())
    taps = [module.weights for module in modules if isinstance(module, ScoreTaps)]
    taps += [module.drive for module in modules if isinstance(module, RNNBase)]
    with hook_taps(dict.fromkeys(taps, identity)):
        yield
