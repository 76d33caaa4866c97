"""Pre-training of an encoder: masked language modelling and next-sentence prediction (Devlin 2019, Liu 2019).

Documents are split into blocks of text. With "masked+next" an input is a pair of blocks, half of them adjacent in their
document, half with a second block from another one; with "masked" it is one longer block. Pairs are drawn once, when
the text is encoded; masked tokens are drawn anew for every batch of every epoch (shared/token_masking.py), and the
softmax over the vocabulary is computed at these alone. predict/mask_filling.py fills masks with a trained model.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.config import IN_TRAINING
from regard.data.batches import EncoderBatch, arrange_by_segment
from regard.data.columns import ColumnSpec, ScalarColumnSpec
from regard.data.corpus import ENCODING_CHUNK_BYTES, MAX_TOKENIZER_BYTES, Corpus, DataConfig, Example, ExampleReader
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, InputError
from regard.metrics import perplexity
from regard.models.architectures import MASKED_LMS
from regard.models.config import EncoderModelConfig, TransformerEncoderConfig
from regard.models.exchange import HFCheckpoint
from regard.models.finite_outputs import check_finite
from regard.models.heads import POOLINGS, MaskedLMHead, Pooler
from regard.models.interfaces import EncoderModel
from regard.nn import IGNORE, Linear, Loss, cross_entropy
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.mask_filling import NO_MASKED_HEAD_MESSAGE, MaskFiller, compute_masked_lm_logits
from regard.predict.next_sentence import NextSentencePredictor, compute_next_sentence_logits
from regard.ranges import Range, check_table
from regard.tasks.shared.encoder_task import (
    INPUT_LENGTHS,
    EncoderTask,
    max_texts_per_row,
    read_stored_inputs,
)
from regard.tasks.shared.next_sentence_prediction import (
    ID_TYPE,
    Ids,
    pair_adjacent_blocks,
    sample_next_sentence_pairs,
    split_into_blocks,
    warn_about_few_negatives,
)
from regard.tasks.shared.single_tokenizer import refuse_columns
from regard.tasks.shared.token_masking import MaskedTokens, TokenMasker
from regard.tasks.task import TrainingScale, ValidationMetric
from regard.text.documents import document_paths, read_documents
from regard.text.fingerprints import hash_text
from regard.text.special_tokens import ENCODER_ROLES, EncodedInput
from regard.text.tokenizer import TOKENIZER_FILE, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

OBJECTIVES = {
    "masked+next": ("masked", "pooler", "next"),
    "masked": ("masked",),
    "next": ("pooler", "next"),
    "pooled": ("pooler",),
    "none": (),
}
"""The heads of each objective; an imported encoder may have none that can be trained."""

PAIRING_CHUNK_BYTES = MAX_TOKENIZER_BYTES
"""Bytes of the documents that next-sentence pairs are drawn from at a time; the documents are in memory."""

SCORING_BATCH_SIZE = 32
"""Texts of a batch in validation and evaluation."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """The recipe's ``[task]`` table; `pooling` and `normalised` are the defaults of embedding texts."""

    name: Literal["pretrain"] = "pretrain"
    objective: Literal["masked+next", "masked", "next", "pooled", "none"] = "masked+next"
    length: Annotated[int, INPUT_LENGTHS] = 128
    masked: Annotated[float, Range(0.01, 0.9), IN_TRAINING] = 0.15
    pooling: Literal["cls", "mean", "max", "last"] = "mean"
    normalised: bool = False

    def __post_init__(self) -> None:
        check_table(self, "task")
        assert self.pooling in POOLINGS, self.pooling


class DocumentReader(ExampleReader):
    """Reader of documents as lines without surrounding spaces."""

    unit = "documents (with blank lines between them)"
    examples_have_lines = True

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return document_paths(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        refuse_columns(columns)
        return read_documents(data)


class PretrainingTask(EncoderTask):
    """From plain text to an encoder."""

    name = "pretrain"
    verb = "fill"
    Config = PretrainConfig
    architectures = MASKED_LMS
    example_unit = "texts"
    inherited_config_keys = ("pooling", "normalised")
    max_scored_examples = 1000
    validation_metric = ValidationMetric("valid_perplexity", "perplexity of masked words", higher_is_better=False)

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        rate = round(min(1e-3, 0.25 / scale.d_model), 6)
        return {"learning_rate": rate, "schedule": "linear", "weight_decay": 0.01, "average": 1}

    def __init__(self, config: PretrainConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.pooling, self.normalised = config.pooling, config.normalised
        is_masked_lm = "masked" in OBJECTIVES[config.objective]
        self.masker = TokenMasker(tokenizer, tokenizer.special_id("mask") if is_masked_lm else -1, config.masked)
        self.verb = "fill" if is_masked_lm else "next" if "next" in OBJECTIVES[config.objective] else "embed"

    @classmethod
    def make_reader(cls, config: PretrainConfig, data: DataConfig) -> DocumentReader:
        return DocumentReader()

    @classmethod
    def from_corpus(
        cls,
        config: PretrainConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> PretrainingTask:
        if "masked" not in OBJECTIVES[config.objective]:
            raise ConfigError(
                f'task.objective = "{config.objective}" is not trained by itself; accepted: "masked+next", "masked"'
            )
        return cls(
            config,
            pretrained_tokenizer or train_tokenizer(corpus.train_texts(0), tokenizer_config, cls.special_token_names),
        )

    @classmethod
    def load(cls, config: PretrainConfig, tokenizer_config: TokenizerConfig, directory: Path) -> PretrainingTask:
        masked = "masked" in OBJECTIVES[config.objective]
        return cls(
            config, Tokenizer.load(directory / TOKENIZER_FILE, (*ENCODER_ROLES, "mask") if masked else ENCODER_ROLES)
        )

    @classmethod
    def from_hf_checkpoint(cls, checkpoint: HFCheckpoint) -> PretrainingTask:
        objective: Any = next(name for name, heads in OBJECTIVES.items() if heads == checkpoint.heads)
        return cls(PretrainConfig(**checkpoint.task, objective=objective), checkpoint.tokenizers.source)

    def build_heads(self, config: EncoderModelConfig) -> Mapping[str, nn.Module]:
        assert isinstance(config, TransformerEncoderConfig), config
        makers: dict[str, Callable[[], nn.Module]] = {
            "masked": lambda: MaskedLMHead(config, self.vocabulary_size),
            "pooler": lambda: Pooler(config),
            "next": lambda: Linear(config.d_model, 2),
        }
        return {name: makers[name]() for name in OBJECTIVES[self.config.objective]}

    @property
    def store_columns(self) -> tuple[ColumnSpec, ...]:
        return *self.input_columns, ScalarColumnSpec("is_random_next", "uint8")

    @property
    def encoding_chunk_bytes(self) -> int:
        return PAIRING_CHUNK_BYTES if "next" in OBJECTIVES[self.config.objective] else ENCODING_CHUNK_BYTES

    def encode(self, examples: Sequence[Example]) -> list[list[Any]]:
        """Return the inputs made of these documents: pairs of blocks, or single blocks."""
        if "next" in OBJECTIVES[self.config.objective]:
            block_size = (self.max_length - self.template.n_special_tokens(is_pair=True)) // 2
            rng = np.random.default_rng(_make_pairing_seed(examples))
            pairs = sample_next_sentence_pairs(
                [pair_adjacent_blocks(blocks, rng) for blocks in self._encode_documents(examples, block_size)], rng
            )
            inputs = (self.template.wrap(pair.first, pair.second) for pair in pairs)
            is_random_next = [int(not pair.is_next) for pair in pairs]  # 1 is a random second block, as in BERT
            return [*_compact_entries(inputs), is_random_next]
        block_size = self.max_length - self.template.n_special_tokens(is_pair=False)
        blocks = chain.from_iterable(self._encode_documents(examples, block_size))
        ids, boundaries = _compact_entries(self.template.wrap(block) for block in blocks)
        return [ids, boundaries, [0] * len(ids)]

    def _encode_documents(self, examples: Sequence[Example], block_size: int) -> Iterator[list[Ids]]:
        """Yield the tokens of each document in blocks."""
        encoded = self.tokenizer.encode_stream(line for (text,) in examples for line in text.split("\n"))
        for (text,) in examples:
            yield split_into_blocks(islice(encoded, text.count("\n") + 1), block_size)

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        if "next" in OBJECTIVES[self.config.objective]:
            n_negatives = int(store.values("is_random_next").sum(dtype=np.int64))
            warn_about_few_negatives(n_negatives, len(store), ", or pass --set task.objective=masked")

    def row_width(self, lengths: Int[np.ndarray, "N sides"]) -> int:
        length: int = self.config.length
        return length

    def make_batch(self, store: TokenStore, placement: Placement) -> EncoderBatch:
        rows = self.pack_rows(store, placement)
        is_random_next = store.values("is_random_next")[placement.items].astype(np.int64)
        labels = arrange_by_segment(is_random_next, placement, max_texts_per_row(placement), IGNORE)
        n_real = int(self.masker.find_maskable(rows).sum())
        return EncoderBatch(rows, labels, self.masker.count_masked(n_real), int((rows.segment > 0).sum()))

    def compute_loss(self, model: EncoderModel, batch: EncoderBatch) -> Loss:
        """Return the masked-token loss and, where it is learned, the next-sentence loss, each averaged separately."""
        masked = self.masker.mask_tokens(batch.rows)
        hidden = model(replace(batch.rows, ids=masked.input_ids))
        token_loss = self._masked_lm_loss(model, hidden, masked)
        if "next" not in model.heads:
            return token_loss
        next_loss = cross_entropy(
            compute_next_sentence_logits(model, hidden, batch.rows, batch.labels.shape[1]), batch.labels
        )
        mean = next_loss.total / next_loss.n_tokens.clamp(min=1)
        return Loss(token_loss.total + mean * token_loss.n_tokens, token_loss.nll, token_loss.n_tokens)

    @staticmethod
    def _masked_lm_loss(model: EncoderModel, hidden: Tensor, masked: MaskedTokens) -> Loss:
        head = model.heads["masked"]
        assert isinstance(head, MaskedLMHead)
        return head.loss(hidden.flatten(0, 1)[masked.positions], model.embedding.tokens.weight, masked.labels)

    def compute_validation_metrics(
        self, model: EncoderModel, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return the accuracy of masked tokens and, where it is learned, that of next-sentence prediction."""
        metrics = self._compute_metrics(
            model, read_stored_inputs(store, items), store.values("is_random_next")[items].tolist(), device
        )
        return {name: value for name, value in metrics.items() if name.endswith("accuracy")}

    def example_text(self, store: TokenStore, item: int) -> str:
        return self.tokenizer.decode(store["text"][item].tolist())

    def _compute_metrics(
        self, model: EncoderModel, texts: Sequence[EncodedInput], is_random_next: Sequence[int], device: torch.device
    ) -> dict[str, float]:
        """Return the metrics of masked tokens and next sentences; every call masks the same tokens."""
        generator = torch.Generator(device).manual_seed(0)
        nll, sums = 0.0, Counter[str]()
        for start in range(0, len(texts), SCORING_BATCH_SIZE):
            rows = inputs_to_rows(texts[start : start + SCORING_BATCH_SIZE], self.template.pad_id).to(device)
            masked = self.masker.mask_tokens(rows, generator=generator)
            hidden = model(replace(rows, ids=masked.input_ids))
            logits = compute_masked_lm_logits(model, hidden.flatten(0, 1)[masked.positions])
            loss, n_correct = cross_entropy(logits, masked.labels), (logits.argmax(-1) == masked.labels).sum()
            nll += float(check_finite(loss.nll))
            sums.update(tokens=int(loss.n_tokens), correct_tokens=int(n_correct), texts=len(rows.ids))
            if "next" in model.heads:
                labels = torch.tensor(is_random_next[start : start + SCORING_BATCH_SIZE], device=device)
                predicted = compute_next_sentence_logits(model, hidden, rows, 1)[:, 0].argmax(-1)
                sums.update(correct_pairs=int((predicted == labels).sum()))
        metrics = {
            "perplexity": perplexity(nll, sums["tokens"]),
            "masked_accuracy": sums["correct_tokens"] / sums["tokens"],
        }
        has_both_kinds = "next" in model.heads and len(set(is_random_next)) > 1  # accuracy on one says nothing
        return metrics | ({"next_accuracy": sums["correct_pairs"] / sums["texts"]} if has_both_kinds else {})

    def make_predictor(self, model: EncoderModel, device: torch.device) -> MaskFiller:
        """Return the predictor that predicts masked words with a trained model."""
        return MaskFiller(model, self.tokenizer, device)

    def make_next_sentence_predictor(self, model: EncoderModel, device: torch.device) -> NextSentencePredictor:
        """Return the predictor of next sentences of a trained model."""
        return NextSentencePredictor(model, self.tokenizer, device)

    @torch.inference_mode()
    def evaluate(self, model: EncoderModel, data: Sequence[str], device: torch.device) -> dict[str, Any]:
        """Return the validation metrics and perplexity on plain text, split as in training."""
        if "masked" not in model.heads:
            raise InputError(NO_MASKED_HEAD_MESSAGE)
        encoded = self.with_max_length(model.config.n_positions).encode(list(read_documents(data)))
        texts, boundaries, is_random_next = encoded
        inputs = [EncodedInput(ids, boundary, 1, 0) for ids, boundary in zip(texts, boundaries, strict=True)]
        if "next" in model.heads:
            advice = "; without any, next sentences are not scored"
            warn_about_few_negatives(sum(is_random_next), len(is_random_next), advice)
        metrics = self._compute_metrics(model, inputs, is_random_next, device)
        return {"task": self.name, "n": len(inputs), **metrics}


def _compact_entries(inputs: Iterable[EncodedInput]) -> tuple[list[Ids], list[int]]:
    """Return the entries of the columns of inputs; arrays of ids take a tenth of the memory of lists."""
    ids: list[Ids] = []
    boundaries: list[int] = []
    for each in inputs:
        ids.append(array(ID_TYPE, each.ids))
        boundaries.append(each.token_type_boundary)
    return ids, boundaries


def _make_pairing_seed(examples: Sequence[Example]) -> int:
    return hash_text(examples[0][0])
