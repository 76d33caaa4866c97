"""Classification of texts and of pairs of texts by a trained encoder: probabilities of classes, or a score.

A text longer than the model is split into overlapping windows, whose outputs are averaged, weighted by their number of
tokens. The API calls `ClassificationPredictor`; tasks/classify.py encodes its training texts with the same windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import SegmentedRows
from regard.errors import InputError
from regard.models.interfaces import EncoderModel
from regard.predict.encoder_inference import LabelPredictor, forward_batches
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate, split_into_windows
from regard.text.tokenizer import Tokenizer

TextPair = tuple[str, str]
"""A text and the one it is paired with, or the empty text."""


@dataclass(frozen=True)
class Classification:
    """The prediction for a text: the most likely label with the probabilities of all labels, or a score."""

    label: str
    probability: float
    probabilities: dict[str, float]
    score: float | None = None


@dataclass(frozen=True)
class ClassificationPredictor(LabelPredictor):
    """A classifier, or a regressor, with its vocabulary and labels, on a device."""

    def classify(self, texts: Sequence[TextPair]) -> list[Classification]:
        """Return the prediction for each text, or pair of texts."""
        return [self._make_classification(row) for row in self.predict(texts)]

    def predict(self, texts: Sequence[TextPair]) -> Float[Tensor, "N C"]:
        """Return the outputs for each text, averaged over its windows, weighted by their number of tokens."""
        for text in texts:
            self.check_paired(*text)
        max_length = min(self.max_length, self.model.config.n_positions)
        numbered = list(encode_text_windows(self.tokenizer, self.template, texts, max_length))
        outputs = self.predict_inputs([encoded for _, encoded in numbered])
        owner = torch.tensor([number for number, _ in numbered])
        weight = torch.tensor([float(len(encoded.ids)) for _, encoded in numbered])
        total = torch.zeros(len(texts)).index_add(0, owner, weight)
        return torch.zeros(len(texts), outputs.shape[1]).index_add(0, owner, outputs * weight[:, None]) / total[:, None]

    def predict_inputs(self, inputs: Sequence[EncodedInput]) -> Float[Tensor, "N C"]:
        """Return the outputs for each input: probabilities of classes, or a score."""

        def readout(hidden: Float[Tensor, "B T D"], rows: SegmentedRows) -> Float[Tensor, "B C"]:
            return compute_text_logits(self.model, hidden, rows, 1)[:, 0]

        pad_id = self.template.pad_id
        logits_by_window = dict(forward_batches(self.model, inputs, readout, pad_id=pad_id, device=self.device))
        outputs = torch.stack([logits_by_window[number] for number in range(len(inputs))]).float()
        return self.labels.scale.unstandardise(outputs) if self.is_regression else outputs.softmax(-1)

    def check_paired(self, text: str, pair: str) -> None:
        """Refuse one text where the model was trained on pairs, and a pair where it was trained on single texts."""
        if expected := self.labels.describe_pair_mismatch(pair):
            example = f"'{text[:40]}' {'has a pair' if pair else 'stands alone'}"
            fix = "leave it out" if pair else "give the second text too, with --pair or after a tab"
            raise InputError(f"{example}, but this model was trained on {expected}; {fix}")

    def _make_classification(self, outputs: Float[Tensor, " C"]) -> Classification:
        if self.is_regression:
            return Classification("", math.nan, {}, float(outputs[0]))
        best = int(outputs.argmax())
        probabilities = dict(zip(self.labels.names, outputs.tolist(), strict=True))
        return Classification(self.labels.names[best], float(outputs[best]), probabilities)


def compute_text_logits(
    model: EncoderModel, hidden: Float[Tensor, "B T D"], rows: SegmentedRows, n_texts: int
) -> Float[Tensor, "B S C"]:
    """Return the logits of classes, or one standardised score, for each text."""
    logits: Tensor = model.heads["label"](model.heads["pooler"](hidden, rows, n_texts))
    return logits


def encode_text_windows(
    tokenizer: Tokenizer, template: SpecialTokenTemplate, texts: Sequence[TextPair], max_length: int
) -> Iterator[tuple[int, EncodedInput]]:
    """Yield the inputs of texts, each with the index of its text: one, or several windows of a long text."""
    encoded = tokenizer.encode_batch([part for pair in texts for part in pair])
    for number, (_, second) in enumerate(texts):
        parts = encoded[2 * number], encoded[2 * number + 1] if second else None
        yield from ((number, window) for window in _wrap_windows(template, *parts, max_length))


def _wrap_windows(
    template: SpecialTokenTemplate, first: list[int], second: list[int] | None, max_length: int
) -> Iterator[EncodedInput]:
    """Yield all pairs of a window of the first text and one of the second; the shorter text gets at most half."""
    if second is None:
        max_tokens = max_length - template.n_special_tokens(is_pair=False)
        yield from (template.wrap(first[start:end]) for start, end in split_into_windows(len(first), max_tokens))
        return
    max_tokens = max_length - template.n_special_tokens(is_pair=True)
    shorter = min(len(first), len(second), max_tokens // 2)
    limits = (shorter, max_tokens - shorter) if len(first) <= len(second) else (max_tokens - shorter, shorter)
    for (start, end), (begin, stop) in product(
        split_into_windows(len(first), limits[0]), split_into_windows(len(second), limits[1])
    ):
        yield template.wrap(first[start:end], second[begin:stop])
