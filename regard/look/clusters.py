"""Texts in groups of like meaning: k-means over the directions of their vectors, and a map of them.

Vectors are set to length 1, so that near means what a cosine means by it. Centres begin by k-means++ (Arthur and
Vassilvitskii 2007) and move until no text changes its group; of several beginnings the best is kept, and the same seed
gives the same groups. Groups are numbered from the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from regard.errors import InputError
from regard.look.plane import Plane, plane
from regard.look.shown import Shown
from regard.look.view import Array, Axis, Sheet

BEGINNINGS = 8
ROUNDS = 300
"""Moves of the centres, at most."""

NEAREST = 3
"""Texts nearest to a centre that stand for its group."""

SHOWN = 80
"""Letters of a text that stands for its group."""

EQUAL = 1e-10
"""Squared distance of vectors of length 1 that differ by rounding alone."""

Points = Float[np.ndarray, "N D"]


class Groups(NamedTuple):
    """The group of each point, the centres, and the squared distance of each point from its own."""

    labels: Int[np.ndarray, " N"]
    centres: Float[np.ndarray, "K D"]
    away: Float[np.ndarray, " N"]


@dataclass(frozen=True)
class Clusters(Shown):
    """Texts in groups, the centres of the groups, and where the texts lie in a plane."""

    texts: Sequence[str]
    labels: Int[np.ndarray, " N"]
    centres: Float[np.ndarray, "K D"]
    away: Float[np.ndarray, " N"]
    plane: Plane
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def map(self) -> Float[np.ndarray, "N 2"]:
        """The texts along the first two principal components of their vectors."""
        points: np.ndarray = self.plane.points.numpy()
        return points

    @property
    def sizes(self) -> list[int]:
        """How many texts each group has."""
        return [int(count) for count in np.bincount(self.labels, minlength=len(self.centres))]

    def nearest(self, cluster: int, top: int = NEAREST) -> list[int]:
        """The numbers of the texts nearest to a centre, the nearest first; equal texts once."""
        own = np.flatnonzero(self.labels == cluster)
        different: dict[str, int] = {}
        for number in own[np.argsort(self.away[own], kind="stable")]:
            different.setdefault(self.texts[number], int(number))
        return list(different.values())[:top]

    def lines(self) -> list[str]:
        """How much the map shows; each group by its size and the texts nearest to its centre."""
        found = [f"the map shows {self.plane.share:.0%} of how the texts differ"]
        for cluster, size in enumerate(self.sizes):
            shown = " | ".join(self.texts[number][:SHOWN] for number in self.nearest(cluster))
            found.append(f"cluster {cluster}, {size:,} text{'s' if size > 1 else ''}: {shown}")
        return found

    def sheet(self) -> Sheet:
        """The map, and the group of each text."""
        text = Axis("text", labels=tuple(self.texts))
        names = tuple(self.texts[self.nearest(cluster, 1)[0]] for cluster in range(len(self.centres)))
        return Sheet(
            {},
            [
                Array("clusters", "", "map", (text, Axis("coordinate", labels=("x", "y"))), self.plane.points),
                Array("clusters", "", "cluster", (text,), torch.from_numpy(self.labels), "label", names),
            ],
            {"clusters": self.lines()},
            {**self.about, "map_share": self.plane.share},
        )


def clustered(
    texts: Sequence[str], vectors: Points, k: int, seed: int, about: Mapping[str, object] | None = None
) -> Clusters:
    """Texts in k groups, by their vectors."""
    check(k, len(texts))
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    groups = k_means(unit, k, seed)
    return Clusters(texts, *groups, plane(torch.from_numpy(unit)), about or {})


def check(k: int, n_texts: int) -> None:
    """Refuse a number of groups that there cannot be."""
    if k < 1:
        raise InputError(f"k = {k}: expected at least 1 group")
    if k > n_texts:
        raise InputError(f"k = {k}: there are only {n_texts:,} texts; ask for fewer groups")


def k_means(points: Points, k: int, seed: int) -> Groups:
    """The best of several beginnings; groups are numbered by their size."""
    random = np.random.default_rng(seed)
    found = [_settled(points, _begun(points, k, random)) for _ in range(BEGINNINGS)]
    best = min(found, key=lambda groups: float(groups.away.sum()))
    order = np.argsort(-np.bincount(best.labels, minlength=k), kind="stable")
    rank = np.empty(k, dtype=np.int64)
    rank[order] = np.arange(k)
    return Groups(rank[best.labels], best.centres[order], best.away)


def _begun(points: Points, k: int, random: np.random.Generator) -> Float[np.ndarray, "K D"]:
    """Points to begin with, each drawn the more likely the farther it is from those before it."""
    chosen = [int(random.integers(len(points)))]
    away = np.full(len(points), np.inf)
    while True:
        away = np.minimum(away, np.square(points - points[chosen[-1]]).sum(1, dtype=np.float64))
        if len(chosen) == k:
            return points[chosen].astype(np.float64)
        away[away < EQUAL] = 0.0
        if not away.any():
            raise InputError(f"k = {k}: only {len(chosen):,} texts differ from each other; ask for fewer groups")
        chosen.append(int(random.choice(len(points), p=away / away.sum())))


def _settled(points: Points, centres: Float[np.ndarray, "K D"]) -> Groups:
    """Centres moved to the mean of their points until none changes its group."""
    labels = np.full(len(points), -1)
    for _ in range(ROUNDS):
        squared = _squared(points, centres)
        nearest = squared.argmin(1)
        away = squared[np.arange(len(points)), nearest]
        for empty in np.flatnonzero(np.bincount(nearest, minlength=len(centres)) == 0):
            farthest = int(away.argmax())  # a group without points takes the one that fits its own least
            nearest[farthest], away[farthest] = empty, 0.0
        if (nearest == labels).all():
            break
        labels = nearest
        centres = np.stack([points[labels == group].mean(0, dtype=np.float64) for group in range(len(centres))])
    return Groups(labels, centres, away)


def _squared(points: Points, centres: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "N K"]:
    """Squared distances, to within rounding 0 or more."""
    to = centres.astype(points.dtype)
    found: np.ndarray = np.square(points).sum(1)[:, None] - 2 * points @ to.T + np.square(to).sum(1)
    return found.clip(min=0.0)
