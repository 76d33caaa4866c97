"""Embeddings of texts, words and tokens from any encoder.

Layers are counted as in `identify`: 0 is the input of the first layer, l the output of the l-th; several are averaged.
`STATIC` is the token embedding before anything is added to it, the same at every position. A text longer than the model
is read in overlapping windows: its vector is their mean, weighted by their tokens; a token or word is taken from the
window in which it has most context. The vector of a word is the mean of those of its subwords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import SegmentedRows
from regard.data.vector_origin import VectorOrigin
from regard.errors import InputError, did_you_mean
from regard.models.finite_outputs import check_finite
from regard.models.heads import LEARNED_POOLINGS, POOLINGS, Pooler, Pooling, make_text_mask
from regard.models.interfaces import EncoderModel
from regard.models.layer_combination import COMBINATION_NAME
from regard.models.weights import digest_weights
from regard.predict.encoder_inference import (
    inputs_to_rows,
    make_inference_batches,
    unpad_rows,
)
from regard.predict.input_length import check_fits
from regard.predict.worker_threads import map_batches_in_threads
from regard.text.special_tokens import SpecialTokenTemplate, TextWindow, max_context_window, split_into_windows
from regard.text.tokenizer import Tokenizer

LEVELS = ("text", "word", "token")
STATIC_LAYERS: tuple[int, ...] = ()
"""The value of `layers` for token embeddings alone."""

Ids = list[int]
VectorArray = Float[np.ndarray, "N D"]


class EmbeddingDefaults(NamedTuple):
    """Defaults of the options of embedding: those that a model was trained with."""

    pooling: str
    normalised: bool
    max_length: int


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """Options of embedding; layer 0 is the input of the layers; at most `max_length` tokens are encoded at once."""

    level: str = "text"
    layers: tuple[int, ...]
    pooling: str
    normalised: bool
    max_length: int


def resolve_embedding_options(
    model: EncoderModel,
    defaults: EmbeddingDefaults,
    *,
    level: str = "text",
    layers: Sequence[int] = (-1,),
    pooling: str | None = None,
    normalised: bool | None = None,
) -> EmbeddingOptions:
    """Return the options of embedding, checked against the model."""
    if level not in LEVELS:
        raise InputError(f"no level is called '{level}'; {did_you_mean(level, LEVELS)}")
    if pooling is not None and level != "text":
        raise InputError(f"pooling makes one vector of a text; leave it out at the level of {level}s")
    return EmbeddingOptions(
        level=level,
        layers=tuple(_resolve_layer(layer, len(model.encoder)) for layer in layers),
        pooling=_check_pooling(model, pooling or defaults.pooling),
        normalised=defaults.normalised if normalised is None else normalised,
        max_length=min(defaults.max_length, model.config.n_positions),
    )


def _resolve_layer(layer: int, n_layers: int) -> int:
    if not -n_layers - 1 <= layer <= n_layers:
        raise InputError(
            f"layer {layer}: this model has {n_layers} layers; 0 is the input of the first, -1 the output of the last"
        )
    return layer % (n_layers + 1)


def _check_pooling(model: EncoderModel, name: str) -> str:
    if name not in POOLINGS:
        raise InputError(f"no pooling is called '{name}'; {did_you_mean(name, POOLINGS)}")
    if name in LEARNED_POOLINGS and _find_learned_pooling(model, name) is None:
        others = ", ".join(other for other in POOLINGS if other not in LEARNED_POOLINGS)
        raise InputError(f"this model has learned no attention over its last hidden states; accepted: {others}")
    return name


def _find_learned_pooling(model: EncoderModel, kind: str) -> Pooling | None:
    """Return the attention pooling of a model if it is of this kind and learned on its last layer, or None."""
    pooler = dict(model.heads).get("pooler")
    if not isinstance(pooler, Pooler) or COMBINATION_NAME in model.heads:
        return None
    return pooler.pooling if pooler.pooling.kind == kind else None


class NamedVectors(NamedTuple):
    """The words or tokens of a text, and their vectors."""

    names: list[str]
    vectors: VectorArray


class WeightedTokens(NamedTuple):
    """A text as it was read, special tokens included, and how much each token counts in the vector of the text."""

    ids: Ids
    hidden: Float[Tensor, "T D"]
    weights: Float[Tensor, " T"]


class IndexedWindow(NamedTuple):
    """A window of a text."""

    text_index: int
    window: TextWindow


class Embedder:
    """Makes vectors of texts with one model, in one way."""

    def __init__(
        self, model: EncoderModel, tokenizer: Tokenizer, options: EmbeddingOptions, device: torch.device
    ) -> None:
        self.model, self.tokenizer, self.options, self.device = model, tokenizer, options, device
        self.template = SpecialTokenTemplate.from_tokenizer(tokenizer)
        self.max_tokens = options.max_length - self.template.n_special_tokens(is_pair=False)
        learned = _find_learned_pooling(model, options.pooling) if options.pooling in LEARNED_POOLINGS else None
        self.pooling = learned or Pooling(options.pooling, model.config.d_model)

    @property
    def origin(self) -> VectorOrigin:
        """The model, by its weights and its vocabulary, and the options."""
        options = self.options
        fingerprint = f"{digest_weights(self.model)[:32]} {self.tokenizer.fingerprint}"
        return VectorOrigin(
            fingerprint, options.level, options.layers, options.pooling, options.normalised, options.max_length
        )

    def embed_texts(self, texts: Sequence[str]) -> VectorArray:
        """Return the vector of each text."""
        encoded = self.tokenizer.encode_batch(texts)
        windows, fraction = _split_into_windows(encoded, self.max_tokens)
        text_vectors = torch.zeros(len(texts), self.model.config.d_model)

        def pool(hidden: Float[Tensor, "B T D"], rows: SegmentedRows) -> Float[Tensor, "texts D"]:
            return self.pooling.text_vectors(hidden, rows, int(rows.segment.amax())).flatten(0, 1)

        for chosen, vectors in self._forward_windows(encoded, windows, pool):
            owner = torch.tensor([windows[number].text_index for number in chosen])
            text_vectors.index_add_(0, owner, vectors * fraction[chosen, None])
        return self._finalise_vectors(text_vectors)

    def embed_words_or_tokens(self, texts: Sequence[str]) -> list[NamedVectors]:
        """Return the vectors of the words or tokens of each text, without special tokens."""
        encoded = self.tokenizer.encode_batch(texts)
        windows, _ = _split_into_windows(encoded, self.max_tokens)
        token_vectors = [torch.zeros(len(ids), self.model.config.d_model) for ids in encoded]
        taken, extra = _assign_tokens(windows), self.template.n_special_tokens(is_pair=False)
        for chosen, tokens in self._forward_windows(encoded, windows, lambda hidden, rows: hidden[rows.segment > 0]):
            lengths = [end - start + extra for _, (start, end) in (windows[number] for number in chosen)]
            for number, vectors in zip(chosen, tokens.split(lengths), strict=True):
                text, (start, _) = windows[number]
                token_vectors[text][taken[number]] = vectors[1 + taken[number] - start]
        return [self._name_vectors(ids, vectors) for ids, vectors in zip(encoded, token_vectors, strict=True)]

    def weigh_tokens(self, text: str) -> WeightedTokens:
        """Return the hidden states of a text that fits the model and the weights that pool them."""
        if self.options.pooling == "max":
            raise InputError("a max-pooled vector is not a sum over tokens, so there is no evidence to show")
        if self.options.pooling == "hierarchical":
            raise InputError("a vector pooled over sentences is not a sum over tokens, so there is no evidence to show")
        ids = self.tokenizer.encode(text)
        check_fits(len(ids), self.max_tokens)
        encoded = self.template.wrap(ids)
        rows = inputs_to_rows([encoded], self.template.pad_id).to(self.device)
        with torch.inference_mode():
            hidden = check_finite(self._average_layers(rows, []))
            weights = self.pooling.token_weights(hidden, rows, make_text_mask(rows, 1))
        return WeightedTokens(encoded.ids, hidden[0].double().cpu(), weights[0, 0].double().cpu())

    def hidden_states(self, ids: Ids) -> Float[Tensor, "L T D"]:
        """Return static embeddings, the layers' input and each layer's output for a text that fits the model."""
        rows = inputs_to_rows([self.template.wrap(ids)], self.template.pad_id).to(self.device)
        with torch.inference_mode():
            states = [self._embed_statically(rows), *self.model.iter_hidden_states(rows)]
        return check_finite(torch.cat(states)[:, 1:-1].double().cpu())

    def _forward_windows(
        self,
        encoded: Sequence[Ids],
        text_windows: Sequence[IndexedWindow],
        readout: Callable[[Tensor, SegmentedRows], Tensor],
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Return the readout of all windows by index, batched by length; on a CPU without padding."""
        inputs = [self.template.wrap(encoded[text][start:end]) for text, (start, end) in text_windows]

        def one(chosen: list[int]) -> Tensor:
            rows = inputs_to_rows([inputs[number] for number in chosen], self.template.pad_id).to(self.device)
            lengths: list[int] = []
            if self.device.type == "cpu":
                rows, lengths = unpad_rows(rows)
            with torch.inference_mode():
                return check_finite(readout(self._average_layers(rows, lengths), rows).float().cpu())

        return map_batches_in_threads(
            one, make_inference_batches([len(each.ids) for each in inputs], self.device), self.device
        )

    def _average_layers(self, rows: SegmentedRows, lengths: Sequence[int]) -> Float[Tensor, "B T D"]:
        """Return the mean of the requested layers; layers after the last of them are not computed."""
        layers = self.options.layers
        if not layers:
            return self._embed_statically(rows)
        states = self.model.iter_hidden_states(rows, lengths)
        kept = {layer: state for layer, state in zip(range(max(layers) + 1), states, strict=False) if layer in layers}
        return sum((kept[layer] for layer in layers[1:]), kept[layers[0]]) / len(layers)

    def _embed_statically(self, rows: SegmentedRows) -> Float[Tensor, "B T D"]:
        embedding = self.model.embedding
        vectors: Tensor = embedding.tokens(rows.ids) * embedding.scale
        return vectors

    def _name_vectors(self, ids: Ids, vectors: Float[Tensor, "T D"]) -> NamedVectors:
        if self.options.level == "token":
            return NamedVectors(self.tokenizer.display_tokens(ids), self._finalise_vectors(vectors))
        words = self.tokenizer.words(ids)
        means = [vectors[list(word.token_indices)].mean(0) for word in words]
        return NamedVectors(
            [word.text for word in words], self._finalise_vectors(torch.stack(means) if means else vectors)
        )

    def _finalise_vectors(self, vectors: Float[Tensor, "N D"]) -> VectorArray:
        scaled = torch.nn.functional.normalize(vectors, dim=-1) if self.options.normalised else vectors
        array: np.ndarray = scaled.numpy()
        return array


def _split_into_windows(
    encoded: Sequence[Ids], max_tokens: int
) -> tuple[list[IndexedWindow], Float[Tensor, " windows"]]:
    """Return the windows of all texts, and the fraction of its text's tokens in each."""
    windows = [
        IndexedWindow(text, window)
        for text, ids in enumerate(encoded)
        for window in split_into_windows(len(ids), max_tokens)
    ]
    lengths = torch.tensor([float(max(1, end - start)) for _, (start, end) in windows])
    owner = torch.tensor([text_window.text_index for text_window in windows], dtype=torch.long)
    return windows, lengths / torch.zeros(len(encoded)).index_add(0, owner, lengths)[owner]


def _assign_tokens(text_windows: Sequence[IndexedWindow]) -> list[Int[Tensor, " tokens"]]:
    """Return the tokens that count in each window: all tokens if it is the only window of its text."""
    by_text: dict[int, list[int]] = {}
    for number, text_window in enumerate(text_windows):
        by_text.setdefault(text_window.text_index, []).append(number)
    taken: list[list[int]] = [[] for _ in text_windows]
    for numbers in by_text.values():
        windows = [text_windows[number].window for number in numbers]
        for token in range(windows[-1].end):
            taken[numbers[max_context_window(windows, token) if len(windows) > 1 else 0]].append(token)
    return [torch.tensor(tokens, dtype=torch.long) for tokens in taken]
