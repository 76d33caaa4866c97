"""Hidden token attribution (Brunner et al. 2020, section 5): the contribution of each input to each hidden vector.

    attr(i, j) = || d h_j / d x_i ||_F          contribution(i, j) = attr(i, j) / sum_k attr(k, j)

Directions at the inputs are pushed forward (look/compute/jvp.py), many at once, and every layer is read on the way: the
d directions of a token give its attribution to all outputs of all layers. K random directions give an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.compute.jvp import (
    CHUNK_ELEMENTS,
    Pushforward,
    autodiff_pushforward,
    finite_difference,
    linearised_pushforward,
    record_inputs,
)
from regard.look.compute.look_target import LookTarget
from regard.progress import track
from regard.ranges import Range, check_option

ESTIMATE_DIRECTIONS = Range(2, 10**9)
"""The smallest number of random directions of an estimate: a single one has no standard error."""

MIN_LINEARISED_RATIO = 3
"""Directions per token width above which per-token Jacobians pay off."""

MAX_LINEARISED_BYTES = 4 << 30
"""Memory limit of the Jacobians (on a GPU half of what is free); longer texts are pushed through the model itself."""


class TokenAttribution(NamedTuple):
    """The contribution of every input token to every output of every layer, and its standard error if estimated.

    The inputs are the tokens of all sides, one side after another; those a stack never reads have 0. The contributions
    to each output sum to 1.
    """

    contribution: Float[Tensor, "L inputs T"]
    error: Float[Tensor, "L inputs T"] | None = None


def compute_attribution(
    look_target: LookTarget, stack: str, *, estimate: int | None = None, seed: int = 0
) -> TokenAttribution:
    """Compute the attribution exactly, or estimate it from `estimate` random directions per token."""
    inputs = {side: x[0] for side, x in record_inputs(look_target).items()}
    width = inputs[stack].shape[-1]
    if estimate is not None:
        check_option("estimate", estimate, ESTIMATE_DIRECTIONS)
    count = min(estimate or width, width)
    sides = list(inputs)
    seen = sides[: sides.index(stack) + 1]
    n_tokens = sum(len(inputs[side]) for side in seen)
    push, chunk_size = _choose_pushforward(look_target, stack, n_tokens * count, {side: inputs[side] for side in seen})
    generator = torch.Generator().manual_seed(seed)
    norms_and_errors = [
        _squared_jacobian_norms(push, side, inputs[side], count, chunk_size, generator) for side in seen
    ]
    mean, error = (torch.cat(parts, 1) for parts in zip(*norms_and_errors, strict=True))
    unseen = mean.new_zeros(len(mean), sum(len(inputs[side]) for side in sides) - n_tokens, mean.shape[-1])
    mean, error = (torch.cat((part, unseen), 1) for part in (mean, error))
    return _normalise_contributions(mean, error if count < width else None)


def self_contribution_summary(
    contribution: Float[Tensor, "L inputs T"],
) -> tuple[Float[Tensor, "L T"], Float[Tensor, " L"]]:
    """Return each token's contribution to its own output, and the fraction of outputs dominated by another input.

    The tokens of the stack are the last of the inputs.
    """
    before = contribution.shape[1] - contribution.shape[2]
    itself = torch.arange(before, contribution.shape[1], device=contribution.device)
    return contribution[:, before:].diagonal(dim1=1, dim2=2), (contribution.argmax(1) != itself).double().mean(-1)


def _choose_pushforward(
    look_target: LookTarget, stack: str, n_directions: int, inputs: dict[str, Tensor]
) -> tuple[Pushforward, int]:
    """Return the cheaper pushforward for that many directions, and the number of elements to push at once.

    Linearised layers are used only where they agree with the model itself; with them larger chunks are faster on a CPU.
    """
    some = inputs[stack]
    chunk_size = CHUNK_ELEMENTS.get(some.device.type, CHUNK_ELEMENTS["cpu"])
    most = torch.cuda.mem_get_info(some.device)[0] // 2 if some.is_cuda else MAX_LINEARISED_BYTES
    pays = n_directions >= MIN_LINEARISED_RATIO * some.shape[-1] and _mixes_only_in_attention(look_target, stack)
    if not pays or _linearised_bytes(look_target, inputs) > most:
        return autodiff_pushforward(look_target, stack), chunk_size
    generator = torch.Generator().manual_seed(0)
    trial = {side: torch.randn(1, *x.shape, generator=generator).to(x) for side, x in inputs.items()}
    expected = finite_difference(look_target, stack, trial)
    # Half precision has the ten bits of the tensor cores' float32, in half the time; it overflows where that does not.
    for dtype in (torch.float16, some.dtype) if some.is_cuda and some.dtype == torch.float32 else (some.dtype,):
        push = linearised_pushforward(look_target, stack, dtype)
        if torch.allclose(push(trial)[0], expected, rtol=0.05, atol=0.01 * float(expected.max())):
            return push, chunk_size if some.is_cuda else 2 * chunk_size
    return autodiff_pushforward(look_target, stack), chunk_size


def _mixes_only_in_attention(look_target: LookTarget, stack: str) -> bool:
    """Return True if tokens mix in self-attention only, and not in recurrent layers."""
    sides = list(look_target.sides)[: list(look_target.sides).index(stack) + 1]
    kinds = look_target.kinds()
    return all(side in kinds and len(look_target.attentions(side)) == look_target.n_layers(side) for side in sides)


def _linearised_bytes(look_target: LookTarget, inputs: dict[str, Tensor]) -> int:
    """Estimate the bytes of all per-token Jacobians: five of d x d, and as many again for cross-attention."""
    return sum(
        5 * (number + 1) * look_target.n_layers(side) * x.shape[0] * x.shape[1] ** 2 * x.element_size()
        for number, (side, x) in enumerate(inputs.items())
    )


def _squared_jacobian_norms(
    pushforward: Pushforward,
    side: str,
    x: Float[Tensor, "S D"],
    n_directions: int,
    chunk_elements: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "L S T"], Float[Tensor, "L S T"]]:
    """Return squared norms of the Jacobian's blocks from `n_directions` directions per token, with error.

    Fewer than all directions are a uniformly random orthonormal frame: the mean of their squared lengths, times d, is
    an unbiased estimate of the block's squared norm, with the error of a sample without replacement.
    """
    n_tokens, width = x.shape
    parts = torch.arange(n_tokens * n_directions).split(max(1, chunk_elements // x.numel()))
    frames = torch.stack(
        [
            _orthonormal_directions(n_directions, width, generator)
            for _ in range(n_tokens if n_directions < width else 1)
        ]
    ).to(x)
    lengths = []
    for chosen in track(parts, "attribution", len(parts)):
        token = chosen // n_directions
        directions = x.new_zeros(len(chosen), n_tokens, width)
        directions[torch.arange(len(chosen)), token] = frames[token % len(frames), chosen % n_directions]
        lengths.append(pushforward({side: directions}))
    by_direction = torch.cat(lengths).unflatten(0, (n_tokens, n_directions)) * width  # (S, count, L, T)
    mean, spread = by_direction.mean(1), by_direction.std(1)
    error = spread * (max(0, width - n_directions) / (width * n_directions)) ** 0.5
    return mean.transpose(0, 1), error.transpose(0, 1)


def _orthonormal_directions(n_directions: int, width: int, generator: torch.Generator) -> Float[Tensor, "count D"]:
    """Orthonormal directions: all of them, or some drawn at random."""
    if n_directions == width:
        return torch.eye(width)
    frame: Tensor = torch.linalg.qr(torch.randn(width, n_directions, generator=generator)).Q
    return frame.mT


def _normalise_contributions(
    squared_norms: Float[Tensor, "L inputs T"], error: Float[Tensor, "L inputs T"] | None
) -> TokenAttribution:
    """From squared norms to contributions; errors go along to first order."""
    size = squared_norms.sqrt()
    contribution = size / size.sum(1, keepdim=True)
    if error is None:
        return TokenAttribution(contribution)
    relative = torch.where(squared_norms > 0, error / squared_norms.clamp(min=1e-30) / 2, 0.0)
    part = (contribution * relative).square()
    others = part.sum(1, keepdim=True) - part
    return TokenAttribution(
        contribution, (((1 - contribution) * contribution * relative).square() + contribution.square() * others).sqrt()
    )
