"""Small recurrent models and rows of one sentence each, for the tests of regard.models.recurrent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from sentences import VOCABULARY, packed
from torch import nn

from regard.data.batches import Rows
from regard.models.blocks import initialise_weights
from regard.models.recurrent.config import RecurrentLMConfig, RecurrentSeq2SeqConfig
from regard.models.recurrent.language_model import RecurrentLM
from regard.models.recurrent.seq2seq import RecurrentSeq2Seq

SMALL = {"preset": "tiny", "d_model": 8, "n_layers": 2, "dropout": 0.0, "n_positions": 32}

SHAPES = [
    {"attention": attention, "cell": cell, "input_feeding": feeding, "directions": directions}
    for attention, cell, feeding, directions in [
        *product(("none", "additive"), ("lstm", "gru"), (False, True), ("both",)),
        ("dot", "lstm", False, "forward"),
        ("general", "lstm", True, "backward"),
        ("scaled", "gru", False, "both"),
        ("scaled", "lstm", True, "forward"),
    ]
]


def one_per_row(*sentences: Sequence[int]) -> Rows:
    """Return one sentence per row, followed by noise."""
    return packed(*([sentence] for sentence in sentences))


def translator(seed: int = 0, **changes: object) -> RecurrentSeq2Seq:
    config = RecurrentSeq2SeqConfig(**{**SMALL, "n_decoder_layers": 2, **changes})  # type: ignore[arg-type]
    return randomise_weights(RecurrentSeq2Seq(config, VOCABULARY, VOCABULARY, joint=True), seed)


def language_model(seed: int = 0, **changes: object) -> RecurrentLM:
    config = RecurrentLMConfig(**{**SMALL, **changes})  # type: ignore[arg-type]
    return randomise_weights(RecurrentLM(config, VOCABULARY), seed)


def randomise_weights(model: nn.Module, seed: int) -> nn.Module:
    """Convert to float64 and add noise to every initial weight."""
    generator = torch.Generator().manual_seed(seed)
    initialise_weights(model, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.double()
