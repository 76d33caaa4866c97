"""Probes from hidden vectors back to input vectors (Brunner et al. 2020, section 4).

    identity   g(h) = h
    linear     g(h) = W h + b
    mlp        g(h) = W h + b + W_2 gelu(W_1 h + b_1)

look/corpus/identify.py fits one for each layer and distance, with that distance as the loss, and keeps the weights with
the lowest validation loss. The paper starts at random weights; here W and b start at the ridge solution around a
multiple of the identity, so that few epochs and few sentences suffice. The hidden layer is the paper's; the linear term
adds no capacity, for gelu(a) - gelu(-a) = a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

N_HIDDEN = 1000
MAX_EPOCHS = 10
"""Epochs, at most; the learning rate decays to 0 over them."""
PATIENCE = 3
"""Epochs without a lower validation loss before training stops."""
MIN_STEPS_PER_EPOCH = 50
"""Steps per epoch, at least; with fewer batches some are repeated."""
BATCH_SIZE = 256
LEARNING_RATE = 5e-3
RIDGE_PENALTIES = tuple(10.0**power for power in range(-7, 3))
"""Ridge penalties to choose from by validation loss, in units of the mean variance of h."""
CHUNK_SIZE = 1 << 15
"""Tokens converted to double precision at once."""

PROBE_HYPERPARAMETERS = {
    "hidden": N_HIDDEN,
    "rounds": MAX_EPOCHS,
    "patience": PATIENCE,
    "steps": MIN_STEPS_PER_EPOCH,
    "batch": BATCH_SIZE,
    "learning_rate": LEARNING_RATE,
    "ridge": list(RIDGE_PENALTIES),
}
"""Hyperparameters that a result depends on, beside the text and the model."""

ProbeFunction = Callable[[Float[Tensor, "N D"]], Float[Tensor, "N D"]]
ProbeLoss = Callable[[Float[Tensor, "N D"], Float[Tensor, "N D"]], Float[Tensor, ""]]


class ProbeExamples(NamedTuple):
    """Hidden vectors and the input vectors to predict from them."""

    hidden: Float[Tensor, "N D"]
    inputs: Float[Tensor, "N D"]


@dataclass(frozen=True)
class AffineMap:
    """The affine map ``h -> h W^T + b``, in double precision."""

    weight: Float[Tensor, "D D"]
    bias: Float[Tensor, " D"]

    def __call__(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return F.linear(hidden.double(), self.weight, self.bias)


def cosine_loss(mapped: Float[Tensor, "N D"], inputs: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Return the mean of 1 - cos."""
    return 1 - F.cosine_similarity(mapped, inputs, dim=-1).mean()


def l2_loss(mapped: Float[Tensor, "N D"], inputs: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Return the mean squared distance."""
    return (mapped - inputs).square().sum(-1).mean()


PROBE_LOSSES: dict[str, ProbeLoss] = {"cosine": cosine_loss, "l2": l2_loss}


def fit_identity(
    train: ProbeExamples, held_out: ProbeExamples, distance: str, seed: int, device: torch.device
) -> ProbeFunction:
    """Return the identity; nothing is fitted."""
    return lambda hidden: hidden


def fit_linear(
    train: ProbeExamples, held_out: ProbeExamples, distance: str, seed: int, device: torch.device
) -> ProbeFunction:
    """Fit an affine map; for squared distances the ridge solution is optimal."""
    start = fit_ridge(train, held_out, distance)
    return (
        start
        if distance == "l2"
        else _train_probe(Probe(start, train, 0, seed), train, held_out, distance, seed, device)
    )


def fit_mlp(
    train: ProbeExamples, held_out: ProbeExamples, distance: str, seed: int, device: torch.device
) -> ProbeFunction:
    """Fit an affine map plus one hidden layer."""
    probe = Probe(fit_ridge(train, held_out, distance), train, N_HIDDEN, seed)
    return _train_probe(probe, train, held_out, distance, seed, device)


PROBE_FITTERS = {"identity": fit_identity, "linear": fit_linear, "mlp": fit_mlp}
"""Probe fitters by name; each takes training and validation examples, a distance, a seed and a device."""


def fit_ridge(train: ProbeExamples, held_out: ProbeExamples, distance: str) -> AffineMap:
    """Fit least squares with a penalty on the difference from a multiple of the identity, chosen by validation loss.

    For the cosine the squares are those between unit vectors, which are 2 - 2 cos.
    """
    mean_h, mean_x, hh, hx = _moments(train, normalise_inputs=distance == "cosine")
    scale = hx.trace() / hh.trace().clamp(min=1e-30)
    values, vectors = torch.linalg.eigh(hh)
    rotated = vectors.T @ (hx - scale * hh)
    candidates = []
    for penalty in RIDGE_PENALTIES:
        shrunk = rotated / (values.clamp(min=0) + penalty * values.mean().clamp(min=1e-30))[:, None]
        weight = (vectors @ shrunk).T + scale * torch.eye(len(hh), dtype=hh.dtype)
        candidates.append(AffineMap(weight, mean_x - weight @ mean_h))
    return min(candidates, key=lambda each: mean_loss(each, held_out, distance))


def _moments(examples: ProbeExamples, *, normalise_inputs: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the means of h and of x (or x / |x|), and the covariances of h with itself and with x."""
    sums: list[Tensor] = [torch.zeros((), dtype=torch.float64)] * 4
    for hidden, inputs in _iterate_chunks(examples):
        h, x = hidden.double(), F.normalize(inputs.double(), dim=-1) if normalise_inputs else inputs.double()
        sums = [before + more for before, more in zip(sums, (h.sum(0), x.sum(0), h.T @ h, h.T @ x), strict=True)]
    mean_h, mean_x, hh, hx = (each / len(examples.hidden) for each in sums)
    return mean_h, mean_x, hh - mean_h.outer(mean_h), hx - mean_h.outer(mean_x)


def _iterate_chunks(examples: ProbeExamples) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(examples.hidden.split(CHUNK_SIZE), examples.inputs.split(CHUNK_SIZE), strict=True)


@torch.no_grad()
def mean_loss(probe: ProbeFunction, examples: ProbeExamples, distance: str) -> float:
    """Return the loss of a probe, averaged over tokens."""
    parts = [PROBE_LOSSES[distance](probe(h), x) * len(h) for h, x in _iterate_chunks(examples)]
    return float(torch.stack(parts).sum()) / len(examples.hidden)


class Probe(nn.Module):
    """A linear map plus a hidden layer whose output starts at 0.

    Inside, every dimension of h has mean 0 and variance 1, and what comes out is about 1 in size before it is
    multiplied by `output_scale`: so one learning rate suits every layer of every model.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, start: AffineMap, examples: ProbeExamples, n_hidden: int, seed: int) -> None:
        super().__init__()
        spread, mean = torch.std_mean(examples.hidden, 0, correction=0)
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread.clamp(min=1e-6 * float(spread.mean()) + 1e-30))
        self.output_scale = float(start(examples.hidden[:CHUNK_SIZE]).square().mean().sqrt()) or 1.0
        width, generator = len(mean), torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter((start.weight * self.spread / self.output_scale).float())
        self.bias = nn.Parameter((start(mean[None])[0] / self.output_scale).float())
        self.inner = nn.Parameter(torch.randn(n_hidden, width, generator=generator) * width**-0.5)
        self.inner_bias = nn.Parameter(torch.randn(n_hidden, generator=generator))
        self.outer = nn.Parameter(torch.zeros(width, n_hidden))

    def forward(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        z = (hidden - self.mean) / self.spread
        inner = F.gelu(F.linear(z, self.inner, self.inner_bias))
        return self.output_scale * (F.linear(z, self.weight, self.bias) + F.linear(inner, self.outer))


def _train_probe(
    probe: Probe, train: ProbeExamples, held_out: ProbeExamples, distance: str, seed: int, device: torch.device
) -> ProbeFunction:
    """Train the probe and return it with the lowest validation loss."""
    train, held_out = (ProbeExamples(*(part.to(device) for part in each)) for each in (train, held_out))
    optimiser = torch.optim.Adam(probe.to(device).parameters(), LEARNING_RATE)
    batches = _iterate_batches(len(train.hidden), seed)
    n_steps = max(MIN_STEPS_PER_EPOCH, math.ceil(len(train.hidden) / BATCH_SIZE))
    best, kept, in_vain = mean_loss(probe, held_out, distance), deepcopy(probe.state_dict()), 0
    for number in range(MAX_EPOCHS):
        for step in range(n_steps):
            optimiser.param_groups[0]["lr"] = LEARNING_RATE * (1 - (number + step / n_steps) / MAX_EPOCHS)
            _train_step(probe, optimiser, train, next(batches).to(device), distance)
        loss = mean_loss(probe, held_out, distance)
        if loss < best:
            best, kept, in_vain = loss, deepcopy(probe.state_dict()), 0
        elif (in_vain := in_vain + 1) == PATIENCE:
            break
    probe.load_state_dict(kept)
    return lambda hidden: probe(hidden.to(device)).detach().cpu()


def _train_step(
    probe: Probe, optimiser: torch.optim.Adam, train: ProbeExamples, indices: Tensor, distance: str
) -> None:
    optimiser.zero_grad()
    loss = PROBE_LOSSES[distance](
        probe(train.hidden[indices]) / probe.output_scale, train.inputs[indices] / probe.output_scale
    )
    loss.backward()
    optimiser.step()


def _iterate_batches(n_tokens: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Yield batches of tokens endlessly, reshuffled every epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(n_tokens, generator=generator).split(BATCH_SIZE)
