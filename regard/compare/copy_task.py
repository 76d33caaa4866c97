"""The copy task of recall.py: random sequences, and the training of models that copy them.

A sequence of n random tokens is read, then generated again. n steps lie between reading a token and generating it, for
every token, so the length is the distance. An encoder-decoder maps source to target; a language model reads the
concatenation of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.nn import cross_entropy
from regard.training.optimiser import build_adamw, set_learning_rate
from regard.training.schedule import SCHEDULES

SOS = 0
"""Id of the start token; symbols are numbered from 1."""


@dataclass(frozen=True, kw_only=True)
class CopyTaskSetup:
    """Lengths and alphabet of the sequences, and the training settings; fields are keys of recall.json."""

    longest: int
    distances: tuple[int, ...]
    tokens: int
    steps: int
    batch: int
    tested: int
    rate: float
    width: int
    layers: int

    @property
    def vocabulary_size(self) -> int:
        """Number of symbols and the start token."""
        return self.tokens + 1


class CopyBatch(NamedTuple):
    """Sequences to copy: encoder input, decoder input and decoder output."""

    source: Int[Tensor, "B T"]
    target_in: Int[Tensor, "B T"]
    target_out: Int[Tensor, "B T"]


def sample_copy_batch(generator: torch.Generator, batch_size: int, length: int, n_symbols: int) -> CopyBatch:
    """Return `batch_size` random sequences of one length."""
    source = torch.randint(1, n_symbols + 1, (batch_size, length), generator=generator)
    begin = torch.full((batch_size, 1), SOS)
    return CopyBatch(source, torch.cat((begin, source[:, :-1]), 1), source)


@contextmanager
def single_thread() -> Iterator[None]:
    """Run on one thread: models this small gain nothing from a second one, and lose much to it on a loaded machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CopyTaskTrainer:
    """Trains a model to copy; with `is_decoder_only` it reads the concatenation of source and target."""

    def __init__(
        self, model: Any, setup: CopyTaskSetup, seed: int, device: torch.device, *, is_decoder_only: bool
    ) -> None:
        self.model, self.setup, self.seed, self.device = model.to(device), setup, seed, device
        self.is_decoder_only = is_decoder_only

    def train_steps(self) -> Iterator[float]:
        """Train on sequences of all lengths, the same for all models; yield the loss of each step."""
        size, generator = self.setup, torch.Generator().manual_seed(self.seed + 1)
        optimiser = build_adamw(self.model, 0.0)
        self.model.train()
        for step in range(1, size.steps + 1):
            length = int(torch.randint(1, size.longest + 1, (), generator=generator))
            batch = sample_copy_batch(generator, size.batch, length, size.tokens)
            set_learning_rate(optimiser, size.rate * SCHEDULES["cosine"](step, size.steps, size.steps // 10))
            summed = cross_entropy(self.compute_logits(batch), batch.target_out.to(self.device))
            loss = summed.total / summed.n_tokens
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimiser.step()
            yield loss.item()

    @torch.inference_mode()
    def count_correct(self) -> list[int]:
        """Return the number of correct tokens at each distance, by teacher forcing."""
        generator = torch.Generator().manual_seed(self.seed + 2)
        self.model.eval()
        n_correct = []
        for length in self.setup.distances:
            batch = sample_copy_batch(generator, self.setup.tested, length, self.setup.tokens)
            n_correct.append(int((self.compute_logits(batch).argmax(-1).cpu() == batch.target_out).sum()))
        return n_correct

    def compute_logits(self, batch: CopyBatch) -> Float[Tensor, "B T V"]:
        """Return the logits at every position of the target."""
        if self.is_decoder_only:
            all_logits: Tensor = self.model(self._make_rows(torch.cat(batch[:2], 1)))
            return all_logits[:, batch.source.shape[1] :]
        logits: Tensor = self.model(self._make_rows(batch.source), self._make_rows(batch.target_in))
        return logits

    def _make_rows(self, ids: Int[Tensor, "B T"]) -> Rows:
        """Lay out one sequence per row."""
        position = torch.arange(ids.shape[1], dtype=torch.int32).repeat(len(ids), 1)
        return Rows(ids.int(), torch.ones_like(position), position).to(self.device)
