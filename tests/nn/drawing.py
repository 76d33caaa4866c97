"""Random float64 inputs and weights for the tests of RNNs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.nn import GRU, LSTM

CELLS = [LSTM, GRU]
B, T, D, H = 4, 6, 5, 3


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomise_weights(module: nn.Module) -> nn.Module:
    """Convert a module to float64 and draw every parameter at random."""
    generator = torch.Generator().manual_seed(1)
    module.double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return module
