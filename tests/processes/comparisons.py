"""Comparisons that take seconds: the smallest of everything, for tests of the command and of its pages."""

from __future__ import annotations

from typing import Any

from regard.compare import cost, positions, recall, translation
from regard.compare.copy_task import CopyTaskSetup
from regard.compare.corpora import CorpusSize

SHAPE = {"preset": "tiny", "d_model": 16, "d_ff": 16, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
TRAIN = {"steps": 2, "batch_tokens": 256, "learning_rate": 1e-3, "warmup": 1}
WORDS = {"vocabulary": 330}
FEW = CorpusSize(120, 4, 10, 2)

TINY: list[tuple[Any, Any]] = [
    (cost, cost.TimingSetup((8, 16), (2, 4, 8, 16), 0.0)),
    (recall, CopyTaskSetup(4, (1, 2, 4), 4, 2, 4, 5, 1e-3, 16, 1)),
    (
        translation,
        translation.TranslationSetup(
            FEW,
            {**SHAPE, "n_decoder_layers": 1},
            {"preset": "tiny", "n_layers": 1, "n_decoder_layers": 1},
            WORDS,
            TRAIN,
        ),
    ),
    (
        positions,
        positions.PositionSweepSetup(
            {"translate": FEW, "tag": FEW}, {"translate": {**SHAPE, "n_decoder_layers": 1}, "tag": SHAPE}, WORDS, TRAIN
        ),
    ),
]
"""The modules that have sizes, each with the one that takes no time."""


def shrink() -> None:
    """Make every comparison of this process a matter of seconds."""
    for module, size in TINY:
        for pace in module.SETUPS:
            module.SETUPS[pace] = size
