"""Classification of texts and of pairs of texts, into classes or onto a scale (SPEC 4.9, 6).

The vector of a text (its first token, the mean, or attention over its tokens) goes through one layer and gets a score
for each class, or one number. A text longer than the model is read in overlapping windows: each is an example in
training, and what they say is averaged, each by its tokens, when the model is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.data.batches import IGNORE, TextBatch, by_text
from regard.data.corpus import Corpus, Example
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, InputError
from regard.metrics import accuracy, f1, macro_f1, matthews, pearson, spearman
from regard.models.encoder import TextEncoder
from regard.models.heads import Pooler
from regard.models.presets import EncoderConfig
from regard.nn import Linear, Loss
from regard.tasks.labels import Labels
from regard.tasks.reading import FILE, ROLES, Reading, fine_tuning, stored, stored_inputs, texts_of
from regard.tasks.task import Amount, Goal
from regard.text.framing import Frame, Framed, windows
from regard.text.labelled import paths_of, read_labelled
from regard.text.tokenizer import READING, Tokenizer
from regard.text.vocabulary import TokenizerConfig, train_tokenizer

SCORED = 5000
"""Texts scored at each validation, at most."""

MANY = 100
"""Different labels that are all numbers: more are a scale, not classes."""

Pair = tuple[str, str]
"""A text and the one it is paired with, or the empty text."""


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig:
    """The recipe's ``[task]`` table; `class_weights` is equal, balanced, or as in ``"yes=2,no=1"``."""

    name: Literal["classify"] = "classify"
    kind: Literal["classes", "score"] = "classes"
    pooling: Literal["cls", "mean", "attention"] = "cls"
    length: int = 512
    class_weights: str = "equal"

    def __post_init__(self) -> None:
        if not 16 <= self.length < 1 << 15:
            raise ConfigError(f"task.length = {self.length}; expected 16 to {(1 << 15) - 1:,} tokens")


@dataclass(frozen=True)
class Verdict:
    """What is said of a text: the likeliest label with its probability and those of all, or a score."""

    label: str
    probability: float
    probabilities: dict[str, float]
    score: float | None = None


class Classify(Reading):
    """From labelled texts to a classifier."""

    name = verb = "classify"
    Config = ClassifyConfig
    columns = ("text", "turn", "label")

    def __init__(self, config: ClassifyConfig, tokenizer: Tokenizer, labels: Labels) -> None:
        self.config, self.tokenizer, self.labels = config, tokenizer, labels

    @property
    def goal(self) -> Goal:  # type: ignore[override]
        if self.config.kind == "score":
            return Goal("spearman", "Spearman correlation", higher_is_better=True)
        return Goal("accuracy", "accuracy", higher_is_better=True)

    @classmethod
    def habits(cls, amount: Amount, device: torch.device) -> dict[str, Any]:
        return fine_tuning(amount)

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return paths_of(data)

    @staticmethod
    def read(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return read_labelled(data, columns, skip_empty=skip_empty)

    @classmethod
    def learn(
        cls, config: ClassifyConfig, tokenizer: TokenizerConfig, corpus: Corpus, ready: Tokenizer | None = None
    ) -> Classify:
        labels = Labels.of(label for *_, label in corpus.train())
        _check(labels, config)
        vocabulary = ready or train_tokenizer(corpus.texts(0, 1), tokenizer, READING)
        return cls(config, vocabulary, labels if config.kind == "classes" else Labels(()))

    @classmethod
    def load(cls, config: ClassifyConfig, tokenizer: TokenizerConfig, directory: Path) -> Classify:
        return cls(config, Tokenizer.load(directory / FILE, ROLES), Labels.load(directory))

    def save(self, directory: Path) -> None:
        super().save(directory)
        self.labels.save(directory)

    def heads(self, config: EncoderConfig) -> Mapping[str, nn.Module]:
        n_outputs = 1 if self.config.kind == "score" else len(self.labels)
        return {"pooler": Pooler(config, self.config.pooling), "label": Linear(config.d_model, n_outputs)}

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """Every window of every text with its label, or with the halves of its score."""
        inputs, labels = [], []
        for number, framed in self.inputs([(text, pair) for text, pair, _ in examples], self.config.length):
            inputs.append(framed)
            labels.append(self._stored(examples[number][2]))
        return [[each.ids for each in inputs], [[each.turn] for each in inputs], labels]

    def inputs(self, texts: Sequence[Pair], most: int) -> Iterator[tuple[int, Framed]]:
        """The inputs that texts make, each with the number of its text: one, or windows where it is too long."""
        encoded = self.tokenizer.encode_batch([part for pair in texts for part in pair])
        for number, (_, second) in enumerate(texts):
            parts = encoded[2 * number], encoded[2 * number + 1] if second else None
            yield from ((number, framed) for framed in _windows(self.frame, *parts, most))

    def _stored(self, label: str) -> list[int]:
        if self.config.kind == "classes":
            return [self.labels.number(label)]
        bits = int(np.float32(_number(label)).view(np.uint32))
        return [bits >> 16, bits & 0xFFFF]

    def batch(self, store: TokenStore, placement: Placement) -> TextBatch:
        labels = by_text(
            self._wanted(store, placement.items),
            placement,
            texts_of(placement.widths[0]),
            IGNORE if self.config.kind == "classes" else math.nan,
        )
        rows = self.rows(store, placement)
        return TextBatch(rows, labels, len(placement.items), int((rows.segment > 0).sum()))

    def _wanted(self, store: TokenStore, items: Int[np.ndarray, " items"]) -> Shaped[np.ndarray, " items"]:
        """The labels of stored texts: numbers of classes, or scores."""
        if self.config.kind == "classes":
            classes: np.ndarray = stored(store, "label", items).astype(np.int64)
            return classes
        column = store["label"]
        high, low = (column.ids[column.offsets[items] + half].astype(np.uint32) for half in (0, 1))
        scores: np.ndarray = (high << 16 | low).view(np.float32)
        return scores

    def loss(self, model: TextEncoder, batch: TextBatch) -> Loss:
        """Weighted cross-entropy, or the squared distance from the score."""
        outputs = self.outputs(model, model(batch.rows), batch.rows, batch.labels.shape[1])
        if self.config.kind == "classes":
            return self._class_loss(outputs, batch.labels)
        there = ~batch.labels.isnan()
        square = torch.where(there, outputs[..., 0] - batch.labels.nan_to_num(), 0.0).square().sum()
        return Loss(square, square.detach(), there.sum())

    def _class_loss(self, outputs: Float[Tensor, "B S C"], labels: Int[Tensor, "B S"]) -> Loss:
        there = labels != IGNORE
        log_probs = outputs.float().log_softmax(-1)
        nll = -log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        weights = class_weights(self.config.class_weights, self.labels).to(outputs.device)
        total = torch.where(there, nll * weights[labels.clamp(min=0)], 0.0).sum()
        return Loss(total, torch.where(there, nll, 0.0).sum().detach(), there.sum())

    @staticmethod
    def outputs(model: TextEncoder, hidden: Tensor, rows: Any, n_texts: int) -> Float[Tensor, "B S C"]:
        """What is said of each text."""
        found: Tensor = model.heads["label"](model.heads["pooler"](hidden, rows, n_texts))
        return found

    def score(self, model: TextEncoder, store: TokenStore, device: torch.device) -> dict[str, float]:
        items = np.flatnonzero(store["text"].lengths <= model.config.n_positions)[:SCORED]
        said, wanted = self._said(model, stored_inputs(store, items), device), self._wanted(store, items)
        return self.scores(said, wanted)

    def scores(self, said: Float[Tensor, "N C"], wanted: np.ndarray) -> dict[str, float]:
        """The metrics of SPEC 6.4, for outputs beside the labels; of two classes the second is the positive one."""
        if self.config.kind == "score":
            scores = said[:, 0].double().numpy()
            return {"pearson": pearson(wanted, scores), "spearman": spearman(wanted, scores)}
        gold, best = wanted.tolist(), said.argmax(-1).tolist()
        found = {"accuracy": accuracy(gold, best), "macro_f1": macro_f1(gold, best), "matthews": matthews(gold, best)}
        return found | ({"f1": f1(gold, best, 1)} if len(self.labels) == 2 else {})

    def _said(self, model: TextEncoder, inputs: Sequence[Framed], device: torch.device) -> Float[Tensor, "N C"]:
        """The outputs for each input: probabilities of classes, or a score."""
        found = dict(self.read_batches(model, inputs, lambda h, rows: self.outputs(model, h, rows, 1)[:, 0], device))
        outputs = torch.stack([found[number] for number in range(len(inputs))]).float()
        return outputs.softmax(-1) if self.config.kind == "classes" else outputs

    def classify(self, model: TextEncoder, texts: Sequence[Pair], device: torch.device) -> list[Verdict]:
        """What the model says of each text, or pair of texts."""
        return [self._verdict(row) for row in self.probabilities(model, texts, device)]

    def probabilities(self, model: TextEncoder, texts: Sequence[Pair], device: torch.device) -> Float[Tensor, "N C"]:
        """The outputs for each text, over its windows by their tokens."""
        most = min(self.config.length, model.config.n_positions)
        numbered = list(self.inputs(texts, most))
        said = self._said(model, [framed for _, framed in numbered], device)
        owner = torch.tensor([number for number, _ in numbered])
        weight = torch.tensor([float(len(framed.ids)) for _, framed in numbered])
        total = torch.zeros(len(texts)).index_add(0, owner, weight)
        return torch.zeros(len(texts), said.shape[1]).index_add(0, owner, said * weight[:, None]) / total[:, None]

    def evaluate(
        self, model: TextEncoder, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """The metrics of the task on labelled texts, long ones over their windows."""
        examples = list(read_labelled(data, columns, skip_empty=skip_empty))
        if self.config.kind == "classes":
            wanted = np.array([self.labels.number(each.label) for each in examples])
        else:
            wanted = np.array([_number(each.label) for each in examples])
        said = self.probabilities(model, [(each.text, each.pair) for each in examples], device)
        return {"task": self.name, "n": len(examples), **self.scores(said, wanted)}

    def _verdict(self, said: Float[Tensor, " C"]) -> Verdict:
        if self.config.kind == "score":
            return Verdict("", math.nan, {}, float(said[0]))
        best = int(said.argmax())
        every = dict(zip(self.labels.names, said.tolist(), strict=True))
        return Verdict(self.labels.names[best], float(said[best]), every)


def _check(labels: Labels, config: ClassifyConfig) -> None:
    """Refuse labels that cannot be learned as they are asked to be."""
    numeric = all(map(_is_number, labels.names))
    if config.kind == "score" and not numeric:
        wrong = next(name for name in labels.names if not _is_number(name))
        raise ConfigError(f"task.kind = 'score', but the label '{wrong[:40]}' is no number; leave the kind out")
    if config.kind == "classes" and numeric and len(labels) > MANY:
        raise ConfigError(f"{len(labels)} different numbers as labels; for a scale pass --set task.kind=score")
    if config.kind == "classes" and len(labels) < 2:
        raise ConfigError(f"only one label, '{labels.shown()}': nothing to tell apart; is it the right column?")
    class_weights(config.class_weights, labels)


def _number(name: str) -> float:
    if not _is_number(name):
        raise InputError(f"the label '{name[:40]}' is no number; this model gives scores")
    return float(name)


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def class_weights(asked: str, labels: Labels) -> Float[Tensor, " C"]:
    """How much each class counts; on average over the training texts 1."""
    if asked == "equal":
        return torch.ones(len(labels))
    if asked == "balanced":
        counts = torch.tensor(labels.counts or [1.0] * len(labels)).float()
        return counts.sum() / (len(labels) * counts)
    weights = torch.ones(len(labels))
    for part in asked.split(","):
        name, _, value = part.rpartition("=")
        if name not in labels.names or not _is_number(value) or float(value) <= 0:
            raise ConfigError(
                f"task.class_weights: '{part}'; accepted: equal, balanced, or LABEL=WEIGHT,... for {labels.shown()}"
            )
        weights[labels.number(name)] = float(value)
    return weights


def _windows(frame: Frame, first: list[int], second: list[int] | None, most: int) -> Iterator[Framed]:
    """All windows of the first part with all of the second; the shorter part has at most half of the room."""
    if second is None:
        room = most - frame.extra(paired=False)
        yield from (frame.around(first[start:end]) for start, end in windows(len(first), room))
        return
    room = most - frame.extra(paired=True)
    shorter = min(len(first), len(second), room // 2)
    rooms = (shorter, room - shorter) if len(first) <= len(second) else (room - shorter, shorter)
    for (start, end), (begin, stop) in product(windows(len(first), rooms[0]), windows(len(second), rooms[1])):
        yield frame.around(first[start:end], second[begin:stop])
