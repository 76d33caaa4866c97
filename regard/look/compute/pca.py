"""Principal component analysis: the projection of points onto the plane of largest variance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class PCAProjection(NamedTuple):
    """Points along their first two principal components, and the fraction of the variance these explain."""

    points: Float[Tensor, "N 2"]
    explained_variance_ratio: float


def project_to_plane(points: Float[Tensor, "N D"]) -> PCAProjection:
    """Project onto the first two principal components; the sign makes the farthest point's coordinate positive."""
    centred = points.double() - points.double().mean(0)
    n_points, width = centred.shape
    if n_points <= width:
        values, vectors = torch.linalg.eigh(centred @ centred.T)
        along = vectors * values.clamp(min=0).sqrt()
    else:
        values, vectors = torch.linalg.eigh(centred.T @ centred)
        along = centred @ vectors
    first_two = torch.nn.functional.pad(along.flip(-1)[:, :2], (0, max(0, 2 - along.shape[1])))
    farthest = first_two.gather(0, first_two.abs().argmax(0, keepdim=True))
    total = float(values.clamp(min=0).sum())
    explained_ratio = float(values.clamp(min=0).flip(-1)[:2].sum()) / total if total > 0 else 0.0
    return PCAProjection(first_two * torch.where(farthest < 0, -1.0, 1.0), explained_ratio)
