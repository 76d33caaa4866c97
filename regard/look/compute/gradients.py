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

from regard.look.compute.jvp import CHUNK_ELEMENTS, freeze_parameters, record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget
from regard.progress import track

N_INTEGRATION_STEPS = 64
"""Enough for a gap of about 1 % of what the text changes, in translators trained on the demo's text."""

MAX_LOG_DEPTH = 40
"""The way is looked at from e^-40 of the text on."""

MIN_RELATIVE_CHANGE = 0.01
"""Of the largest change on the way: one that may be missed."""

InputVectors = dict[str, Float[Tensor, "1 _ D"]]
LogProbsFunction = Callable[[InputVectors], Float[Tensor, " T"]]


class GradientAttribution(NamedTuple):
    """Of every input to the log-probability of every predicted token.

    Over all inputs, integrated gradients sum to ``log p(text) - log p(nothing)``, but for the `gap` that a finite
    number of steps leaves.
    """

    gradient_x_input: Float[Tensor, "inputs T"]
    integrated_gradients: Float[Tensor, "inputs T"]
    convergence_delta: Float[Tensor, " T"]


def compute_gradients(look_target: LookTarget, n_steps: int | None = None) -> GradientAttribution:
    """Both views of all inputs and predicted tokens, the integral in so many steps, or `STEPS`."""
    n_steps = n_steps or N_INTEGRATION_STEPS
    inputs, log_probs, together = (
        record_inputs(look_target),
        build_log_probs_function(look_target),
        max_parallel_passes(look_target),
    )

    def at(share: Float[Tensor, ""]) -> Float[Tensor, "inputs T"]:
        return _gradient_x_input(log_probs, inputs, share, together)

    with freeze_parameters(look_target.model), torch.enable_grad():
        text, nothing = log_probs(inputs), log_probs(_scale_inputs(inputs, 0.0))
        local = at(torch.ones_like(text[0]))
        way = text.new_tensor(_integration_points(n_steps, _find_log_depth(log_probs, inputs, together)))
        parts = way.split(max(1, together // len(text)))
        integral = torch.zeros_like(local)
        for part in track(parts, "integrated gradients", len(parts)):
            integral += torch.tensordot(part[:, 1], vmap(at)(part[:, 0]), 1)
    return GradientAttribution(local, integral, (integral.sum(0) - (text - nothing)).abs())


def build_log_probs_function(look_target: LookTarget) -> LogProbsFunction:
    """The log-probabilities of the predicted tokens, as a function of what enters the layers."""

    def run(inputs: InputVectors) -> Float[Tensor, " T"]:
        with replace_inputs(look_target, inputs), sdpa_kernel(SDPBackend.MATH):  # others cannot go back under vmap
            return look_target.explained_outputs()

    return run


def max_parallel_passes(look_target: LookTarget) -> int:
    """How many passes of this text through its model may run at once, so that memory stays bounded."""
    with torch.no_grad():
        logits = look_target.run()
    numbers = logits.numel() + sum(x.numel() for x in record_inputs(look_target).values())
    return max(1, CHUNK_ELEMENTS.get(logits.device.type, CHUNK_ELEMENTS["cpu"]) // numbers)


def _gradient_x_input(
    log_probs: LogProbsFunction, inputs: InputVectors, alpha: Float[Tensor, ""], chunk_size: int
) -> Float[Tensor, "inputs T"]:
    """The gradients at a share of the text, times the text."""
    found, back = vjp(log_probs, _scale_inputs(inputs, alpha))[:2]
    rows = []
    for chosen in torch.eye(len(found), dtype=found.dtype, device=found.device).split(chunk_size):
        (gradient,) = vmap(back)(chosen)
        rows.append(torch.cat([(gradient[name] * x).sum(-1)[:, 0] for name, x in inputs.items()], 1))
    return torch.cat(rows).T


def _scale_inputs(inputs: InputVectors, alpha: float | Float[Tensor, ""]) -> InputVectors:
    return {name: alpha * x for name, x in inputs.items()}


def _find_log_depth(log_probs: LogProbsFunction, inputs: InputVectors, chunk_size: int) -> int:
    """The d for which e^-d of the text is as good as nothing.

    A norm makes a vector of full length even of one that is hardly there, and a norm after it of what that leaves:
    half of what a text changes, a trained model may change in the first thousandth of the way, and one without
    biases in the first 10^-9. Equal steps, or Gauss-Legendre nodes, miss that.
    """
    first = next(iter(inputs.values()))
    shares = torch.arange(MAX_LOG_DEPTH, dtype=first.dtype, device=first.device).neg().exp()
    found = vmap(lambda share: log_probs(_scale_inputs(inputs, share)), chunk_size=chunk_size)(shares)
    change = (found - log_probs(_scale_inputs(inputs, 0.0))).abs().mean(1)
    return 1 + int((change >= MIN_RELATIVE_CHANGE * change.max()).nonzero().max())


def _integration_points(n_steps: int, depth: int) -> list[tuple[float, float]]:
    """Places on the way from nothing to the text, as shares of the text, and what each counts; close near nothing.

    They are the midpoints of equal parts of z from 0 to d in ``share = (e^z - 1) / (e^d - 1)``.
    """
    whole, middles = math.expm1(depth), [depth * (step + 0.5) / n_steps for step in range(n_steps)]
    return [(math.expm1(z) / whole, math.exp(z) / whole * depth / n_steps) for z in middles]
