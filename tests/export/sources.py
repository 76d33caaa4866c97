"""Tiny models with random weights as `regard export` reads them, for the tests of all formats."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import torch
from tiny_models import SHAPE, TRANSLATOR, draw_text

from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.disk import write_json_with_checksum
from regard.export.source_model import SourceModel
from regard.models.blocks import initialise_weights
from regard.models.config import (
    TransformerEncoderConfig,
    TransformerLMConfig,
    TransformerSeq2SeqConfig,
    apply_preset,
)
from regard.models.weights import collect_weights, write_tensors
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, LM_SPECIAL_TOKENS, Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer


def train(special_tokens: tuple[str, ...] | None = None, kind: str = "bpe", seed: int = 0) -> Tokenizer:
    """Return a vocabulary of the words of sample texts."""
    texts = [draw_text(random.Random(i + seed)) for i in range(60)]
    config = TokenizerConfig(kind=kind, vocabulary=300 + seed)  # type: ignore[arg-type]
    return train_tokenizer(texts, config, *([special_tokens] if special_tokens else []))


JOINT, OTHER = train(), train(seed=7)
WORDPIECE = train(ENCODER_SPECIAL_TOKENS, "wordpiece")
DOCUMENTS = train(LM_SPECIAL_TOKENS)


def build(task: Any, config: Any) -> SourceModel:
    """Return a model with every weight drawn at random, also biases and norms."""
    model = draw_weights(task.build_model(config), 0.3, 0.1)
    tokenizers = task.tokenizers
    tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size, joint=tokenizers.is_joint)
    no_data = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    run_config = RunConfig(task.config, no_data, tokenizer, config, PLACEHOLDER_TRAIN_CONFIG)
    return SourceModel(Path("tiny"), run_config, task, model.eval())


def draw_weights(model: Any, std: float, noise: float) -> Any:
    """Draw weights of this standard deviation, or by Glorot, and add noise to all, also biases and norms."""
    generator = torch.Generator().manual_seed(1)
    initialise_weights(model, generator, std)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=noise)
    return model


def translator(*, joint: bool = True, task: dict[str, Any] | None = None, **shape: Any) -> SourceModel:
    """Return a translator."""
    tokenizers = TokenizerPair(JOINT, JOINT if joint else OTHER)
    config = TransformerSeq2SeqConfig(**apply_preset({**TRANSLATOR, "n_positions": 48, **shape}))
    return build(TranslationTask(TranslateConfig(**(task or {})), tokenizers), config)


def language_model(**shape: Any) -> SourceModel:
    """Return a language model."""
    return build(LanguageModelTask(LmConfig(length=16), DOCUMENTS), TransformerLMConfig(**{**SHAPE, **shape}))


def encoder(task: Any, **shape: Any) -> SourceModel:
    """Return an encoder with the heads of a task."""
    return build(task, TransformerEncoderConfig(**{**SHAPE, **shape}))


def save(source: SourceModel, directory: Path, metrics: dict[str, Any] | None = None) -> Path:
    """Write a run directory, as training does."""
    directory.mkdir(parents=True)
    run = RunDirectory(directory)
    source.task.save(directory)
    write_tensors(run.weights_path, collect_weights(source.model))
    run.write_config(source.run_config)
    if metrics is not None:
        write_json_with_checksum(run.metrics_path, metrics)
    return directory


def usage_of(card: Path) -> str:
    """Return the script of a model card."""
    found = re.search(r"^```python\n(.*?)^```$", card.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, card
    return found[1]
