"""Faithfulness of views: the drop of a prediction's log-probability without the inputs that a view ranks highest.

For every predicted token, the k inputs a view ranks highest are removed and the log-probability of the same token is
computed again: the larger the drop, the more faithful the view (comprehensiveness, DeYoung et al. 2020). A removed
input enters the layers as the zero vector, the baseline of look/compute/gradients.py. Random orders of the inputs give
the drop by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import vmap

from regard.look.compute.gradients import build_log_probs_function, max_parallel_passes
from regard.look.compute.jvp import record_inputs, transformable_passes
from regard.look.compute.look_target import LookTarget
from regard.progress import track

N_RANDOM_ORDERS = 10
"""Random orders of the inputs, drawn anew for each predicted token."""

N_ESTIMATE_DIRECTIONS = 16
"""Random directions per token from which faithfulness estimates attribution: the ranking needs few."""

MIN_STDS_ABOVE_RANDOM = 3.0
"""Standard deviations above random at which a view counts as better; 1 in 100 uninformative views gets there."""


class Faithfulness(NamedTuple):
    """The drop of the log-probability when the inputs that each view ranks highest are removed.

    `drop` is the mean of ``log p(text) - log p(text without k inputs)`` over the predicted tokens with more than k
    visible inputs, `score` its mean over k. The last method is ``random``, the mean of several random orders; `std` is
    the standard deviation of the score over a method's orders, so 0 for a view, which has one.
    """

    methods: tuple[str, ...]
    removal_counts: tuple[int, ...]
    drop: Float[Tensor, "methods removed"]
    score: Float[Tensor, " methods"]
    std: Float[Tensor, " methods"]

    @property
    def best(self) -> str | None:
        """Return the most faithful view; None if none is better than random by more than chance."""
        top = int(self.score[:-1].argmax())
        return self.methods[top] if self.score[top] > self.score[-1] + MIN_STDS_ABOVE_RANDOM * self.std[-1] else None

    @property
    def runners_up(self) -> tuple[str, ...]:
        """Return the other views whose score is within one standard deviation of the best."""
        top = self.score[:-1].max()
        close = (top - self.score[:-1] <= self.std[-1]).tolist()
        first = self.methods[int(self.score[:-1].argmax())]
        return tuple(name for name, is_near in zip(self.methods, close, strict=False) if is_near and name != first)


def measure_faithfulness(
    look_target: LookTarget,
    importance: Mapping[str, Float[Tensor, "inputs T"]],
    mask: Bool[Tensor, "inputs T"],
    *,
    groups: Sequence[Sequence[int]] | None = None,
    n_orders: int = N_RANDOM_ORDERS,
    seed: int = 0,
) -> Faithfulness:
    """Compare views, each the importance of every input to every predicted token.

    The most important inputs are removed first; of a signed view, those that speak most for a token. `mask` marks the
    inputs that a prediction may depend on: only they are removed, and never all of them. The inputs of a group (a
    word) are removed together and ranked by the sum of their importance.
    """
    members = _group_membership([[i] for i in range(len(mask))] if groups is None else groups, mask)
    present = members @ mask.to(members) > 0  # (groups, T)
    views = members @ torch.stack(list(importance.values())).to(members).masked_fill(~mask, 0.0)
    random = torch.rand(n_orders, *present.shape, generator=torch.Generator().manual_seed(seed), dtype=views.dtype)
    removed = choose_removal_counts(int(present.sum(0).max()))
    k = torch.tensor(removed, dtype=torch.long, device=mask.device)
    enough = present.sum(0) > k[:, None]  # (removed, T)
    gone = _select_top_k(torch.cat((views, random.to(views.device))), present, k) & enough[:, None, :, None]
    lost = _log_prob_drops(look_target, (gone.to(members) @ members > 0) & mask.T)
    return _summarise_drops((*importance, "random"), removed, lost, enough)


def last_layer_importance(*views: Float[Tensor, "L H T _"]) -> Float[Tensor, "inputs T"]:
    """Return the mean attention of the last layer as the importance of inputs, kinds of attention side by side."""
    looked = torch.cat([view[-1].abs().mean(0) for view in views], 1).T
    return looked / looked.sum(0)


def choose_removal_counts(n_inputs: int) -> tuple[int, ...]:
    """Return the numbers of inputs to remove: 1, 2, 3, 5, 10, 20, 50, ... up to half, but at least 1 and never all."""
    most = min(max(1, n_inputs // 2), n_inputs - 1)
    series = (first * 10**zeros for zeros in count() for first in ((1, 2, 3, 5) if zeros == 0 else (1, 2, 5)))
    return tuple(takewhile(lambda k: k <= most, series))


def _group_membership(
    groups: Sequence[Sequence[int]], mask: Bool[Tensor, "inputs T"]
) -> Float[Tensor, "groups inputs"]:
    """Return a matrix with 1 where an input belongs to a group."""
    members = torch.zeros(len(groups), len(mask), dtype=torch.float64)
    for group, inputs in enumerate(groups):
        members[group, list(inputs)] = 1.0
    return members.to(mask.device)


def _select_top_k(
    views: Float[Tensor, "views groups T"], is_visible: Bool[Tensor, "groups T"], k: Int[Tensor, " removed"]
) -> Bool[Tensor, "removed views T groups"]:
    """Return the k groups that each view ranks highest, for every k."""
    ranks = views.masked_fill(~is_visible, -math.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1).mT
    return ranks < k[:, None, None, None]


def _log_prob_drops(
    look_target: LookTarget, removed: Bool[Tensor, "removed views T inputs"]
) -> Float[Tensor, "removed views T"]:
    """Return the drop of each predicted token's log-probability without the inputs removed for it.

    Views often agree: each set of removed inputs is run once and read at every token it was chosen for.
    """
    nothing = removed.new_zeros(1, removed.shape[-1])
    choices, number = torch.unique(torch.cat((nothing, removed.flatten(0, 2))), dim=0, return_inverse=True)
    log_probs = _log_probs_without(look_target, choices)
    token = torch.arange(removed.shape[2], device=removed.device)
    return log_probs[number[0]] - log_probs[number[1:].view(removed.shape[:-1]), token]


def _log_probs_without(look_target: LookTarget, removed_sets: Bool[Tensor, "N inputs"]) -> Float[Tensor, "N T"]:
    """Return the log-probabilities of the predicted tokens for many sets of removed inputs."""
    inputs, log_probs = record_inputs(look_target), build_log_probs_function(look_target)
    sizes = [x.shape[1] for x in inputs.values()]

    def one(gone: Bool[Tensor, " inputs"]) -> Float[Tensor, " T"]:
        sides = zip(inputs.items(), gone.split(sizes), strict=True)
        return log_probs({name: x.masked_fill(part[:, None], 0.0) for (name, x), part in sides})

    batches = removed_sets.split(max_parallel_passes(look_target))
    with transformable_passes():
        return torch.cat([vmap(one)(chosen) for chosen in track(batches, "faithfulness", len(batches))])


def _summarise_drops(
    methods: tuple[str, ...],
    removal_counts: tuple[int, ...],
    drops: Float[Tensor, "removed views T"],
    has_enough_inputs: Bool[Tensor, "removed T"],
) -> Faithfulness:
    """Average drops over tokens and removal counts; views after the named ones are random orders."""
    n_views, n_removed = len(methods) - 1, max(1, len(removal_counts))
    terms = (
        drops * (has_enough_inputs.to(drops) / has_enough_inputs.sum(1, keepdim=True))[:, None]
    )  # of each token in the mean
    drop, orders = terms.sum(-1).T, terms[:, n_views:].sum(0) / n_removed  # (views, removed), (orders, T)
    drop = torch.cat((drop[:n_views], drop[n_views:].mean(0, keepdim=True)))
    score = drop.sum(1) / n_removed
    spread = torch.zeros_like(score)
    # Tokens draw their orders independently, so variances add: few orders of many tokens estimate the spread well.
    spread[-1] = orders.var(0).sum().sqrt()
    return Faithfulness(methods, removal_counts, drop, score, spread)
