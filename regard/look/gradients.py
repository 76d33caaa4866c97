"""What each input did to the log-probability of each predicted token, by derivatives (SPEC 8.6).

    gradient x input          x_i . d log p / d x_i                    how log p begins to fall as input i shrinks
    integrated gradients      x_i . the mean of d log p / d x_i        on the straight way to the text from nothing
                                                                       (Sundararajan et al. 2017)

The inputs are the vectors that enter the layers, the tokens of all sides one side after another. Both views have a
sign: above 0 speaks for the predicted token, below 0 against it. Nothing is the zero vector in place of every input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.look.subject import Subject
from regard.look.tangents import AT_ONCE, entered, entering, frozen
from regard.progress import track

STEPS = 64
"""Enough for a gap of about 1 % of what the text changes, in translators trained on the demo's text."""

NEAREST = 40
"""The way is looked at from e^-40 of the text on."""

SLIGHT = 0.01
"""Of the largest change on the way: one that may be missed."""

Inputs = dict[str, Float[Tensor, "1 _ D"]]
LogProbs = Callable[[Inputs], Float[Tensor, " T"]]


class Gradients(NamedTuple):
    """Of every input to the log-probability of every predicted token.

    Over all inputs, integrated gradients sum to ``log p(text) - log p(nothing)``, but for the `gap` that a finite
    number of steps leaves.
    """

    gradient_x_input: Float[Tensor, "inputs T"]
    integrated_gradients: Float[Tensor, "inputs T"]
    gap: Float[Tensor, " T"]


def gradients(subject: Subject, steps: int | None = None) -> Gradients:
    """Both views of all inputs and predicted tokens, the integral in so many steps, or `STEPS`."""
    steps = steps or STEPS
    inputs, log_probs, together = entered(subject), predicted_log_probs(subject), at_once(subject)

    def at(share: Float[Tensor, ""]) -> Float[Tensor, "inputs T"]:
        return _gradient_x_input(log_probs, inputs, share, together)

    with frozen(subject.model), torch.enable_grad():
        text, nothing = log_probs(inputs), log_probs(_times(inputs, 0.0))
        local = at(torch.ones_like(text[0]))
        way = text.new_tensor(_way(steps, _depth(log_probs, inputs, together)))
        parts = way.split(max(1, together // len(text)))
        integral = torch.zeros_like(local)
        for part in track(parts, "integrated gradients", len(parts)):
            integral += torch.tensordot(part[:, 1], vmap(at)(part[:, 0]), 1)
    return Gradients(local, integral, (integral.sum(0) - (text - nothing)).abs())


def predicted_log_probs(subject: Subject) -> LogProbs:
    """The log-probabilities of the predicted tokens, as a function of what enters the layers."""

    def run(inputs: Inputs) -> Float[Tensor, " T"]:
        with entering(subject, inputs), sdpa_kernel(SDPBackend.MATH):  # others cannot go back under vmap
            return subject.explained()

    return run


def at_once(subject: Subject) -> int:
    """How many passes of this text through its model may run at once, so that memory stays bounded."""
    with torch.no_grad():
        logits = subject.run()
    numbers = logits.numel() + sum(x.numel() for x in entered(subject).values())
    return max(1, AT_ONCE.get(logits.device.type, AT_ONCE["cpu"]) // numbers)


def _gradient_x_input(
    log_probs: LogProbs, inputs: Inputs, share: Float[Tensor, ""], together: int
) -> Float[Tensor, "inputs T"]:
    """The gradients at a share of the text, times the text."""
    found, back = vjp(log_probs, _times(inputs, share))[:2]
    rows = []
    for chosen in torch.eye(len(found), dtype=found.dtype, device=found.device).split(together):
        (gradient,) = vmap(back)(chosen)
        rows.append(torch.cat([(gradient[name] * x).sum(-1)[:, 0] for name, x in inputs.items()], 1))
    return torch.cat(rows).T


def _times(inputs: Inputs, share: float | Float[Tensor, ""]) -> Inputs:
    return {name: share * x for name, x in inputs.items()}


def _depth(log_probs: LogProbs, inputs: Inputs, together: int) -> int:
    """The d for which e^-d of the text is as good as nothing.

    A norm makes a vector of full length even of one that is hardly there, and a norm after it of what that leaves:
    half of what a text changes, a trained model may change in the first thousandth of the way, and one without
    biases in the first 10^-9. Equal steps, or Gauss-Legendre nodes, miss that.
    """
    first = next(iter(inputs.values()))
    shares = torch.arange(NEAREST, dtype=first.dtype, device=first.device).neg().exp()
    found = vmap(lambda share: log_probs(_times(inputs, share)), chunk_size=together)(shares)
    change = (found - log_probs(_times(inputs, 0.0))).abs().mean(1)
    return 1 + int((change >= SLIGHT * change.max()).nonzero().max())


def _way(steps: int, depth: int) -> list[tuple[float, float]]:
    """Places on the way from nothing to the text, as shares of the text, and what each counts; close near nothing.

    They are the midpoints of equal parts of z from 0 to d in ``share = (e^z - 1) / (e^d - 1)``.
    """
    whole, middles = math.expm1(depth), [depth * (step + 0.5) / steps for step in range(steps)]
    return [(math.expm1(z) / whole, math.exp(z) / whole * depth / steps) for z in middles]
