"""Small models and packed rows for the tests of regard.models."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.data.batches import Rows
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig
from regard.models.seq2seq import TransformerSeq2Seq

VOCABULARY = 13
POSITIONS = ["sinusoidal", "learned", "relative", "relative-values", "rotary", "none"]
NORMS = ["post", "pre"]


def packed(*rows: Sequence[Sequence[int]]) -> Rows:
    """Return packed rows of sentences; ids of empty positions are noise on purpose."""
    width = max(sum(map(len, row)) for row in rows)
    ids = torch.full((len(rows), width), VOCABULARY - 1, dtype=torch.int32)
    segment, position = torch.zeros_like(ids), torch.zeros_like(ids)
    for r, row in enumerate(rows):
        start = 0
        for number, sentence in enumerate(row, 1):
            here = slice(start, start + len(sentence))
            ids[r, here] = torch.tensor(sentence, dtype=torch.int32)
            segment[r, here] = number
            position[r, here] = torch.arange(len(sentence), dtype=torch.int32)
            start += len(sentence)
    return Rows(ids, segment, position)


def tiny_config(**changes: object) -> TransformerSeq2SeqConfig:
    table = {
        "preset": "tiny",
        "d_model": 16,
        "n_layers": 2,
        "n_decoder_layers": 2,
        "n_heads": 2,
        "d_ff": 24,
        "dropout": 0.0,
        "norm": "pre",
        "n_positions": 32,
    }
    return TransformerSeq2SeqConfig(**{**table, **changes})


def tiny_model(seed: int = 0, **changes: object) -> TransformerSeq2Seq:
    """Convert to float64 and add noise to every initial weight."""
    model = TransformerSeq2Seq(tiny_config(**changes), VOCABULARY, VOCABULARY, joint=True)
    generator = torch.Generator().manual_seed(seed)
    initialise_weights(model, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.double()
