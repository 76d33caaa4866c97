"""Models with positions in another form and the same outputs, for families that support only that form.

    sinusoidal           ->   sinusoidal-halves   sines before cosines: the vectors of the model in another order
    sinusoids or none    ->   learned             the sinusoids, or zeros, as a table of weights, for `n_positions`

The first is for encoder-decoders (Marian, Pegasus), the second for encoders and language models (BERT, GPT-2).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.encoder import TransformerEncoder
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import LearnedPositions, SinusoidalPositions

READS_VECTORS = ("tokens.weight", "softmax_embedding.weight", ".projection.weight", "up_projection.weight")
"""Endings of the names of weights whose columns belong to the vectors between layers."""

WRITES_VECTORS = ("output.weight", "output.bias", "down_projection.weight", "down_projection.bias")
"""Endings of the names of weights whose rows belong to the vectors between layers; so do norms."""

UNRELATED = (".projection.bias", "up_projection.bias", "output_bias")


def to_exchangeable(model: nn.Module) -> nn.Module:
    """Return a model with the same outputs whose positions other libraries have; the model itself, if they do."""
    if isinstance(model, TransformerSeq2Seq) and model.config.positions == "sinusoidal":
        return _reorder_sinusoids(model)
    if isinstance(model, TransformerLM | TransformerEncoder) and (
        model.config.positions in ("sinusoidal", "sinusoidal-halves", "none")
    ):
        return _tabulate_positions(model)
    return model


def _reorder_sinusoids(model: TransformerSeq2Seq) -> TransformerSeq2Seq:
    """Return the model with the coordinates of all vectors reordered, so that even ones come before odd ones."""
    config = replace(model.config, positions="sinusoidal-halves")
    reordered = deepcopy(model)
    reordered.config = config
    for embedding in (reordered.source_embedding, reordered.target_embedding):
        embedding.positions = SinusoidalPositions(config.d_model, config.sinusoid_base, halves=True)
    order = torch.cat((torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)))
    with torch.no_grad():
        for name, weight in reordered.named_parameters():
            weight.copy_(_reorder(name, weight, order.to(weight.device)))
    return reordered


def _reorder(name: str, weight: Tensor, order: Tensor) -> Tensor:
    if name.endswith(READS_VECTORS):
        return weight[:, order]
    if name.endswith(WRITES_VECTORS) or "norm" in f".{name}".split(".")[-2]:
        return weight[order]
    assert name.endswith(UNRELATED), f"not known how {name} relates to the vectors between layers"
    return weight


def _tabulate_positions(model: Any) -> nn.Module:
    """Return the model with its positions as learned ones."""
    config = replace(model.config, positions="learned", first_position=0)
    tabulated: Any = deepcopy(model)
    tabulated.config = config
    positions, device = model.embedding.positions, model.embedding.tokens.weight.device
    table = LearnedPositions(config.n_positions, config.d_model).to(device)
    with torch.no_grad():
        is_sinusoidal = isinstance(positions, SinusoidalPositions)
        rows = torch.arange(config.n_positions, device=device)
        table.embedding.weight.copy_(positions.table(rows) if is_sinusoidal else torch.zeros(1, device=device))
    tabulated.embedding.positions = table
    result: nn.Module = tabulated
    return result
