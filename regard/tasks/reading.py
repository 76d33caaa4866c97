"""What the tasks on an encoder share: inputs between special tokens, rows of them.

Each text is stored as it enters the model, special ids included, with the place where its second part begins; what
is to be said of it is the task's own. `pretrain.py` builds on this, `classify.py` and `tag.py` on `Labelling`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import PartedRows, lay_parts
from regard.data.buckets import by_tokens
from regard.data.order import Placement
from regard.data.store import Column, TokenStore
from regard.errors import ConfigError
from regard.models.exchange import Found
from regard.models.families import TEXTS
from regard.models.interfaces import TextModel
from regard.models.presets import TextConfig
from regard.progress import warn
from regard.tasks.labels import Labels
from regard.tasks.single import Single
from regard.tasks.task import Amount, Task
from regard.text.framing import Frame, Framed
from regard.text.tokenizer import FILE, READING, Tokenizer
from regard.text.vocabulary import TokenizerConfig

LARGEST = 1 << 16
"""Places in a text, and halves of a real number, are stored beside ids: all are below this."""

FEW, MANY = (1 << 8, 1 << 10), 1 << 14
"""Positions that are read at once outside of training: few on a CPU, where what a layer makes of them stays near."""

LENGTHS = range(16, 1 << 15)
"""What ``task.length`` may be."""

DOUBTFUL = 20
"""Examples from which on labels that are hardly ever the same look like another column."""

ROLES = ("pad", "first", "parting")

Made = TypeVar("Made")


class Reading(Single):
    """A task on an encoder.

    Inputs are cut to `length` tokens, special ones included. `pooling` and `normalised` say how texts become vectors
    where nobody asks (vectors.py).
    """

    families = TEXTS
    pieces = "wordpiece"
    specials = READING
    pooling: str = "mean"
    normalised: bool = False

    def __init__(self, config: Any, tokenizer: Tokenizer, labels: Labels = Task.labels) -> None:
        super().__init__(config, tokenizer)
        self.labels = labels

    @classmethod
    def adopt(cls, found: Found) -> Reading:
        return cls(cls.Config(**found.task), found.tokenizers.source, Labels(found.labels))

    @cached_property
    def frame(self) -> Frame:
        return Frame.of(self.tokenizer)

    @property
    def limit(self) -> int:
        return max(LARGEST, self.vocabulary)

    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        return store.lengths("text")

    @abstractmethod
    def heads(self, config: TextConfig) -> Mapping[str, nn.Module]:
        """What this task puts on the encoder."""

    def build(self, config: TextConfig) -> TextModel:
        model: TextModel = self.families[config.architecture].Model(config, self.vocabulary, self.heads(config))
        return model

    def rows(self, store: TokenStore, placement: Placement) -> PartedRows:
        """The texts of a placement, packed."""
        return lay_parts(store["text"], store["turn"], placement, placement.widths[0], pad=self.frame.pad)

    def read_batches(
        self,
        model: TextModel,
        inputs: Sequence[Framed],
        make: Callable[[Float[Tensor, "B T D"], PartedRows], Float[Tensor, "B _"]],
        device: torch.device,
    ) -> Iterator[tuple[int, Tensor]]:
        """What `make` makes of each input, alone in its row, with the input's number; those of like length together."""

        def one(chosen: list[int]) -> Tensor:
            rows = framed_rows([inputs[i] for i in chosen], self.frame.pad).to(device)
            with torch.inference_mode():
                return make(read(model, rows), rows).cpu()

        for chosen, made in by_core(one, batched([len(each.ids) for each in inputs], device), device):
            yield from zip(chosen, made, strict=True)


class Labelling(Reading):
    """A task that learns labels: few examples, or as many as somebody could label."""

    has_perplexity = False

    @classmethod
    def habits(cls, amount: Amount, device: torch.device) -> dict[str, Any]:
        return fine_tuning(amount)

    @classmethod
    def load(cls, config: Any, tokenizer: TokenizerConfig, directory: Path) -> Labelling:
        return cls(config, Tokenizer.load(directory / FILE, ROLES), Labels.load(directory))

    def save(self, directory: Path) -> None:
        super().save(directory)
        self.labels.save(directory)


def check_labels(labels: Labels) -> None:
    """Refuse labels of which there is only one; warn of those that are hardly ever the same."""
    if len(labels) < 2:
        raise ConfigError(f"only one label, '{labels.shown()}': nothing to tell apart; is it the right column?")
    if 2 * len(labels) > sum(labels.counts) > DOUBTFUL:
        warn(f"{len(labels):,} labels for {sum(labels.counts):,} examples; is it the right column?")


def framed_rows(inputs: Sequence[Framed], pad: int) -> PartedRows:
    """Inputs as the model takes them, one per row."""
    alone, width = np.arange(len(inputs)), max(len(each.ids) for each in inputs)
    placement = Placement(alone, alone, len(inputs), (width,))
    column, turn = Column.of([each.ids for each in inputs]), Column.of([[each.turn] for each in inputs])
    return lay_parts(column, turn, placement, width, pad=pad)


def batched(lengths: Sequence[int], device: torch.device) -> Iterator[list[int]]:
    """Texts of like length, as many as a device reads fastest; on a CPU so that all cores are done about together."""
    by_all_cores = sum(lengths) // (8 * torch.get_num_threads())
    return by_tokens(lengths, min(max(by_all_cores, FEW[0]), FEW[1]) if device.type == "cpu" else MANY)


def by_core(
    work: Callable[[list[int]], Made], batches: Iterable[list[int]], device: torch.device
) -> Iterator[tuple[list[int], Made]]:
    """What `work` makes of each batch; on a CPU every core has a batch of its own, and none waits for another.

    There the cores would else share each product, and meet after it: slower, and far slower where a core is busy.
    """
    every, n_threads = list(batches), torch.get_num_threads()
    n_workers = min(n_threads, len(every)) if device.type == "cpu" else 1
    if n_workers <= 1:
        yield from ((batch, work(batch)) for batch in every)
        return
    try:
        with ThreadPoolExecutor(n_workers, "regard-read", torch.set_num_threads, (1,)) as pool:
            yield from zip(every, pool.map(work, every), strict=True)
    finally:
        torch.set_num_threads(n_threads)  # the workers set theirs, but new threads would start with it


def end_to_end(rows: PartedRows) -> tuple[PartedRows, list[int]]:
    """Texts that have rows to themselves, all in one row without padding, and how long each is."""
    there = rows.segment > 0
    lengths = there.sum(1)
    number = torch.arange(1, len(lengths) + 1, dtype=rows.segment.dtype).repeat_interleave(lengths)
    ids, position, part = (each[there][None] for each in (rows.ids, rows.position, rows.part))
    return PartedRows(ids, number[None], position, part), lengths.tolist()


def read(model: TextModel, rows: PartedRows) -> Float[Tensor, "B T D"]:
    """What the encoder makes of texts that have rows to themselves; on a CPU it does not read their padding."""
    cpu = rows.ids.device.type == "cpu"
    hidden: Tensor = model(*end_to_end(rows)) if cpu else model(rows)
    if not cpu:
        return hidden
    padded = hidden.new_zeros(*rows.ids.shape, hidden.shape[-1])
    padded[rows.segment > 0] = hidden[0]
    return padded


def texts_of(placement: Placement) -> int:
    """Texts that a row may hold: the shortest takes two positions."""
    return 1 if placement.one_each else max(1, placement.widths[0] // 2)


def stored_inputs(store: TokenStore, items: Int[np.ndarray, " items"]) -> list[Framed]:
    """Inputs as they were stored."""
    turns = stored(store, "turn", items).tolist()
    return [Framed(store["text"][i].tolist(), turn, 1, turn) for i, turn in zip(items.tolist(), turns, strict=True)]


def stored(store: TokenStore, column: str, items: Int[np.ndarray, " items"]) -> Any:
    """The single number that a column holds for each item."""
    found = store[column]
    return found.ids[found.offsets[items]]


def fine_tuning(amount: Amount) -> dict[str, Any]:
    """How labelled texts are learned: few passes over the data at a low rate from a trained model, many from none.

    About 32 texts a step; narrow models bear higher rates, and small data needs more passes to be stable.
    """
    mean = amount.n_tokens / max(1, amount.n_examples)
    batch_tokens = 512 * max(1, round(32 * mean / 512))
    epochs, rate = 20, min(1e-3, 0.1 / amount.d_model)
    if amount.started:
        epochs, rate = 10 if amount.n_examples < 10_000 else 4, 0.023 / amount.d_model
    return {
        "batch_tokens": batch_tokens,
        "steps": lambda batch: max(100, round(epochs * amount.n_tokens / batch)),
        "learning_rate": round(rate, 6),
        "schedule": "linear",
        "warmup": lambda steps: max(1, steps // 10),
        "weight_decay": 0.01,
        "validate_every": lambda steps: max(20, steps // (2 * epochs)),
        "average": 1,
        "patience": 0 if amount.started else 10,
    }
