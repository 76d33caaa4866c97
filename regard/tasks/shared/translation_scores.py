"""Scores of translations by direction, and by what they are of: the data, or what a translator is to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from regard.metrics import translation_score


@dataclass(frozen=True)
class TranslationGroup:
    """Translations and references of one direction of one set, own or kept."""

    hypotheses: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def score(self) -> dict[str, float]:
        """Return BLEU, chrF and the fraction of exact translations."""
        scores = translation_score(self.hypotheses, self.references)
        return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact}


GroupKey = tuple[str, str]
"""The name of a set, "" or "kept", and a direction, "" where there is only one."""


def score_groups(groups: Mapping[GroupKey, TranslationGroup]) -> dict[str, float]:
    """Return the mean scores over sets and, within each, over directions; then BLEU of each set and each direction."""
    scores = {key: group.score() for key, group in groups.items()}
    sets = {name: _mean(each for (own, _), each in scores.items() if own == name) for name, _ in scores}
    by_set = {f"bleu_{name or 'own'}": each["bleu"] for name, each in sets.items()} if "kept" in sets else {}
    by_direction = {
        "_".join(filter(None, ("bleu", name, direction))): each["bleu"]
        for (name, direction), each in sorted(scores.items())
        if sum(own == name for own, _ in scores) > 1
    }
    return {**_mean(sets.values()), **by_set, **by_direction}


def _mean(scores: Iterable[Mapping[str, float]]) -> dict[str, float]:
    listed = list(scores)
    return {key: fmean(each[key] for each in listed) for key in listed[0]}
