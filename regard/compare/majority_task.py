"""The majority task of distance.py: texts in which every token counts equally, and classifiers of their final vector.

The class of a text is a symbol, drawn first; each of its n tokens is that symbol with probability `MAJORITY`, otherwise
another one. An end token follows, so that n steps lie between the first token and the vector that is classified:

    recurrence      b  a  b  c  b  <end>        the last state, or attention pooling over all states
    Transformer     b  a  b  c  b  <end>        the last hidden state of <end>

Tokens are independent given the class, so a vector that treats all of them alike owes the fraction 1/n to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import SegmentedRows
from regard.models.heads import Pooling
from regard.models.interfaces import EncoderModel
from regard.nn import Linear, record
from regard.training.optimiser import build_adamw, set_learning_rate
from regard.training.schedule import SCHEDULES

END = 0
"""Id of the end token; symbols are numbered from 1."""

MAJORITY = 0.4
"""Probability that a token is the class of its text."""

EMBEDDING_TAP = "encoder.embedding.out"


@dataclass(frozen=True)
class MajorityTaskSetup:
    """Length and alphabet of the texts, and the training settings; fields are keys of distance.json."""

    length: int
    symbols: int
    steps: int
    batch: int
    tested: int
    rate: float
    width: int
    seeds: int

    @property
    def vocabulary_size(self) -> int:
        """Number of symbols and the end token."""
        return self.symbols + 1


class MajorityBatch(NamedTuple):
    """Texts, each with an end token, and the numbers of their classes."""

    ids: Int[Tensor, "B T"]
    labels: Int[Tensor, " B"]


def sample_majority_batch(generator: torch.Generator, batch_size: int, length: int, n_symbols: int) -> MajorityBatch:
    """Return `batch_size` random texts of one length with their classes."""
    labels = torch.randint(n_symbols, (batch_size,), generator=generator)
    shape = batch_size, length
    others = labels[:, None] + torch.randint(1, n_symbols, shape, generator=generator)
    is_majority = torch.rand(shape, generator=generator) < MAJORITY
    symbols = torch.where(is_majority, labels[:, None], others) % n_symbols + 1
    return MajorityBatch(nn.functional.pad(symbols, (0, 1), value=END), labels)


class FinalVectorClassifier(nn.Module):
    """An encoder whose hidden states are pooled to one vector, the final vector, which a linear layer classifies."""

    def __init__(self, encoder: EncoderModel, pooling: str, n_classes: int) -> None:
        super().__init__()
        self.encoder, width = encoder, encoder.config.d_model
        self.pooling, self.out = Pooling(pooling, width), Linear(width, n_classes)

    def final_vector(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B D"]:
        """Return the pooled hidden states of each text."""
        position = torch.arange(ids.shape[1], dtype=torch.int32, device=ids.device).repeat(len(ids), 1)
        rows = SegmentedRows(ids.int(), torch.ones_like(position), position, torch.zeros_like(position))
        pooled: Tensor = self.pooling(self.encoder(rows), rows, 1)
        return pooled[:, 0]

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B C"]:
        """Return the logits of the classes."""
        logits: Tensor = self.out(self.final_vector(ids))
        return logits


def train_steps(
    model: FinalVectorClassifier, setup: MajorityTaskSetup, seed: int, device: torch.device
) -> Iterator[float]:
    """Train on random texts, the same for all models of a seed; yield the loss of each step."""
    generator, optimiser = torch.Generator().manual_seed(seed + 1), build_adamw(model, 0.0)
    for step in range(1, setup.steps + 1):
        batch = sample_majority_batch(generator, setup.batch, setup.length, setup.symbols)
        set_learning_rate(optimiser, setup.rate * SCHEDULES["cosine"](step, setup.steps, setup.steps // 10))
        loss = nn.functional.cross_entropy(model(batch.ids.to(device)), batch.labels.to(device))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        yield loss.item()


@torch.no_grad()
def accuracy(model: FinalVectorClassifier, batch: MajorityBatch) -> float:
    """Return the fraction of texts whose class is the most likely one."""
    return float((model(batch.ids).argmax(-1) == batch.labels).double().mean())


@torch.no_grad()
def removal_fractions(
    model: FinalVectorClassifier, ids: Int[Tensor, "B T"], generator: torch.Generator, n_symbols: int
) -> Float[Tensor, " n"]:
    """Return the fraction of the final vector owed to each symbol: how far the vector moves without it.

    A symbol is removed by replacing it with another one; the distances of a text are divided by their sum.
    """
    vector, moved = model.final_vector(ids), []
    for column in range(ids.shape[1] - 1):
        offset = torch.randint(1, n_symbols, (len(ids),), generator=generator).to(ids.device)
        replaced = ids.clone()
        replaced[:, column] = (ids[:, column] - 1 + offset) % n_symbols + 1
        moved.append((model.final_vector(replaced) - vector).double().norm(dim=-1))
    return _mean_fractions(torch.stack(moved, 1))


def gradient_input_fractions(model: FinalVectorClassifier, ids: Int[Tensor, "B T"]) -> Float[Tensor, " n"]:
    """Return the fraction of the final vector v owed to each symbol by gradient x input.

    The sum over dimensions of gradient times embedding is the part of the squared norm of v that the embedding
    explains to first order; absolute values of a text are divided by their sum.
    """
    with record(model, EMBEDDING_TAP) as recorded:
        vector = model.final_vector(ids)
    embedded = recorded[EMBEDDING_TAP]
    (gradient,) = torch.autograd.grad((vector * vector.detach()).sum(), embedded)
    return _mean_fractions((gradient * embedded).detach().double().sum(-1).abs()[:, :-1])


def gradient_norms(model: FinalVectorClassifier, batch: MajorityBatch) -> Float[Tensor, " n"]:
    """Return the norm of the gradient of the loss at the embedding of each symbol, averaged over texts."""
    with record(model, EMBEDDING_TAP) as recorded:
        loss = nn.functional.cross_entropy(model(batch.ids), batch.labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, recorded[EMBEDDING_TAP])
    norms: Tensor = gradient.double().norm(dim=-1)
    return norms[:, :-1].mean(0)


def _mean_fractions(sizes: Float[Tensor, "B n"]) -> Float[Tensor, " n"]:
    """Return the sizes of each text divided by their sum, averaged over texts."""
    return (sizes / sizes.sum(-1, keepdim=True)).mean(0)
