"""Classification of texts and of pairs of texts, into classes or onto a scale (SPEC 4.9, 6).

The vector of a text (its first token, the mean, or attention over its tokens) goes through one layer and gets a score
for each class, or one number, which is learned in deviations from the mean of training and given in its units. A text
longer than the model is read in overlapping windows: each is an example in training, and what they say is averaged,
each by its tokens, when the model is used.
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
from regard.errors import ConfigError, DataError, InputError
from regard.metrics import accuracy, f1, macro_f1, matthews, pearson, spearman
from regard.models.heads import Pooler, of_texts
from regard.models.interfaces import TextModel
from regard.models.presets import TextConfig
from regard.nn import Linear, Loss, redundancy
from regard.tasks.classes import class_weights, learned_labels, no_score
from regard.tasks.labels import Labels
from regard.tasks.reading import LENGTHS, Labelling, stored, stored_inputs, texts_of
from regard.tasks.single import check_length
from regard.tasks.task import Goal
from regard.text.framing import Frame, Framed, windows
from regard.text.labelled import Labelled, paths_of, read_labelled
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import TokenizerConfig, train_tokenizer

Pair = tuple[str, str]
"""A text and the one it is paired with, or the empty text."""


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig:
    """The recipe's ``[task]`` table; `class_weights` is equal, balanced, or as in ``"yes=2,no=1"``.

    With attention as `pooling`, several `hops` look at a text side by side, and `penalty` is what it costs where they
    look at the same tokens (Lin et al. 2017).
    """

    name: Literal["classify"] = "classify"
    kind: Literal["classes", "score"] = "classes"
    pooling: Literal["cls", "mean", "attention", "max", "last"] = "cls"
    hops: int = 1
    penalty: float = 0.0
    length: int = 512
    class_weights: str = "equal"

    def __post_init__(self) -> None:
        check_length(self.length, LENGTHS)
        if self.hops < 1:
            raise ConfigError(f"task.hops = {self.hops}; expected at least 1")
        if not 0 <= self.penalty < math.inf:
            raise ConfigError(f"task.penalty = {self.penalty}; expected 0 (off) or more")
        if self.pooling != "attention" and (self.hops > 1 or self.penalty):
            raise ConfigError(f'task.hops and task.penalty go with task.pooling = "attention", not "{self.pooling}"')


@dataclass(frozen=True)
class Verdict:
    """What is said of a text: the likeliest label with its probability and those of all, or a score."""

    label: str
    probability: float
    probabilities: dict[str, float]
    score: float | None = None


class Classify(Labelling):
    """From labelled texts to a classifier."""

    name = verb = "classify"
    Config = ClassifyConfig
    columns = ("text", "turn", "label")

    def __init__(self, config: ClassifyConfig, tokenizer: Tokenizer, labels: Labels) -> None:
        super().__init__(config, tokenizer, labels)
        self.pooling = config.pooling
        # Plain numbers, for they become part of what is compiled.
        self._weights: list[float] = class_weights(config.class_weights, labels).tolist()

    @property
    def goal(self) -> Goal:  # type: ignore[override]
        if self.config.kind == "score":
            return Goal("spearman", "Spearman correlation", higher_is_better=True)
        return Goal("accuracy", "accuracy", higher_is_better=True)

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
        labels = learned_labels(corpus, score=config.kind == "score")
        class_weights(config.class_weights, labels)  # a mistake there is said before the work
        return cls(config, ready or train_tokenizer(corpus.texts(0, 1), tokenizer, cls.specials), labels)

    def heads(self, config: TextConfig) -> Mapping[str, nn.Module]:
        n_outputs = 1 if self.config.kind == "score" else len(self.labels)
        pooler = Pooler(config, self.config.pooling, self.config.hops)
        return {"pooler": pooler, "label": Linear(config.d_model, n_outputs)}

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """Every window of every text with its label, or with the halves of its score."""
        inputs, labels = [], []
        for number, framed in self.inputs([(text, pair) for text, pair, _ in examples], self.length):
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
        bits = int(np.float32(label).view(np.uint32))
        return [bits >> 16, bits & 0xFFFF]

    def batch(self, store: TokenStore, placement: Placement) -> TextBatch:
        wanted, n_texts = self._wanted(store, placement.items), texts_of(placement)
        if self.config.kind == "classes":
            labels = by_text(wanted, placement, n_texts, IGNORE)
        else:
            labels = by_text(self.labels.scale.standard(wanted), placement, n_texts, math.nan)
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

    def loss(self, model: TextModel, batch: TextBatch) -> Loss:
        """Weighted cross-entropy, or the squared distance from the score, in deviations; and the penalty of hops."""
        hidden = model(batch.rows)
        outputs = self.outputs(model, hidden, batch.rows, batch.labels.shape[1])
        loss = (self._class_loss if self.config.kind == "classes" else self._score_loss)(outputs, batch.labels)
        if not self.config.penalty:
            return loss
        return loss._replace(total=loss.total + self.config.penalty * self._alike(model, hidden, batch))

    def _alike(self, model: TextModel, hidden: Float[Tensor, "B T D"], batch: TextBatch) -> Float[Tensor, ""]:
        """How much the hops look at the same tokens, over all texts."""
        pooler, own = model.heads["pooler"], of_texts(batch.rows, batch.labels.shape[1])
        assert isinstance(pooler, Pooler)
        found = redundancy(pooler.pooling.hops(hidden, batch.rows, own).flatten(0, 1))
        return torch.where(own.any(-1).flatten(), found, 0.0).sum()

    @staticmethod
    def _score_loss(outputs: Float[Tensor, "B S 1"], labels: Float[Tensor, "B S"]) -> Loss:
        there = ~labels.isnan()
        square = torch.where(there, outputs[..., 0] - labels.nan_to_num(), 0.0).square().sum()
        return Loss(square, square.detach(), there.sum())

    def _class_loss(self, outputs: Float[Tensor, "B S C"], labels: Int[Tensor, "B S"]) -> Loss:
        there = labels != IGNORE
        log_probs = outputs.float().log_softmax(-1)
        nll = -log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        weights = torch.tensor(self._weights, device=outputs.device)
        total = torch.where(there, nll * weights[labels.clamp(min=0)], 0.0).sum()
        return Loss(total, torch.where(there, nll, 0.0).sum().detach(), there.sum())

    @staticmethod
    def outputs(model: TextModel, hidden: Tensor, rows: Any, n_texts: int) -> Float[Tensor, "B S C"]:
        """What is said of each text: scores of classes, or one in deviations."""
        found: Tensor = model.heads["label"](model.heads["pooler"](hidden, rows, n_texts))
        return found

    def plain(self, model: TextModel) -> None:
        """The scale becomes part of the last layer."""
        head = model.heads["label"]
        assert isinstance(head, Linear)
        with torch.no_grad():
            head.weight.mul_(self.labels.scale.deviation)
            head.bias.copy_(self.labels.scale.scores(head.bias))

    def score(self, model: TextModel, store: TokenStore, device: torch.device) -> dict[str, float]:
        items = np.flatnonzero(store["text"].lengths <= model.config.n_positions)
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

    def _said(self, model: TextModel, inputs: Sequence[Framed], device: torch.device) -> Float[Tensor, "N C"]:
        """The outputs for each input: probabilities of classes, or a score."""
        found = dict(self.read_batches(model, inputs, lambda h, rows: self.outputs(model, h, rows, 1)[:, 0], device))
        outputs = torch.stack([found[number] for number in range(len(inputs))]).float()
        return outputs.softmax(-1) if self.config.kind == "classes" else self.labels.scale.scores(outputs)

    def classify(self, model: TextModel, texts: Sequence[Pair], device: torch.device) -> list[Verdict]:
        """What the model says of each text, or pair of texts."""
        return [self._verdict(row) for row in self.probabilities(model, texts, device)]

    def probabilities(self, model: TextModel, texts: Sequence[Pair], device: torch.device) -> Float[Tensor, "N C"]:
        """The outputs for each text, over its windows by their tokens."""
        for text in texts:
            self.check_kind(*text)
        most = min(self.config.length, model.config.n_positions)
        numbered = list(self.inputs(texts, most))
        said = self._said(model, [framed for _, framed in numbered], device)
        owner = torch.tensor([number for number, _ in numbered])
        weight = torch.tensor([float(len(framed.ids)) for _, framed in numbered])
        total = torch.zeros(len(texts)).index_add(0, owner, weight)
        return torch.zeros(len(texts), said.shape[1]).index_add(0, owner, said * weight[:, None]) / total[:, None]

    def evaluate(
        self, model: TextModel, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """The metrics of the task on labelled texts, long ones over their windows."""
        classes = self.config.kind == "classes"
        problem = self.labels.problem if classes else no_score
        examples = list(read_labelled(data, columns, skip_empty=skip_empty, problem=problem))
        self._check_table(paths_of(data)[0], examples[0])
        number = self.labels.number if classes else float
        wanted = np.array([number(each.label) for each in examples])
        said = self.probabilities(model, [(each.text, each.pair) for each in examples], device)
        return {"task": self.name, "n": len(examples), **self.scores(said, wanted)}

    def check_kind(self, text: str, pair: str) -> None:
        """Refuse one text where the model was trained on pairs, and a pair where it was trained on single texts."""
        if wanted := self._other_kind(pair):
            found = f"'{text[:40]}' {'has a pair' if pair else 'stands alone'}"
            fix = "leave it out" if pair else "give the second one too, with --pair or behind a tab"
            raise InputError(f"{found}, but this model was trained on {wanted}; {fix}")

    def _check_table(self, path: Path, first: Labelled) -> None:
        """The same for a table, by its first example, for the others are like it."""
        if wanted := self._other_kind(first.pair):
            found, columns = ("two texts", "TEXT,LABEL") if first.pair else ("one text", "TEXT,PAIR,LABEL")
            fix = f"ask for the columns {columns}"
            raise DataError(path, f"{found} a line, but this model was trained on {wanted}; {fix}")

    def _other_kind(self, pair: str) -> str:
        """What the model was trained on, where that is known to be something else."""
        if self.labels.paired in (None, bool(pair)):
            return ""
        return "pairs of texts" if self.labels.paired else "single texts"

    def _verdict(self, said: Float[Tensor, " C"]) -> Verdict:
        if self.config.kind == "score":
            return Verdict("", math.nan, {}, float(said[0]))
        best = int(said.argmax())
        every = dict(zip(self.labels.names, said.tolist(), strict=True))
        return Verdict(self.labels.names[best], float(said[best]), every)


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
