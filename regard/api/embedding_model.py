"""What every encoder can do with its vectors: embed, match and cluster texts, and show why (SPEC 4.11, 8.7, 8.8)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.api.model import Model, check_text
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.look.corpus.clusters import Clusters, check_n_clusters, cluster_texts
from regard.look.corpus.match import MatchEvidence, TokenizedText, compute_match_evidence
from regard.look.corpus.senses import WordOccurrence, WordSenses, extract_context, find_occurrences
from regard.models.interfaces import EncoderModel
from regard.progress import track, warn
from regard.tasks.shared.embedder import (
    STATIC_LAYERS,
    Embedder,
    NamedVectors,
    WeightedTokens,
    resolve_embedding_options,
)
from regard.tasks.shared.encoder_task import EncoderTask

LayerSelection = int | Sequence[int] | str
"""Numbers of layers (0 is what enters them, -1 the last), or "static"."""


class SearchHit(NamedTuple):
    """A text that was searched: how like the query it is, and its number."""

    score: float
    corpus_id: int
    text: str


class EmbeddingModel(Model):
    """A model that gives vectors."""

    encoder_task: EncoderTask
    network: EncoderModel

    def embed(
        self,
        texts: str | Sequence[str],
        level: str = "text",
        layers: LayerSelection = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> Any:
        """Vectors in float32: of texts an array (texts, width); of their words or tokens such an array for each text.

        Several layers give their mean. `pooling` (cls, mean, attention) and `normalised` are the model's own way where
        they are not given. Of one text, given as a str, there is no first axis.
        """
        embedder = self.make_embedder(level=level, layers=layers, pooling=pooling, normalised=normalised)
        given = buffered_read(_check_texts([texts] if isinstance(texts, str) else texts))
        if level != "text":
            of_each = [each.vectors for buffer in given for each in embedder.embed_words_or_tokens(buffer)]
            return of_each[0] if isinstance(texts, str) else of_each
        found = [np.zeros((0, self.network.config.d_model), np.float32), *map(embedder.embed_texts, given)]
        return np.concatenate(found)[0] if isinstance(texts, str) else np.concatenate(found)

    def embed_words_or_tokens(
        self, texts: Sequence[str], level: str = "word", layers: LayerSelection = (-1,), normalised: bool | None = None
    ) -> list[NamedVectors]:
        """The words or tokens of each text: `names`, and their `vectors`."""
        embedder = self.make_embedder(level=level, layers=layers, normalised=normalised)
        if level == "text":
            raise InputError("a text has no parts at the level of texts; accepted: word, token")
        return [
            each for buffer in buffered_read(_check_texts(texts)) for each in embedder.embed_words_or_tokens(buffer)
        ]

    def make_embedder(self, *, layers: LayerSelection = (-1,), **options: Any) -> Embedder:
        """What makes vectors of as many texts at a time as one likes; options as in `embed`."""
        wanted = resolve_embedding_options(self.encoder_task, self.network, layers=_parse_layers(layers), **options)
        return Embedder(self.encoder_task, self.network, wanted, self.device)

    def match(self, first: str, second: str) -> float:
        """How alike two texts are: the cosine of their vectors."""
        one, other = _l2_normalise(self.embed([first, second]))
        return float(one @ other)

    def nearest(self, query: str, texts: Iterable[str], top: int = 10) -> list[SearchHit]:
        """The texts most like a query, best first, with their numbers from 0; any number of texts can be searched."""
        return self.search(query, buffered_read(enumerate(_check_texts(texts))), top)

    def search(self, query: str, numbered_texts: Iterable[Sequence[tuple[int, str]]], top: int) -> list[SearchHit]:
        """The same for buffers of numbered texts; of equal scores the first comes first."""
        wanted, embedder = _l2_normalise(self.embed([query]))[0], self.make_embedder()
        best: list[SearchHit] = []
        for buffer in numbered_texts:
            scores = (_l2_normalise(embedder.embed_texts([text for _, text in buffer])) @ wanted).tolist()
            new = (SearchHit(score, *each) for score, each in zip(scores, buffer, strict=True))
            best = heapq.nsmallest(top, chain(best, new), key=lambda match: (-match.score, match.corpus_id))
        return best

    def cluster(self, texts: Sequence[str], k: int, *, seed: int = 0) -> Clusters:
        """Texts in k groups of like meaning (look/corpus/clusters.py): `labels`, `centres`, `map`."""
        check_n_clusters(k, len(texts))
        found = track(self._iterate_embeddings(texts), "embedding", len(texts))
        about = {"model": str(self.path), "texts": len(texts), "k": k, "seed": seed}
        return cluster_texts(texts, np.stack(list(found)), k, seed, about)

    def _iterate_embeddings(self, texts: Sequence[str]) -> Iterator[Float[np.ndarray, " D"]]:
        embedder = self.make_embedder()
        for buffer in buffered_read(_check_texts(texts)):
            yield from embedder.embed_texts(buffer)

    def explain_match(self, text: str, pair: str) -> MatchEvidence:
        """Why two texts, each read by itself, match: what each pair of their tokens adds to the cosine."""
        embedder = self.make_embedder()
        check_text(text)
        check_text(pair)
        one, other = embedder.weigh_tokens(text), embedder.weigh_tokens(pair)
        about = {"model": str(self.path), "text": text, "pair": pair}
        return MatchEvidence(
            self._describe_tokens(one),
            self._describe_tokens(other),
            compute_match_evidence(one, other),
            embedder.options.pooling,
            about,
        )

    def _describe_tokens(self, weighted_tokens: WeightedTokens) -> TokenizedText:
        tokenizer = self.encoder_task.tokenizer
        return TokenizedText(tokenizer.display_tokens(weighted_tokens.ids), tokenizer.words(weighted_tokens.ids))

    def senses(self, word: str, texts: Iterable[str], *, max_occurrences: int | None = None) -> WordSenses:
        """One word wherever it occurs in texts, or the first `most` times: static, and layer by layer."""
        embedder, wanted = self.make_embedder(), _check_word(word)
        occurrences = (each for text in texts for each in self._find_occurrences(embedder, wanted, text))
        found = list(islice(occurrences, max_occurrences))
        if max_occurrences is not None and len(found) == max_occurrences and next(occurrences, None) is not None:
            warn(f"'{wanted}' occurs more often; the first {max_occurrences:,} times are taken")
        if len(found) < 2:
            times = "once" if found else "nowhere"
            raise InputError(f"'{wanted}' occurs {times} in these texts; give two sentences with it, or more")
        return WordSenses(wanted, found, {"model": str(self.path)})

    def _find_occurrences(self, embedder: Embedder, word: str, text: str) -> Iterator[WordOccurrence]:
        tokenizer = self.encoder_task.tokenizer
        ids = tokenizer.encode(text)
        if not (found := list(find_occurrences(tokenizer, ids, word))):
            return
        if len(ids) > embedder.max_tokens:
            warn(f"left out '{text[:40]}...': {len(ids):,} tokens, but {embedder.max_tokens:,} are read at once")
            return
        states = embedder.hidden_states(ids)
        for pieces in found:
            yield WordOccurrence(text, extract_context(tokenizer, ids, pieces), states[:, list(pieces)].mean(1))


def _parse_layers(layers: LayerSelection) -> Sequence[int]:
    if isinstance(layers, int):
        return (layers,)
    if layers == "static":
        return STATIC_LAYERS
    if isinstance(layers, str) or not layers:
        raise InputError(f"layers {layers!r}: expected numbers of layers, or 'static'")
    return layers


def _check_texts(texts: Iterable[str]) -> Iterator[str]:
    """The texts, of which none may be empty."""
    for number, text in enumerate(texts):
        if not text.strip():
            raise InputError(f"text {number:,}, counted from 0, is empty; give at least one word")
        yield text


def _check_word(word: str) -> str:
    if len(word.split()) != 1:
        raise InputError(f"one word is looked for; found '{word}'; give one without blanks")
    return word.strip()


def _l2_normalise(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    wide = vectors.astype(np.float64)
    unit: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    return unit
