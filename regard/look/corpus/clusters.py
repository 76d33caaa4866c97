"""Clusters of texts: k-means over their normalised vectors, and a map of the clusters.

Vectors are normalised to length 1, so that squared distance is 2 - 2 cos. Centres are initialised by k-means++ (Arthur
and Vassilvitskii 2007); the best of several runs is kept, and the same seed gives the same clusters. Clusters are
numbered by size, the largest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from regard.errors import InputError
from regard.look.compute.pca import PCAProjection, project_to_plane
from regard.look.render.renderable import RenderableView
from regard.look.views.view_data import Axis, ViewArray, ViewData
from regard.ranges import COUNT_RANGE, check_option

N_INIT = 8
MAX_ITERATIONS = 300
"""Lloyd iterations, at most."""

N_REPRESENTATIVES = 3
"""Texts nearest to a centre that represent its cluster."""

MAX_TEXT_CHARACTERS = 80
"""Characters of a representative text."""

DUPLICATE_TOLERANCE = 1e-10
"""Squared distance of unit vectors that differ by rounding only."""

PointArray = Float[np.ndarray, "N D"]


class KMeansResult(NamedTuple):
    """The cluster of each point, the centres, and the squared distance of each point to its centre."""

    labels: Int[np.ndarray, " N"]
    centres: Float[np.ndarray, "K D"]
    squared_distances: Float[np.ndarray, " N"]


@dataclass(frozen=True)
class Clusters(RenderableView):
    """Texts with their clusters, the cluster centres, and the projection of the texts to a plane.

    An empty text has the label -1, and NaN for its distance and coordinates; the map leaves it out.
    """

    texts: Sequence[str]
    labels: Int[np.ndarray, " N"]
    centres: Float[np.ndarray, "K D"]
    squared_distances: Float[np.ndarray, " N"]
    projection: PCAProjection
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def coordinates(self) -> Float[np.ndarray, "N 2"]:
        """Return the texts along the first two principal components of their vectors."""
        points: np.ndarray = self.projection.points.numpy()
        return points

    @property
    def sizes(self) -> list[int]:
        """Return the number of texts of each cluster."""
        return [int(count) for count in np.bincount(self.labels[self.labels >= 0], minlength=len(self.centres))]

    def nearest_indices(self, cluster: int, top: int = N_REPRESENTATIVES) -> list[int]:
        """Return the indices of the texts nearest to a centre, nearest first, without duplicates."""
        own = np.flatnonzero(self.labels == cluster)
        different: dict[str, int] = {}
        for number in own[np.argsort(self.squared_distances[own], kind="stable")]:
            different.setdefault(self.texts[number], int(number))
        return list(different.values())[:top]

    def summary_lines(self) -> list[str]:
        """Return the explained variance, then each cluster with its size and representative texts."""
        lines = [f"the map shows {self.projection.explained_variance_ratio:.0%} of the variance of the texts"]
        for cluster, size in enumerate(self.sizes):
            nearest_texts = " | ".join(
                self.texts[number][:MAX_TEXT_CHARACTERS] for number in self.nearest_indices(cluster)
            )
            lines.append(f"cluster {cluster}, {size:,} text{'s' if size > 1 else ''}: {nearest_texts}")
        return lines

    def view_data(self) -> ViewData:
        """Return the map and the cluster of each text that is not empty."""
        clustered = np.flatnonzero(self.labels >= 0)
        text = Axis("text", labels=tuple(self.texts[index] for index in clustered.tolist()))
        coordinate = Axis("coordinate", labels=("x", "y"))
        names = tuple(self.texts[self.nearest_indices(cluster, 1)[0]] for cluster in range(len(self.centres)))
        return ViewData(
            {},
            [
                ViewArray("clusters", "", "map", (text, coordinate), self.projection.points[clustered]),
                ViewArray("clusters", "", "cluster", (text,), torch.from_numpy(self.labels[clustered]), "label", names),
            ],
            {"clusters": self.summary_lines()},
            {**self.about, "map_share": self.projection.explained_variance_ratio},
        )


def cluster_texts(
    texts: Sequence[str], vectors: PointArray, k: int, seed: int, about: Mapping[str, object] | None = None
) -> Clusters:
    """Cluster texts into k groups by their vectors; empty texts belong to none."""
    clustered = np.array([index for index, text in enumerate(texts) if text.strip()], dtype=np.int64)
    check_n_clusters(k, len(clustered))
    unit = vectors[clustered] / np.maximum(np.linalg.norm(vectors[clustered], axis=1, keepdims=True), 1e-30)
    groups, plane = k_means(unit, k, seed), project_to_plane(torch.from_numpy(unit))
    return Clusters(
        texts,
        _scatter_rows(groups.labels, clustered, len(texts), -1),
        groups.centres,
        _scatter_rows(groups.squared_distances, clustered, len(texts), np.nan),
        plane._replace(points=torch.from_numpy(_scatter_rows(plane.points.numpy(), clustered, len(texts), np.nan))),
        about or {},
    )


def _scatter_rows(values: np.ndarray, indices: Int[np.ndarray, " N"], n_rows: int, missing: int | float) -> np.ndarray:
    """Return an array of `n_rows` rows with the values at the indices, and `missing` in all other rows."""
    scattered = np.full((n_rows, *values.shape[1:]), missing, values.dtype)
    scattered[indices] = values
    return scattered


def check_n_clusters(k: int, n_texts: int) -> None:
    """Refuse an impossible number of clusters."""
    check_option("k", k, COUNT_RANGE)
    if k > n_texts:
        raise InputError(f"k {k}: there are only {n_texts:,} texts; ask for fewer clusters")


def k_means(points: PointArray, k: int, seed: int) -> KMeansResult:
    """Run k-means several times and return the best result; clusters are numbered by size."""
    random = np.random.default_rng(seed)
    runs = [_run_lloyd(points, _init_centres(points, k, random)) for _ in range(N_INIT)]
    best = min(runs, key=lambda groups: float(groups.squared_distances.sum()))
    order = np.argsort(-np.bincount(best.labels, minlength=k), kind="stable")
    rank = np.empty(k, dtype=np.int64)
    rank[order] = np.arange(k)
    return KMeansResult(rank[best.labels], best.centres[order], best.squared_distances)


def _init_centres(points: PointArray, k: int, rng: np.random.Generator) -> Float[np.ndarray, "K D"]:
    """Choose initial centres by k-means++."""
    chosen = [int(rng.integers(len(points)))]
    away = np.full(len(points), np.inf)
    while True:
        away = np.minimum(away, np.square(points - points[chosen[-1]]).sum(1, dtype=np.float64))
        if len(chosen) == k:
            return points[chosen].astype(np.float64)
        away[away < DUPLICATE_TOLERANCE] = 0.0
        if not away.any():
            raise InputError(f"k = {k}: only {len(chosen):,} texts differ from each other; ask for fewer groups")
        chosen.append(int(rng.choice(len(points), p=away / away.sum())))


def _run_lloyd(points: PointArray, centres: Float[np.ndarray, "K D"]) -> KMeansResult:
    """Move centres to the mean of their points until no point changes its cluster."""
    labels = np.full(len(points), -1)
    for _ in range(MAX_ITERATIONS):
        squared = _squared_distances(points, centres)
        nearest = squared.argmin(1)
        away = squared[np.arange(len(points)), nearest]
        for empty in np.flatnonzero(np.bincount(nearest, minlength=len(centres)) == 0):
            farthest = int(away.argmax())  # an empty cluster takes the point farthest from its centre
            nearest[farthest], away[farthest] = empty, 0.0
        if (nearest == labels).all():
            break
        labels = nearest
        centres = np.stack([points[labels == group].mean(0, dtype=np.float64) for group in range(len(centres))])
    return KMeansResult(labels, centres, away)


def _squared_distances(points: PointArray, centres: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "N K"]:
    """Return squared distances, clipped at 0."""
    to = centres.astype(points.dtype)
    squared: np.ndarray = np.square(points).sum(1)[:, None] - 2 * points @ to.T + np.square(to).sum(1)
    return squared.clip(min=0.0)
