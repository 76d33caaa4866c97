"""Word vectors: skip-gram with negative sampling on plain text (Mikolov et al. 2013).

A word's vector predicts the words around it. Every word of the vocabulary has one vector, whatever its context; rarer
words are left out of the text before windows are drawn (data/skip_gram.py). Classifiers, taggers and recurrent models
start from the vectors (training/pretrained_vectors.py); the API finds nearest words and analogies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.config import Tables
from regard.data.corpus import Corpus, DataConfig, Example
from regard.data.order import Placement
from regard.data.skip_gram import SkipGramBatch, SkipGramSampler
from regard.data.store import TokenStore
from regard.data.word_vectors import WordVectorTable
from regard.errors import ConfigError
from regard.models.architectures import WORD_VECTOR_MODELS
from regard.models.finite_outputs import check_finite
from regard.models.skip_gram import SkipGramConfig, SkipGramModel
from regard.nn import Loss
from regard.progress import warn
from regard.ranges import Range, check_table
from regard.tasks.shared.windowed_text import WINDOW_LENGTHS, DocumentChunkReader, WindowedTextTask
from regard.tasks.task import TrainingScale, ValidationMetric
from regard.text.tokenizer import TOKENIZER_FILE, WORD_VECTOR_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

BATCH_WORDS = {"cpu": 8192, "cuda": 1 << 16}
"""Words of a step, by device: few where matrix multiplications of a block use the whole device."""

EPOCHS = 5
"""Times that the text is read."""

MAX_UNKNOWN_FRACTION = 0.2
"""Fraction of words outside the vocabulary above which there is a warning."""


@dataclass(frozen=True, kw_only=True)
class WordVectorConfig:
    """The recipe's ``[task]`` table.

    A context word is at most `window` words away; `negatives` random words are drawn for each. Of words more frequent
    than `subsample`, some are left out. `length` is the longest stretch of text that windows do not cross.
    """

    name: Literal["vectors"] = "vectors"
    window: Annotated[int, Range(1, 64)] = 5
    negatives: Annotated[int, Range(1, 64)] = 5
    subsample: Annotated[float, Range(0.0, 1.0, zero="keep all words")] = 1e-3
    length: Annotated[int, WINDOW_LENGTHS] = 512

    def __post_init__(self) -> None:
        check_table(self, "task")


class WordVectorTask(WindowedTextTask):
    """Skip-gram word vectors of plain text."""

    name = "vectors"
    verb = "match"
    Config = WordVectorConfig
    architectures = WORD_VECTOR_MODELS
    default_tokenizer_kind = "words"
    special_token_names = WORD_VECTOR_SPECIAL_TOKENS
    validation_metric = ValidationMetric("valid_loss", "loss", higher_is_better=False)
    has_perplexity = False
    has_evaluation = False
    example_unit = "segments of text"
    sampler: SkipGramSampler

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        return {
            "batch_tokens": BATCH_WORDS.get(device.type, BATCH_WORDS["cpu"]),
            "steps": lambda batch: max(100, round(EPOCHS * scale.n_tokens / batch)),
            "learning_rate": 0.1,
            "schedule": "linear",
            "warmup": 0,
            "validate_every": lambda steps: max(50, steps // 10),
            "average": 1,
            "patience": 0,
        }

    @classmethod
    def check_recipe(cls, tables: Tables, where: str) -> None:
        if tables["tokenizer"].get("kind", "words") != "words":
            raise ConfigError(f'{where}: tokenizer.kind = "{tables["tokenizer"]["kind"]}"; vectors are of "words"')
        for key, accepted in (("precision", "float32"), ("compiled", False), ("accumulate", 1), ("freeze", "none")):
            if tables["train"].get(key, accepted) != accepted:
                raise ConfigError(f"{where}: train.{key} = {tables['train'][key]}; word vectors take {accepted} only")

    @classmethod
    def make_reader(cls, config: WordVectorConfig, data: DataConfig) -> DocumentChunkReader:
        return DocumentChunkReader(split_if_few=not data.valid)

    @classmethod
    def from_corpus(
        cls,
        config: WordVectorConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> WordVectorTask:
        if pretrained_tokenizer is not None:
            raise ConfigError("word vectors start from random ones; leave out --from")
        return cls(config, train_tokenizer(corpus.train_texts(0), tokenizer_config, cls.special_token_names))

    @classmethod
    def load(cls, config: WordVectorConfig, tokenizer_config: TokenizerConfig, directory: Path) -> WordVectorTask:
        return cls(config, Tokenizer.load(directory / TOKENIZER_FILE, ("unknown",)))

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """Return the words of each text, and an unknown one that ends it: windows leave out their last word."""
        end = self.tokenizer.special_id("unknown")
        return [[[*ids, end] for ids in self.tokenizer.encode_batch([text for text, *_ in examples])]]

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        """Say if many words are outside the vocabulary."""
        column, n_ends = store["text"], len(store)
        n_words = len(column.ids) - n_ends
        n_unknown = int(column.count_ids(self.vocabulary_size)[self.tokenizer.special_id("unknown")]) - n_ends
        if n_unknown > MAX_UNKNOWN_FRACTION * n_words:
            fraction = f"{n_unknown:,} of {n_words:,} words to {store.purpose} on"
            warn(f"{fraction} are outside the vocabulary and left out; raise tokenizer.vocabulary, or give more text")

    def collect_training_statistics(self, store: TokenStore) -> None:
        counts = store["text"].count_ids(self.vocabulary_size)
        self.sampler = SkipGramSampler.from_counts(
            counts,
            subsample=self.config.subsample,
            window=self.config.window,
            excluded_ids=[self.tokenizer.special_id("unknown")],
        )

    def make_batch(self, store: TokenStore, placement: Placement) -> SkipGramBatch:
        return self.sampler.make_batch(self.cut_windows(store), placement)

    def build_model(self, config: SkipGramConfig) -> SkipGramModel:
        model: SkipGramModel = self.architectures[config.architecture].Model(config, self.vocabulary_size)
        return model

    def compute_loss(self, model: Any, batch: SkipGramBatch) -> Loss:
        loss: Loss = model.loss(batch, window=self.config.window, negatives=self.config.negatives)
        return loss

    def compute_validation_metrics(
        self, model: Any, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return nothing: the loss on held-out text says how well words predict their contexts."""
        return {}

    def word_vectors(self, model: Any) -> WordVectorTable:
        """Return the words of the vocabulary, the most frequent first, and their vectors."""
        ids = [index for index in range(self.vocabulary_size) if index not in self.tokenizer.special_ids]
        vectors = check_finite(model.embedding.weight.detach().float().cpu()).numpy()[ids]
        return WordVectorTable([self.tokenizer.id_to_token(index) for index in ids], vectors)
