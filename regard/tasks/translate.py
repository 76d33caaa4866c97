"""Translation: an encoder-decoder trained on pairs of texts (Vaswani et al. 2017).

Training packs pairs into rows; `translate` reads any number of texts, works in order of length and gives results
in input order. The API and the command line call `translate` and `force`; the loop calls the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import Seq2SeqBatch, build_seq2seq_batch, sentences_to_rows
from regard.data.buckets import batch_by_length
from regard.data.columns import TokenColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, InputError
from regard.generate import DecodingConfig, Hypothesis, make_hypothesis
from regard.metrics import translation_score
from regard.models.architectures import SEQ2SEQ_MODELS
from regard.models.config import ModelConfig
from regard.models.exchange import HFCheckpoint
from regard.models.interfaces import Seq2SeqModel
from regard.nn import Loss, cross_entropy, linear_cross_entropy, record, symmetric_kl_divergence
from regard.progress import warn
from regard.tasks.shared.input_length import check_fits
from regard.tasks.shared.seq2seq_inputs import Ids, Seq2SeqSpecialTokens, pairs_to_rows, start_decoder
from regard.tasks.shared.word_alignment import align_words
from regard.tasks.task import Task, ValidationMetric
from regard.text.pairs import group_pair_files, pair_paths, read_pairs
from regard.text.tokenizer import Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

MAX_ATTENTION_CELLS = 1 << 18
"""Pairs of a target and a source token whose attention is recorded at once, in every layer and head."""

LIKELIHOOD_BATCH_SIZE = 64
"""Given targets whose likelihood is worked out at once."""

MAX_EXTRA_TOKENS = 50
"""Tokens a translation may have more than its source ."""


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
    label_smoothing: float = 0.1
    r_drop: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"task.label_smoothing = {self.label_smoothing}; expected 0 or more and less than 1")
        if not 0 <= self.r_drop < math.inf:
            raise ConfigError(f"task.r_drop = {self.r_drop}; expected 0 (off) or more")


@dataclass(frozen=True)
class Translation:
    """One translation: the score's formula is in generate/hypothesis.py; alignment pairs (source, target) words.

    `ids` are those of its tokens. `attention` is what each of them looked at in the source, in every layer and head,
    where it was asked for.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    alignment: list[tuple[int, int]]
    ids: tuple[int, ...] = ()
    source_tokens: list[str] = field(default_factory=list)
    attention: Float[Tensor, "L H T S"] | None = field(default=None, compare=False, repr=False)


EMPTY_TRANSLATION = Translation("", 0.0, [], [], [])


@dataclass(frozen=True)
class ForcedDecoding:
    """A given target, scored by the model, with what each of its tokens looked at (layers, heads, target, source)."""

    hypothesis: Hypothesis
    attention: Float[Tensor, "L H T S"]


class PairReader:
    """Reader of parallel texts."""

    unit = "pairs"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return pair_paths(data)

    @staticmethod
    def group_sources(data: Sequence[str]) -> list[list[str]]:
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

    def make_pair_batch(self, pairs: Sequence[tuple[Ids, Ids]]) -> Seq2SeqBatch:
        """Return a batch of pairs of ids given without special tokens, one per row."""
        return pairs_to_rows(pairs, self.special_tokens)

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
        hypotheses = self.generate(model, sources, DecodingConfig(beam=1, batch=128), device)
        texts = [self.tokenizers.target.decode(best[0].ids) for best in hypotheses]
        scores = translation_score(texts, references)
        return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact}

    def example_text(self, store: TokenStore, item: int) -> str:
        source, target = store["source"][item].tolist(), store["target"][item].tolist()
        return f"{self.tokenizers.source.decode(source)}\t{self.tokenizers.target.decode(target)}"

    def translate(
        self,
        model: Seq2SeqModel,
        text_batches: Iterable[Sequence[str]],
        config: DecodingConfig,
        device: torch.device,
        *,
        with_alignment: bool = True,
        with_attention: bool = False,
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Yield each text with its best translations, in input order; batches are formed by length within a buffer.

        A blank text has a blank translation, so that the lines of a file stay side by side.
        """
        n_texts = n_cut = 0
        for buffer in text_batches:
            numbers = [number for number, text in enumerate(buffer, n_texts) if text.strip()]
            sources = self.tokenizers.source.encode_batch([buffer[number - n_texts] for number in numbers])
            n_texts += len(buffer)
            self.check_lengths(model, zip(numbers, sources, strict=True), self.tokenizers.source)
            n_best = self.generate(model, sources, config, device, numbers)
            n_cut += sum(hypotheses[0].is_truncated for hypotheses in n_best)
            pairs = [(ids, best) for ids, hypotheses in zip(sources, n_best, strict=True) for best in hypotheses]
            written = self._make_translations(
                model, pairs, device, needs_attention=with_alignment or with_attention, with_attention=with_attention
            )
            best = ([next(written) for _ in hypotheses] for hypotheses in n_best)
            for text in buffer:
                yield text, next(best) if text.strip() else [EMPTY_TRANSLATION]
        if n_cut:
            limit = f"{MAX_EXTRA_TOKENS} tokens more than the source"
            warn(f"{n_cut:,} of {n_texts:,} translations were truncated at their limit, {limit}")

    def generate(
        self,
        model: Seq2SeqModel,
        sources: Sequence[Ids],
        config: DecodingConfig,
        device: torch.device,
        text_indices: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source, in input order; batches are formed by length.

        `text_indices` number the sources among all texts of the call; with the seed they determine what is sampled.
        """
        text_indices = range(len(sources)) if text_indices is None else text_indices
        hypotheses: dict[int, list[Hypothesis]] = {}
        for chosen in batch_by_length([len(source) for source in sources], config.batch):
            batch = self._generate_batch(
                model, [sources[i] for i in chosen], config, device, [text_indices[i] for i in chosen]
            )
            hypotheses.update(zip(chosen, batch, strict=True))
        return [hypotheses[i] for i in range(len(sources))]

    @torch.inference_mode()
    def _generate_batch(
        self,
        model: Seq2SeqModel,
        sources: Sequence[Ids],
        config: DecodingConfig,
        device: torch.device,
        text_indices: Sequence[int],
    ) -> list[list[Hypothesis]]:
        special_tokens = self.special_tokens
        max_length = model.config.n_positions - len(special_tokens.prefix_ids)
        rows = sentences_to_rows([special_tokens.wrap_source(ids) for ids in sources], pad_id=special_tokens.pad_id).to(
            device
        )
        limits = torch.tensor([min(len(source) + MAX_EXTRA_TOKENS, max_length) for source in sources], device=device)
        try:
            return config.generate(
                model.step,
                lambda: start_decoder(model, rows, special_tokens),
                limits,
                special_tokens.decoding_tokens,
                text_indices,
            )
        except torch.OutOfMemoryError:
            raise InputError(f"out of memory with {len(sources)} texts at once; pass a smaller --batch") from None

    def force_decode(
        self,
        model: Seq2SeqModel,
        pairs: Sequence[tuple[Ids, Ids]],
        device: torch.device,
        alpha: float = DecodingConfig.alpha,
    ) -> Iterator[ForcedDecoding]:
        """Score given targets (ids without ``<eos>``), with what each of their tokens looked at; in input order."""
        self.check_pairs(model, pairs)
        for group in _group_by_attention_size(pairs, MAX_ATTENTION_CELLS):
            yield from self._force_decode_batch(model, group, device, alpha)

    def _force_decode_batch(
        self, model: Seq2SeqModel, pairs: Sequence[tuple[Ids, Ids]], device: torch.device, alpha: float
    ) -> Iterator[ForcedDecoding]:
        batch, before = self.make_pair_batch(pairs).to(device), len(self.special_tokens.prefix_ids)
        with torch.inference_mode(), record(model, "decoder.*.cross_attention.weights", required=False) as recorded:
            log_probs = model(batch.source, batch.target_in).float().log_softmax(-1)
        scores = log_probs.gather(-1, batch.target_out.clamp(min=0)[..., None]).squeeze(-1).cpu()
        nothing = scores.new_zeros(len(pairs), 0, 0, *scores.shape[1:], batch.source.ids.shape[1])
        attention = torch.stack(list(recorded.values()), 1).cpu() if recorded else nothing  # (B, L, H, T, S)
        for row, (source, target) in enumerate(pairs):
            written = slice(before, before + len(target) + 1)
            hypothesis = make_hypothesis([*target, self.special_tokens.eos_id], scores[row, written].tolist(), alpha)
            yield ForcedDecoding(hypothesis, attention[row, :, :, written, : before + len(source) + 1])

    def compute_nll(
        self, model: Seq2SeqModel, pairs: Sequence[tuple[Ids, Ids]], device: torch.device
    ) -> tuple[float, int]:
        """Return the negative log-likelihood of given targets and their number of tokens, ``<eos>`` included."""
        self.check_pairs(model, pairs)
        nll, n_tokens = 0.0, 0
        for chosen in batch_by_length([len(target) for _, target in pairs], LIKELIHOOD_BATCH_SIZE):
            with torch.inference_mode():
                loss = self.compute_loss(model, self.make_pair_batch([pairs[i] for i in chosen]).to(device))
            nll, n_tokens = nll + loss.nll.item(), n_tokens + int(loss.n_tokens)
        return nll, n_tokens

    def check_lengths(
        self, model: Seq2SeqModel, texts: Iterable[tuple[int, Ids]], tokenizer: Tokenizer, text_name: str = "text"
    ) -> None:
        """Refuse what the model cannot take whole; the texts come with their numbers, from 0."""
        limit = model.config.n_positions - 1 - len(self.special_tokens.prefix_ids)
        for number, ids in texts:
            text = f"{text_name} {number + 1:,}, '{tokenizer.decode(ids[:40])[:30]}...',"
            check_fits(len(ids), limit, text=text, fix="split it into sentences")

    def check_pairs(self, model: Seq2SeqModel, pairs: Sequence[tuple[Ids, Ids]]) -> None:
        """Refuse pairs of which the model cannot take a side whole."""
        self.check_lengths(model, enumerate(source for source, _ in pairs), self.tokenizers.source)
        self.check_lengths(model, enumerate(target for _, target in pairs), self.tokenizers.target, "target")

    def _make_translations(
        self,
        model: Seq2SeqModel,
        pairs: Sequence[tuple[Ids, Hypothesis]],
        device: torch.device,
        *,
        needs_attention: bool,
        with_attention: bool,
    ) -> Iterator[Translation]:
        """Yield the hypotheses as translations, with alignment and attention where asked for."""
        source, target, before = self.tokenizers.source, self.tokenizers.target, len(self.special_tokens.prefix_ids)
        targets = [(ids, best.ids[:-1]) for ids, best in pairs]
        looks = self.force_decode(model, targets, device) if needs_attention else repeat(None, len(targets))
        for (ids, best), forced in zip(pairs, looks, strict=True):
            yield Translation(
                text=target.decode(best.ids),
                score=best.score,
                tokens=target.display_tokens(best.ids),
                token_scores=list(best.token_scores),
                alignment=align_words(forced.attention[..., before:], target.words(best.ids[:-1]), source.words(ids))
                if forced
                else [],
                ids=best.ids,
                source_tokens=source.display_tokens(self.special_tokens.wrap_source(ids)) if with_attention else [],
                attention=forced.attention if forced and with_attention else None,
            )


def _group_by_attention_size(pairs: Iterable[tuple[Ids, Ids]], max_cells: int) -> Iterator[list[tuple[Ids, Ids]]]:
    """Yield consecutive pairs in groups of at most `max_cells` padded attention weights, at least one pair each."""
    group: list[tuple[Ids, Ids]] = []
    longest = [0, 0]
    for pair in pairs:
        longest = [max(before, len(side) + 1) for before, side in zip(longest, pair, strict=True)]
        if group and (len(group) + 1) * math.prod(longest) > max_cells:
            yield group
            group, longest = [], [len(side) + 1 for side in pair]
        group.append(pair)
    if group:
        yield group
