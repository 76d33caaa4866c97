"""Vectors of sentences: contrastive training of an encoder with in-batch negatives.

An anchor's vector must be nearer to that of its positive than to those of all other positives of the batch, and of all
hard negatives if the data has them (multiple negatives ranking, Henderson et al. 2017). Of plain sentences the positive
is the sentence itself with other dropout (unsupervised SimCSE, Gao, Yao and Chen 2021). The vectors are pooled hidden
states, without a head, so that the trained model embeds as any encoder does (predict/embedding.py). Validation is by
correlation with scores if the validation files have them, or else by retrieval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import IN_TRAINING, Table, Tables
from regard.data.batches import SegmentedRows
from regard.data.columns import Column, ColumnSpec, ScalarColumnSpec, TokenColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example, ExampleReader
from regard.data.order import Placement
from regard.data.pair_batches import SentencePairBatch, build_sentence_pair_batch
from regard.data.store import TokenStore
from regard.disk import read_json_with_checksum, write_json_with_checksum
from regard.errors import CheckpointError, ConfigError
from regard.models.config import EncoderModelConfig
from regard.models.heads import Pooling
from regard.models.interfaces import EncoderModel
from regard.models.pooled_vectors import pool_text_vectors
from regard.nn import Loss, info_nce
from regard.predict.embedding import Embedder, resolve_embedding_options
from regard.predict.embedding_scores import EmbeddedTexts, score_pairs, score_retrieval
from regard.predict.encoder_inference import forward_batches
from regard.progress import warn
from regard.ranges import Range, check_table
from regard.tasks.shared.encoder_task import INPUT_LENGTHS, EncoderTask, load_encoder_tokenizer, max_texts_per_row
from regard.tasks.task import TrainingScale, ValidationMetric
from regard.text.sentence_pairs import (
    SIDES,
    PairKind,
    find_pair_kind,
    read_sentence_pairs,
    sentence_pair_paths,
)
from regard.text.special_tokens import EncodedInput
from regard.text.tokenizer import TOKENIZER_FILE, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

TOKEN_COLUMNS = {"anchor": "text", "positive": "positive", "negative": "negative"}
"""The columns of the store by the fields of an example; a column without any ids is one that the data lacks."""

PAIRS_FILE = "pairs.json"
"""The file that says what the run was trained and validated on."""

BATCH_PAIRS = {"cpu": 128, "cuda": 1024}
"""Pairs of a step, by device, where the data has many: every other pair is a negative."""

N_SMALL = 50_000
"""Examples up to which the data counts as small, and is read more often."""

METRICS = {
    "scored": ValidationMetric("spearman", "Spearman correlation", higher_is_better=True),
    "pairs": ValidationMetric("mrr", "mean reciprocal rank", higher_is_better=True),
    "triples": ValidationMetric("mrr", "mean reciprocal rank", higher_is_better=True),
    "sentences": ValidationMetric("valid_loss", "loss", higher_is_better=False),
}
"""The metric that chooses weights, by what is validated on."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """The recipe's ``[task]`` table.

    `pooling` makes the vector of a text and with `normalised` it has length 1, in training and afterwards. Similarities
    are divided by `temperature`; with `symmetric` anchors are found from positives as well. With `chunk_tokens` the
    batch is encoded that many tokens at a time (models/pooled_vectors.py). Texts are truncated to `length` tokens.
    """

    name: Literal["embed"] = "embed"
    pooling: Literal["mean", "cls", "max", "last"] = "mean"
    normalised: bool = True
    temperature: Annotated[float, Range(0.0, 1000.0, excludes="least"), IN_TRAINING] = 0.05
    symmetric: Annotated[bool, IN_TRAINING] = False
    chunk_tokens: Annotated[int, Range(0, 10**8, zero="the whole batch at once"), IN_TRAINING] = 0
    length: Annotated[int, INPUT_LENGTHS] = 256

    def __post_init__(self) -> None:
        check_table(self, "task")


class SentencePairReader(ExampleReader):
    """Reader of sentences, pairs, pairs with hard negatives and scored pairs."""

    unit = "pairs or sentences"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return sentence_pair_paths(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return read_sentence_pairs(data, columns, skip_empty=skip_empty)


class EmbeddingTask(EncoderTask):
    """From pairs of texts, or from sentences, to an encoder of sentences."""

    name = verb = "embed"
    verb_arguments = "FILE --out vectors.npy"
    Config = EmbedConfig
    has_perplexity = False
    starts_from_language_models = True
    inherited_config_keys = ("pooling",)
    example_unit = "pairs or sentences"
    max_scored_examples = 2000

    def __init__(
        self,
        config: EmbedConfig,
        tokenizer: Tokenizer,
        trained_on: PairKind = "pairs",
        validated_on: PairKind = "pairs",
    ) -> None:
        super().__init__(config, tokenizer)
        self.pooling, self.normalised = config.pooling, config.normalised
        self.trained_on, self.validated_on = trained_on, validated_on

    @property
    def validation_metric(self) -> ValidationMetric:  # type: ignore[override]
        return METRICS[self.validated_on]

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        """Return defaults for batches of many pairs, but never more than a twentieth of all, and few epochs."""
        n_pairs = min(BATCH_PAIRS.get(device.type, BATCH_PAIRS["cpu"]), max(8, scale.n_examples // 20))
        is_small, mean = scale.n_examples < N_SMALL, scale.n_tokens / max(1, scale.n_examples)
        epochs, rate = 20 if is_small else 10, min(1e-3, 0.25 / scale.d_model)
        if scale.is_finetuning:
            epochs, rate = 3 if is_small else 1, 0.023 / scale.d_model
        return {
            "batch_tokens": 64 * max(1, round(n_pairs * mean / 64)),
            "steps": lambda batch: max(100, round(epochs * scale.n_tokens / batch)),
            "learning_rate": round(rate, 6),
            "schedule": "linear",
            "warmup": lambda steps: max(1, steps // 10),
            "weight_decay": 0.01,
            "validate_every": lambda steps: max(20, steps // 10),
            "average": 1,
            "patience": 0 if scale.is_finetuning else 10,
        }

    @classmethod
    def default_task_config(cls, device: torch.device, model_table: Table) -> dict[str, Any]:
        """Return the pooling by the token that has read the whole text, where the model reads in one direction."""
        final_tokens = {"forward": "last", "backward": "cls"}
        direction = model_table.get("directions")
        return {"pooling": final_tokens[direction]} if direction in final_tokens else {}

    @classmethod
    def check_recipe(cls, tables: Tables, where: str) -> None:
        if tables["train"].get("freeze") == "encoder":
            raise ConfigError(f'{where}: train.freeze = "encoder": vectors have no head, so nothing is left to train')

    @classmethod
    def make_reader(cls, config: EmbedConfig, data: DataConfig) -> SentencePairReader:
        return SentencePairReader()

    @classmethod
    def from_corpus(
        cls,
        config: EmbedConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> EmbeddingTask:
        data = corpus.data
        trained_on = find_pair_kind(data.train, data.columns)
        validated_on = find_pair_kind(data.valid, data.columns) if data.valid else trained_on
        if trained_on == "scored":
            fix = "pass them as --valid, or name two columns, as in dev.tsv:sentence1,sentence2"
            raise ConfigError(f"{data.train[0]}: scored pairs: training takes pairs that belong together; {fix}")
        if (n_examples := corpus.statistics.n_examples) < 2:
            problem = f"{n_examples} example has no negatives"
            raise ConfigError(f"{data.train[0]}: {problem}; give at least two, better some thousands")
        tokenizer = pretrained_tokenizer or train_tokenizer(
            corpus.train_texts(*range(len(TOKEN_COLUMNS))), tokenizer_config, cls.special_token_names
        )
        return cls(config, tokenizer, trained_on, validated_on)

    @classmethod
    def load(cls, config: EmbedConfig, tokenizer_config: TokenizerConfig, directory: Path) -> EmbeddingTask:
        path = directory / PAIRS_FILE
        kinds = read_json_with_checksum(path)
        trained_on, validated_on = kinds.get("trained_on"), kinds.get("validated_on")
        if trained_on not in SIDES or validated_on not in SIDES:
            raise CheckpointError(f"{path}: expected trained_on and validated_on of {', '.join(SIDES)}; restore it")
        return cls(config, load_encoder_tokenizer(directory / TOKENIZER_FILE), trained_on, validated_on)

    def save(self, directory: Path) -> None:
        super().save(directory)
        kinds = {"trained_on": self.trained_on, "validated_on": self.validated_on}
        write_json_with_checksum(directory / PAIRS_FILE, kinds)

    def build_model(self, config: EncoderModelConfig) -> EncoderModel:
        self._pooling = Pooling(self.config.pooling, config.d_model)  # no part of the model, for it has no weights
        return super().build_model(config)

    def build_heads(self, config: EncoderModelConfig) -> Mapping[str, nn.Module]:
        """Return nothing: the vectors are pooled hidden states."""
        if self.trained_on == "sentences" and config.dropout == 0:
            problem = "dropout is the only difference between the two encodings of a sentence"
            raise ConfigError(f"model.dropout = 0, but {problem}; give model.dropout=0.1, or train on pairs")
        return {}

    @property
    def store_columns(self) -> tuple[ColumnSpec, ...]:
        texts = (TokenColumnSpec(name, self.vocabulary_size) for name in TOKEN_COLUMNS.values())
        return *texts, ScalarColumnSpec("score", "float32"), ScalarColumnSpec("n_cut", "uint8")

    def encode(self, examples: Sequence[Example]) -> list[list[Any]]:
        """Return the truncated texts with special tokens, the score, and the number of texts that were truncated."""
        most = self.max_length - self.template.n_special_tokens(is_pair=False)
        columns: list[list[Any]] = []
        n_cut = np.zeros(len(examples), dtype=np.uint8)
        for side in range(len(TOKEN_COLUMNS)):
            encoded = self.tokenizer.encode_batch([example[side] for example in examples])
            n_cut += np.array([len(ids) > most for ids in encoded], dtype=np.uint8)
            columns.append(
                [
                    self.template.wrap(ids[:most]).ids if example[side] else []
                    for example, ids in zip(examples, encoded, strict=True)
                ]
            )
        return [*columns, [float(example[3] or "nan") for example in examples], n_cut.tolist()]

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        """Warn of texts that were truncated, with their number."""
        if n_cut := int(store.values("n_cut").sum(dtype=np.int64)):
            limit = f"the first {int(self.example_lengths(store).max()):,} tokens"
            fix = "raise task.length and data.max_length"
            warn(f"{n_cut:,} texts of {len(store):,} examples to {store.purpose} on are truncated to {limit}; {fix}")

    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        return store.lengths(*_text_columns(store))

    def make_batch(self, store: TokenStore, placement: Placement) -> SentencePairBatch:
        return build_sentence_pair_batch(
            store,
            placement,
            _text_columns(store),
            n_texts_per_row=max_texts_per_row(placement),
            scores=_scale_scores(store.values("score")),
            pad_id=self.template.pad_id,
        )

    def compute_loss(self, model: EncoderModel, batch: SentencePairBatch) -> Loss:
        """Return InfoNCE over the batch; for scored pairs the squared error of the cosine, on the scale of scores."""
        anchors = self._embed_batch(model, batch, "anchors")
        is_pair = batch.groups > 0
        positives = anchors
        if batch.positives is not None or model.training:
            positives = self._embed_batch(model, batch, "anchors" if batch.positives is None else "positives")
        if batch.scores is not None:
            losses = (nn.functional.cosine_similarity(anchors, positives) - batch.scores).square()
        else:
            losses = self._contrast(model, batch, anchors, positives)
        total = torch.where(is_pair, losses, 0.0).sum()
        return Loss(total, total.detach(), is_pair.sum())

    def _contrast(
        self,
        model: EncoderModel,
        batch: SentencePairBatch,
        anchors: Float[Tensor, "N D"],
        positives: Float[Tensor, "N D"],
    ) -> Float[Tensor, " N"]:
        """Return InfoNCE for each anchor; with `symmetric` the mean of both directions."""
        candidates, groups, temperature = positives, batch.groups, self.config.temperature
        if batch.negative_groups is not None:
            candidates = torch.cat((positives, self._embed_batch(model, batch, "negatives")))
            groups = torch.cat((groups, batch.negative_groups))
        losses = info_nce(anchors, candidates, batch.groups, groups, temperature)
        if not self.config.symmetric:
            return losses
        return (losses + info_nce(positives, anchors, batch.groups, batch.groups, temperature)) / 2

    def _embed_batch(
        self, model: EncoderModel, batch: SentencePairBatch, side: Literal["anchors", "positives", "negatives"]
    ) -> Float[Tensor, "N D"]:
        """Return the vectors of one side of the pairs, of length 1 if they are normalised."""
        rows: SegmentedRows = getattr(batch, side)
        vectors = pool_text_vectors(model, self._pooling, rows, batch.n_texts_per_row, self.config.chunk_tokens)
        chosen = vectors.flatten(0, 1)[batch.slots].float()
        return nn.functional.normalize(chosen, dim=-1) if self.config.normalised else chosen

    def compute_validation_metrics(
        self, model: EncoderModel, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return correlations or retrieval scores; nothing for plain sentences, which have only a loss."""
        if self.validated_on == "sentences":
            return {}
        sides = [self._embed_stored(model, store[column], items, device) for column in _text_columns(store)]
        return _compute_metrics(self.validated_on, sides, store.values("score")[items])

    def _embed_stored(
        self, model: EncoderModel, column: Column, items: Int[np.ndarray, " items"], device: torch.device
    ) -> EmbeddedTexts:
        """Return the vectors of stored texts, each text encoded separately."""
        texts = [tuple(column[item].tolist()) for item in items.tolist()]
        inputs = [EncodedInput(list(ids), len(ids), 1, len(ids)) for ids in texts]

        def readout(hidden: Float[Tensor, "B T D"], rows: SegmentedRows) -> Float[Tensor, "B D"]:
            vectors: Tensor = self._pooling(hidden, rows, 1)[:, 0]
            return vectors.float()

        embedded = forward_batches(model, inputs, readout, pad_id=self.template.pad_id, device=device)
        vectors = np.empty((len(items), model.config.d_model), np.float32)
        for index, vector in embedded:
            vectors[index] = vector.numpy()
        return EmbeddedTexts(texts, vectors)

    def example_text(self, store: TokenStore, item: int) -> str:
        return "\t".join(self.tokenizer.decode(store[column][item].tolist()) for column in _text_columns(store))

    def make_embedder(self, model: EncoderModel, device: torch.device) -> Embedder:
        """Return what embeds texts with a trained model."""
        return Embedder(model, self.tokenizer, resolve_embedding_options(model, self.embedding_defaults), device)

    def evaluate(
        self, model: EncoderModel, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """Return the correlations with the scores of scored pairs, or how well pairs find each other."""
        kind = find_pair_kind(data, columns)
        if kind == "sentences":
            raise ConfigError(f"{data[0]}: single sentences cannot score vectors; give pairs, or scored pairs")
        examples = list(read_sentence_pairs(data, columns, skip_empty=skip_empty))
        embedder = self.make_embedder(model, device)
        texts = [[getattr(each, side) for each in examples] for side in SIDES[kind] if side != "score"]
        sides = [EmbeddedTexts(side, embedder.embed_texts(side)) for side in texts]
        scores = np.array([float(each.score or "nan") for each in examples])
        return {"task": self.name, "n": len(examples), **_compute_metrics(kind, sides, scores)}


def _compute_metrics(
    kind: PairKind, sides: Sequence[EmbeddedTexts], scores: Float[np.ndarray, " N"]
) -> dict[str, float]:
    return score_pairs(sides[0], sides[1], scores) if kind == "scored" else score_retrieval(*sides)


def _text_columns(store: TokenStore) -> list[str]:
    """Return the columns of texts that the data fills."""
    return [name for name in TOKEN_COLUMNS.values() if len(store[name].ids)]


def _scale_scores(scores: Float[np.ndarray, " items"]) -> Float[np.ndarray, " items"] | None:
    """Return the scores scaled to 0 (the smallest) to 1 (the largest); None if there are none."""
    if np.isnan(scores).any():
        return None
    least, most = float(scores.min()), float(scores.max())
    scaled: np.ndarray = ((scores - least) / max(most - least, 1e-9)).astype(np.float32)
    return scaled
