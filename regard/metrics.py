"""Evaluation metrics of predictions against references, over a whole set of examples.

Translation: BLEU and chrF by sacrebleu, on plain detokenised text, with their signatures. Classification: accuracy, F1,
Matthews correlation; regression: Pearson, Spearman; tagging: entity-level precision, recall and F1; question answering:
exact match and F1 of words (SQuAD); retrieval: reciprocal rank and accuracy at k. All but BLEU and chrF are fractions
or correlations, 1 at best. An undefined score is 0.0, an undefined correlation nan.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Scores = Sequence[float] | Float[np.ndarray, " N"]


@dataclass(frozen=True)
class TranslationScore:
    """Corpus scores of translations against one reference each; `exact` is the fraction that equals its reference."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float


def translation_score(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> TranslationScore:
    """Return BLEU and chrF of a corpus."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    n_exact = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return TranslationScore(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        exact=n_exact / len(references),
    )


def sentence_bleu(hypothesis: str, reference: str) -> float:
    """Return the smoothed BLEU of one translation, of n-grams no longer than it is."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(effective_order=True).sentence_score(hypothesis, [reference]).score)


def perplexity(nll: float, n_tokens: int) -> float:
    """Return ``exp(nll / tokens)``, or infinity instead of an overflow."""
    mean = nll / n_tokens
    return math.exp(mean) if mean < 700 else math.inf


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Return the fraction of correct predictions."""
    return _fraction(_count_equal(gold, predicted), len(gold))


def f1(gold: Sequence[Hashable], predicted: Sequence[Hashable], positive: Hashable) -> float:
    """Return the harmonic mean of precision and recall of one class; 0.0 if it is neither a label nor predicted."""
    n_correct = sum(g == p == positive for g, p in zip(gold, predicted, strict=True))
    return _fraction(2 * n_correct, gold.count(positive) + predicted.count(positive))


def macro_f1(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Return the unweighted mean F1 of all classes that are a label or predicted."""
    n_gold, n_predicted = Counter(gold), Counter(predicted)
    n_correct = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    classes = n_gold.keys() | n_predicted.keys()
    total = math.fsum(_fraction(2 * n_correct[c], n_gold[c] + n_predicted[c]) for c in classes)
    return _fraction(total, len(classes))


def matthews(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Return Matthews' correlation of two or more classes (Gorodkin 2004); 0.0 if one side is all of one class."""
    n_gold, n_predicted, n = Counter(gold), Counter(predicted), len(gold)
    covariance = n * _count_equal(gold, predicted) - sum(n_gold[c] * n_predicted[c] for c in n_gold)
    variances = [n * n - sum(count * count for count in side.values()) for side in (n_gold, n_predicted)]
    return _fraction(covariance, math.sqrt(math.prod(variances)))


def regression_metrics(gold: Scores, predicted: Scores) -> dict[str, float]:
    """Return Pearson's and Spearman's correlations and the mean squared error of scores."""
    return {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted), "mse": mse(gold, predicted)}


def mse(gold: Scores, predicted: Scores) -> float:
    """Return the mean squared error; nan without scores."""
    differences = np.asarray(gold, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)
    return float(np.mean(differences**2)) if len(differences) else math.nan


def pearson(gold: Scores, predicted: Scores) -> float:
    """Return the linear correlation of the scores; nan if one side is constant or not finite."""
    return _correlation(np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64))


def spearman(gold: Scores, predicted: Scores) -> float:
    """Return the correlation of the ranks, ties having their mean rank; nan if `pearson` is."""
    x, y = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    return math.nan if _is_degenerate(x) or _is_degenerate(y) else _correlation(_average_ranks(x), _average_ranks(y))


def _correlation(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    assert len(x) == len(y), f"{len(x)} scores against {len(y)}"
    if _is_degenerate(x) or _is_degenerate(y):
        return math.nan
    return float(np.clip(_center_and_normalize(x) @ _center_and_normalize(y), -1.0, 1.0))


def _is_degenerate(scores: Float[np.ndarray, " N"]) -> bool:
    """Return True if no correlation is defined; compares extremes, as the mean of equal scores may be rounded."""
    return len(scores) == 0 or not np.isfinite(scores).all() or bool(scores.min() == scores.max())


def _center_and_normalize(scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the scores minus their mean, scaled to unit norm."""
    centered = scores - scores.mean()
    centered = centered / np.abs(centered).max()
    return np.asarray(centered / np.linalg.norm(centered))


def _average_ranks(scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the rank of each score, 1 for the lowest; ties have their mean rank."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)
    return np.asarray((last_ranks - (counts - 1) / 2)[inverse])


def _count_equal(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> int:
    return sum(g == p for g, p in zip(gold, predicted, strict=True))


def _fraction(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


class Entity(NamedTuple):
    """A span of words, from `start` up to but excluding `end`, of the type `label`."""

    label: str
    start: int
    end: int


def extract_entities(labels: Sequence[str]) -> list[Entity]:
    """Return the entities of one sentence in strict IOB2, as in seqeval's strict mode.

    An entity begins at B-X and extends over each I-X that follows. An I-X after anything else is not part of an
    entity (conlleval is lenient and lets it begin one); all other labels are outside.
    """
    entities: list[Entity] = []
    for i, label in enumerate(labels):
        if label.startswith("B-"):
            entities.append(Entity(label[2:], i, i + 1))
        elif label.startswith("I-") and entities and entities[-1].end == i and entities[-1].label == label[2:]:
            entities[-1] = entities[-1]._replace(end=i + 1)
    return entities


class EntityScore(NamedTuple):
    """Counts of gold, predicted and correct entities; correct means equal type, start and end."""

    n_gold: int
    n_predicted: int
    n_correct: int

    @property
    def precision(self) -> float:
        """The fraction of predicted entities that are correct; 0.0 if none is predicted."""
        return _fraction(self.n_correct, self.n_predicted)

    @property
    def recall(self) -> float:
        """The fraction of gold entities that are predicted; 0.0 if there are none."""
        return _fraction(self.n_correct, self.n_gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _fraction(2 * self.n_correct, self.n_gold + self.n_predicted)


@dataclass(frozen=True)
class EntityScores:
    """The micro-averaged score of all entities, and the score of each type, sorted by name."""

    micro: EntityScore
    by_type: dict[str, EntityScore]


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Return precision, recall and F1 of the entities of all sentences, labelled in strict IOB2."""
    assert list(map(len, gold)) == list(map(len, predicted)), "gold and predicted sentences differ in length"
    gold_set, predicted_set = _all_entities(gold), _all_entities(predicted)
    correct = gold_set & predicted_set
    n_gold, n_predicted, n_correct = (
        Counter(entity.label for _, entity in entities) for entities in (gold_set, predicted_set, correct)
    )
    micro = EntityScore(len(gold_set), len(predicted_set), len(correct))
    types = sorted(n_gold.keys() | n_predicted.keys())
    return EntityScores(micro, {t: EntityScore(n_gold[t], n_predicted[t], n_correct[t]) for t in types})


def _all_entities(sentences: Sequence[Sequence[str]]) -> set[tuple[int, Entity]]:
    return {(number, entity) for number, labels in enumerate(sentences) for entity in extract_entities(labels)}


ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION_TABLE = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Return an answer in lower case, without articles, ASCII punctuation and superfluous white space (SQuAD)."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION_TABLE)).split())


class AnswerScore(NamedTuple):
    """Exact match and F1 of an answer, or their means over many, each against the reference that suits it best."""

    exact_match: float
    f1: float


def answer_score(predicted: str, references: Sequence[str]) -> AnswerScore:
    """Return exact match and F1 of the words of an answer (Rajpurkar et al. 2016; 2018 for "", no answer)."""
    words = normalise_answer(predicted).split()
    gold = [normalise_answer(reference).split() for reference in references or ("",)]
    return AnswerScore(float(words in gold), max(_word_f1(words, reference) for reference in gold))


def mean_answer_score(predicted: Sequence[str], references: Sequence[Sequence[str]]) -> AnswerScore:
    """Return the mean exact match and F1 of many answers."""
    scores = [answer_score(text, gold) for text, gold in zip(predicted, references, strict=True)]
    return AnswerScore(*(_fraction(math.fsum(column), len(scores)) for column in zip(*scores, strict=True)))


def _word_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Return F1 of the words as bags; without words on one side, 1 if there are none on the other."""
    if not predicted or not gold:
        return float(predicted == gold)
    return _fraction(2 * (Counter(predicted) & Counter(gold)).total(), len(predicted) + len(gold))


RETRIEVAL_CUTOFFS = (1, 5, 10)
"""The numbers k of documents for which the accuracy at k is reported."""


def retrieval_metrics(ranks: Sequence[int]) -> dict[str, float]:
    """Return the mean reciprocal rank, and the fraction of ranks within the first k: accuracy at k."""
    accuracies = {
        f"accuracy_at_{k}": _fraction(sum(rank <= k for rank in ranks), len(ranks)) for k in RETRIEVAL_CUTOFFS
    }
    return {"mrr": _fraction(math.fsum(1 / rank for rank in ranks), len(ranks)), **accuracies}


class BestThreshold(NamedTuple):
    """A threshold and the mean score it gives."""

    threshold: float
    score: float


def best_threshold(
    margins: Sequence[float], score_if_answered: Sequence[float], score_if_not: Sequence[float]
) -> BestThreshold:
    """Return the threshold with the best mean score, if questions whose margin is above it get no answer."""
    order = np.argsort(margins, kind="stable")
    margin = np.asarray(margins, dtype=np.float64)[order]
    answered, unanswered = (np.asarray(scores, dtype=np.float64)[order] for scores in (score_if_answered, score_if_not))
    totals = unanswered.sum() + np.concatenate(([0.0], np.cumsum(answered - unanswered)))  # of the first k answered
    ends_a_tie = np.concatenate((margin[1:] != margin[:-1], [True]))
    is_possible = np.concatenate(([True], ends_a_tie))  # questions of equal margin are answered all or not at all
    best = int(np.where(is_possible, totals, -np.inf).argmax())
    threshold = margin[best - 1] if best else np.nextafter(margin[0], -np.inf)
    return BestThreshold(float(threshold), float(totals[best] / len(margin)))
