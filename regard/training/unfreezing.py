"""Gradual unfreezing (``train.unfreeze``): one more layer is trained after every interval, from the top.

The number of trained layers is a function of the step, so there is nothing to save. models/freezing.py knows which
weights belong to which layer. Called by loop.py before every step; plan.py says when all layers are trained.
"""

from __future__ import annotations

from regard.models.freezing import count_layers_of, unfreeze_from_top
from regard.training.prepare import PreparedRun


class GradualUnfreezing:
    """The groups of weights that a run trains at each step: the heads, each layer from the top, the embeddings."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.model, self.train = prepared.model, prepared.config.train
        self.interval = _find_interval(prepared)
        self.n_groups = count_layers_of(self.model) + 1
        self._n_trained_groups: int | None = None

    def count_trained_groups(self, step: int) -> int:
        """Return the number of groups below the heads that are trained at a step, counted from 1."""
        return min(self.n_groups, (step - 1) // self.interval) if self.interval else self.n_groups

    def apply(self, step: int) -> bool:
        """Train the groups of a step; return True if that changed anything."""
        n_trained = self.count_trained_groups(step)
        if not self.interval or n_trained == self._n_trained_groups:
            return False
        unfreeze_from_top(self.model, n_trained, self.train.freeze)
        self._n_trained_groups = n_trained
        return True

    def describe(self) -> str:
        """Return when layers are trained; nothing if all are from the first step on."""
        if not self.interval:
            return ""
        first, last = self.n_groups * self.interval + 1, self.count_trained_groups(self.train.steps)
        never = f"the run ends with {last} of {self.n_groups} layers and embeddings trained"
        after = f"all from step {first:,} on" if last == self.n_groups else never
        return f"heads alone at first, one more layer every {self.interval:,} steps, {after}"


def _find_interval(prepared: PreparedRun) -> int:
    """Return the number of steps between two layers; 0 without gradual unfreezing."""
    unfreeze = prepared.config.train.unfreeze
    if unfreeze == "epoch":
        return max(1, round(prepared.train_order.estimate().n_batches / prepared.config.train.accumulate))
    return 0 if unfreeze == "none" else unfreeze
