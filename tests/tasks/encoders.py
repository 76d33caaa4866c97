"""Small texts, vocabularies and encoders for the tests of tasks on an encoder."""

from __future__ import annotations

import random
from typing import Any

import torch

from regard.models.blocks import initialise_weights
from regard.models.config import TransformerEncoderConfig
from regard.models.encoder import TransformerEncoder
from regard.tasks.shared.encoder_task import EncoderTask
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

WORDS = ["cat", "dog", "plane", "lands", "sits", "in", "tokyo", "the", "a", "red", "slow", "seven", "runs", "on", "mat"]
CPU = torch.device("cpu")


def sentences(n: int, *, seed: int = 0, least: int = 3, most: int = 9) -> list[str]:
    """Sentences of drawn words."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(least, most))) for _ in range(n)]


DISTINCT = [first + second for first in "abcdefghijkl" for second in "mnopqrstuvwxyz"]
"""Words of which each is a piece by itself."""


def distinct_words(size: int = 400) -> Tokenizer:
    """A vocabulary in which all of `DISTINCT` are different tokens, or of several pieces where it is smaller."""
    return train_tokenizer(
        [" ".join(DISTINCT)] * 2, TokenizerConfig(kind="wordpiece", vocabulary=size), ENCODER_SPECIAL_TOKENS
    )


def documents(n: int, *, seed: int = 0) -> list[str]:
    """Documents of drawn sentences, as the task reads them."""
    generator = random.Random(seed)
    drawn = iter(sentences(n * 8, seed=seed))
    return ["\n".join(next(drawn) for _ in range(generator.randint(2, 8))) for _ in range(n)]


def vocabulary(kind: str = "wordpiece", size: int = 300, **more: Any) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocabulary=size, **more)  # type: ignore[arg-type]
    return train_tokenizer(sentences(60), config, ENCODER_SPECIAL_TOKENS)


def small(task: EncoderTask, *, seed: int = 0, **shape: Any) -> TransformerEncoder:
    """The encoder of a task, tiny, with weights drawn."""
    table = {"preset": "tiny", "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
    model = task.build_model(TransformerEncoderConfig(**{**table, "n_positions": 64, **shape}))
    initialise_weights(model, torch.Generator().manual_seed(seed))
    return model.eval()
