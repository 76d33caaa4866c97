"""The vectors of an encoder: embed texts, words and tokens, compare, search and cluster texts, and explain a match."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple, overload

import numpy as np
from jaxtyping import Float

from regard.api.embed_batches import embed_batch, embed_batch_words_or_tokens, non_empty_indices
from regard.api.inputs import check_text, check_texts
from regard.api.model import Model
from regard.data.buckets import buffered_read
from regard.data.vector_search import StoredVectors, open_stored_vectors
from regard.errors import InputError
from regard.look.corpus.clusters import Clusters, check_n_clusters, cluster_texts
from regard.look.corpus.match import MatchEvidence, TokenizedText, compute_match_evidence
from regard.look.corpus.senses import WordOccurrence, WordSenses, extract_context, find_occurrences
from regard.models.interfaces import EncoderModel
from regard.predict.embedding import (
    STATIC_LAYERS,
    Embedder,
    NamedVectors,
    WeightedTokens,
    resolve_embedding_options,
)
from regard.progress import track, warn
from regard.ranges import COUNT_RANGE, SEED_RANGE, check_option
from regard.tasks.shared.encoder_task import EncoderTask

LayerSelection = int | Sequence[int] | str
"""Layer numbers (0 is the input of the first layer, -1 the output of the last), or "static"."""


class SearchHit(NamedTuple):
    """A text found by a search: its cosine with the query, its number, and itself."""

    score: float
    corpus_id: int
    text: str


class EmbeddingModel(Model):
    """A model that embeds texts."""

    encoder_task: EncoderTask
    network: EncoderModel

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        level: Literal["text"] = "text",
        layers: LayerSelection = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> np.ndarray: ...

    @overload
    def embed(
        self,
        texts: Sequence[str],
        level: Literal["word", "token"],
        layers: LayerSelection = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> list[np.ndarray]: ...

    def embed(
        self,
        texts: str | Sequence[str],
        level: str = "text",
        layers: LayerSelection = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """Embed a text, or each text of a list.

        A text longer than the model is read in overlapping windows.

        Args:
            texts: A text, or a list of texts. An empty text has no vector: its row is NaN, and it has no words.
            level: Vectors of whole texts ("text"), of their words ("word") or of their tokens ("token").
            layers: The layer to take hidden vectors from, or several, whose mean is taken: 0 is the input of the first
                layer, -1 the output of the last; "static" is the token embedding without its position.
            pooling: For texts: "cls" (the first token), "last", "mean", "max" or "attention" (learned by a
                classifier); by default that of the model.
            normalised: Scale vectors to length 1; by default as the model was trained.

        Returns:
            A float32 numpy array (texts, width), or (width,) for a single text given as a str. For words or tokens, a
            list with an array (words, width) for each text, or one such array for a single text.

        Example:
            >>> model.embed(["a man is asleep", "somebody sleeps"], layers=(0, -1), pooling="mean").shape
        """
        embedder = self.make_embedder(level=level, layers=layers, pooling=pooling, normalised=normalised)
        batches = buffered_read(check_texts([texts] if isinstance(texts, str) else texts))
        if level != "text":
            arrays = [each.vectors for batch in batches for each in embed_batch_words_or_tokens(embedder, batch)]
            return arrays[0] if isinstance(texts, str) else arrays
        no_vectors = np.zeros((0, self.network.config.d_model), np.float32)
        vectors = np.concatenate([no_vectors, *(embed_batch(embedder, batch) for batch in batches)])
        return vectors[0] if isinstance(texts, str) else vectors

    def embed_iterable(
        self,
        texts: Iterable[str],
        layers: LayerSelection = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> Iterator[np.ndarray]:
        """Embed texts from an iterable of any length, also an endless one.

        Texts are read 1,024 at a time; nothing more is held in memory.

        Args:
            texts: Texts.
            layers, pooling, normalised: As in `embed`.

        Yields:
            The float32 vector (width,) of each text, NaN for an empty text.
        """
        embedder = self.make_embedder(layers=layers, pooling=pooling, normalised=normalised)
        for batch in buffered_read(check_texts(texts)):
            yield from embed_batch(embedder, batch)

    def embed_words_or_tokens(
        self, texts: Sequence[str], level: str = "word", layers: LayerSelection = (-1,), normalised: bool | None = None
    ) -> list[NamedVectors]:
        """Embed the words or tokens of each text, with their names.

        Args:
            texts: Texts. An empty text has no words and no tokens.
            level: "word" or "token".
            layers, normalised: As in `embed`.

        Returns:
            For each text a `NamedVectors`: `names`, the words or tokens, and `vectors`, a float32 array (names, width).
        """
        if level == "text":
            raise InputError("level 'text' has no words or tokens; accepted: word, token")
        embedder = self.make_embedder(level=level, layers=layers, normalised=normalised)
        batches = buffered_read(check_texts(texts))
        return [each for batch in batches for each in embed_batch_words_or_tokens(embedder, batch)]

    def make_embedder(
        self,
        *,
        level: str = "text",
        layers: LayerSelection = (-1,),
        pooling: str | None = None,
        normalised: bool | None = None,
    ) -> Embedder:
        """Return an `Embedder`, which embeds batches of texts as they arrive; options as in `embed`."""
        options = resolve_embedding_options(
            self.network,
            self.encoder_task.embedding_defaults,
            level=level,
            layers=_parse_layers(layers),
            pooling=pooling,
            normalised=normalised,
        )
        return Embedder(self.network, self.encoder_task.tokenizer, options, self.device)

    def match(self, first: str, second: str) -> float:
        """Return the similarity of two texts: the cosine of their vectors, from -1 to 1.

        Args:
            first: A text, not empty: an empty text has no vector to compare.
            second: The text to compare it with, not empty either.
        """
        one, other = _l2_normalise(self.embed([check_text(first), check_text(second)]))
        return float(one @ other)

    def nearest(self, query: str, texts: Iterable[str], top: int = 10) -> list[SearchHit]:
        """Search texts for those most similar to a query.

        Args:
            query: A text.
            texts: The texts to search, any number of them; only the best are held in memory. Empty texts are never
                similar: a warning counts them.
            top: The number of texts to return.

        Returns:
            A list of `SearchHit`, best first: `score` (cosine), `corpus_id` (the number of the text, from 0), `text`.
        """
        return self.search(query, buffered_read(enumerate(check_texts(texts))), top)

    def search(self, query: str, batches: Iterable[Sequence[tuple[int, str]]], top: int = 10) -> list[SearchHit]:
        """Search batches of numbered texts, as `nearest` does; of equal scores the smaller number comes first.

        Args:
            query: A text.
            batches: Lists of (number, text).
            top: The number of texts to return.
        """
        check_option("top", top, COUNT_RANGE)
        query_vector, embedder = _l2_normalise(self.embed([check_text(query)]))[0], self.make_embedder()
        best: list[SearchHit] = []
        n_texts = n_empty = 0
        for batch in batches:
            numbered = [(number, text) for number, text in batch if text.strip()]
            n_texts, n_empty = n_texts + len(batch), n_empty + len(batch) - len(numbered)
            scores = _l2_normalise(embed_batch(embedder, [text for _, text in numbered])) @ query_vector
            hits = (SearchHit(score, *each) for score, each in zip(scores.tolist(), numbered, strict=True))
            best = heapq.nsmallest(top, chain(best, hits), key=lambda hit: (-hit.score, hit.corpus_id))
        if n_empty:
            warn(f"{n_empty:,} of {n_texts:,} texts are empty; they are not compared")
        return best

    def nearest_stored(
        self, query: str, path: str | Path, texts: Iterable[str] | None = None, *, top: int = 10
    ) -> list[SearchHit]:
        """Search the vectors that `regard embed --out` wrote for those most similar to a query.

        Args:
            query: A text, embedded as the vectors were.
            path: A .npy or .parquet file of whole texts, made by this very model.
            texts: The texts of a .npy file, in their order, if the hits should contain them; .parquet has its own.
            top: The number of texts to return.

        Returns:
            A list of `SearchHit`, best first; `corpus_id` is the number of the vector, from 0; `text` is empty for a
            .npy file without `texts`.
        """
        hits = self.search_stored(query, Path(path), texts, "texts", top)
        return [hit._replace(corpus_id=hit.corpus_id - 1) for hit in hits]

    def search_stored(
        self, query: str, path: Path, texts: Iterable[str] | None, texts_name: str, top: int
    ) -> list[SearchHit]:
        """Search stored vectors, as `nearest_stored` does, but count texts from 1.

        Args:
            query, path, texts, top: As in `nearest_stored`.
            texts_name: The name of the texts in messages.

        Returns:
            A list of `SearchHit`, best first.
        """
        check_option("top", top, COUNT_RANGE)
        stored = open_stored_vectors(path, texts, texts_name)
        query_vector = self._embed_as_stored(check_text(query), stored)
        best: list[SearchHit] = []
        n_empty = 0
        for first_line, names, vectors in stored.batches:
            kept = np.flatnonzero(~np.isnan(vectors).any(1))
            n_empty += len(vectors) - len(kept)
            scores = _l2_normalise(vectors[kept]) @ query_vector
            hits = (
                SearchHit(score, first_line + index, names[index] if names else "")
                for score, index in zip(scores.tolist(), kept.tolist(), strict=True)
            )
            best = heapq.nsmallest(top, chain(best, hits), key=lambda hit: (-hit.score, hit.corpus_id))
        if n_empty:
            warn(f"{n_empty:,} of {stored.n_vectors:,} vectors are those of empty texts; they are not compared")
        return best

    def _embed_as_stored(self, query: str, stored: StoredVectors) -> Float[np.ndarray, " D"]:
        """Return the vector of a query, of length 1, embedded as the stored vectors were; refuse those of others."""
        origin = stored.record.origin
        embedder = self.make_embedder(
            layers=origin.layers or "static", pooling=origin.pooling, normalised=origin.normalised
        )
        if embedder.origin != origin or stored.width != self.network.config.d_model:
            fix = f"embed the texts again: regard embed {self.path} FILE --out {stored.path}"
            raise InputError(f"{stored.path}: vectors of another model than {self.path}; {fix}")
        vector: Float[np.ndarray, " D"] = _l2_normalise(embedder.embed_texts([query]))[0]
        return vector

    def cluster(self, texts: Sequence[str], k: int, *, seed: int = 0) -> Clusters:
        """Cluster texts by meaning: k-means on their vectors.

        Args:
            texts: Texts. An empty text belongs to no cluster: its label is -1, its coordinates are NaN.
            k: The number of clusters.
            seed: Fixes the initial centres.

        Returns:
            A `Clusters`: `labels` (the cluster of each text, a numpy array; 0 is the largest cluster), `centres`,
            `coordinates` (the texts on a plane); `show()` in a notebook or terminal, `save("map.html")` anywhere.
        """
        check_option("seed", seed, SEED_RANGE)
        n_texts = len(non_empty_indices(list(check_texts(texts))))
        check_n_clusters(k, n_texts)
        vectors = list(track(self.embed_iterable(texts), "embedding", len(texts)))
        about = {"model": str(self.path), "texts": n_texts, "k": k, "seed": seed}
        return cluster_texts(texts, np.stack(vectors), k, seed, about)

    def explain_match(self, text: str, pair: str) -> MatchEvidence:
        """Explain why two texts, each read by itself, match: the contribution of each pair of tokens to the cosine.

        Args:
            text: A text.
            pair: The text to compare it with.

        Returns:
            A `MatchEvidence`: `score` and `values` (a torch tensor, tokens of the text by tokens of the pair);
            `show()` in a notebook or terminal, `save("match.html")` anywhere.
        """
        embedder = self.make_embedder()
        one, other = embedder.weigh_tokens(check_text(text)), embedder.weigh_tokens(check_text(pair))
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
        """Compare the vectors of one word in several sentences, layer by layer.

        Args:
            word: The word.
            texts: The texts to search for it.
            max_occurrences: The maximum number of occurrences, the first ones; by default all.

        Returns:
            A `WordSenses`: `occurrences`, `distances` and `projections` (torch tensors, layer by layer); `show()` in a
            notebook or terminal, `save("senses.html")` anywhere.
        """
        if max_occurrences is not None:
            check_option("max_occurrences", max_occurrences, COUNT_RANGE)
        embedder, spelling = self.make_embedder(), _check_word(word)
        matches = (each for text in check_texts(texts) for each in self._find_occurrences(embedder, spelling, text))
        occurrences = list(islice(matches, max_occurrences))
        if len(occurrences) == max_occurrences and next(matches, None) is not None:
            warn(f"'{spelling}' occurs more often; the first {max_occurrences:,} times are taken")
        if len(occurrences) < 2:
            times = "once" if occurrences else "nowhere"
            raise InputError(f"'{spelling}' occurs {times} in these texts; give two sentences with it, or more")
        return WordSenses(spelling, occurrences, {"model": str(self.path)})

    def _find_occurrences(self, embedder: Embedder, word: str, text: str) -> Iterator[WordOccurrence]:
        tokenizer = self.encoder_task.tokenizer
        ids = tokenizer.encode(text)
        if not (occurrences := list(find_occurrences(tokenizer, ids, word))):
            return
        if len(ids) > embedder.max_tokens:
            warn(f"left out '{text[:40]}...': {len(ids):,} tokens; this model takes {embedder.max_tokens:,}")
            return
        states = embedder.hidden_states(ids)
        for subwords in occurrences:
            yield WordOccurrence(text, extract_context(tokenizer, ids, subwords), states[:, list(subwords)].mean(1))


def _parse_layers(layers: LayerSelection) -> Sequence[int]:
    if isinstance(layers, int):
        return (layers,)
    if layers == "static":
        return STATIC_LAYERS
    if isinstance(layers, str) or not layers:
        raise InputError(f"layers {layers!r}: expected one layer number or several, or 'static'")
    return layers


def _check_word(word: str) -> str:
    if len(word.split()) != 1:
        raise InputError(f"expected one word, found '{word}'; give one without spaces")
    return word.strip()


def _l2_normalise(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    wide = vectors.astype(np.float64)
    unit: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    return unit
