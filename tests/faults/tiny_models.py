"""One tiny loaded model of every kind, with random weights wide enough that no two results are alike."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.api import Classifier, LanguageModel, MaskedLanguageModel, QuestionAnswerer, Tagger, Translator
from regard.api.loading import MODEL_CLASSES
from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.data.labels import Labels
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig, apply_preset
from regard.models.recurrent.config import RecurrentSeq2SeqConfig
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.tasks import Task
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.tasks.tag import TagConfig, TaggingTask
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, LM_SPECIAL_TOKENS, Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

WORDS = ["the", "a", "red", "slow", "cat", "dog", "plane", "lands", "sits", "runs", "in", "on", "near", "tokyo", "mat"]
SHAPE = {"preset": "tiny", "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "dropout": 0.0, "n_positions": 64}
TRANSLATOR = {**SHAPE, "n_decoder_layers": 2, "n_positions": 24}  # they seldom end a translation by themselves
RECURRENT = {"preset": "tiny", "d_model": 16, "n_layers": 1, "n_decoder_layers": 1, "dropout": 0.0, "n_positions": 24}
INIT_STD = 0.3


def draw_text(generator: random.Random, least: int = 3, most: int = 8) -> str:
    """Return a sentence of random words."""
    return " ".join(generator.choices(WORDS, k=generator.randint(least, most)))


@dataclass(frozen=True)
class TinyModels:
    """One model for each task, and a translator that is recurrent with attention and input feeding."""

    translator: Translator
    recurrent: Translator
    language_model: LanguageModel
    masked: MaskedLanguageModel
    classifier: Classifier
    tagger: Tagger
    answerer: QuestionAnswerer


def build_models(device: str = "cpu") -> TinyModels:
    """Return the models; the same weights each time."""
    encoder, pairs = _train(ENCODER_SPECIAL_TOKENS, kind="wordpiece"), _train()
    joint = TranslationTask(TranslateConfig(), TokenizerPair(pairs, pairs))
    shape = TransformerEncoderConfig(**SHAPE)
    built: tuple[tuple[Task, Any], ...] = (
        (joint, TransformerSeq2SeqConfig(**apply_preset(TRANSLATOR))),
        (joint, RecurrentSeq2SeqConfig(**RECURRENT, attention="additive", input_feeding=True)),
        (LanguageModelTask(LmConfig(length=16), _train(LM_SPECIAL_TOKENS)), TransformerLMConfig(**SHAPE)),
        (PretrainingTask(PretrainConfig(length=32), encoder), shape),
        (ClassificationTask(ClassifyConfig(pooling="attention"), encoder, Labels(("no", "yes"))), shape),
        (TaggingTask(TagConfig(), encoder, Labels(("NOUN", "OTHER", "VERB"))), shape),
        (QuestionAnsweringTask(QuestionAnsweringConfig(), encoder, Labels(("answer",))), shape),
    )
    models: list[Any] = [_load(task, config, seed, torch.device(device)) for seed, (task, config) in enumerate(built)]
    return TinyModels(*models)


def _train(special_tokens: tuple[str, ...] | None = None, kind: str = "bpe") -> Tokenizer:
    texts = [draw_text(random.Random(seed)) for seed in range(60)]
    config = TokenizerConfig(kind=kind, vocabulary=300)  # type: ignore[arg-type]
    return train_tokenizer(texts, config, *([special_tokens] if special_tokens else []))


def _load(task: Any, model_config: Any, seed: int, device: torch.device) -> Any:
    """Return the model as `regard.load` would from a run directory."""
    network = task.build_model(model_config)
    initialise_weights(network, torch.Generator().manual_seed(seed), INIT_STD)
    tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size, joint=True)
    no_data = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    run_config = RunConfig(task.config, no_data, tokenizer, model_config, PLACEHOLDER_TRAIN_CONFIG)
    return MODEL_CLASSES[task.name](Path("tiny"), run_config, task, network.eval(), device)
