"""Translation: an encoder-decoder trained on pairs of texts (Vaswani et al. 2017).

Pairs are packed into rows. The loop calls all of this; what translates with a trained model is predict/translation.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int

from regard.config import IN_TRAINING, Table, Tables
from regard.data.batches import Seq2SeqBatch
from regard.data.columns import ColumnSpec, EncodedChunk
from regard.data.corpus import KEPT_SET, SET_COLUMN, Corpus, DataConfig, Example, ExampleReader
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.generate import DecodingConfig
from regard.models.architectures import SEQ2SEQ_MODELS
from regard.models.config import ModelConfig
from regard.models.exchange import HFCheckpoint
from regard.models.interfaces import Seq2SeqModel
from regard.nn import Loss, cross_entropy, linear_cross_entropy, symmetric_kl_divergence
from regard.predict.seq2seq_inputs import Seq2SeqSpecialTokens
from regard.predict.translation import TranslationPredictor
from regard.ranges import Range, check_table
from regard.tasks.shared.pair_layout import DirectedLayout, PairLayout
from regard.tasks.shared.translation_directions import check_language_tokens, choose_directions
from regard.tasks.shared.translation_scores import GroupKey, TranslationGroup, score_groups
from regard.tasks.task import Task, TrainingScale, ValidationMetric
from regard.text.languages import Direction, Directions, language_token
from regard.text.multilingual import read_multilingual_rows
from regard.text.pairs import group_pair_files, pair_paths, read_pairs
from regard.text.tokenizer import Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

ADAPTATION_TOKENS = 1_000_000
"""Target tokens that a translator is fine-tuned on, unless these are less than three epochs or more than twenty."""


@dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """The recipe's ``[task]`` table.

    `directions` are those of a translator in several, such as en-fr; by default all that the data has. `start` and
    `first` name tokens in vocabularies from elsewhere: what the decoder starts from, where that is not called
    ``<sos>``, and what stands before the texts of both sides, if anything does.
    """

    name: Literal["translate"] = "translate"
    source_lang: str = ""
    target_lang: str = ""
    directions: tuple[str, ...] = ()
    start: str = ""
    first: str = ""
    label_smoothing: Annotated[float, Range(0.0, 1.0, excludes="most"), IN_TRAINING] = 0.1
    r_drop: Annotated[float, Range(0.0, 1e6, zero="off"), IN_TRAINING] = 0.0

    def __post_init__(self) -> None:
        check_table(self, "task")
        if len(set(self.directions)) < len(self.directions):
            raise ConfigError(f"task.directions: one of {', '.join(self.directions)} occurs twice")
        _ = self.all_directions

    @property
    def all_directions(self) -> Directions:
        """The directions that the model has."""
        return Directions.of_task(self.directions, self.source_lang, self.target_lang)

    @property
    def data_direction(self) -> Direction | None:
        """The direction of data that names no languages."""
        return Direction(self.source_lang, self.target_lang) if self.source_lang and self.target_lang else None


class PairReader(ExampleReader):
    """Reader of parallel texts."""

    unit = "pairs"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return pair_paths(data)

    def group_sources(self, data: Sequence[str]) -> list[list[str]]:
        """Return tables alone and files of lines in pairs."""
        return group_pair_files(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return read_pairs(data, columns, skip_empty=skip_empty)


class MultilingualReader(PairReader):
    """Reader of parallel texts in several languages: an example is a row of them, the tag of its languages last."""

    unit = "rows"

    def __init__(self, default: Direction | None) -> None:
        self._default = default

    def read_examples(  # type: ignore[override]
        self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool
    ) -> Iterator[Example]:
        return read_multilingual_rows(data, columns, self._default, skip_empty=skip_empty)


class TranslationTask(Task):
    """Translation of texts, learned from pairs."""

    name = verb = "translate"
    Config = TranslateConfig
    architectures = SEQ2SEQ_MODELS
    example_unit = "pairs"
    inherited_config_keys = ("start", "first", "directions")
    validation_metric = ValidationMetric("bleu", "BLEU", higher_is_better=True)
    scores_start = mixes_sets = True

    def __init__(self, config: TranslateConfig, tokenizers: TokenizerPair) -> None:
        self.config = config
        self.tokenizers = tokenizers
        if self.directions.is_tagged:
            check_language_tokens(self.directions, tokenizers)

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        """Return what adapts a translator to a few thousand pairs and lets it keep what it knew (docs/translate.md)."""
        if not scale.is_finetuning:
            return {}
        epochs = min(20.0, max(3.0, ADAPTATION_TOKENS / scale.n_tokens))
        return {
            "steps": lambda batch_tokens: max(50, math.ceil(epochs * scale.n_tokens / batch_tokens)),
            "learning_rate": round(0.25 * (scale.d_model * 4000) ** -0.5, 6),
            "schedule": "linear",
            "warmup": lambda steps: steps // 10,
            "validate_every": lambda steps: max(10, math.ceil(steps / 5)),
            "interpolation": 0.5 if scale.n_tokens < 2 * ADAPTATION_TOKENS else 1.0,
        }

    @property
    def directions(self) -> Directions:
        """The directions that the model has."""
        return self.config.all_directions

    @property
    def max_scored_examples(self) -> int:  # type: ignore[override]
        """Enough for BLEU, of each direction if there are several."""
        return max(500, 200 * len(self.directions.known))

    @classmethod
    def make_reader(cls, config: TranslateConfig, data: DataConfig) -> PairReader:
        return MultilingualReader(config.data_direction) if config.directions else PairReader()

    @classmethod
    def complete_task_table(cls, tables: Tables, user_table: Table, where: str) -> Table:
        """Return the ``[task]`` table with the directions of the data, and those of the model to start from."""
        default = TranslateConfig(**{**tables["task"], "directions": ()}).data_direction
        return {**tables["task"], "directions": choose_directions(tables, user_table, default, where)}

    @classmethod
    def from_corpus(
        cls,
        config: TranslateConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> TranslationTask:
        """Return the task with one vocabulary for both sides, or one for each."""
        if pretrained_tokenizer is not None:
            return cls(config, TokenizerPair(pretrained_tokenizer, pretrained_tokenizer))
        if config.directions:
            tokens = [language_token(target) for target in config.all_directions.targets]
            joint = train_tokenizer(corpus.train_texts_before_tag(), tokenizer_config, language_tokens=tokens)
            return cls(config, TokenizerPair(joint, joint))
        sides = [(0, 1)] if tokenizer_config.joint else [(0,), (1,)]
        learned = [train_tokenizer(corpus.train_texts(*columns), tokenizer_config) for columns in sides]
        return cls(config, TokenizerPair(learned[0], learned[-1]))

    @classmethod
    def load(cls, config: TranslateConfig, tokenizer_config: TokenizerConfig, directory: Path) -> TranslationTask:
        roles = ("pad", "end") if config.start else ("pad", "start", "end")
        return cls(config, TokenizerPair.load(directory, is_joint=tokenizer_config.joint, required_roles=roles))

    @classmethod
    def from_hf_checkpoint(cls, checkpoint: HFCheckpoint) -> TranslationTask:
        return cls(TranslateConfig(**checkpoint.task), checkpoint.tokenizers)

    def save(self, directory: Path) -> None:
        self.tokenizers.save(directory)

    @cached_property
    def special_tokens(self) -> Seq2SeqSpecialTokens:
        """The special ids of this vocabulary; the two sides agree on them."""
        ids, config = self.tokenizers.target, self.config
        start = ids.token_to_id(config.start) if config.start else ids.special_id("start")
        return Seq2SeqSpecialTokens(
            ids.special_id("pad"),
            start,
            ids.special_id("end"),
            (ids.token_to_id(config.first),) if config.first else (),
        )

    @property
    def fingerprint(self) -> str:
        return f"{self.tokenizers.source.fingerprint} {self.tokenizers.target.fingerprint}"

    @property
    def vocabulary_size(self) -> int:
        return max(len(self.tokenizers.source), len(self.tokenizers.target))

    @cached_property
    def layout(self) -> PairLayout:
        """The columns of the store, and the examples in them."""
        if self.directions.is_tagged:
            return DirectedLayout(self.tokenizers, self.special_tokens, self.directions)
        return PairLayout(self.tokenizers, self.special_tokens)

    @property
    def store_columns(self) -> tuple[ColumnSpec, ...]:
        return self.layout.columns

    def encode(self, examples: Sequence[Example]) -> EncodedChunk:
        return self.layout.encode(examples)

    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        return self.layout.lengths(store)

    def example_sets(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        return self.layout.sets(store)

    def make_batch(self, store: TokenStore, placement: Placement) -> Seq2SeqBatch:
        return self.layout.batch(store, placement)

    def build_model(self, config: ModelConfig) -> Seq2SeqModel:
        sizes = len(self.tokenizers.source), len(self.tokenizers.target)
        model: Seq2SeqModel = self.architectures[config.architecture].Model(
            config, *sizes, joint=self.tokenizers.is_joint
        )
        return model

    def compute_loss(self, model: Seq2SeqModel, batch: Seq2SeqBatch) -> Loss:
        """Return label-smoothed cross-entropy; with R-Drop, the mean of two dropout passes plus their KL divergence."""
        smoothing = self.config.label_smoothing
        if not (self.config.r_drop and model.training):
            decoded = model.hidden_states(batch.source, batch.target_in)
            words, bias = model.softmax_embedding.weight, model.output_bias
            return linear_cross_entropy(decoded, words, batch.target_out, smoothing, bias)
        logits, again = (model(batch.source, batch.target_in) for _ in range(2))
        loss, other = (cross_entropy(each, batch.target_out, smoothing) for each in (logits, again))
        divergence = symmetric_kl_divergence(logits, again, batch.target_out)
        total = (loss.total + other.total) / 2 + self.config.r_drop * divergence
        return Loss(total, loss.nll, loss.n_tokens)

    def compute_validation_metrics(
        self, model: Seq2SeqModel, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return BLEU, chrF and the fraction of exact translations, by greedy decoding.

        Of several directions each has a BLEU of its own, and so have the data that a translator is adapted to and that
        which it is to keep ("own", "kept"). The scores without a name are means over these two and, within each, over
        directions.
        """
        pairs = [self.layout.pair(store, item) for item in items.tolist()]
        is_kept = self._is_kept(store)[items].tolist()
        predictor = self.make_predictor(model, device)
        hypotheses = predictor.generate([pair.source for pair in pairs], DecodingConfig(beam=1, batch=128))
        decode = self.tokenizers.target.decode
        groups: dict[GroupKey, TranslationGroup] = defaultdict(TranslationGroup)
        for pair, best, kept in zip(pairs, hypotheses, is_kept, strict=True):
            group = groups["kept" if kept else "", pair.direction]
            group.hypotheses.append(decode(best[0].ids))
            group.references.append(decode(pair.target))
        return score_groups(groups)

    def example_strata(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        """Return the number of the direction, apart for what the translator is to keep."""
        numbers: Int[np.ndarray, " N"] = self.layout.direction_numbers(store)
        return np.where(self._is_kept(store), numbers + len(self.directions.known), numbers)

    def _is_kept(self, store: TokenStore) -> Bool[np.ndarray, " N"]:
        """Return for each example if it is of what the translator is to keep."""
        if SET_COLUMN not in store.columns:
            return np.zeros(len(self.example_lengths(store)), dtype=bool)
        is_kept: Bool[np.ndarray, " N"] = self.example_sets(store) == KEPT_SET
        return is_kept

    def example_text(self, store: TokenStore, item: int) -> str:
        source, target, direction = self.layout.pair(store, item)
        text = f"{self.tokenizers.source.decode(source)}\t{self.tokenizers.target.decode(target)}"
        return f"{direction}\t{text}" if direction else text

    def make_predictor(self, model: Seq2SeqModel, device: torch.device) -> TranslationPredictor:
        """Return the predictor that translates with a trained model."""
        return TranslationPredictor(model, self.tokenizers, self.special_tokens, device, self.directions)
