"""Texts to be copied, and models that learn to copy them: the task of recall.py.

A text of n random tokens is read, then written again. Between reading a token and writing it lie n steps, whichever
token it is, so the length is the distance. An encoder-decoder reads the source and writes the target; a language
model reads both as one text.
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
"""What is written first; tokens of texts are numbered from 1."""


@dataclass(frozen=True)
class CopyTaskSetup:
    """How long texts are, of how many kinds of tokens, and how models are trained on them."""

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
        """The tokens, and what is written first."""
        return self.tokens + 1


class CopyBatch(NamedTuple):
    """Texts to be copied: what is read, what goes in while it is written, and what is to come out."""

    source: Int[Tensor, "B T"]
    target_in: Int[Tensor, "B T"]
    target_out: Int[Tensor, "B T"]


def sample_copy_batch(generator: torch.Generator, batch_size: int, length: int, n_symbols: int) -> CopyBatch:
    """So many random texts of one length."""
    source = torch.randint(1, n_symbols + 1, (batch_size, length), generator=generator)
    begin = torch.full((batch_size, 1), SOS)
    return CopyBatch(source, torch.cat((begin, source[:, :-1]), 1), source)


@contextmanager
def single_thread() -> Iterator[None]:
    """Models this small gain nothing from a second thread, and lose much to it on a machine that is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CopyTaskTrainer:
    """A model that learns to copy; `joined` says that it reads source and target as one text."""

    def __init__(
        self, model: Any, setup: CopyTaskSetup, seed: int, device: torch.device, *, is_decoder_only: bool
    ) -> None:
        self.model, self.setup, self.seed, self.device = model.to(device), setup, seed, device
        self.is_decoder_only = is_decoder_only

    def train_steps(self) -> Iterator[float]:
        """Train on texts of every length up to the longest, the same for all models; gives the loss of each step."""
        size, generator = self.setup, torch.Generator().manual_seed(self.seed + 1)
        optimiser = build_adamw(self.model, 0.0)
        self.model.train()
        for step in range(1, size.steps + 1):
            length = int(torch.randint(1, size.longest + 1, (), generator=generator))
            texts = sample_copy_batch(generator, size.batch, length, size.tokens)
            set_learning_rate(optimiser, size.rate * SCHEDULES["cosine"](step, size.steps, size.steps // 10))
            found = cross_entropy(self.compute_logits(texts), texts.target_out.to(self.device))
            loss = found.total / found.n_tokens
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimiser.step()
            yield loss.item()

    @torch.inference_mode()
    def count_correct(self) -> list[int]:
        """Tokens written right at each distance, each given the right ones before it."""
        generator = torch.Generator().manual_seed(self.seed + 2)
        self.model.eval()
        right = []
        for length in self.setup.distances:
            texts = sample_copy_batch(generator, self.setup.tested, length, self.setup.tokens)
            right.append(int((self.compute_logits(texts).argmax(-1).cpu() == texts.target_out).sum()))
        return right

    def compute_logits(self, batch: CopyBatch) -> Float[Tensor, "B T V"]:
        """Scores of every token that is to come out."""
        if self.is_decoder_only:
            whole: Tensor = self.model(self._make_rows(torch.cat(batch[:2], 1)))
            return whole[:, batch.source.shape[1] :]
        scores: Tensor = self.model(self._make_rows(batch.source), self._make_rows(batch.target_in))
        return scores

    def _make_rows(self, ids: Int[Tensor, "B T"]) -> Rows:
        """One text in each row, all of one length."""
        position = torch.arange(ids.shape[1], dtype=torch.int32).repeat(len(ids), 1)
        return Rows(ids.int(), torch.ones_like(position), position).to(self.device)
