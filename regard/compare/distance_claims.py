"""Verdicts on recurrence and distance, from curves of several seeds; shown by distance.py.

A verdict is decided by the 95 % interval over seeds: the claim held where the whole interval supports it, did not hold
where the whole interval contradicts it.
"""

from __future__ import annotations

from typing import Any

from regard.compare.compared_models import GRU_ENCODER, LSTM_ENCODER, LSTM_POOLING, TRANSFORMER_ENCODER
from regard.compare.experiment import Finding, Measurements, combine_verdicts, weigh_evidence
from regard.compare.intervals import MeanInterval, interval_of_geometric_mean, interval_of_mean

VANISHED_RATIO = 0.1
"""Ratio of the gradient at the first token to that at the last below which it counts as vanished."""

EQUAL_TOLERANCE = 0.05
"""Largest deviation from the equal fraction at which a vector treats positions equally."""

LEARNED_MARGIN = 0.1
"""Accuracy above chance from which a model counts as trained."""

METHODS = {"removal": "by removal", "gradient_input": "by gradient x input"}
"""Names of the methods of attribution."""

SMALLEST_NORM = 1e-45
"""Smallest ratio of norms that has a logarithm here: smaller ones are zero in float32."""


class DistanceCurves:
    """The measured quantities with intervals over seeds; distances count from the end of a text, from 1."""

    def __init__(self, measurements: Measurements) -> None:
        self._runs = {each["name"]: each["runs"] for each in measurements["models"]}
        self.parameters: dict[str, int] = {each["name"]: each["parameters"] for each in measurements["models"]}
        self.names = list(self._runs)
        self.length: int = measurements["length"]
        self.n_seeds: int = measurements["seeds"]
        self.chance: float = 1 / measurements["symbols"]
        self.n_last = max(1, self.length // 4)
        self.equal_fraction = self.n_last / self.length

    @property
    def parameter_range(self) -> str:
        """The smallest and the largest number of parameters, in words."""
        counts = self.parameters.values()
        return f"{min(counts):,} to {max(counts):,}"

    def values(self, name: str, moment: str, quantity: str) -> list[Any]:
        """Return a quantity of each seed, "before" or "after" training."""
        return [run[moment][quantity] for run in self._runs[name]]

    def accuracy(self, name: str) -> MeanInterval:
        """Return the accuracy after training."""
        return interval_of_mean(self.values(name, "after", "accuracy"))

    def has_learned(self, name: str) -> bool:
        """Return True if a model is better than chance."""
        return self.accuracy(name).mean > self.chance + LEARNED_MARGIN

    def last_fraction(self, name: str, moment: str, method: str) -> MeanInterval:
        """Return the fraction of the final vector owed to the last quarter of a text."""
        return interval_of_mean([sum(each[: self.n_last]) for each in self.values(name, moment, method)])

    def gradient_ratio(self, name: str, moment: str) -> MeanInterval:
        """Return the gradient norm at the first token relative to the last token."""
        return self.by_distance(name, moment, "gradient_norm")[-1]

    def step_factor(self, ratio: MeanInterval) -> float:
        """Return the factor of each step that gives a ratio over the whole text."""
        return float(ratio.mean ** (1 / max(1, self.length - 1)))

    def by_distance(self, name: str, moment: str, quantity: str) -> list[MeanInterval]:
        """Return a quantity at every distance; gradient norms are relative to that at distance 1."""
        per_seed = self.values(name, moment, quantity)
        if quantity != "gradient_norm":
            return [interval_of_mean(each) for each in zip(*per_seed, strict=True)]
        relative = [[max(norm / norms[0], SMALLEST_NORM) for norm in norms] for norms in per_seed]
        return [interval_of_geometric_mean(each) for each in zip(*relative, strict=True)]


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdict on each claim."""
    curves = DistanceCurves(measurements)
    return [
        *(
            _judge_last_tokens(curves, name, moment)
            for name in (LSTM_ENCODER, GRU_ENCODER)
            for moment in ("before", "after")
        ),
        *(_judge_equal_fractions(curves, name) for name in (LSTM_POOLING, TRANSFORMER_ENCODER)),
        *(
            _judge_gradient(curves, name, moment, vanishes=name in (LSTM_ENCODER, GRU_ENCODER))
            for name in (LSTM_ENCODER, GRU_ENCODER, LSTM_POOLING, TRANSFORMER_ENCODER)
            for moment in ("before", "after")
        ),
    ]


def _judge_last_tokens(curves: DistanceCurves, name: str, moment: str) -> Finding:
    """Judge whether the last quarter of a text has more than a quarter of the final vector, by both methods."""
    fractions = {method: curves.last_fraction(name, moment, method) for method in METHODS}
    verdicts = [
        weigh_evidence(each.is_above(curves.equal_fraction), each.is_below(curves.equal_fraction))
        for each in fractions.values()
    ]
    note = _undertrained_note(curves, name, moment)
    held = None if note else combine_verdicts(verdicts)
    claim = f"The last tokens contribute most to the final vector of the {name}, {moment} training."
    return Finding(claim, held, f"{_describe_fractions(curves, fractions)}{note}.")


def _judge_equal_fractions(curves: DistanceCurves, name: str) -> Finding:
    """Judge whether attention favours no position: the interval lies within the tolerance around equal fractions."""
    fractions = {method: curves.last_fraction(name, "after", method) for method in METHODS}
    low, high = curves.equal_fraction - EQUAL_TOLERANCE, curves.equal_fraction + EQUAL_TOLERANCE
    verdicts = [
        weigh_evidence(each.is_above(low) and each.is_below(high), each.is_below(low) or each.is_above(high))
        for each in fractions.values()
    ]
    note = _undertrained_note(curves, name, "after")
    held = None if note else combine_verdicts(verdicts)
    claim = f"With attention no position contributes more: {name}, after training."
    return Finding(claim, held, f"{_describe_fractions(curves, fractions)}{note}.")


def _describe_fractions(curves: DistanceCurves, fractions: dict[str, MeanInterval]) -> str:
    parts = ", ".join(
        f"{MeanInterval(*(100 * value for value in each)).format()} {METHODS[method]}"
        for method, each in fractions.items()
    )
    return (
        f"the last {curves.n_last} of {curves.length} tokens contribute, in %, {parts}; equal fractions would be "
        f"{100 * curves.equal_fraction:.1f}"
    )


def _undertrained_note(curves: DistanceCurves, name: str, moment: str) -> str:
    """Return why a claim about a trained model is undecided, or "" if it has learned enough."""
    if moment == "before" or curves.has_learned(name):
        return ""
    return f"; too little was learned to tell (accuracy {curves.accuracy(name).mean:.0%}, chance {curves.chance:.0%})"


def _judge_gradient(curves: DistanceCurves, name: str, moment: str, *, vanishes: bool) -> Finding:
    """Judge whether the gradient vanishes from the last token to the first, or with attention does not."""
    ratio = curves.gradient_ratio(name, moment)
    supports, refutes = ratio.is_below(VANISHED_RATIO), ratio.is_above(VANISHED_RATIO)
    note = _undertrained_note(curves, name, moment)
    held = None if note else weigh_evidence(supports, refutes) if vanishes else weigh_evidence(refutes, supports)
    claim = "Gradients vanish with distance in the" if vanishes else "With attention gradients do not vanish:"
    return Finding(
        f"{claim} {name}, {moment} training.",
        held,
        f"at the first of {curves.length} tokens the norm is {ratio.mean:.2g} ({ratio.low:.2g} to {ratio.high:.2g}) "
        f"times that at the last, {curves.step_factor(ratio):.3f} per step; below {VANISHED_RATIO:g} counts as "
        f"vanished{note}.",
    )
