"""Verdicts on position schemes, from the scores of every task, scheme and seed; shown by positions.py.

Scores of one seed are of one corpus, so schemes are compared seed by seed, and the 95 % interval of the mean difference
decides. With one seed a difference must exceed what so many test examples leave to chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from regard.compare.experiment import Finding, Measurements, combine_verdicts, weigh_evidence
from regard.compare.intervals import MeanInterval, interval_of_mean
from regard.compare.translation import POOR_SCORE, min_significant_difference, undecided_note

NO_POSITIONS, LEARNED, SINUSOIDAL = "none", "learned", "sinusoidal"

MIN_DIFFERENCE = {"translate": 2.0, "tag": 1.0, "classify": 1.0, "qa": 1.0}
"""Smallest difference of scores (0 to 100) that counts, for any number of sentences."""

TASK_TITLES = {
    "translate": "translation",
    "tag": "tagging",
    "classify": "sequence classification",
    "qa": "span extraction",
}
"""Names of the tasks in titles."""

LEARNED_IS_BETTER = {"classify": True, "tag": False, "qa": False}
"""Tasks in which learned positions are better, or else worse, than the others according to Wang et al. 2021."""


def primary_score(task: str, scores: Mapping[str, Any]) -> tuple[str, float]:
    """Return the name and value (0 to 100) of a task's main metric: BLEU, F1 of entities or answers, or accuracy."""
    if task == "translate":
        return "BLEU", scores["bleu"]
    if task == "qa":
        return "F1", 100 * scores["f1"]
    if task == "classify" or "f1" not in scores:
        return "accuracy", 100 * scores["accuracy"]
    return "entity F1", 100 * scores["f1"]


class TaskScores:
    """The main scores of a task, by scheme and seed."""

    def __init__(self, task: str, measurements: Mapping[str, Any]) -> None:
        self.task, self.title = task, TASK_TITLES[task]
        models = measurements["models"]
        self.label, _ = primary_score(task, models[0]["scores"])
        self.by_seed: dict[str, dict[int, float]] = {}
        for each in models:
            seeds = self.by_seed.setdefault(each["name"], {})
            seeds[each.get("seed", 0)] = primary_score(task, each["scores"])[1]
        self.n_seeds = len(self.by_seed[NO_POSITIONS])
        self.baseline: float = measurements.get("baseline", 0.0)
        self.min_difference = min_significant_difference(measurements["n_test"], MIN_DIFFERENCE[task])

    @property
    def schemes(self) -> list[str]:
        """The schemes other than none."""
        return [name for name in self.by_seed if name != NO_POSITIONS]

    @property
    def fixed_schemes(self) -> list[str]:
        """The schemes other than none and learned."""
        return [name for name in self.schemes if name != LEARNED]

    def mean(self, scheme: str) -> float:
        """Return the mean over seeds."""
        return fmean(self.by_seed[scheme].values())

    def difference(self, ones: Sequence[str], others: Sequence[str]) -> MeanInterval:
        """Return the mean score of some schemes minus that of others, compared seed by seed."""
        differences = [
            fmean(self.by_seed[name][seed] for name in ones) - fmean(self.by_seed[name][seed] for name in others)
            for seed in self.by_seed[NO_POSITIONS]
        ]
        if self.n_seeds > 1:
            return interval_of_mean(differences)
        (only,) = differences
        return MeanInterval(only, only - self.min_difference, only + self.min_difference)

    def is_poor(self, schemes: Sequence[str]) -> bool:
        """Return True if the best of these schemes is hardly better than the score of always the same answer."""
        return max(map(self.mean, schemes)) - self.baseline < POOR_SCORE

    def undecided_note(self, held: bool | None, difference: MeanInterval, *, is_poor: bool) -> str:
        """Return why a claim is undecided: too little was learned, or the difference is within its interval."""
        if held is not None or is_poor or self.n_seeds == 1:
            poor_note = f"; too little was learned to tell ({self.label} at most {POOR_SCORE:g} above "
            if is_poor and self.baseline:
                return f"{poor_note}the {self.baseline:.1f} of the most frequent class)"
            return undecided_note(held, self.min_difference, is_poor=is_poor)
        return f"; the interval of the difference is {difference.low:+.1f} to {difference.high:+.1f}"


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdicts on the benefit of positions, on sinusoidal ones, and on the best scheme of each task."""
    tasks = [TaskScores(task, about) for task, about in measurements.items()]
    findings = [judge(scores) for scores in tasks for judge in (_judge_order_matters, _judge_sinusoidal)]
    compared = [scores for scores in tasks if scores.task in LEARNED_IS_BETTER]
    if len(compared) < len(LEARNED_IS_BETTER):
        return findings
    by_task = [_judge_learned(scores) for scores in compared]
    return [*findings, *by_task, _judge_all_tasks(compared, by_task)]


def _judge_order_matters(scores: TaskScores) -> Finding:
    """Judge whether every scheme is better than none; the worst scheme decides."""
    poor = scores.is_poor([*scores.schemes, NO_POSITIONS])
    differences = {name: scores.difference([name], [NO_POSITIONS]) for name in scores.schemes}
    verdict = combine_verdicts(weigh_evidence(each.is_above(0.0), each.is_below(0.0)) for each in differences.values())
    held, worst = None if poor else verdict, min(differences.values())
    ranked = ", ".join(
        f"{name} {scores.mean(name):.1f}" for name in sorted(scores.schemes, key=lambda n: -scores.mean(n))
    )
    return Finding(
        f"Order matters in {scores.title}: every scheme is better than none.",
        held,
        f"{scores.label}: {ranked}, none {scores.mean(NO_POSITIONS):.1f}"
        f"{scores.undecided_note(held, worst, is_poor=poor)}.",
    )


def _judge_sinusoidal(scores: TaskScores) -> Finding:
    """Judge whether sinusoidal positions do as well as learned ones, which allows them `MIN_DIFFERENCE` less."""
    difference, allowance = scores.difference([SINUSOIDAL], [LEARNED]), -MIN_DIFFERENCE[scores.task]
    poor, best = scores.is_poor([SINUSOIDAL, LEARNED]), max(scores.schemes, key=scores.mean)
    lowest = difference.mean if scores.n_seeds == 1 else difference.low
    worse = difference.is_below(0.0) and difference.mean < allowance
    held = None if poor else weigh_evidence(lowest > allowance, worse)
    return Finding(
        f"In {scores.title}, sinusoidal positions do as well as learned ones.",
        held,
        f"{scores.label} {scores.mean(SINUSOIDAL):.1f} against {scores.mean(LEARNED):.1f}"
        f"{scores.undecided_note(held, difference, is_poor=poor)}; the best here was {best}, {scores.mean(best):.1f}.",
    )


def _judge_learned(scores: TaskScores) -> Finding:
    """Judge whether learned positions are better, or worse, than the mean of the others."""
    difference, poor = scores.difference([LEARNED], scores.fixed_schemes), scores.is_poor(scores.schemes)
    above, below = difference.is_above(0.0), difference.is_below(0.0)
    better = LEARNED_IS_BETTER[scores.task]
    held = None if poor else weigh_evidence(above, below) if better else weigh_evidence(below, above)
    claim = f"Learned positions are {'better' if better else 'worse'} than fixed and relative ones"
    note = scores.undecided_note(held, difference, is_poor=True) if poor else ""
    each = ", ".join(
        f"{name} {scores.difference([LEARNED], [name]).format(signed=True)}" for name in scores.fixed_schemes
    )
    return Finding(
        f"{claim} in {scores.title}.",
        held,
        f"{scores.label} of learned {scores.mean(LEARNED):.1f}, minus the mean of the others "
        f"{difference.format(signed=True)}; minus {each}{note}.",
    )


def _judge_all_tasks(tasks: Sequence[TaskScores], findings: Sequence[Finding]) -> Finding:
    """Judge the claim on all tasks: it held if it held in each, and did not hold if it failed in one."""
    parts = ", ".join(
        f"{scores.title} {scores.difference([LEARNED], scores.fixed_schemes).format(signed=True)} ({finding.verdict})"
        for scores, finding in zip(tasks, findings, strict=True)
    )
    return Finding(
        "Learned positions are better for sequences, fixed and relative ones for tokens and spans.",
        combine_verdicts(finding.held for finding in findings),
        f"learned minus the others: {parts}.",
    )
