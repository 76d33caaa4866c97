"""Sequence tagging by a trained encoder: the most likely label, or the score, of every word of a sentence.

The label of a word is predicted at its first subword. A sentence longer than the model is read in overlapping windows,
and each word is tagged in the window in which it has most context. The API calls `TaggingPredictor`; tasks/tag.py
encodes its training sentences with the same windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import SegmentedRows
from regard.predict.encoder_inference import LabelPredictor, forward_batches
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate, max_context_window, split_into_windows
from regard.text.tagged import is_entity_scheme, to_iob2
from regard.text.tokenizer import Tokenizer
from regard.text.words import Span, TextWord, WordSplitter, split_words


class TaggedWord(NamedTuple):
    """A word with its label and the probability of that, or its score.

    `start` and `end` are its characters, `token_start` and `token_end` those of the token that it is written in.
    """

    word: str
    label: str
    probability: float
    start: int
    end: int
    score: float | None = None
    token_start: int = -1
    token_end: int = -1

    @property
    def text_word(self) -> TextWord:
        """The word without its label."""
        token = Span(self.token_start, self.token_end) if self.token_start >= 0 else Span(self.start, self.end)
        return TextWord(self.word, self.start, self.end, token)


class TaggingWindow(NamedTuple):
    """A window of a sentence as it enters the model, and its words: number, and the position of the first subword."""

    encoded: EncodedInput
    word_positions: list[tuple[int, int]]


@dataclass(frozen=True)
class TaggingPredictor(LabelPredictor):
    """A tagger, or a regressor of words, with its vocabulary and labels, on a device; `splitter` finds words."""

    splitter: WordSplitter = split_words

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[tuple[str, float]]]:
        """Return the most likely label of every word of every sentence, with its probability."""
        return [
            list(zip(self.decode_labels(each), each.amax(-1).tolist(), strict=True)) if len(each) else []
            for each in self.predict(sentences)
        ]

    def predict(self, sentences: Sequence[Sequence[str]]) -> list[Float[Tensor, "words C"]]:
        """Return the outputs for the words of each sentence: probabilities of labels, or a score."""
        max_length = min(self.max_length, self.model.config.n_positions)
        numbered = list(encode_word_windows(self.tokenizer, self.template, sentences, max_length))
        rows = [torch.zeros(len(words), 1 if self.is_regression else len(self.labels)) for words in sentences]
        predictions = self.predict_windows([placed for _, placed in numbered])
        for (number, placed), labels in zip(numbered, predictions, strict=True):
            rows[number][[word for word, _ in placed.word_positions]] = labels
        return rows

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[list[TaggedWord]]:
        """Return given words with their labels and offsets, as if joined by single spaces."""
        tagged = []
        for words, outputs in zip(sentences, self.predict(sentences), strict=True):
            starts = accumulate((len(word) + 1 for word in words), initial=0)
            spans = [Span(start, start + len(word)) for word, start in zip(words, starts, strict=False)]
            given = [TextWord(word, *span, span) for word, span in zip(words, spans, strict=True)]
            tagged.append(self._make_tagged_words(given, outputs))
        return tagged

    def tag_texts(self, texts: Sequence[str], splitter: WordSplitter | None = None) -> list[list[TaggedWord]]:
        """Return the words of plain texts with their labels and offsets; another `splitter` may find them."""
        words = [(splitter or self.splitter)(text) for text in texts]
        outputs = self.predict([[word.form for word in each] for each in words])
        return [self._make_tagged_words(*each) for each in zip(words, outputs, strict=True)]

    def _make_tagged_words(self, words: Sequence[TextWord], outputs: Float[Tensor, "words C"]) -> list[TaggedWord]:
        if not len(words):
            return []
        if self.is_regression:
            scores = outputs[:, 0].tolist()
            return [
                TaggedWord(word.form, "", math.nan, word.start, word.end, score, *word.token)
                for word, score in zip(words, scores, strict=True)
            ]
        labelled = zip(words, self.decode_labels(outputs), outputs.amax(-1).tolist(), strict=True)
        return [
            TaggedWord(word.form, label, probability, word.start, word.end, None, *word.token)
            for word, label, probability in labelled
        ]

    def predict_windows(self, windows: Sequence[TaggingWindow]) -> list[Float[Tensor, "words C"]]:
        """Return the probabilities of labels, or the score, for the words of each window."""
        head, pad_id = self.model.heads["tags"], self.template.pad_id

        def readout(hidden: Float[Tensor, "B T W"], _: SegmentedRows) -> Float[Tensor, "B T C"]:
            outputs = head(hidden).float()
            return self.labels.scale.unstandardise(outputs) if self.is_regression else outputs.softmax(-1)

        outputs_by_window = dict(
            forward_batches(
                self.model,
                [each.encoded for each in windows],
                readout,
                pad_id=pad_id,
                device=self.device,
            )
        )
        return [
            outputs_by_window[number][[position for _, position in each.word_positions]]
            for number, each in enumerate(windows)
        ]

    def decode_labels(self, probabilities: Float[Tensor, "words C"]) -> list[str]:
        """Return the most likely labels; I- labels without a B- become B- (IOB2)."""
        likeliest = [self.labels.names[best] for best in probabilities.argmax(-1).tolist()]
        return to_iob2(likeliest) if is_entity_scheme(self.labels.names) else likeliest


def encode_word_windows(
    tokenizer: Tokenizer, template: SpecialTokenTemplate, sentences: Sequence[Sequence[str]], max_length: int
) -> Iterator[tuple[int, TaggingWindow]]:
    """Yield the windows of sentences, each with the index of its sentence; every word belongs to one window."""
    word_ids = iter(tokenizer.encode_words([word for words in sentences for word in words]))
    max_tokens = max_length - template.n_special_tokens(is_pair=False)
    for number, words in enumerate(sentences):
        ids = [next(word_ids) for _ in words]
        flat = [index for word in ids for index in word]
        starts = [0, *accumulate(map(len, ids))][: len(ids)]
        windows = split_into_windows(len(flat), max_tokens)
        chosen = [max_context_window(windows, start) for start in starts]
        for each, (begin, end) in enumerate(windows):
            own = [(word, 1 + start - begin) for word, start in enumerate(starts) if chosen[word] == each]
            yield number, TaggingWindow(template.wrap(flat[begin:end]), own)
