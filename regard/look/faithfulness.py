"""Which view to trust for a prediction: what it loses when the inputs that a view calls most important are taken away.

For every predicted token, the k inputs that matter most to it by a view are taken away, and the log-probability of
the same token is read again: the more it falls, the more the view knew (comprehensiveness, DeYoung et al. 2020). To
take an input away is to let the zero vector enter the layers in its place, the nothing of look/gradients.py. What is
to be had by chance, random orders of the inputs tell.
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

from regard.look.gradients import at_once, predicted_log_probs
from regard.look.subject import Subject
from regard.look.tangents import entered, frozen
from regard.progress import track

ORDERS = 10
"""Random orders of the inputs, drawn anew for each predicted token."""

BEYOND = 3.0
"""Spreads above random at which a view counts as better; of views that know nothing, 1 in 100 gets there."""


class Faithfulness(NamedTuple):
    """What the prediction loses when the inputs that a view calls most important are taken away.

    `drop` is the mean of ``log p(text) - log p(text without k inputs)`` over the predicted tokens that see more than
    k, `score` its mean over k. The last of the methods is ``random``, the mean of several random orders; `spread` is
    the standard deviation of the score over the orders that a method has, so 0 for a view, which has one.
    """

    methods: tuple[str, ...]
    removed: tuple[int, ...]
    drop: Float[Tensor, "methods removed"]
    score: Float[Tensor, " methods"]
    spread: Float[Tensor, " methods"]

    @property
    def best(self) -> str | None:
        """The view to trust for this prediction; None where none is better than random by more than chance."""
        top = int(self.score[:-1].argmax())
        return self.methods[top] if self.score[top] > self.score[-1] + BEYOND * self.spread[-1] else None

    @property
    def near(self) -> tuple[str, ...]:
        """Other views that one random order more or less would put beside the first."""
        top = self.score[:-1].max()
        close = (top - self.score[:-1] <= self.spread[-1]).tolist()
        first = self.methods[int(self.score[:-1].argmax())]
        return tuple(name for name, is_near in zip(self.methods, close, strict=False) if is_near and name != first)


def faithfulness(
    subject: Subject,
    importance: Mapping[str, Float[Tensor, "inputs T"]],
    allowed: Bool[Tensor, "inputs T"],
    *,
    groups: Sequence[Sequence[int]] | None = None,
    orders: int = ORDERS,
    seed: int = 0,
) -> Faithfulness:
    """Compare views, each the importance of every input to every predicted token.

    What has the largest importance goes first: of a view with a sign, what speaks most for a token. `allowed` are the
    inputs that a prediction sees: only they are taken away, and never all of them. The inputs of a group (a word) go
    together, and count by the sum of their importance.
    """
    members = _members([[i] for i in range(len(allowed))] if groups is None else groups, allowed)
    there = members @ allowed.to(members) > 0  # (groups, T)
    views = members @ torch.stack(list(importance.values())).to(members).masked_fill(~allowed, 0.0)
    random = torch.rand(orders, *there.shape, generator=torch.Generator().manual_seed(seed), dtype=views.dtype)
    removed = counts(int(there.sum(0).max()))
    k = torch.tensor(removed, dtype=torch.long, device=allowed.device)
    enough = there.sum(0) > k[:, None]  # (removed, T)
    gone = _first(torch.cat((views, random.to(views.device))), there, k) & enough[:, None, :, None]
    lost = _lost(subject, (gone.to(members) @ members > 0) & allowed.T)
    return _compared((*importance, "random"), removed, lost, enough)


def last_layer(*views: Float[Tensor, "L H T _"]) -> Float[Tensor, "inputs T"]:
    """What the last layer looks at, as the importance of inputs: several kinds of attention side by side."""
    looked = torch.cat([view[-1].abs().mean(0) for view in views], 1).T
    return looked / looked.sum(0)


def counts(n_inputs: int) -> tuple[int, ...]:
    """How many inputs to take away: 1, 2, 3, 5, 10, 20, 50, ... up to half of them, but at least 1 and never all."""
    most = min(max(1, n_inputs // 2), n_inputs - 1)
    series = (first * 10**zeros for zeros in count() for first in ((1, 2, 3, 5) if zeros == 0 else (1, 2, 5)))
    return tuple(takewhile(lambda k: k <= most, series))


def _members(groups: Sequence[Sequence[int]], allowed: Bool[Tensor, "inputs T"]) -> Float[Tensor, "groups inputs"]:
    """1 where an input belongs to a group."""
    members = torch.zeros(len(groups), len(allowed), dtype=torch.float64)
    for group, inputs in enumerate(groups):
        members[group, list(inputs)] = 1.0
    return members.to(allowed.device)


def _first(
    views: Float[Tensor, "views groups T"], there: Bool[Tensor, "groups T"], k: Int[Tensor, " removed"]
) -> Bool[Tensor, "removed views T groups"]:
    """The k groups that each view puts first, for every k."""
    ranks = views.masked_fill(~there, -math.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1).mT
    return ranks < k[:, None, None, None]


def _lost(subject: Subject, gone: Bool[Tensor, "removed views T inputs"]) -> Float[Tensor, "removed views T"]:
    """By how much the log-probability of each predicted token falls without the inputs that go for it.

    Views often agree: each choice of inputs is run once, and read at every token that it was made for.
    """
    nothing = gone.new_zeros(1, gone.shape[-1])
    choices, number = torch.unique(torch.cat((nothing, gone.flatten(0, 2))), dim=0, return_inverse=True)
    found = _without(subject, choices)
    token = torch.arange(gone.shape[2], device=gone.device)
    return found[number[0]] - found[number[1:].view(gone.shape[:-1]), token]


def _without(subject: Subject, choices: Bool[Tensor, "N inputs"]) -> Float[Tensor, "N T"]:
    """The log-probabilities of the predicted tokens without some of the inputs, for many choices of these."""
    inputs, log_probs = entered(subject), predicted_log_probs(subject)
    sizes = [x.shape[1] for x in inputs.values()]

    def one(gone: Bool[Tensor, " inputs"]) -> Float[Tensor, " T"]:
        sides = zip(inputs.items(), gone.split(sizes), strict=True)
        return log_probs({name: x.masked_fill(part[:, None], 0.0) for (name, x), part in sides})

    together = choices.split(at_once(subject))
    # Nothing asks for a gradient; only, where one could be had, `regard.nn.Linear` goes the way that suits vmap.
    with frozen(subject.model), torch.enable_grad():
        return torch.cat([vmap(one)(chosen) for chosen in track(together, "faithfulness", len(together))])


def _compared(
    methods: tuple[str, ...],
    removed: tuple[int, ...],
    lost: Float[Tensor, "removed views T"],
    enough: Bool[Tensor, "removed T"],
) -> Faithfulness:
    """Means over tokens and counts; all views after the named ones are random orders."""
    n_views, n_removed = len(methods) - 1, max(1, len(removed))
    shares = lost * (enough.to(lost) / enough.sum(1, keepdim=True))[:, None]  # of each token in the mean
    drop, orders = shares.sum(-1).T, shares[:, n_views:].sum(0) / n_removed  # (views, removed), (orders, T)
    drop = torch.cat((drop[:n_views], drop[n_views:].mean(0, keepdim=True)))
    score = drop.sum(1) / n_removed
    spread = torch.zeros_like(score)
    # Tokens draw their orders by themselves, so variances add: a few orders of many tokens tell the spread well.
    spread[-1] = orders.var(0).sum().sqrt()
    return Faithfulness(methods, removed, drop, score, spread)
