"""Translation: pairs of texts in, an encoder-decoder trained, texts out (SPEC 4.1, 7).

Training packs pairs into rows; `translate` reads any number of texts, works in order of length and gives results
in input order. The API and the command line call `translate` and `force`; the loop calls the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import PairBatch, Rows, pair_batch, sentences_to_rows
from regard.data.buckets import by_length
from regard.data.corpus import Corpus, Example
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, InputError
from regard.generate import Hypothesis, beam_search, follow, most_likely, sampler
from regard.generate.hypothesis import hypothesis
from regard.generate.sampling import Pick
from regard.metrics import translation_score
from regard.models.presets import ModelConfig
from regard.models.seq2seq import Seq2Seq
from regard.nn import Loss, cross_entropy, linear_cross_entropy, record
from regard.tasks.alignment import align
from regard.tasks.task import Goal, Task
from regard.text.pairs import paths_of, read_pairs
from regard.text.tokenizer import EOS, PAD, SOS, TokenizerConfig, Tokenizers, train_tokenizer

FORCED = 16
"""Given targets scored at once; their attention is kept, which is large."""

SCORED = 500
"""Pairs translated at each validation, at most."""


@dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """The recipe's ``[task]`` table."""

    name: Literal["translate"] = "translate"
    source_lang: str = ""
    target_lang: str = ""
    label_smoothing: float = 0.1
    r_drop: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"task.label_smoothing = {self.label_smoothing}; expected 0 or more and less than 1")
        if self.r_drop < 0:
            raise ConfigError(f"task.r_drop = {self.r_drop}; expected 0 (off) or more")


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to write: beam search, greedy (beam 1), or sampling."""

    beam: int = 4
    alpha: float = 0.6
    n_best: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    batch: int = 32

    def __post_init__(self) -> None:
        for name in ("beam", "n_best", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', '-')} {getattr(self, name)}: expected at least 1")
        if self.alpha < 0:
            raise InputError(f"alpha {self.alpha}: expected 0 (no length penalty) or more")
        if not self.sample and (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise InputError("temperature, top-k and top-p belong to sampling; pass --sample as well")
        if self.n_best > 1 and not self.sample and self.n_best > self.beam:
            raise InputError(f"n-best {self.n_best} needs a beam at least as wide; pass --beam {self.n_best} or more")

    def pick(self, device: torch.device) -> Pick:
        """How to choose one token at a time; a sampler draws on from text to text."""
        if not self.sample:
            return most_likely
        generator = torch.Generator(device).manual_seed(self.seed)
        return sampler(generator, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


@dataclass(frozen=True)
class Translation:
    """One translation: the score's formula is in generate/hypothesis.py; alignment pairs (source, target) words."""

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    alignment: list[tuple[int, int]]


NOTHING = Translation("", 0.0, [], [], [])


@dataclass(frozen=True)
class Forced:
    """A given target, scored by the model, with what each of its tokens looked at (layers, heads, target, source)."""

    hypothesis: Hypothesis
    attention: Float[Tensor, "L H T S"]


class Translate(Task):
    """From pairs of texts to a translator."""

    name = verb = "translate"
    Config = TranslateConfig
    columns = ("source", "target")
    goal = Goal("bleu", "BLEU", higher_is_better=True)

    def __init__(self, config: TranslateConfig, tokenizers: Tokenizers) -> None:
        self.config = config
        self.tokenizers = tokenizers

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return paths_of(data)

    @staticmethod
    def read(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return read_pairs(data, columns, skip_empty=skip_empty)

    @classmethod
    def learn(cls, config: TranslateConfig, tokenizer: TokenizerConfig, corpus: Corpus, *, at_most: bool) -> Self:
        """One vocabulary for both sides, or one for each."""
        sides = [(0, 1)] if tokenizer.joint else [(0,), (1,)]
        learned = [train_tokenizer(corpus.texts(*columns), tokenizer, at_most=at_most) for columns in sides]
        return cls(config, Tokenizers(learned[0], learned[-1]))

    @classmethod
    def load(cls, config: TranslateConfig, tokenizer: TokenizerConfig, directory: Path) -> Self:
        return cls(config, Tokenizers.load(directory, joint=tokenizer.joint))

    def save(self, directory: Path) -> None:
        self.tokenizers.save(directory)

    @property
    def fingerprint(self) -> str:
        return f"{self.tokenizers.source.fingerprint} {self.tokenizers.target.fingerprint}"

    @property
    def vocabulary(self) -> int:
        return max(len(self.tokenizers.source), len(self.tokenizers.target))

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        source, target = zip(*examples, strict=True)
        return [self.tokenizers.source.encode_batch(source), self.tokenizers.target.encode_batch(target)]

    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """One position more than the text has tokens: ``<eos>`` ends the source, ``<sos>`` begins the target."""
        return store.lengths(*self.columns, extra=1)

    def batch(self, store: TokenStore, placement: Placement) -> PairBatch:
        return pair_batch(store, placement, pad=PAD, sos=SOS, eos=EOS)

    def build(self, config: ModelConfig) -> Seq2Seq:
        sizes = len(self.tokenizers.source), len(self.tokenizers.target)
        return Seq2Seq(config, *sizes, joint=self.tokenizers.joint)

    def loss(self, model: Seq2Seq, batch: PairBatch) -> Loss:
        """Smoothed cross-entropy; with R-Drop, of two passes that dropout makes differ, and their divergence."""
        smoothing = self.config.label_smoothing
        if not (self.config.r_drop and model.training):
            decoded = model.decoded(batch.source, batch.target_in)
            return linear_cross_entropy(decoded, model.softmax_embedding.weight, batch.target_out, smoothing)
        logits, again = (model(batch.source, batch.target_in) for _ in range(2))
        loss, other = (cross_entropy(each, batch.target_out, smoothing) for each in (logits, again))
        apart = divergence(logits, again, batch.target_out)
        total = (loss.total + other.total) / 2 + self.config.r_drop * apart
        return Loss(total, loss.nll, loss.n_tokens)

    def score(self, model: Seq2Seq, store: TokenStore, device: torch.device) -> dict[str, float]:
        fitting = (self.lengths(store) <= model.config.n_positions).all(axis=1)
        chosen = np.flatnonzero(fitting)[:SCORED].tolist()
        sources = [store["source"][i].tolist() for i in chosen]
        references = [self.tokenizers.target.decode(store["target"][i].tolist()) for i in chosen]
        found = self.search(model, sources, Search(beam=1, batch=128), device)
        texts = [self.tokenizers.target.decode(best[0].ids) for best in found]
        scores = translation_score(texts, references)
        return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact}

    def translate(
        self,
        model: Seq2Seq,
        windows: Iterable[Sequence[str]],
        search: Search,
        device: torch.device,
        *,
        aligned: bool = True,
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Each text with its best translations, in input order; the texts of a window are sorted by length inside.

        A blank text has a blank translation, so that the lines of a file stay side by side.
        """
        pick = search.pick(device)
        for window in windows:
            worded = [text for text in window if text.strip()]
            ids = self.tokenizers.source.encode_batch(worded)
            for text, tokens in zip(worded, ids, strict=True):
                self._check(model, text, tokens)
            found = self.search(model, ids, search, device, pick)
            alignments = self._alignments(model, ids, found, device) if aligned else repeat([])
            best = ([self._translation(each, next(alignments)) for each in hypotheses] for hypotheses in found)
            for text in window:
                yield text, next(best) if text.strip() else [NOTHING]

    def search(
        self,
        model: Seq2Seq,
        sources: Sequence[list[int]],
        search: Search,
        device: torch.device,
        pick: Pick = most_likely,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, found in order of length, given in input order."""
        found: dict[int, list[Hypothesis]] = {}
        for chosen in by_length([len(source) for source in sources], search.batch):
            batch = [sources[i] for i in chosen]
            found.update(zip(chosen, _search_batch(model, batch, search, device, pick), strict=True))
        return [found[i] for i in range(len(sources))]

    def force(
        self,
        model: Seq2Seq,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        device: torch.device,
        alpha: float = 0.6,
    ) -> Iterator[Forced]:
        """Score given targets (ids without ``<eos>``), with what each of their tokens looked at; in input order."""
        limit, longest = model.config.n_positions - 1, max((len(side) for pair in pairs for side in pair), default=0)
        if longest > limit:
            raise InputError(f"a text has {longest:,} tokens; this model takes at most {limit:,}; split it")
        for first in range(0, len(pairs), FORCED):
            batch = pairs[first : first + FORCED]
            yield from _force_batch(model, batch, device, alpha)

    def _alignments(
        self, model: Seq2Seq, sources: list[list[int]], found: list[list[Hypothesis]], device: torch.device
    ) -> Iterator[list[tuple[int, int]]]:
        """The word alignment of every hypothesis, in order."""
        pairs = [
            (source, best.ids[:-1]) for source, hypotheses in zip(sources, found, strict=True) for best in hypotheses
        ]
        for (source, target), forced in zip(pairs, self.force(model, pairs, device), strict=True):
            words = self.tokenizers.target.words(target), self.tokenizers.source.words(source)
            yield align(forced.attention, *words)

    def _translation(self, best: Hypothesis, alignment: list[tuple[int, int]]) -> Translation:
        target = self.tokenizers.target
        return Translation(
            text=target.decode(best.ids),
            score=best.score,
            tokens=target.pieces(best.ids),
            token_scores=list(best.token_scores),
            alignment=alignment,
        )

    def _check(self, model: Seq2Seq, text: str, tokens: list[int]) -> None:
        """Refuse what cannot be translated whole."""
        limit = model.config.n_positions - 1
        if len(tokens) > limit:
            raise InputError(
                f"'{text[:30]}...' has {len(tokens):,} tokens; this model takes at most {limit:,}; "
                "split the text into sentences"
            )


def divergence(one: Float[Tensor, "B T V"], other: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]) -> Tensor:
    """R-Drop's term: the mean of the two Kullback-Leibler divergences, summed over tokens (Liang et al. 2021)."""
    p, q = one.float().log_softmax(-1), other.float().log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    return torch.where(target >= 0, both, 0.0).sum()


@torch.inference_mode()
def _force_batch(
    model: Seq2Seq, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device, alpha: float
) -> Iterator[Forced]:
    source = sentences_to_rows([source for source, _ in pairs], after=EOS, pad=PAD).to(device)
    target_in = sentences_to_rows([target for _, target in pairs], before=SOS, pad=PAD).to(device)
    target_out = sentences_to_rows([target for _, target in pairs], after=EOS, pad=PAD).to(device)
    with record(model, "decoder.*.cross_attention.weights") as heard:
        log_probs = model(source, target_in).float().log_softmax(-1)
    scores = log_probs.gather(-1, target_out.ids.long()[..., None]).squeeze(-1).cpu()
    attention = torch.stack(list(heard.values()), 1).cpu()  # (B, L, H, T, S)
    for row, (source_ids, target_ids) in enumerate(pairs):
        t, s = len(target_ids) + 1, len(source_ids) + 1
        yield Forced(hypothesis([*target_ids, EOS], scores[row, :t].tolist(), alpha), attention[row, :, :, :t, :s])


@torch.inference_mode()
def _search_batch(
    model: Seq2Seq, sources: Sequence[list[int]], search: Search, device: torch.device, pick: Pick
) -> list[list[Hypothesis]]:
    rows = sentences_to_rows(sources, after=EOS, pad=PAD).to(device)
    limits = [min(len(source) + 50, model.config.n_positions) for source in sources]
    if not search.sample and search.beam > 1:
        found = beam_search(
            model.step,
            model.start(rows),
            limits,
            sos=SOS,
            eos=EOS,
            width=search.beam,
            alpha=search.alpha,
            device=device,
        )
        return [hypotheses[: search.n_best] for hypotheses in found]
    return _one_by_one(model, rows, limits, search, device, pick)


def _one_by_one(
    model: Seq2Seq, rows: Rows, limits: list[int], search: Search, device: torch.device, pick: Pick
) -> list[list[Hypothesis]]:
    """Greedy, or `n_best` samples of each source, best first."""
    drawn = [
        follow(model.step, model.start(rows), pick, limits, sos=SOS, eos=EOS, alpha=search.alpha, device=device)
        for _ in range(search.n_best if search.sample else 1)
    ]
    return [sorted(each, key=lambda h: -h.score) for each in zip(*drawn, strict=True)]
