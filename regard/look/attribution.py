"""Hidden token attribution (SPEC 8.4; Brunner et al. 2020): how much of each input token is in each hidden vector.

    attr(i, j) = || d h_j / d x_i ||_F          contribution(i, j) = attr(i, j) / sum_k attr(k, j)

Directions at the inputs are sent forward through the model (Jacobian-vector products), many at once, and every layer
is read on the way: one pass over the d directions of a token gives its attribution to all outputs of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jvp, vmap

from regard.look.subject import Subject
from regard.nn import edit, record
from regard.progress import track

AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 27}
"""Numbers of a layer's output that all directions sent at once have: what stays near a CPU, or keeps a GPU busy."""

Layers = Callable[[tuple[Tensor, ...]], Float[Tensor, "L T D"]]


def attribution(subject: Subject, stack: str) -> Float[Tensor, "L inputs T"]:
    """The contributions of every input token to every output of every layer of a stack; each output's sum to 1.

    The inputs are the tokens of all sides of the subject, one side after another; those a stack never sees have 0.
    """
    with _frozen(subject.model):
        inputs, layers = _entered(subject), _layers(subject, stack)
        squares = torch.cat([_squares(layers, inputs, side) for side in range(len(inputs))], 1)
    size = squares.sqrt()
    return size / size.sum(1, keepdim=True)


def _entered(subject: Subject) -> tuple[Float[Tensor, "1 T D"], ...]:
    """The vectors that enter the layers on each side."""
    entrances = [side.entrance for side in subject.sides.values()]
    with record(subject.model, *entrances) as heard:
        subject.body()
    return tuple(heard[name].detach() for name in entrances)


def _layers(subject: Subject, stack: str) -> Layers:
    """The outputs of all layers of a stack as a function of what enters the model."""
    names = [f"{stack}.{layer}.out" for layer in range(subject.n_layers(stack))]
    entrances = [side.entrance for side in subject.sides.values()]

    def run(inputs: tuple[Tensor, ...]) -> Tensor:
        with ExitStack() as changed, record(subject.model, f"{stack}.*.out", "*.weights") as heard:
            for name, value in zip(entrances, inputs, strict=True):
                changed.enter_context(edit(subject.model, name, partial(_instead, value)))
            subject.body()
        return torch.stack([heard[name][0] for name in names])

    return run


def _instead(value: Tensor, _flowing: Tensor) -> Tensor:
    return value


def _squares(layers: Layers, inputs: tuple[Tensor, ...], side: int) -> Float[Tensor, "L inputs T"]:
    """The squared norms of the Jacobian's blocks, for the tokens of one side."""
    _, n_tokens, width = inputs[side].shape
    still = [torch.zeros_like(other) for other in inputs]
    at_once = max(1, AT_ONCE.get(inputs[side].device.type, 1 << 21) // inputs[side].numel())

    def sent(direction: Tensor) -> Tensor:
        tangents = (*still[:side], direction, *still[side + 1 :])
        moved: Tensor = jvp(layers, (inputs,), (tangents,))[1]
        return moved.square().sum(-1)  # (L, T)

    totals: list[Tensor] = []
    for chosen in track(torch.arange(n_tokens * width).split(at_once), "attribution", -(-n_tokens * width // at_once)):
        directions = inputs[side].new_zeros(len(chosen), n_tokens * width)
        directions[torch.arange(len(chosen)), chosen] = 1.0
        totals.append(vmap(sent)(directions.view(-1, 1, n_tokens, width)))
    by_direction: Tensor = torch.cat(totals).unflatten(0, (n_tokens, width))  # (inputs, D, L, T)
    return by_direction.sum(1).transpose(0, 1)


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Weights that ask for no gradient, so that no graph is kept for them; as they were afterwards."""
    asking = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in asking:
        weight.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for weight in asking:
            weight.requires_grad_(True)
