"""Base classes of the tasks on an encoder: inputs with special tokens, packing, labels.

Each text is stored as it enters the model, special ids included, with the position where its second part begins; its
labels are the task's own. `pretrain.py` builds on this, `classify.py`, `tag.py` and `qa.py` on `LabelledTask`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from regard.data.batches import SegmentedRows, build_segmented_rows
from regard.data.columns import ColumnSpec, ScalarColumnSpec, TokenColumnSpec
from regard.data.labels import Labels
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.models.architectures import ENCODER_MODELS
from regard.models.config import EncoderModelConfig
from regard.models.exchange import HFCheckpoint
from regard.models.interfaces import EncoderModel
from regard.models.layer_combination import COMBINATION_NAME, build_layer_combination
from regard.predict.embedding import EmbeddingDefaults
from regard.progress import warn
from regard.ranges import Range
from regard.tasks.shared.single_tokenizer import SingleTokenizerTask
from regard.tasks.task import Task, TrainingScale
from regard.text.special_tokens import ENCODER_ROLES, EncodedInput, SpecialTokenTemplate, is_lm_vocabulary
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, TOKENIZER_FILE, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig

INPUT_LENGTHS = Range(16, (1 << 15) - 1)
"""Accepted values of ``task.length``."""

MIN_EXAMPLES_FOR_LABEL_WARNING = 20
"""The number of examples from which nearly unique labels are taken for another column."""

FROZEN_ENCODER_RATE = 5e-3
"""The learning rate of heads on a frozen encoder."""


class EncoderTask(SingleTokenizerTask):
    """A task on an encoder.

    Inputs are truncated to `length` tokens, special ones included. `pooling` and `normalised` are the defaults of
    embedding texts (predict/embedding.py).
    """

    architectures = ENCODER_MODELS
    default_tokenizer_kind = "wordpiece"
    special_token_names = ENCODER_SPECIAL_TOKENS
    pooling: str = "mean"
    normalised: bool = False

    def __init__(self, config: Any, tokenizer: Tokenizer, labels: Labels = Task.labels) -> None:
        super().__init__(config, tokenizer)
        self.labels = labels

    @classmethod
    def from_hf_checkpoint(cls, checkpoint: HFCheckpoint) -> EncoderTask:
        return cls(cls.Config(**checkpoint.task), checkpoint.tokenizers.source, Labels(checkpoint.labels))

    @cached_property
    def template(self) -> SpecialTokenTemplate:
        return SpecialTokenTemplate.from_tokenizer(self.tokenizer)

    @property
    def input_columns(self) -> tuple[ColumnSpec, ...]:
        """The columns of the store that hold inputs: ids, special ones included, and where the second part begins."""
        return TokenColumnSpec("text", self.vocabulary_size), ScalarColumnSpec("token_type_boundary")

    @property
    def embedding_defaults(self) -> EmbeddingDefaults:
        """The defaults of embedding with a model of this task."""
        return EmbeddingDefaults(self.pooling, self.normalised, self.max_length)

    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        return store.lengths("text")

    @abstractmethod
    def build_heads(self, config: EncoderModelConfig) -> Mapping[str, nn.Module]:
        """Return the heads of this task."""

    def build_model(self, config: EncoderModelConfig) -> EncoderModel:
        model: EncoderModel = self.architectures[config.architecture].Model(
            config, self.vocabulary_size, self.build_heads(config)
        )
        return model

    def pack_rows(self, store: TokenStore, placement: Placement) -> SegmentedRows:
        """Return the texts of a placement, packed into rows."""
        text, boundaries = store["text"], store.values("token_type_boundary")
        return build_segmented_rows(text, boundaries, placement, placement.widths[0], pad_id=self.template.pad_id)


class LabelledTask(EncoderTask):
    """A task that learns labels, from few examples or from as many as people could label."""

    has_perplexity = False
    has_cacheable_features = True

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        return fine_tuning_defaults(scale)

    def build_layer_combination(self, config: EncoderModelConfig) -> tuple[dict[str, nn.Module], int]:
        """Return the module that combines ``task.layers``, if it is not the last alone, and the width of the result."""
        combination = build_layer_combination(self.config.layers, config)
        return ({}, config.d_model) if combination is None else ({COMBINATION_NAME: combination}, combination.width)

    @classmethod
    def load(cls, config: Any, tokenizer_config: TokenizerConfig, directory: Path) -> LabelledTask:
        return cls(config, load_encoder_tokenizer(directory / TOKENIZER_FILE), Labels.load(directory))

    def save(self, directory: Path) -> None:
        super().save(directory)
        self.labels.save(directory)


def load_encoder_tokenizer(path: Path) -> Tokenizer:
    """Return the vocabulary of an encoder, or that of the language model that the encoder was."""
    tokenizer = Tokenizer.load(path)
    return tokenizer if is_lm_vocabulary(tokenizer) else Tokenizer.load(path, ENCODER_ROLES)


def check_labels(labels: Labels) -> None:
    """Refuse a single label; warn if nearly every label is unique."""
    if len(labels) < 2:
        raise ConfigError(f"only one label, '{labels.format_names()}': nothing to tell apart; is it the right column?")
    if 2 * len(labels) > sum(labels.counts) > MIN_EXAMPLES_FOR_LABEL_WARNING:
        warn(f"{len(labels):,} labels for {sum(labels.counts):,} examples; is it the right column?")


def max_texts_per_row(placement: Placement) -> int:
    """Return the number of texts a row may hold: the shortest takes two positions."""
    return 1 if placement.one_item_per_row else max(1, placement.widths[0] // 2)


def read_stored_inputs(store: TokenStore, items: Int[np.ndarray, " items"]) -> list[EncodedInput]:
    """Return inputs from the store."""
    boundaries = store.values("token_type_boundary")[items].tolist()
    return [
        EncodedInput(store["text"][i].tolist(), boundary, 1, boundary)
        for i, boundary in zip(items.tolist(), boundaries, strict=True)
    ]


def input_entries(inputs: Sequence[EncodedInput]) -> list[list[Any]]:
    """Return the entries of a task's `input_columns`."""
    return [[each.ids for each in inputs], [each.token_type_boundary for each in inputs]]


def fine_tuning_defaults(scale: TrainingScale) -> dict[str, Any]:
    """Return training defaults: few epochs at a low rate from a pre-trained model, many from scratch.

    About 32 texts a step; narrow models bear higher rates, and small data needs more passes to be stable. Heads on a
    frozen encoder bear the rate of a model from scratch, and need as many passes.
    """
    mean = scale.n_tokens / max(1, scale.n_examples)
    batch_tokens = 512 * max(1, round(32 * mean / 512))
    epochs, rate = 20, FROZEN_ENCODER_RATE if scale.is_frozen else min(1e-3, 0.1 / scale.d_model)
    if scale.is_finetuning and not scale.is_frozen:
        epochs, rate = 10 if scale.n_examples < 10_000 else 4, 0.023 / scale.d_model
    return {
        "batch_tokens": batch_tokens,
        "steps": lambda batch: max(100, round(epochs * scale.n_tokens / batch)),
        "learning_rate": round(rate, 6),
        "schedule": "linear",
        "warmup": lambda steps: max(1, steps // 10),
        "weight_decay": 0.01,
        "validate_every": lambda steps: max(20, steps // (2 * epochs)),
        "average": 1,
        "patience": 0 if scale.is_finetuning else 10,
    }
