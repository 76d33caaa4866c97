"""Hidden token attribution (SPEC 8.4; Brunner et al. 2020): how much of each input token is in each hidden vector.

    attr(i, j) = || d h_j / d x_i ||_F          contribution(i, j) = attr(i, j) / sum_k attr(k, j)

Directions at the inputs are sent forward (look/tangents.py), many at once, and every layer is read on the way: the d
directions of a token give its attribution to all outputs of all layers. K random ones of them give an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.look.subject import Subject
from regard.look.tangents import AT_ONCE, Push, direct, entered, linearised, small_step
from regard.progress import track

PAYS = 3
"""So many times more directions than a token is wide, and its matrices are worth finding."""

MOST_BYTES = 4 << 30
"""What the matrices may take, on a GPU half of what is free; a longer text is sent through the model itself."""


class Attribution(NamedTuple):
    """The contribution of every input token to every output of every layer, and its standard error in an estimate.

    The inputs are the tokens of all sides of the subject, one side after another; those a stack never sees have 0.
    Of each output the contributions sum to 1.
    """

    share: Float[Tensor, "L inputs T"]
    error: Float[Tensor, "L inputs T"] | None = None


def attribution(subject: Subject, stack: str, *, estimate: int | None = None, seed: int = 0) -> Attribution:
    """Exact, or estimated from so many random directions of each token."""
    inputs = {side: x[0] for side, x in entered(subject).items()}
    width = inputs[stack].shape[-1]
    if estimate is not None and not estimate >= 2:
        raise InputError(f"an estimate from {estimate} directions has no error to report; give at least 2")
    count = min(estimate or width, width)
    sides = list(inputs)
    seen = sides[: sides.index(stack) + 1]
    n_tokens = sum(len(inputs[side]) for side in seen)
    push, at_once = _push(subject, stack, n_tokens * count, {side: inputs[side] for side in seen})
    generator = torch.Generator().manual_seed(seed)
    found = [_squares(push, side, inputs[side], count, at_once, generator) for side in seen]
    mean, error = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    unseen = mean.new_zeros(len(mean), sum(len(inputs[side]) for side in sides) - n_tokens, mean.shape[-1])
    mean, error = (torch.cat((part, unseen), 1) for part in (mean, error))
    return _shares(mean, error if count < width else None)


def of_itself(share: Float[Tensor, "L inputs T"]) -> tuple[Float[Tensor, "L T"], Float[Tensor, " L"]]:
    """How much of each token is itself, layer by layer, and to what share of the tokens another contributes more.

    The tokens of the stack are the last of the inputs.
    """
    before = share.shape[1] - share.shape[2]
    itself = torch.arange(before, share.shape[1], device=share.device)
    return share[:, before:].diagonal(dim1=1, dim2=2), (share.argmax(1) != itself).double().mean(-1)


def _push(subject: Subject, stack: str, n_directions: int, inputs: dict[str, Tensor]) -> tuple[Push, int]:
    """The cheaper way of sending so many directions, and how many numbers of a layer to send at once.

    The matrices serve only where they say what the model itself says; there, larger parts are faster on a CPU.
    """
    some = inputs[stack]
    at_once = AT_ONCE.get(some.device.type, AT_ONCE["cpu"])
    most = torch.cuda.mem_get_info(some.device)[0] // 2 if some.is_cuda else MOST_BYTES
    pays = n_directions >= PAYS * some.shape[-1] and _meets_in_attention(subject, stack)
    if not pays or _n_bytes(subject, inputs) > most:
        return direct(subject, stack), at_once
    generator = torch.Generator().manual_seed(0)
    trial = {side: torch.randn(1, *x.shape, generator=generator).to(x) for side, x in inputs.items()}
    expected = small_step(subject, stack, trial)
    # Half precision has the ten bits of the tensor cores' float32, in half the time; it overflows where that does not.
    for dtype in (torch.float16, some.dtype) if some.is_cuda and some.dtype == torch.float32 else (some.dtype,):
        push = linearised(subject, stack, dtype)
        if torch.allclose(push(trial)[0], expected, rtol=0.05, atol=0.01 * float(expected.max())):
            return push, at_once if some.is_cuda else 2 * at_once
    return direct(subject, stack), at_once


def _meets_in_attention(subject: Subject, stack: str) -> bool:
    """Whether every layer has self-attention, without which tokens of a recurrent model would still meet."""
    sides = list(subject.sides)[: list(subject.sides).index(stack) + 1]
    kinds = subject.kinds()
    return all(side in kinds and len(subject.attentions(side)) == subject.n_layers(side) for side in sides)


def _n_bytes(subject: Subject, inputs: dict[str, Tensor]) -> int:
    """About what the matrices of all tokens take: five of d x d, and as many again where a layer looks elsewhere."""
    return sum(
        5 * (number + 1) * subject.n_layers(side) * x.shape[0] * x.shape[1] ** 2 * x.element_size()
        for number, (side, x) in enumerate(inputs.items())
    )


def _squares(
    push: Push, side: str, x: Float[Tensor, "S D"], count: int, at_once: int, generator: torch.Generator
) -> tuple[Float[Tensor, "L S T"], Float[Tensor, "L S T"]]:
    """The squared norms of the Jacobian's blocks from `count` directions of each token, and their standard errors.

    Fewer than all are orthogonal and drawn without preference. Then the mean of their squared lengths, times d, has
    the block's norm for its expectation, and the error of a sample without replacement.
    """
    n_tokens, width = x.shape
    parts = torch.arange(n_tokens * count).split(max(1, at_once // x.numel()))
    frames = torch.stack([_frame(count, width, generator) for _ in range(n_tokens if count < width else 1)]).to(x)
    lengths = []
    for chosen in track(parts, "attribution", len(parts)):
        token = chosen // count
        directions = x.new_zeros(len(chosen), n_tokens, width)
        directions[torch.arange(len(chosen)), token] = frames[token % len(frames), chosen % count]
        lengths.append(push({side: directions}))
    by_direction = torch.cat(lengths).unflatten(0, (n_tokens, count)) * width  # (S, count, L, T)
    mean, spread = by_direction.mean(1), by_direction.std(1)
    error = spread * (max(0, width - count) / (width * count)) ** 0.5
    return mean.transpose(0, 1), error.transpose(0, 1)


def _frame(count: int, width: int, generator: torch.Generator) -> Float[Tensor, "count D"]:
    """Orthonormal directions: all of them, or some drawn at random."""
    if count == width:
        return torch.eye(width)
    frame: Tensor = torch.linalg.qr(torch.randn(width, count, generator=generator)).Q
    return frame.mT


def _shares(mean: Float[Tensor, "L inputs T"], error: Float[Tensor, "L inputs T"] | None) -> Attribution:
    """From squared norms to contributions; errors go along to first order."""
    size = mean.sqrt()
    share = size / size.sum(1, keepdim=True)
    if error is None:
        return Attribution(share)
    relative = torch.where(mean > 0, error / mean.clamp(min=1e-30) / 2, 0.0)
    part = (share * relative).square()
    others = part.sum(1, keepdim=True) - part
    return Attribution(share, (((1 - share) * share * relative).square() + share.square() * others).sqrt())
