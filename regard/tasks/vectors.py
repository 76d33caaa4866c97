"""Vectors of texts, words and tokens, from any encoder (SPEC 4.11).

A layer is counted as in `identify`: 0 is what enters the layers, l what leaves the l-th; several give their mean.
`STATIC` are the vectors of tokens before anything is added to them, the same wherever a token stands. A text longer
than the model is read in overlapping windows: its vector is their mean, each by its tokens, and a token or word counts
where most of the text is around it. A word is the mean of its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import PartedRows
from regard.errors import InputError, did_you_mean
from regard.models.heads import POOLINGS, Pooler, Pooling, of_texts
from regard.models.interfaces import TextModel
from regard.tasks.reading import Reading, batched, by_core, end_to_end, framed_rows
from regard.text.framing import Window, nearest, windows

LEVELS = ("text", "word", "token")
STATIC: tuple[int, ...] = ()
"""In the place of layers: the vectors of tokens by themselves."""

Ids = list[int]
Vectors = Float[np.ndarray, "N D"]


@dataclass(frozen=True, kw_only=True)
class How:
    """How vectors are made; layers are counted from 0, what enters them; `length` tokens are read at once, at most."""

    level: str = "text"
    layers: tuple[int, ...]
    pooling: str
    normalised: bool
    length: int


def how(
    task: Reading,
    model: TextModel,
    *,
    level: str = "text",
    layers: Sequence[int] = (-1,),
    pooling: str | None = None,
    normalised: bool | None = None,
) -> How:
    """How to make vectors, where this model has what is asked for; what nobody asks for, its task says."""
    if level not in LEVELS:
        raise InputError(f"no level is called '{level}'; {did_you_mean(level, LEVELS)}")
    if pooling is not None and level != "text":
        raise InputError(f"pooling makes one vector of a text; leave it out at the level of {level}s")
    return How(
        level=level,
        layers=tuple(_layer(layer, len(model.encoder)) for layer in layers),
        pooling=_pooling(model, pooling or task.pooling),
        normalised=task.normalised if normalised is None else normalised,
        length=min(task.length, model.config.n_positions),
    )


def _layer(layer: int, n_layers: int) -> int:
    if not -n_layers - 1 <= layer <= n_layers:
        raise InputError(f"layer {layer}: this model has {n_layers} layers; 0 is what enters them, -1 the last")
    return layer % (n_layers + 1)


def _pooling(model: TextModel, name: str) -> str:
    if name not in POOLINGS:
        raise InputError(f"no pooling is called '{name}'; {did_you_mean(name, POOLINGS)}")
    if name == "attention" and _learned(model) is None:
        others = ", ".join(other for other in POOLINGS if other != name)
        raise InputError(f"this model has learned no attention over the tokens of a text; accepted: {others}")
    return name


def _learned(model: TextModel) -> Pooling | None:
    """The attention over the tokens of a text that a model has learned, if it has."""
    pooler = dict(model.heads).get("pooler")
    return pooler.pooling if isinstance(pooler, Pooler) and pooler.pooling.kind == "attention" else None


class Named(NamedTuple):
    """The words or tokens of a text, and their vectors."""

    names: list[str]
    vectors: Vectors


class Weighed(NamedTuple):
    """A text as it was read, special tokens included, and how much each token counts in the vector of the text."""

    ids: Ids
    hidden: Float[Tensor, "T D"]
    weights: Float[Tensor, " T"]


class Piece(NamedTuple):
    """A window of a text."""

    text: int
    window: Window


class Embedder:
    """Makes vectors of texts with one model, in one way."""

    def __init__(self, task: Reading, model: TextModel, how: How, device: torch.device) -> None:
        self.task, self.model, self.how, self.device = task, model, how, device
        self.room = how.length - task.frame.extra(paired=False)
        learned = _learned(model) if how.pooling == "attention" else None
        self.pooling = learned or Pooling(how.pooling, model.config.d_model)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """The vector of each text."""
        encoded = self.task.tokenizer.encode_batch(texts)
        pieces, share = _pieces(encoded, self.room)
        found = torch.zeros(len(texts), self.model.config.d_model)

        def pool(hidden: Float[Tensor, "B T D"], rows: PartedRows) -> Float[Tensor, "texts D"]:
            return self.pooling.vector(hidden, rows, int(rows.segment.amax())).flatten(0, 1)

        for chosen, vectors in self._read(encoded, pieces, pool):
            owner = torch.tensor([pieces[number].text for number in chosen])
            found.index_add_(0, owner, vectors * share[chosen, None])
        return self._finished(found)

    def parts(self, texts: Sequence[str]) -> list[Named]:
        """The words or the tokens of each text, special tokens left out."""
        encoded = self.task.tokenizer.encode_batch(texts)
        pieces, _ = _pieces(encoded, self.room)
        found = [torch.zeros(len(ids), self.model.config.d_model) for ids in encoded]
        taken, extra = _taken(pieces), self.task.frame.extra(paired=False)
        for chosen, tokens in self._read(encoded, pieces, lambda hidden, rows: hidden[rows.segment > 0]):
            lengths = [end - start + extra for _, (start, end) in (pieces[number] for number in chosen)]
            for number, vectors in zip(chosen, tokens.split(lengths), strict=True):
                text, (start, _) = pieces[number]
                found[text][taken[number]] = vectors[1 + taken[number] - start]
        return [self._named(ids, vectors) for ids, vectors in zip(encoded, found, strict=True)]

    def weighed(self, text: str) -> Weighed:
        """A text that the model takes whole, token by token, with what makes its vector: ``weights @ hidden``."""
        if self.how.pooling == "max":
            raise InputError("a vector of largest values is no sum over tokens, so there is no evidence to show")
        ids = self.task.tokenizer.encode(text)
        if len(ids) > self.room:
            raise InputError(f"the text has {len(ids):,} tokens; this model reads {self.room:,} at once; split it")
        framed = self.task.frame.around(ids)
        rows = framed_rows([framed], self.task.frame.pad).to(self.device)
        with torch.inference_mode():
            hidden = self._hidden(rows, [])
            weights = self.pooling.weigh(hidden, rows, of_texts(rows, 1))
        return Weighed(framed.ids, hidden[0].double().cpu(), weights[0, 0].double().cpu())

    def states(self, ids: Ids) -> Float[Tensor, "L T D"]:
        """The tokens of a text that the model takes whole: static, as they enter the layers, as they leave each."""
        rows = framed_rows([self.task.frame.around(ids)], self.task.frame.pad).to(self.device)
        with torch.inference_mode():
            found = [self._static(rows), *self.model.states(rows)]
        return torch.cat(found)[:, 1:-1].double().cpu()

    def _read(
        self, encoded: Sequence[Ids], pieces: Sequence[Piece], make: Callable[[Tensor, PartedRows], Tensor]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """What `make` makes of all pieces, by their numbers, those of like length together; on a CPU in one row."""
        inputs = [self.task.frame.around(encoded[text][start:end]) for text, (start, end) in pieces]

        def one(chosen: list[int]) -> Tensor:
            rows = framed_rows([inputs[number] for number in chosen], self.task.frame.pad).to(self.device)
            lengths: list[int] = []
            if self.device.type == "cpu":
                rows, lengths = end_to_end(rows)
            with torch.inference_mode():
                return make(self._hidden(rows, lengths), rows).float().cpu()

        return by_core(one, batched([len(each.ids) for each in inputs], self.device), self.device)

    def _hidden(self, rows: PartedRows, lengths: Sequence[int]) -> Float[Tensor, "B T D"]:
        """The mean of the layers asked for; those behind the last of them are not computed."""
        layers = self.how.layers
        if not layers:
            return self._static(rows)
        states = self.model.states(rows, lengths)
        kept = {layer: state for layer, state in zip(range(max(layers) + 1), states, strict=False) if layer in layers}
        return sum((kept[layer] for layer in layers[1:]), kept[layers[0]]) / len(layers)

    def _static(self, rows: PartedRows) -> Float[Tensor, "B T D"]:
        embedding = self.model.embedding
        found: Tensor = embedding.tokens(rows.ids) * embedding.scale
        return found

    def _named(self, ids: Ids, vectors: Float[Tensor, "T D"]) -> Named:
        if self.how.level == "token":
            return Named(self.task.tokenizer.pieces(ids), self._finished(vectors))
        words = self.task.tokenizer.words(ids)
        means = [vectors[list(word.pieces)].mean(0) for word in words]
        return Named([word.text for word in words], self._finished(torch.stack(means) if means else vectors))

    def _finished(self, vectors: Float[Tensor, "N D"]) -> Vectors:
        made = torch.nn.functional.normalize(vectors, dim=-1) if self.how.normalised else vectors
        found: np.ndarray = made.numpy()
        return found


def _pieces(encoded: Sequence[Ids], room: int) -> tuple[list[Piece], Float[Tensor, " pieces"]]:
    """The windows of all texts, and what share of its text's tokens each has."""
    pieces = [Piece(text, window) for text, ids in enumerate(encoded) for window in windows(len(ids), room)]
    lengths = torch.tensor([float(max(1, end - start)) for _, (start, end) in pieces])
    owner = torch.tensor([piece.text for piece in pieces], dtype=torch.long)
    return pieces, lengths / torch.zeros(len(encoded)).index_add(0, owner, lengths)[owner]


def _taken(pieces: Sequence[Piece]) -> list[Int[Tensor, " tokens"]]:
    """The tokens that count in each window: all of them where it is the only one of its text."""
    by_text: dict[int, list[int]] = {}
    for number, piece in enumerate(pieces):
        by_text.setdefault(piece.text, []).append(number)
    taken: list[list[int]] = [[] for _ in pieces]
    for numbers in by_text.values():
        found = [pieces[number].window for number in numbers]
        for token in range(found[-1].end):
            taken[numbers[nearest(found, token) if len(found) > 1 else 0]].append(token)
    return [torch.tensor(tokens, dtype=torch.long) for tokens in taken]
