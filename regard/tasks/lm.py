"""Language modelling: a causal language model trained on plain text, which continues prompts.

A document begins after the end-of-document token, and ends with it. Long ones are read in windows of `task.length`
tokens, each beginning with the token that the one before predicts last, so every token is predicted exactly once in an
epoch; later epochs split at other positions (data/lm_windows.py):

    document    <|endoftext|>  The  cat  sat  on  the  mat  <|endoftext|>
    window 1    <|endoftext|>  The  cat  sat                                  predicts  The cat sat on
    window 2                                  on  the  mat                    predicts  the mat <|endoftext|>

With ``direction = "backward"`` windows are split at the same positions, and each is read from its end. Prompts are
continued by predict/text_generation.py; predict/perplexity.py evaluates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.config import Table, Tables
from regard.data.batches import CausalLMBatch, build_causal_lm_batch
from regard.data.corpus import Corpus, DataConfig, Example
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.models.architectures import CAUSAL_LMS, architecture_of
from regard.models.config import ModelConfig, apply_preset
from regard.models.exchange import HFCheckpoint
from regard.models.interfaces import CausalLM
from regard.nn import Loss
from regard.predict.document_tokenizer import DocumentTokenizer
from regard.predict.perplexity import PerplexityResult, check_window, measure_perplexity
from regard.predict.text_generation import TextGenerator
from regard.predict.unknown_tokens import warn_about_unknown_tokens
from regard.progress import warn
from regard.ranges import check_table
from regard.tasks.shared.windowed_text import WINDOW_LENGTHS, DocumentChunkReader, WindowedTextTask
from regard.tasks.task import TrainingScale, ValidationMetric
from regard.text.documents import DocumentChunk, read_document_chunks
from regard.text.tokenizer import LM_SPECIAL_TOKENS, TOKENIZER_FILE, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

CPU_WINDOW_LENGTH, CPU_BATCH_TOKENS, CPU_TRAINING_TOKENS = 64, 1024, 4_000_000
"""Training on a CPU: tokens of a window, of a step, and of all steps."""


@dataclass(frozen=True, kw_only=True)
class LmConfig:
    """The recipe's ``[task]`` table.

    `documents` are separated by blank lines, or each file is one. A prompt is the beginning of a document, or, "bare",
    any part of one, as for GPT-2. `start` and `end` name the tokens before and after documents in vocabularies from
    elsewhere, where both are not the one that ends texts. In the direction "backward" the model reads a document from
    its end and predicts the token before each (ELMo, Peters et al. 2018, eq. 2).
    """

    name: Literal["lm"] = "lm"
    length: Annotated[int, WINDOW_LENGTHS] = 256
    documents: Literal["parted", "files"] = "parted"
    prompts: Literal["begin", "bare"] = "begin"
    start: str = ""
    end: str = ""
    direction: Literal["forward", "backward"] = "forward"

    def __post_init__(self) -> None:
        check_table(self, "task")


class LanguageModelTask(WindowedTextTask):
    """Causal language modelling of plain text."""

    name = "lm"
    verb = "generate"
    Config = LmConfig
    architectures = CAUSAL_LMS
    special_token_names = LM_SPECIAL_TOKENS
    inherited_config_keys = ("prompts", "start", "end", "direction")
    validation_metric = ValidationMetric("valid_perplexity", "perplexity", higher_is_better=False)

    def __init__(self, config: LmConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.verb = "evaluate" if self.reads_backward else "generate"

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        return language_modelling_defaults(scale, device)

    @classmethod
    def default_task_config(cls, device: torch.device, model_table: Table) -> dict[str, Any]:
        length = CPU_WINDOW_LENGTH if device.type == "cpu" and not model_table.get("start") else LmConfig.length
        return {"length": min(length, cls._max_positions(model_table))}

    @classmethod
    def _max_positions(cls, model_table: Table, where: str = "") -> int:
        """Return the positions that a ``[model]`` table or its preset asks for; without either, the largest number."""
        shape = apply_preset(
            {"preset": "", **model_table}, architecture_of(cls.architectures, model_table, where).Config
        )
        n_positions: int = shape.get("n_positions", WINDOW_LENGTHS.most)
        return n_positions

    @classmethod
    def check_recipe(cls, tables: Tables, where: str) -> None:
        length, n_positions = tables["task"].get("length", 0), cls._max_positions(tables["model"], where)
        # A data.max_length that fits is enough: the resolved recipe of a run on little text has one.
        if min(length, tables["data"].get("max_length", length)) > n_positions:
            raise ConfigError(
                f"{where}: task.length = {length}, but model.n_positions = {n_positions}; "
                f"give task.length={n_positions} or less, or more positions"
            )

    @classmethod
    def make_reader(cls, config: LmConfig, data: DataConfig) -> DocumentChunkReader:
        return DocumentChunkReader(one_per_file=config.documents == "files", split_if_few=not data.valid)

    @classmethod
    def from_corpus(
        cls,
        config: LmConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> LanguageModelTask:
        if tokenizer_config.kind == "wordpiece":
            accepted = "accepted: bpe, unigram, characters"
            raise ConfigError(f'tokenizer.kind = "wordpiece" forgets spaces and line ends; {accepted}')
        return cls(
            config,
            pretrained_tokenizer
            or train_tokenizer(
                corpus.train_texts(0), tokenizer_config, cls.special_token_names, add_prefix_space=False
            ),
        )

    @classmethod
    def load(cls, config: LmConfig, tokenizer_config: TokenizerConfig, directory: Path) -> LanguageModelTask:
        return cls(config, Tokenizer.load(directory / TOKENIZER_FILE, () if config.end else ("end",)))

    @classmethod
    def from_hf_checkpoint(cls, checkpoint: HFCheckpoint) -> LanguageModelTask:
        return cls(LmConfig(**checkpoint.task), checkpoint.tokenizers.source)

    @cached_property
    def end_id(self) -> int:
        """The token that ends a document."""
        return self.tokenizer.token_to_id(self.config.end) if self.config.end else self.tokenizer.special_id("end")

    @cached_property
    def start_id(self) -> int:
        """The token before a document."""
        return self.tokenizer.token_to_id(self.config.start) if self.config.start else self.end_id

    @property
    def reads_backward(self) -> bool:
        """True if the model predicts the token before each, not the one after it."""
        backward: bool = self.config.direction == "backward"
        return backward

    @property
    def export_problem(self) -> str:  # type: ignore[override]
        return 'task.direction = "backward": other libraries read forward' if self.reads_backward else ""

    @cached_property
    def document_tokenizer(self) -> DocumentTokenizer:
        """The vocabulary with the tokens around documents, and the form of a prompt."""
        return DocumentTokenizer(self.tokenizer, self.start_id, self.end_id, self.config.prompts == "begin")

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        return [self.document_tokenizer.encode_chunks([DocumentChunk(*example) for example in examples])]

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        """Warn if windows cannot be filled, and count unknown tokens.

        A chunk begins with a token that the one before it predicts.
        """
        unknown, column = self.tokenizer.find_special_id("unknown"), store["text"]
        n_tokens = len(column.ids) - len(column)
        if n_tokens < self.max_length:
            warn(f"{n_tokens:,} tokens to {store.purpose} on do not fill one window of task.length = {self.max_length}")
        if unknown is not None:
            first = column.ids[column.offsets[:-1]]
            n_unknown = column.count_ids(self.vocabulary_size)[unknown] - np.count_nonzero(first == unknown)
            warn_about_unknown_tokens(int(n_unknown), n_tokens, scope=f" to {store.purpose} on")

    def make_batch(self, store: TokenStore, placement: Placement) -> CausalLMBatch:
        return build_causal_lm_batch(
            self.cut_windows(store), placement, pad_id=self.end_id, backward=self.reads_backward
        )

    def build_model(self, config: ModelConfig) -> CausalLM:
        model: CausalLM = self.architectures[config.architecture].Model(config, self.vocabulary_size)
        return model

    def compute_loss(self, model: Any, batch: CausalLMBatch) -> Loss:
        loss: Loss = model.loss(batch.rows, batch.labels)
        return loss

    def compute_validation_metrics(
        self, model: Any, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return nothing: the perplexity follows from the loss."""
        return {}

    def evaluate(
        self,
        model: Any,
        data: Sequence[str],
        device: torch.device,
        window: int | None = None,
        stride: int | None = None,
    ) -> PerplexityResult:
        """Return the perplexity of plain text, read in windows, each `stride` tokens after the one before."""
        window = min(self.max_length, model.config.n_positions) if window is None else window
        check_window(window, stride, model.config.n_positions)
        documents = read_document_chunks(data, one_document_per_file=self.config.documents == "files")
        tokenizer, backward = self.document_tokenizer, self.reads_backward
        return measure_perplexity(model, tokenizer, documents, device, window=window, stride=stride, backward=backward)

    def make_predictor(self, model: CausalLM, device: torch.device) -> TextGenerator:
        """Return the predictor that generates text with a trained model."""
        return TextGenerator(model, self.document_tokenizer, device)


def language_modelling_defaults(scale: TrainingScale, device: torch.device) -> dict[str, Any]:
    """Return training defaults: a cosine schedule from a rate that falls with the width, and weight decay.

    A CPU reads four million tokens, in minutes, or all of the text once where there is more, but none fifty times.
    """
    rate = min(2e-3, 0.4 / scale.d_model)
    table = {
        "learning_rate": round(rate / 10 if scale.is_finetuning else rate, 6),
        "schedule": "cosine",
        "weight_decay": 0.1,
        "average": 1,
    }
    if device.type != "cpu":
        return table
    tokens = min(50 * scale.n_tokens, max(CPU_TRAINING_TOKENS, scale.n_tokens))
    return {
        **table,
        "batch_tokens": CPU_BATCH_TOKENS,
        "steps": lambda batch: max(200, 100 * round(tokens / batch / 100)),
        "validate_every": lambda steps: max(100, steps // 10),
    }
