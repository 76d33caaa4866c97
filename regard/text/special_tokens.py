"""The special tokens that an encoder expects around a text or a pair of texts (Devlin et al. 2019, section 3).

    [CLS] a_1 .. a_n [SEP] b_1 .. b_m [SEP]          BERT and ours
    <s> a_1 .. a_n </s> </s> b_1 .. b_m </s>         RoBERTa, XLM-R: one token type for both texts
    <|endoftext|> a_1 .. a_n <|endoftext|> b_1 .. b_m <|endoftext|>        the vocabulary of a language model

Called by every task on an encoder; long texts are split into overlapping windows here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.text.tokenizer import SPECIAL_TOKEN_ROLES, Tokenizer

TokenIds = Sequence[int]

ENCODER_ROLES = ("pad", "cls", "sep")
"""Special tokens that an encoder needs."""


class EncodedInput(NamedTuple):
    """The ids of an input with special tokens, how many have token type 0, and the index where each text starts."""

    ids: list[int]
    token_type_boundary: int
    first_start: int
    second_start: int


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The ids of the special tokens around texts."""

    cls_id: int
    pair_separator_ids: tuple[int, ...]
    sep_id: int
    pad_id: int

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> SpecialTokenTemplate:
        """Return the template of a vocabulary, BERT's, RoBERTa's or a language model's, by the names of its tokens."""
        if is_lm_vocabulary(tokenizer):
            end_id = tokenizer.special_id("end")
            return cls(end_id, (end_id,), end_id, end_id)
        cls_id, sep_id = tokenizer.special_id("cls"), tokenizer.special_id("sep")
        is_bert = tokenizer.display_tokens([cls_id])[0] == SPECIAL_TOKEN_ROLES["cls"][0]
        return cls(cls_id, (sep_id,) * (1 if is_bert else 2), sep_id, tokenizer.special_id("pad"))

    def n_special_tokens(self, is_pair: bool) -> int:
        """Return the number of special tokens of an input."""
        return 2 + is_pair * len(self.pair_separator_ids)

    def wrap(self, first: TokenIds, second: TokenIds | None = None) -> EncodedInput:
        """Return one text, or a pair of texts, with its special tokens."""
        if second is None:
            return EncodedInput([self.cls_id, *first, self.sep_id], len(first) + 2, 1, len(first) + 2)
        start = 1 + len(first) + len(self.pair_separator_ids)
        ids = [self.cls_id, *first, *self.pair_separator_ids, *second, self.sep_id]
        return EncodedInput(ids, len(first) + 2 if len(self.pair_separator_ids) == 1 else len(ids), 1, start)


def is_lm_vocabulary(tokenizer: Tokenizer) -> bool:
    """Return True for the vocabulary of a language model: a token ends documents, but none stands for a whole text."""
    return tokenizer.find_special_id("cls") is None and tokenizer.find_special_id("end") is not None


class TextWindow(NamedTuple):
    """A span of tokens of a long text."""

    start: int
    end: int


def split_into_windows(n_tokens: int, max_length: int, stride: int | None = None) -> list[TextWindow]:
    """Return windows of at most `max_length` tokens that cover a text, each sharing a quarter with the next, or more.

    With a `stride`, each starts at most `stride` tokens after the one before it. A shared token is predicted in the
    window with more context around it: see `max_context_window`.
    """
    if n_tokens <= max_length:
        return [TextWindow(0, n_tokens)]
    step = max(1, min(max_length - max_length // 4, stride or max_length))
    starts = [*range(0, n_tokens - max_length, step), n_tokens - max_length]
    return [TextWindow(start, start + max_length) for start in starts]


def max_context_window(text_windows: Sequence[TextWindow], token: int) -> int:
    """Return the index of the window with the most context on a token's shorter side (Devlin et al. 2019, SQuAD).

    The edges of the text do not limit the context.
    """
    n_tokens = text_windows[-1].end

    def context(window: TextWindow) -> int:
        left = token - window.start if window.start else n_tokens
        right = window.end - 1 - token if window.end < n_tokens else n_tokens
        return min(left, right) if window.start <= token < window.end else -1

    return max(range(len(text_windows)), key=lambda index: context(text_windows[index]))
