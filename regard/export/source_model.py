"""The model to be exported, with sample inputs from its vocabulary; writers and checks of all formats take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.models.encoder import TransformerEncoder
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer

SAMPLE_LENGTHS = (5, 1, 12, 3, 24, 64)
"""Tokens of the sample texts: one alone, several lengths in a batch, more than the distances of relative positions."""

SEED = 2017

Ids = list[int]


@dataclass(frozen=True)
class SourceModel:
    """A trained model on the CPU in evaluation mode, its task and its config."""

    path: Path
    run_config: RunConfig
    task: Task
    model: nn.Module

    @property
    def network(self) -> Any:
        """The model, by the interface of its kind."""
        return self.model

    @property
    def task_table(self) -> dict[str, Any]:
        """The ``[task]`` table of the run."""
        table: dict[str, Any] = self.run_config.tables()["task"]
        return table

    @property
    def is_translator(self) -> bool:
        return isinstance(self.model, TransformerSeq2Seq)

    @property
    def is_language_model(self) -> bool:
        return isinstance(self.model, TransformerLM)

    @property
    def is_encoder(self) -> bool:
        return isinstance(self.model, TransformerEncoder)

    def sample_texts(self, tokenizer: Tokenizer, n_extra: int, seed: int = SEED) -> list[Ids]:
        """Return the ids of sample texts: random tokens but the special ones; `n_extra` positions remain free."""
        ordinary = torch.tensor([i for i in range(len(tokenizer)) if i not in tokenizer.special_ids] or [0])
        generator = torch.Generator().manual_seed(seed)
        most = max(1, self.network.config.n_positions - n_extra)
        return [
            ordinary[torch.randint(len(ordinary), (min(length, most),), generator=generator)].tolist()
            for length in SAMPLE_LENGTHS
        ]

    def sample_pairs(self) -> list[tuple[Ids, Ids]]:
        """Return pairs of sample texts of a translator, without special tokens."""
        task: Any = self.task
        n_extra = 1 + len(task.special_tokens.prefix_ids)
        sources = self.sample_texts(task.tokenizers.source, n_extra)
        targets = self.sample_texts(task.tokenizers.target, n_extra, SEED + 1)
        return list(zip(sources, reversed(targets), strict=True))

    def sample_inputs(self) -> list[EncodedInput]:
        """Return sample inputs of an encoder with their special tokens: single texts, and pairs."""
        tokenizer = self.task.tokenizers.source
        template = SpecialTokenTemplate.from_tokenizer(tokenizer)
        singles = self.sample_texts(tokenizer, template.n_special_tokens(is_pair=False))
        n_extra = template.n_special_tokens(is_pair=True)
        pairs: Sequence[Ids] = self.sample_texts(tokenizer, n_extra, SEED + 1) if self._takes_pairs(n_extra) else ()
        wrapped = [template.wrap(ids) for ids in singles]
        return wrapped + [template.wrap(ids[: len(ids) // 2], ids[len(ids) // 2 :]) for ids in pairs if len(ids) > 1]

    def _takes_pairs(self, n_extra: int) -> bool:
        return bool(self.network.config.n_positions > n_extra + 1)
