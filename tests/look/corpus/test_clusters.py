"""Groups and maps: planted ones are found, the same seed gives the same, and a plane is that of the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import InputError
from regard.look.compute.pca import project_to_plane
from regard.look.corpus.clusters import Clusters, cluster_texts, k_means
from regard.look.render.plots.caption import build_caption
from regard.look.render.save import save_view
from regard.look.render.terminal import render_text


def planted(sizes: tuple[int, ...] = (30, 20, 10), width: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points around as many far-off centres, in random order, and whose they are."""
    random = np.random.default_rng(seed)
    owner = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = 5 * random.normal(size=(len(sizes), width))
    return (centres[owner] + 0.3 * random.normal(size=(len(owner), width))).astype(np.float32), owner


def inertia(points: np.ndarray, labels: np.ndarray) -> float:
    return sum(
        float(np.square(points[labels == group] - points[labels == group].mean(0, dtype=float)).sum())
        for group in np.unique(labels)
    )


@pytest.mark.parametrize("seed", range(4))
def test_planted_groups_are_found_and_numbered_by_size(seed: int) -> None:
    points, owner = planted(seed=seed)
    found = k_means(points, 3, seed)
    np.testing.assert_array_equal(found.labels, owner)
    for group in range(3):
        np.testing.assert_allclose(found.centres[group], points[owner == group].mean(0, dtype=float), atol=1e-5)
    assert float(found.squared_distances.sum()) == pytest.approx(inertia(points, owner), rel=1e-4)


def test_the_same_seed_gives_the_same_groups() -> None:
    points = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
    for one, other in zip(k_means(points, 7, 3), k_means(points, 7, 3), strict=True):
        np.testing.assert_array_equal(one, other)
    found = k_means(points, 7, 3)
    assert sorted(set(found.labels.tolist())) == list(range(7))
    away = np.square(points[:, None] - found.centres).sum(-1)
    np.testing.assert_array_equal(away.argmin(1), found.labels)  # no point is nearer to another centre


@pytest.mark.parametrize("k", [1, 5])
def test_as_many_groups_as_there_are_points_or_one(k: int) -> None:
    points = np.eye(5, dtype=np.float32)
    found = k_means(points, k, 0)
    assert len(set(found.labels.tolist())) == k
    assert float(found.squared_distances.sum()) == pytest.approx(inertia(points, found.labels), abs=1e-5)


def test_impossible_numbers_of_clusters_are_refused() -> None:
    vectors = np.eye(4, dtype=np.float32)
    for k, message in {
        0: "k 0: expected at least 1 and at most 1,000,000,000",
        5: "k 5: there are only 4 texts; ask for fewer",
    }.items():
        with pytest.raises(InputError, match=message):
            cluster_texts(list("abcd"), vectors, k, 0)
    with pytest.raises(InputError, match="k = 3: only 2 texts differ from each other; ask for fewer groups"):
        cluster_texts(list("abcd"), vectors[[0, 1, 0, 1]] * [[1], [2], [3], [4]], 3, 0)


@pytest.fixture
def found() -> Clusters:
    points, owner = planted()
    return cluster_texts([f"text {number} of {of}" for number, of in enumerate(owner)], points, 3, 0, {"model": "m"})


def test_representative_texts(found: Clusters) -> None:
    assert found.sizes == [30, 20, 10]
    for group in range(3):
        own = np.flatnonzero(found.labels == group)
        nearest = own[np.argsort(found.squared_distances[own])][:3].tolist()
        assert found.nearest_indices(group) == nearest
        assert found.summary_lines()[1 + group] == f"cluster {group}, {len(own)} texts: " + " | ".join(
            found.texts[number] for number in nearest
        )


def test_equal_texts_are_named_once() -> None:
    vectors = np.array([[1, 0], [1, 0], [1, 0.1], [0, 1]], dtype=np.float32)
    found = cluster_texts(["a", "a", "b", "c"], vectors, 2, 0)
    assert [[found.texts[i] for i in found.nearest_indices(group)] for group in range(2)] == [["a", "b"], ["c"]]


def test_clusters_in_every_format(found: Clusters, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = found.view_data()
    assert [array.qualified_name for array in data.arrays] == ["clusters.map", "clusters.cluster"]
    np.testing.assert_array_equal(data.arrays[1].values, found.labels)
    explained = f"the map shows {found.projection.explained_variance_ratio:.0%} of the variance"
    assert data.notes["clusters"] == found.summary_lines()
    assert found.summary_lines()[0] == f"{explained} of the texts"
    assert build_caption(data.about, 8.0)[-1] == explained
    assert data.arrays[1].names == tuple(found.texts[found.nearest_indices(group)[0]] for group in range(3))
    for suffix in (".html", ".json", ".csv", ".png", ".svg"):
        assert found.save(tmp_path / f"map{suffix}").stat().st_size > 1000
    assert "clusters: texts along their first two principal components" in render_text(data, 60)
    assert max(map(len, render_text(data, 60).splitlines())) <= 60
    with pytest.raises(InputError, match="unknown suffix"):
        save_view(found.view_data, tmp_path / "map.npy")


@pytest.mark.parametrize(("n_points", "width"), [(40, 6), (6, 40), (5, 2), (5, 1), (1, 4), (2, 3)])
def test_projection_equals_the_first_two_singular_vectors(n_points: int, width: int) -> None:
    points = torch.randn(n_points, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = project_to_plane(points)
    centred = points - points.mean(0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    expected = (u * s)[:, :2]
    assert found.points.shape == (n_points, 2)
    torch.testing.assert_close(found.points[:, : expected.shape[1]].abs(), expected.abs(), atol=1e-7, rtol=1e-7)
    assert all(float(side[side.abs().argmax()]) >= 0 for side in found.points.T)
    total = float(s.square().sum())
    assert found.explained_variance_ratio == pytest.approx(float(s[:2].square().sum()) / total if total else 0.0)
