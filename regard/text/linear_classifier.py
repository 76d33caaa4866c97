"""A linear classifier of sparse features, trained as an averaged perceptron (Collins 2002), with integers only.

So training and prediction give the same results on every machine. segmenter_training.py trains it, word_segmenter.py
uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

MARGIN = 5
"""By how much the sum of the right class must be larger than all others; a correction adds one for each feature."""

LARGEST_WEIGHT = 1000
"""The largest weight of a trained classifier; the others are rounded in proportion, and those of 0 left out."""

Weights = dict[str, tuple[int, ...]]
"""The weight of each class by feature."""


def classify(weights: Weights, features: Sequence[str], n_classes: int) -> int:
    """Return the class with the largest sum of weights, of several the first."""
    totals = [0] * n_classes
    for feature in features:
        if feature in weights:
            for number, weight in enumerate(weights[feature]):
                totals[number] += weight
    return totals.index(max(totals))


class PerceptronTrainer:
    """The weights of an averaged perceptron while it learns."""

    def __init__(self, n_classes: int, initial: Mapping[str, list[int]] | None = None) -> None:
        self.n_classes, self.n_steps = n_classes, 1
        self._weights = {feature: list(weights) for feature, weights in (initial or {}).items()}
        self._moments = {feature: [0] * n_classes for feature in self._weights}

    def learn(self, features: Sequence[str], gold: int) -> int:
        """Return the predicted class; where that of the example is not ahead by the margin, correct the weights."""
        weights, totals = self._weights, [0] * self.n_classes
        for feature in features:
            if feature in weights:
                for number, weight in enumerate(weights[feature]):
                    totals[number] += weight
        predicted = totals.index(max(totals))
        score, totals[gold] = totals[gold], -sys.maxsize
        rival = max(totals)
        if score < rival + MARGIN:
            self._correct(features, gold, totals.index(rival))
        self.n_steps += 1
        return predicted

    def _correct(self, features: Sequence[str], gold: int, rival: int) -> None:
        for feature in features:
            if feature not in self._weights:
                self._weights[feature], self._moments[feature] = [0] * self.n_classes, [0] * self.n_classes
            weights, moments = self._weights[feature], self._moments[feature]
            weights[gold] += 1
            weights[rival] -= 1
            moments[gold] += self.n_steps
            moments[rival] -= self.n_steps

    def averaged_weights(self) -> Weights:
        """Return the mean of the weights after each example, scaled and rounded."""
        sums = {
            feature: [
                weight * self.n_steps - moment for weight, moment in zip(weights, self._moments[feature], strict=True)
            ]
            for feature, weights in self._weights.items()
        }
        largest = max((abs(each) for row in sums.values() for each in row), default=0) or 1
        rounded = {
            feature: tuple(_divide(each * LARGEST_WEIGHT, largest) for each in row) for feature, row in sums.items()
        }
        return {feature: row for feature, row in sorted(rounded.items()) if any(row)}


def _divide(dividend: int, divisor: int) -> int:
    """Return the quotient rounded to the nearest whole number, halves away from zero."""
    quotient = (2 * abs(dividend) + divisor) // (2 * divisor)
    return quotient if dividend >= 0 else -quotient
