"""Questions and their contexts as inputs of an encoder: ``[CLS] question [SEP] context [SEP]`` (Devlin et al. 2019).

A context longer than the input is split into overlapping windows, each read with the whole question. A window knows the
characters of its tokens, so a span of tokens is a span of the context. The task labels windows for training, and
question_answering.py finds answers in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regard.errors import InputError
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate, split_into_windows
from regard.text.table_columns import MAX_SHOWN_CHARACTERS
from regard.text.tokenizer import TokenizedText, Tokenizer

MIN_CONTEXT_FRACTION = 4
"""At least one in this many positions of an input is left to the context."""

QuestionPair = tuple[str, str]
"""A question and its context."""


class ContextWindow(NamedTuple):
    """The input for one window of a context, which holds the context's tokens from `start` up to `end`."""

    encoded: EncodedInput
    context: TokenizedText
    start: int
    end: int

    @property
    def context_start(self) -> int:
        """The position of the first context token in the input."""
        return self.encoded.second_start

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The characters of the context that each context token of the window covers."""
        return self.context.offsets[self.start : self.end]

    def contains(self, first: int, last: int) -> bool:
        """Return True if tokens of the context, from the first to the last one, are all in the window."""
        return self.start <= first and last < self.end

    def position(self, token: int) -> int:
        """Return the position in the input of a token of the context."""
        return self.context_start + token - self.start


def find_tokens(context: TokenizedText, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token that cover some of these characters; None if none does."""
    covering = [
        i for i, (first, after) in enumerate(context.offsets) if first < end and after > start and first < after
    ]
    return (covering[0], covering[-1]) if covering else None


class WindowEncoder(NamedTuple):
    """The encoder of questions into windows of at most `max_length` tokens, which start `stride` tokens apart."""

    tokenizer: Tokenizer
    template: SpecialTokenTemplate
    max_length: int
    stride: int

    def encode(self, questions: Sequence[QuestionPair]) -> Iterator[tuple[int, ContextWindow]]:
        """Yield the windows of questions, each with the index of its question."""
        tokenized = self.tokenizer.encode_batch([question for question, _ in questions])
        distinct = list(dict.fromkeys(context for _, context in questions))
        contexts = dict(zip(distinct, self.tokenizer.encode_with_offsets(distinct), strict=True))
        for number, (ids, (question, context)) in enumerate(zip(tokenized, questions, strict=True)):
            for window in self._split(ids, contexts[context], question):
                yield number, window

    def _split(self, question_ids: list[int], context: TokenizedText, question: str) -> Iterator[ContextWindow]:
        capacity = self.max_length - self.template.n_special_tokens(is_pair=True) - len(question_ids)
        if capacity < self.max_length // MIN_CONTEXT_FRACTION:
            most = len(question_ids) + capacity - self.max_length // MIN_CONTEXT_FRACTION
            description = f"the question '{question[:MAX_SHOWN_CHARACTERS]}' has {len(question_ids):,} tokens"
            raise InputError(
                f"{description}; at most {most:,} leave room for its context; shorten it, or raise task.length"
            )
        for start, end in split_into_windows(len(context.ids), capacity, self.stride):
            yield ContextWindow(self.template.wrap(question_ids, context.ids[start:end]), context, start, end)
