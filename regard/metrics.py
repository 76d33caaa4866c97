"""Scores others can compare, of what a model answered against what was right, over a whole set of examples.

Translations: BLEU and chrF by sacrebleu, on plain detokenised text, with their signatures. Classes: accuracy, F1,
Matthews; scores: Pearson, Spearman; tagged words: entities found, whole and of the right type. All but BLEU and chrF
are shares or correlations, 1 at best. A score that the examples leave undefined is 0.0, a correlation nan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Scores = Sequence[float] | Float[np.ndarray, " N"]


@dataclass(frozen=True)
class TranslationScore:
    """Corpus scores of translations against one reference each; exact is the share that equals its reference."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float


def translation_score(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> TranslationScore:
    """BLEU and chrF of a corpus."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    same = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return TranslationScore(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        exact=same / len(references),
    )


def perplexity(nll: float, n_tokens: int) -> float:
    """``exp(nll / tokens)``; infinite rather than an overflow where a model is hopeless."""
    mean = nll / n_tokens
    return math.exp(mean) if mean < 700 else math.inf


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The share of predictions that are right."""
    return _fraction(_count_equal(gold, predicted), len(gold))


def f1(gold: Sequence[Hashable], predicted: Sequence[Hashable], positive: Hashable) -> float:
    """The harmonic mean of precision and recall of one class; 0.0 where that is neither there nor predicted."""
    n_right = sum(g == p == positive for g, p in zip(gold, predicted, strict=True))
    return _fraction(2 * n_right, gold.count(positive) + predicted.count(positive))


def macro_f1(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The mean F1 of all classes that are there or predicted, however many examples each has."""
    n_gold, n_predicted = Counter(gold), Counter(predicted)
    n_right = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    classes = n_gold.keys() | n_predicted.keys()
    total = math.fsum(_fraction(2 * n_right[c], n_gold[c] + n_predicted[c]) for c in classes)
    return _fraction(total, len(classes))


def matthews(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Matthews' correlation of two or more classes (Gorodkin 2004); 0.0 where one side is all of one class."""
    n_gold, n_predicted, n = Counter(gold), Counter(predicted), len(gold)
    covariance = n * _count_equal(gold, predicted) - sum(n_gold[c] * n_predicted[c] for c in n_gold)
    variances = [n * n - sum(count * count for count in side.values()) for side in (n_gold, n_predicted)]
    return _fraction(covariance, math.sqrt(math.prod(variances)))


def pearson(gold: Scores, predicted: Scores) -> float:
    """The correlation of the scores themselves; nan where one side is constant or not finite."""
    return _correlation(np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64))


def spearman(gold: Scores, predicted: Scores) -> float:
    """The correlation of the scores' ranks, equal scores sharing the mean of theirs; nan where `pearson` is."""
    x, y = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    return math.nan if _is_degenerate(x) or _is_degenerate(y) else _correlation(_average_ranks(x), _average_ranks(y))


def _correlation(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    assert len(x) == len(y), f"{len(x)} scores against {len(y)}"
    if _is_degenerate(x) or _is_degenerate(y):
        return math.nan
    return float(np.clip(_center_and_normalize(x) @ _center_and_normalize(y), -1.0, 1.0))


def _is_degenerate(scores: Float[np.ndarray, " N"]) -> bool:
    """Whether there is nothing to correlate; by the ends, since a mean may differ from equal scores by a rounding."""
    return len(scores) == 0 or not np.isfinite(scores).all() or bool(scores.min() == scores.max())


def _center_and_normalize(scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """The scores around their mean, as a vector of length 1."""
    around = scores - scores.mean()
    around = around / np.abs(around).max()
    return np.asarray(around / np.linalg.norm(around))


def _average_ranks(scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """The place of each score from the lowest on, counted from 1."""
    _, which, n_equal = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(n_equal)
    return np.asarray((last - (n_equal - 1) / 2)[which])


def _count_equal(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> int:
    return sum(g == p for g, p in zip(gold, predicted, strict=True))


def _fraction(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


class Entity(NamedTuple):
    """A run of words, from `start` up to and without `end`, that is one thing of the type `label`."""

    label: str
    start: int
    end: int


def extract_entities(labels: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in strict IOB2, as seqeval's strict mode reads it.

    One begins at B-X and goes on over each I-X that follows. An I-X after anything else begins none and is part of
    none, where the lenient reading of conlleval lets it begin one; all other labels are outside.
    """
    found: list[Entity] = []
    for place, label in enumerate(labels):
        if label.startswith("B-"):
            found.append(Entity(label[2:], place, place + 1))
        elif label.startswith("I-") and found and found[-1].end == place and found[-1].label == label[2:]:
            found[-1] = found[-1]._replace(end=place + 1)
    return found


class EntityScore(NamedTuple):
    """How many entities there are, how many were predicted and how many of those are right: type, start and end."""

    n_gold: int
    n_predicted: int
    n_correct: int

    @property
    def precision(self) -> float:
        """The share of the predicted ones that are right; 0.0 where none is predicted."""
        return _fraction(self.n_correct, self.n_predicted)

    @property
    def recall(self) -> float:
        """The share of the gold ones that are predicted; 0.0 where there is none."""
        return _fraction(self.n_correct, self.n_gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _fraction(2 * self.n_correct, self.n_gold + self.n_predicted)


@dataclass(frozen=True)
class EntityScores:
    """The score of all entities together (micro average), and of those of each type, in the order of their names."""

    micro: EntityScore
    by_type: dict[str, EntityScore]


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Precision, recall and F1 of the entities of all sentences, whose labels are IOB2 and read strictly."""
    assert list(map(len, gold)) == list(map(len, predicted)), "not as many labels in each sentence on both sides"
    wanted, found = _all_entities(gold), _all_entities(predicted)
    n_gold, n_predicted, n_right = (Counter(entity.label for _, entity in s) for s in (wanted, found, wanted & found))
    micro = EntityScore(len(wanted), len(found), len(wanted & found))
    types = sorted(n_gold.keys() | n_predicted.keys())
    return EntityScores(micro, {t: EntityScore(n_gold[t], n_predicted[t], n_right[t]) for t in types})


def _all_entities(sentences: Sequence[Sequence[str]]) -> set[tuple[int, Entity]]:
    return {(number, entity) for number, labels in enumerate(sentences) for entity in extract_entities(labels)}
