"""One tiny run directory of every task with random weights, data files of every kind, and Hugging Face directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.data.labels import Labels
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig
from regard.models.skip_gram import SkipGramConfig
from regard.models.weights import collect_weights, write_tensors
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks import Task
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.embed import EmbedConfig, EmbeddingTask
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.tasks.tag import TagConfig, TaggingTask
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.tasks.vectors import WordVectorConfig, WordVectorTask
from regard.text.tokenizer import (
    ENCODER_SPECIAL_TOKENS,
    LM_SPECIAL_TOKENS,
    SEQ2SEQ_SPECIAL_TOKENS,
    WORD_VECTOR_SPECIAL_TOKENS,
    Tokenizer,
    TokenizerPair,
)
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SENTENCES = [
    f"{article} {adjective} {noun} {verb} in tokyo"
    for article in ("the", "a")
    for adjective in ("red", "slow")
    for noun in ("cat", "dog", "plane", "mat")
    for verb in ("lands", "sits", "runs")
]
WIDTHS: dict[str, Any] = {"preset": "tiny", "d_model": 16, "dropout": 0.0, "n_positions": 64}
SHAPE: dict[str, Any] = {**WIDTHS, "n_layers": 2, "n_heads": 2, "d_ff": 32}


def _train(special_tokens: tuple[str, ...], kind: Any = "wordpiece", size: int = 200) -> Tokenizer:
    return train_tokenizer(SENTENCES, TokenizerConfig(kind=kind, vocabulary=size), special_tokens)


def build_tasks() -> dict[str, tuple[Task, Any]]:
    """Return each task with its vocabulary and labels, and the config of its model."""
    encoder, pair = _train(ENCODER_SPECIAL_TOKENS), _train(SEQ2SEQ_SPECIAL_TOKENS, "bpe", 300)
    encoder_config = TransformerEncoderConfig(**SHAPE)
    return {
        "translate": (
            TranslationTask(TranslateConfig(), TokenizerPair(pair, pair)),
            TransformerSeq2SeqConfig(**SHAPE, n_decoder_layers=2, norm="post", positions="sinusoidal-halves"),
        ),
        "lm": (
            LanguageModelTask(LmConfig(length=32), _train(LM_SPECIAL_TOKENS, "bpe", 300)),
            TransformerLMConfig(**SHAPE),
        ),
        "pretrain": (PretrainingTask(PretrainConfig(length=64), encoder), encoder_config),
        "classify": (ClassificationTask(ClassifyConfig(length=64), encoder, Labels(("no", "yes"))), encoder_config),
        "tag": (TaggingTask(TagConfig(length=64), encoder, Labels(("X", "Y"))), encoder_config),
        "qa": (QuestionAnsweringTask(QuestionAnsweringConfig(length=64), encoder), encoder_config),
        "embed": (EmbeddingTask(EmbedConfig(length=64), encoder), encoder_config),
        "vectors": (
            WordVectorTask(WordVectorConfig(), _train(WORD_VECTOR_SPECIAL_TOKENS, "words", 50)),
            SkipGramConfig(**WIDTHS),
        ),
    }


def write_runs(folder: Path) -> dict[str, Path]:
    """Write a run directory of every task; return their paths by task."""
    paths = {}
    for name, (task, model_config) in build_tasks().items():
        model = task.build_model(model_config)
        initialise_weights(model, torch.Generator().manual_seed(1), 0.3)
        run = RunDirectory(folder / name)
        run.path.mkdir(parents=True)
        tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size)
        settings: Any = task
        data = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
        task.save(run.path)
        write_tensors(run.weights_path, collect_weights(model))
        run.write_config(RunConfig(settings.config, data, tokenizer, model_config, PLACEHOLDER_TRAIN_CONFIG))
        paths[name] = run.path
    return paths


def write_data(folder: Path) -> dict[str, list[str]]:
    """Write training data of every task; return the files by task."""
    reversed_words = [" ".join(reversed(text.split())) for text in SENTENCES]
    labelled = [f"{text}\t{'yes' if 'red' in text else 'no'}" for text in SENTENCES]
    tagged = ["\n".join(f"{word}\t{'XY'[word in ('the', 'a')]}" for word in text.split()) + "\n" for text in SENTENCES]
    answers = [[{"text": "tokyo", "start": text.index("tokyo")}] for text in SENTENCES]
    questions = [
        json.dumps({"question": "where", "context": text, "answers": answer})
        for text, answer in zip(SENTENCES, answers, strict=True)
    ]
    contents = {
        "text.src": SENTENCES,
        "text.tgt": reversed_words,
        "documents.txt": [line for text in SENTENCES for line in (text, text[::-1], "")],
        "labelled.tsv": ["text\tlabel", *labelled],
        "tagged.conll": tagged,
        "questions.jsonl": questions,
        "paraphrases.tsv": [f"{text}\t{text[::-1]}" for text in SENTENCES],
        "masked.txt": [text.replace("tokyo", "[MASK]") for text in SENTENCES[:3]],
    }
    for name, lines in contents.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {
        "translate": ["text.src", "text.tgt"],
        "lm": ["documents.txt"],
        "pretrain": ["documents.txt"],
        "classify": ["labelled.tsv"],
        "tag": ["tagged.conll"],
        "qa": ["questions.jsonl"],
        "embed": ["paraphrases.tsv"],
        "vectors": ["documents.txt"],
        "masked": ["masked.txt"],
    }
    return {task: [str(folder / name) for name in names] for task, names in files.items()}
