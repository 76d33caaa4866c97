"""Gradient attribution of each predicted token's log-probability to each input.

    gradient x input          x_i . d log p / d x_i
    integrated gradients      x_i . mean of d log p / d x_i     on the straight path from the baseline to the text
                                                                (Sundararajan et al. 2017)

The inputs are the vectors that enter the layers, the tokens of all sides one side after another. Both are signed:
positive values speak for the predicted token, negative ones against it. The baseline is a zero vector for every input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vjp, vmap

from regard.look.compute.jvp import CHUNK_ELEMENTS, record_inputs, replace_inputs, transformable_passes
from regard.look.compute.look_target import LookTarget
from regard.progress import track

N_INTEGRATION_STEPS = 64
"""Steps for a convergence delta of about 1 % of the total change, in translators trained on the demo's text."""

MAX_LOG_DEPTH = 40
"""The path is examined from e^-40 of the text on."""

MIN_RELATIVE_CHANGE = 0.01
"""Fraction of the largest change on the path that may be missed."""

InputVectors = dict[str, Float[Tensor, "1 _ D"]]
LogProbsFunction = Callable[[InputVectors], Float[Tensor, " T"]]


class GradientAttribution(NamedTuple):
    """The attribution of every predicted token's log-probability to every input.

    Over all inputs, integrated gradients sum to ``log p(text) - log p(baseline)``, but for the convergence delta that a
    finite number of steps leaves.
    """

    gradient_x_input: Float[Tensor, "inputs T"]
    integrated_gradients: Float[Tensor, "inputs T"]
    convergence_delta: Float[Tensor, " T"]


def compute_gradients(look_target: LookTarget, n_steps: int | None = None) -> GradientAttribution:
    """Compute both attributions, the integral in `n_steps` steps."""
    n_steps = n_steps or N_INTEGRATION_STEPS
    inputs, log_probs = record_inputs(look_target), build_log_probs_function(look_target)
    chunk_size = max_parallel_passes(look_target)

    def gradient_at(alpha: Float[Tensor, ""]) -> Float[Tensor, "inputs T"]:
        return _gradient_x_input(log_probs, inputs, alpha, chunk_size)

    with transformable_passes():
        text, baseline = log_probs(inputs), log_probs(_scale_inputs(inputs, 0.0))
        local = gradient_at(torch.ones_like(text[0]))
        points = text.new_tensor(_integration_points(n_steps, _find_log_depth(log_probs, inputs, chunk_size)))
        chunks = points.split(max(1, chunk_size // len(text)))
        integral = torch.zeros_like(local)
        for chunk in track(chunks, "integrated gradients", len(chunks)):
            integral += torch.tensordot(chunk[:, 1], vmap(gradient_at)(chunk[:, 0]), 1)
    return GradientAttribution(local, integral, (integral.sum(0) - (text - baseline)).abs())


def compute_local_gradients(look_target: LookTarget) -> Float[Tensor, "inputs T"]:
    """Compute gradient x input alone, without the path from the baseline."""
    inputs, log_probs = record_inputs(look_target), build_log_probs_function(look_target)
    one = torch.ones_like(next(iter(inputs.values()))[0, 0, 0])
    with transformable_passes():
        return _gradient_x_input(log_probs, inputs, one, max_parallel_passes(look_target))


def build_log_probs_function(look_target: LookTarget) -> LogProbsFunction:
    """Return the log-probabilities of the predicted tokens as a function of the input vectors."""

    def run(inputs: InputVectors) -> Float[Tensor, " T"]:
        with replace_inputs(look_target, inputs):
            return look_target.explained_outputs()

    return run


def max_parallel_passes(look_target: LookTarget) -> int:
    """Return the number of passes that may run at once, so that memory stays bounded."""
    with torch.no_grad():
        logits = look_target.run()
    numbers = logits.numel() + sum(x.numel() for x in record_inputs(look_target).values())
    return max(1, CHUNK_ELEMENTS.get(logits.device.type, CHUNK_ELEMENTS["cpu"]) // numbers)


def _gradient_x_input(
    log_probs: LogProbsFunction, inputs: InputVectors, alpha: Float[Tensor, ""], chunk_size: int
) -> Float[Tensor, "inputs T"]:
    """Return the gradients at `alpha` times the text, times the text."""
    outputs, back = vjp(log_probs, _scale_inputs(inputs, alpha))[:2]
    rows = []
    for chosen in torch.eye(len(outputs), dtype=outputs.dtype, device=outputs.device).split(chunk_size):
        (gradient,) = vmap(back)(chosen)
        rows.append(torch.cat([(gradient[name] * x).sum(-1)[:, 0] for name, x in inputs.items()], 1))
    return torch.cat(rows).T


def _scale_inputs(inputs: InputVectors, alpha: float | Float[Tensor, ""]) -> InputVectors:
    return {name: alpha * x for name, x in inputs.items()}


def _find_log_depth(log_probs: LogProbsFunction, inputs: InputVectors, chunk_size: int) -> int:
    """Return the d for which e^-d of the text is as good as the baseline.

    A layer norm rescales even a tiny vector to full length: half of the total change may happen in the first thousandth
    of the path in a trained model, and in the first 10^-9 in one without biases. Equal steps, or Gauss-Legendre nodes,
    miss that.
    """
    first = next(iter(inputs.values()))
    alphas = torch.arange(MAX_LOG_DEPTH, dtype=first.dtype, device=first.device).neg().exp()
    outputs = vmap(lambda alpha: log_probs(_scale_inputs(inputs, alpha)), chunk_size=chunk_size)(alphas)
    change = (outputs - log_probs(_scale_inputs(inputs, 0.0))).abs().mean(1)
    return 1 + int((change >= MIN_RELATIVE_CHANGE * change.max()).nonzero().max())


def _integration_points(n_steps: int, depth: int) -> list[tuple[float, float]]:
    """Return points alpha on the path from baseline to text with their weights, denser near the baseline.

    They are the midpoints of equal parts of z from 0 to d in ``alpha = (e^z - 1) / (e^d - 1)``.
    """
    whole, middles = math.expm1(depth), [depth * (step + 0.5) / n_steps for step in range(n_steps)]
    return [(math.expm1(z) / whole, math.exp(z) / whole * depth / n_steps) for z in middles]
