"""A label for every word of a sentence: names, parts of speech (SPEC 4.10, 6.2).

The label of a word sits on its first piece; the others are read but say nothing. Labels of the form B-, I-, O are read
as entities: IOB1 becomes IOB2, and what counts is the F1 of whole entities. A sentence longer than the model is read in
overlapping windows, and each word is tagged in the one that shows most around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import IGNORE, TextBatch, lay
from regard.data.corpus import Corpus, Example, Texts
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.metrics import accuracy, entity_scores
from regard.models.heads import TagHead
from regard.models.interfaces import TextModel
from regard.models.presets import TextConfig
from regard.nn import Loss, cross_entropy
from regard.tasks.labels import Labels
from regard.tasks.reading import LENGTHS, Labelling, check_labels, stored_inputs
from regard.tasks.single import check_length
from regard.tasks.task import Goal
from regard.text.framing import Framed, nearest, windows
from regard.text.tagged import Problem, is_entity_scheme, paths_of, read_tagged, to_iob2
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import TokenizerConfig, train_tokenizer
from regard.text.words import Words, running

NOTHING = 0
"""What is stored where a piece has no label; label n is stored as n + 1."""


@dataclass(frozen=True, kw_only=True)
class TagConfig:
    """The recipe's ``[task]`` table."""

    name: Literal["tag"] = "tag"
    length: int = 512

    def __post_init__(self) -> None:
        check_length(self.length, LENGTHS)


class Tagged(NamedTuple):
    """A word with its label and how probable that is; `start` and `end` are its characters in the text."""

    word: str
    label: str
    probability: float
    start: int
    end: int


class Placed(NamedTuple):
    """A window of a sentence as it enters the model, and its words: number, and the position of the first piece."""

    framed: Framed
    words: list[tuple[int, int]]


class Tag(Labelling):
    """From labelled words to a tagger."""

    name = verb = "tag"
    Config = TagConfig
    columns = ("text", "turn", "label")
    unit = "sentences (one word and its label a line, an empty line after each sentence)"

    def __init__(self, config: TagConfig, tokenizer: Tokenizer, labels: Labels) -> None:
        super().__init__(config, tokenizer, labels)
        self.entities = is_entity_scheme(labels.names)

    @property
    def goal(self) -> Goal:  # type: ignore[override]
        return Goal("f1", "entity F1", higher_is_better=True) if self.entities else ACCURACY

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return paths_of(data)

    @staticmethod
    def read(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return _read(data, columns, skip_empty, lambda _: None)

    @classmethod
    def learn(
        cls, config: TagConfig, tokenizer: TokenizerConfig, corpus: Corpus, ready: Tokenizer | None = None
    ) -> Tag:
        labels = _learned_labels(corpus)
        texts = Texts(lambda: (text.replace("\n", " ") for text in corpus.texts(0)))
        return cls(config, ready or train_tokenizer(texts, tokenizer, cls.specials), labels)

    def heads(self, config: TextConfig) -> Mapping[str, nn.Module]:
        return {"tags": TagHead(config, len(self.labels))}

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """Every window of every sentence, with the label of each of its words at the word's first piece."""
        placed = self.inputs([words.split("\n") for words, _ in examples], self.length)
        inputs, stored = [], []
        for number, window in placed:
            labels = examples[number][1].split("\n")
            at = [NOTHING] * len(window.framed.ids)
            for word, place in window.words:
                at[place] = 1 + self.labels.number(labels[word])
            inputs.append(window.framed)
            stored.append(at)
        return [[each.ids for each in inputs], [[each.turn] for each in inputs], stored]

    def inputs(self, sentences: Sequence[Sequence[str]], most: int) -> Iterator[tuple[int, Placed]]:
        """The inputs that sentences make, each with the number of its sentence; every word is placed in one of them."""
        pieces = iter(self.tokenizer.encode_words([word for words in sentences for word in words]))
        room = most - self.frame.extra(paired=False)
        for number, words in enumerate(sentences):
            ids = [next(pieces) for _ in words]
            flat = [index for word in ids for index in word]
            starts = [0, *accumulate(map(len, ids))][: len(ids)]
            found = windows(len(flat), room)
            chosen = [nearest(found, start) for start in starts]
            for each, (begin, end) in enumerate(found):
                own = [(word, 1 + start - begin) for word, start in enumerate(starts) if chosen[word] == each]
                yield number, Placed(self.frame.around(flat[begin:end]), own)

    def batch(self, store: TokenStore, placement: Placement) -> TextBatch:
        labels = lay(store["label"], placement, placement.widths[0], pad=NOTHING).ids.long() - 1
        labels = labels.masked_fill(labels < 0, IGNORE)
        rows, n_words = self.rows(store, placement), max(1, int((labels != IGNORE).sum()))
        return TextBatch(rows, labels, n_words, int((rows.segment > 0).sum()))

    def loss(self, model: TextModel, batch: TextBatch) -> Loss:
        return cross_entropy(model.heads["tags"](model(batch.rows)), batch.labels)

    def score(self, model: TextModel, store: TokenStore, device: torch.device) -> dict[str, float]:
        items = np.flatnonzero(store["text"].lengths <= model.config.n_positions)
        inputs, gold = [], []
        for item, framed in zip(items.tolist(), stored_inputs(store, items), strict=True):
            labels = store["label"][item].astype(int)
            places = np.flatnonzero(labels != NOTHING).tolist()
            inputs.append(Placed(framed, list(enumerate(places))))
            gold.append([self.labels.names[label - 1] for label in labels[places]])
        said = [self._labelled(rows) for rows in self._said(model, inputs, device)]
        return self.scores(gold, said)

    def _labelled(self, rows: Float[Tensor, "words C"]) -> list[str]:
        """The likeliest labels; an entity that is not begun begins where it goes on."""
        likeliest = [self.labels.names[best] for best in rows.argmax(-1).tolist()]
        return to_iob2(likeliest) if self.entities else likeliest

    def scores(self, gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> dict[str, float]:
        """Accuracy by words and, where there are entities, precision, recall and F1 of these."""
        by_word = {"accuracy": accuracy(list(chain(*gold)), list(chain(*said)))}
        if not self.entities:
            return by_word
        found = entity_scores(gold, said).micro
        return {"precision": found.precision, "recall": found.recall, "f1": found.f1, **by_word}

    def _said(self, model: TextModel, inputs: Sequence[Placed], device: torch.device) -> list[Float[Tensor, "words C"]]:
        """The probabilities of labels for the words of each input."""
        framed = [each.framed for each in inputs]
        found = dict(self.read_batches(model, framed, lambda h, _: model.heads["tags"](h).float().softmax(-1), device))
        return [found[number][[place for _, place in each.words]] for number, each in enumerate(inputs)]

    def tag(
        self, model: TextModel, sentences: Sequence[Sequence[str]], device: torch.device
    ) -> list[list[tuple[str, float]]]:
        """The likeliest label of every word of every sentence, with its probability."""
        numbered = list(self.inputs(sentences, min(self.config.length, model.config.n_positions)))
        rows = [torch.zeros(len(words), len(self.labels)) for words in sentences]
        said = self._said(model, [placed for _, placed in numbered], device)
        for (number, placed), found in zip(numbered, said, strict=True):
            rows[number][[word for word, _ in placed.words]] = found
        return [
            list(zip(self._labelled(each), each.amax(-1).tolist(), strict=True)) if len(each) else [] for each in rows
        ]

    def tag_words(
        self, model: TextModel, sentences: Sequence[Sequence[str]], device: torch.device
    ) -> list[list[Tagged]]:
        """Given words with their labels, and where they would stand with single spaces between them."""
        found = []
        for words, labels in zip(sentences, self.tag(model, sentences, device), strict=True):
            starts = accumulate((len(word) + 1 for word in words), initial=0)
            found.append([Tagged(w, *label, s, s + len(w)) for w, label, s in zip(words, labels, starts, strict=False)])
        return found

    def evaluate(
        self, model: TextModel, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """The metrics of the task on labelled words, and of each kind of entity its F1."""
        found = _read(data, columns, skip_empty, _unknown_to(self.labels))
        examples = [[part.split("\n") for part in each] for each in found]
        gold = [labels for _, labels in examples]
        said = [[label for label, _ in each] for each in self.tag(model, [words for words, _ in examples], device)]
        types = entity_scores(gold, said).by_type if self.entities else {}
        by_type = {f"f1_{name}": score.f1 for name, score in types.items()}
        return {
            "task": self.name,
            "n": len(examples),
            "words": sum(map(len, gold)),
            **self.scores(gold, said),
            **by_type,
        }

    def tag_text(
        self, model: TextModel, texts: Sequence[str], device: torch.device, words: Words = running
    ) -> list[list[Tagged]]:
        """The words of plain texts with their labels, and where they stand."""
        spans = [words(text) for text in texts]
        found = [[text[start:end] for start, end in each] for text, each in zip(texts, spans, strict=True)]
        labels = self.tag(model, found, device)
        return [
            [Tagged(word, *label, *span) for word, label, span in zip(*each, strict=True)]
            for each in zip(found, labels, spans, strict=True)
        ]


ACCURACY = Goal("accuracy", "accuracy", higher_is_better=True)


def _read(data: Sequence[str], columns: Sequence[str], skip_empty: bool, problem: Problem) -> Iterator[Example]:
    """Words and labels, one a line, with entities in IOB2."""
    if len(columns) > 1:
        raise ConfigError(f"columns: expected one, that of the labels, found {', '.join(columns)}")
    for words, labels in read_tagged(data, columns[0] if columns else "", skip_empty=skip_empty, problem=problem):
        yield "\n".join(words), "\n".join(_iob2(labels))


def _iob2(labels: Sequence[str]) -> Sequence[str]:
    return to_iob2(labels) if is_entity_scheme(labels) else labels


def _learned_labels(corpus: Corpus) -> Labels:
    """The labels of all training files, those of sentences that are held out too; other files may have no others."""
    data, counted = corpus.data, Counter[str]()
    for _, each in _read(data.train, data.columns, data.skip_empty, lambda _: None):
        counted.update(each.split("\n"))
    labels = Labels.of(counted)
    check_labels(labels)
    if data.valid:
        for _ in _read(data.valid, data.columns, data.skip_empty, _unknown_to(labels)):
            pass
    return labels


def _unknown_to(labels: Labels) -> Problem:
    """What to say of a sentence with a label that training did not have."""

    def problem(found: Sequence[str]) -> tuple[int, str] | None:
        said = ((place, labels.problem(label)) for place, label in enumerate(_iob2(found)))
        return next(((place, f"{wrong}, or name another --column") for place, wrong in said if wrong), None)

    return problem
