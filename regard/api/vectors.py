"""What every encoder can do with its vectors: embed, match and cluster texts, and show why (SPEC 4.11, 8.7, 8.8)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.api.model import Model, one_text
from regard.data.buckets import windows
from regard.errors import InputError
from regard.look.clusters import Clusters, check, clustered
from regard.look.match import Evidence, Text, evidence
from regard.look.senses import Occurrence, Senses, around, places
from regard.models.interfaces import TextModel
from regard.progress import track, warn
from regard.tasks.reading import Reading
from regard.tasks.vectors import STATIC, Embedder, Named, Weighed, how

Layers = int | Sequence[int] | str
"""Numbers of layers (0 is what enters them, -1 the last), or "static"."""


class Match(NamedTuple):
    """A text that was searched: how like the query it is, and its number."""

    score: float
    number: int
    text: str


class Vectors(Model):
    """A model that gives vectors."""

    reading: Reading
    network: TextModel

    def embed(
        self,
        texts: str | Sequence[str],
        level: str = "text",
        layers: Layers = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> Any:
        """Vectors in float32: of texts an array (texts, width); of their words or tokens such an array for each text.

        Several layers give their mean. `pooling` (cls, mean, attention) and `normalised` are the model's own way where
        they are not given. Of one text, given as a str, there is no first axis.
        """
        embedder = self.embedder(level=level, layers=layers, pooling=pooling, normalised=normalised)
        given = windows(_filled([texts] if isinstance(texts, str) else texts))
        if level != "text":
            of_each = [each.vectors for window in given for each in embedder.parts(window)]
            return of_each[0] if isinstance(texts, str) else of_each
        found = [np.zeros((0, self.network.config.d_model), np.float32), *map(embedder.texts, given)]
        return np.concatenate(found)[0] if isinstance(texts, str) else np.concatenate(found)

    def parts(
        self, texts: Sequence[str], level: str = "word", layers: Layers = (-1,), normalised: bool | None = None
    ) -> list[Named]:
        """The words or tokens of each text: `names`, and their `vectors`."""
        embedder = self.embedder(level=level, layers=layers, normalised=normalised)
        if level == "text":
            raise InputError("a text has no parts at the level of texts; accepted: word, token")
        return [each for window in windows(_filled(texts)) for each in embedder.parts(window)]

    def embedder(self, *, layers: Layers = (-1,), **asked: Any) -> Embedder:
        """What makes vectors of as many texts at a time as one likes; options as in `embed`."""
        wanted = how(self.reading, self.network, layers=_layers(layers), **asked)
        return Embedder(self.reading, self.network, wanted, self.device)

    def match(self, first: str, second: str) -> float:
        """How alike two texts are: the cosine of their vectors."""
        one, other = _unit(self.embed([first, second]))
        return float(one @ other)

    def nearest(self, query: str, texts: Iterable[str], top: int = 10) -> list[Match]:
        """The texts most like a query, best first, with their numbers from 0; any number of texts can be searched."""
        return self.searched(query, windows(enumerate(_filled(texts))), top)

    def searched(self, query: str, found: Iterable[Sequence[tuple[int, str]]], top: int) -> list[Match]:
        """The same for windows of numbered texts; of equal scores the first comes first."""
        wanted, embedder = _unit(self.embed([query]))[0], self.embedder()
        best: list[Match] = []
        for window in found:
            scores = (_unit(embedder.texts([text for _, text in window])) @ wanted).tolist()
            new = (Match(score, *each) for score, each in zip(scores, window, strict=True))
            best = heapq.nsmallest(top, chain(best, new), key=lambda match: (-match.score, match.number))
        return best

    def cluster(self, texts: Sequence[str], k: int, *, seed: int = 0) -> Clusters:
        """Texts in k groups of like meaning (look/clusters.py): `labels`, `centres`, `map`."""
        check(k, len(texts))
        found = track(self._vectors(texts), "embedding", len(texts))
        about = {"model": str(self.path), "texts": len(texts), "k": k, "seed": seed}
        return clustered(texts, np.stack(list(found)), k, seed, about)

    def _vectors(self, texts: Sequence[str]) -> Iterator[Float[np.ndarray, " D"]]:
        embedder = self.embedder()
        for window in windows(_filled(texts)):
            yield from embedder.texts(window)

    def evidence(self, text: str, pair: str) -> Evidence:
        """Why two texts, each read by itself, match: what each pair of their tokens adds to the cosine."""
        embedder = self.embedder()
        one_text(text)
        one_text(pair)
        one, other = embedder.weighed(text), embedder.weighed(pair)
        about = {"model": str(self.path), "text": text, "pair": pair}
        return Evidence(self._text(one), self._text(other), evidence(one, other), embedder.how.pooling, about)

    def _text(self, read: Weighed) -> Text:
        tokenizer = self.reading.tokenizer
        return Text(tokenizer.pieces(read.ids), tokenizer.words(read.ids))

    def senses(self, word: str, texts: Iterable[str], *, most: int | None = None) -> Senses:
        """One word wherever it occurs in texts, or the first `most` times: static, and layer by layer."""
        embedder, wanted = self.embedder(), _one_word(word)
        occurrences = (each for text in texts for each in self._occurrences(embedder, wanted, text))
        found = list(islice(occurrences, most))
        if most is not None and len(found) == most and next(occurrences, None) is not None:
            warn(f"'{wanted}' occurs more often; the first {most:,} times are taken")
        if len(found) < 2:
            times = "once" if found else "nowhere"
            raise InputError(f"'{wanted}' occurs {times} in these texts; give two sentences with it, or more")
        return Senses(wanted, found, {"model": str(self.path)})

    def _occurrences(self, embedder: Embedder, word: str, text: str) -> Iterator[Occurrence]:
        tokenizer = self.reading.tokenizer
        ids = tokenizer.encode(text)
        if not (found := list(places(tokenizer, ids, word))):
            return
        if len(ids) > embedder.room:
            warn(f"left out '{text[:40]}...': {len(ids):,} tokens, but {embedder.room:,} are read at once")
            return
        states = embedder.states(ids)
        for pieces in found:
            yield Occurrence(text, around(tokenizer, ids, pieces), states[:, list(pieces)].mean(1))


def _layers(layers: Layers) -> Sequence[int]:
    if isinstance(layers, int):
        return (layers,)
    if layers == "static":
        return STATIC
    if isinstance(layers, str) or not layers:
        raise InputError(f"layers {layers!r}: expected numbers of layers, or 'static'")
    return layers


def _filled(texts: Iterable[str]) -> Iterator[str]:
    """The texts, of which none may be empty."""
    for number, text in enumerate(texts):
        if not text.strip():
            raise InputError(f"text {number:,}, counted from 0, is empty; give at least one word")
        yield text


def _one_word(word: str) -> str:
    if len(word.split()) != 1:
        raise InputError(f"one word is looked for; found '{word}'; give one without blanks")
    return word.strip()


def _unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    wide = vectors.astype(np.float64)
    unit: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    return unit
