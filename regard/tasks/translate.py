"""Translation: an encoder-decoder trained on pairs of texts (Vaswani et al. 2017).

Pairs are packed into rows. The loop calls all of this; what translates with a trained model is predict/translation.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.config import IN_TRAINING
from regard.data.batches import Seq2SeqBatch, build_seq2seq_batch
from regard.data.columns import TokenColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example, ExampleReader
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.generate import DecodingConfig
from regard.metrics import translation_score
from regard.models.architectures import SEQ2SEQ_MODELS
from regard.models.config import ModelConfig
from regard.models.exchange import HFCheckpoint
from regard.models.interfaces import Seq2SeqModel
from regard.nn import Loss, cross_entropy, linear_cross_entropy, symmetric_kl_divergence
from regard.predict.seq2seq_inputs import Seq2SeqSpecialTokens
from regard.predict.translation import TranslationPredictor
from regard.ranges import Range, check_table
from regard.tasks.task import Task, ValidationMetric
from regard.text.pairs import group_pair_files, pair_paths, read_pairs
from regard.text.tokenizer import Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer


@dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """The recipe's ``[task]`` table.

    `start` and `first` name tokens in vocabularies from elsewhere: what the decoder starts from, where that is not
    called ``<sos>``, and what stands before the texts of both sides, if anything does.
    """

    name: Literal["translate"] = "translate"
    source_lang: str = ""
    target_lang: str = ""
    start: str = ""
    first: str = ""
    label_smoothing: Annotated[float, Range(0.0, 1.0, excludes="most"), IN_TRAINING] = 0.1
    r_drop: Annotated[float, Range(0.0, 1e6, zero="off"), IN_TRAINING] = 0.0

    def __post_init__(self) -> None:
        check_table(self, "task")


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


class TranslationTask(Task):
    """Translation of texts, learned from pairs."""

    name = verb = "translate"
    Config = TranslateConfig
    architectures = SEQ2SEQ_MODELS
    example_unit = "pairs"
    inherited_config_keys = ("start", "first")
    validation_metric = ValidationMetric("bleu", "BLEU", higher_is_better=True)
    max_scored_examples = 500

    def __init__(self, config: TranslateConfig, tokenizers: TokenizerPair) -> None:
        self.config = config
        self.tokenizers = tokenizers

    @classmethod
    def make_reader(cls, config: TranslateConfig, data: DataConfig) -> PairReader:
        return PairReader()

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

    @property
    def store_columns(self) -> tuple[TokenColumnSpec, TokenColumnSpec]:
        sizes = len(self.tokenizers.source), len(self.tokenizers.target)
        return TokenColumnSpec("source", sizes[0]), TokenColumnSpec("target", sizes[1])

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        source, target = zip(*examples, strict=True)
        sides = self.tokenizers.source.encode_batch(source), self.tokenizers.target.encode_batch(target)
        return [[[*self.special_tokens.prefix_ids, *ids] for ids in side] for side in sides]

    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """Return the number of tokens plus one: ``<eos>`` ends the source, ``<sos>`` begins the target."""
        return store.lengths("source", "target", n_special_tokens=1)

    def make_batch(self, store: TokenStore, placement: Placement) -> Seq2SeqBatch:
        return build_seq2seq_batch(
            store,
            placement,
            pad_id=self.special_tokens.pad_id,
            sos_id=self.special_tokens.decoder_start_id,
            eos_id=self.special_tokens.eos_id,
        )

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
        """Return BLEU, chrF and the fraction of exact translations, by greedy decoding."""
        n_prefix = len(self.special_tokens.prefix_ids)
        sources = [store["source"][i].tolist()[n_prefix:] for i in items.tolist()]
        references = [self.tokenizers.target.decode(store["target"][i].tolist()) for i in items.tolist()]
        hypotheses = self.make_predictor(model, device).generate(sources, DecodingConfig(beam=1, batch=128))
        texts = [self.tokenizers.target.decode(best[0].ids) for best in hypotheses]
        scores = translation_score(texts, references)
        return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact}

    def example_text(self, store: TokenStore, item: int) -> str:
        source, target = store["source"][item].tolist(), store["target"][item].tolist()
        return f"{self.tokenizers.source.decode(source)}\t{self.tokenizers.target.decode(target)}"

    def make_predictor(self, model: Seq2SeqModel, device: torch.device) -> TranslationPredictor:
        """Return the predictor that translates with a trained model."""
        return TranslationPredictor(model, self.tokenizers, self.special_tokens, device)
