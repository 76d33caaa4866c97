"""The skip-gram model: two vectors for each word, one as a centre and one as a context (Mikolov et al. 2013).

Its vectors of centres are the result; those of contexts are needed only to train them. A batch touches few rows of
either table, so their gradients are sparse (training/rowwise_adagrad.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from regard.data.skip_gram import SkipGramBatch
from regard.models.config import ConfigTable, ModelConfig, PositionCount, Spread
from regard.nn import Loss
from regard.nn.skip_gram import skip_gram_loss


@dataclass(frozen=True, kw_only=True)
class SkipGramConfig(ModelConfig):
    """Word vectors; `n_positions` is the longest segment of text that is read at once."""

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        name: {"d_model": width, "dropout": 0.0}
        for name, width in (("tiny", 50), ("mini", 100), ("small", 100), ("medium", 200), ("base", 300))
    }
    recipe_defaults: ClassVar[Mapping[str, ConfigTable]] = {"train": {"compiled": False, "precision": "float32"}}

    architecture: str = "skip-gram"
    n_positions: PositionCount = 1 << 15
    spread: Spread = 0.05


class SkipGramModel(nn.Module):
    """A vector of each word as a centre (`embedding`), and as a context (`context_embedding`)."""

    def __init__(self, config: SkipGramConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary_size, config.d_model, sparse=True)
        self.context_embedding = nn.Embedding(vocabulary_size, config.d_model, sparse=True)

    def loss(self, batch: SkipGramBatch, *, window: int, negatives: int) -> Loss:
        """Return the loss of all pairs of a batch."""
        return skip_gram_loss(
            self.embedding(batch.centres),
            self.context_embedding(batch.columns),
            batch.n_before,
            batch.n_after,
            window=window,
            negatives=negatives,
        )
