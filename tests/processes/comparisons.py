"""Tiny setups of the experiments, for tests of the command and of the report."""

from __future__ import annotations

from typing import Any

from regard.compare import cost, distance, positions, recall, translation
from regard.compare.copy_task import CopyTaskSetup
from regard.compare.corpora import CorpusSize
from regard.compare.majority_task import MajorityTaskSetup
from regard.compare.positions import TaskSetup

MODEL = {"preset": "tiny", "d_model": 16, "d_ff": 16, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
TRAIN = {"steps": 2, "batch_tokens": 256, "learning_rate": 1e-3, "warmup": 1}
TOKENIZER = {"vocabulary": 330}
CORPUS = CorpusSize(120, 4, 10, 2)

TINY: list[tuple[Any, Any]] = [
    (cost, cost.TimingSetup((8, 16), (2, 4, 8, 16), 0.0)),
    (
        recall,
        CopyTaskSetup(
            longest=4, distances=(1, 2, 4), tokens=4, steps=2, batch=4, tested=5, rate=1e-3, width=16, layers=1
        ),
    ),
    (
        translation,
        translation.TranslationSetup(
            CORPUS,
            {**MODEL, "n_decoder_layers": 1},
            {"preset": "tiny", "n_layers": 1, "n_decoder_layers": 1},
            TOKENIZER,
            TRAIN,
        ),
    ),
    (distance, MajorityTaskSetup(4, 3, 2, 4, 5, 1e-3, 16, 2)),
    (
        positions,
        {
            "translate": TaskSetup(CORPUS, {**MODEL, "n_decoder_layers": 1}, TOKENIZER, TRAIN, 1),
            "tag": TaskSetup(CORPUS, MODEL, {}, TRAIN, 1),
            "classify": TaskSetup(CORPUS, MODEL, TOKENIZER, TRAIN, 1),
            "qa": TaskSetup(CORPUS, MODEL, TOKENIZER, TRAIN, 2),
        },
    ),
]
"""Modules with setups, each with its tiny one."""


def shrink() -> None:
    """Replace the setups of every experiment in this process by tiny ones."""
    for module, setup in TINY:
        for pace in module.SETUPS:
            module.SETUPS[pace] = setup
