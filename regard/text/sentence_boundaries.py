"""Sentence boundaries by tokens: a simple rule for the two levels of hierarchical pooling, not a sentence splitter.

A sentence ends with a token that holds nothing but the marks below; several of them in a row are one end. The dot of an
abbreviation or a number therefore ends a sentence too. tasks/classify.py passes the rule to models/heads.py.
"""

from __future__ import annotations

from regard.text.tokenizer import Tokenizer

SENTENCE_END_MARKS = frozenset(".!?…。！？।")
SUBWORD_MARKS = "▁#@ "
"""Characters by which tokenizers mark the position of a token in its word."""


def find_closing_tokens(tokenizer: Tokenizer) -> list[bool]:
    """Return for each token of the vocabulary True if it closes a sentence: end marks, and what separates two texts."""
    separator = tokenizer.special_id("sep")
    surfaces = [token.strip(SUBWORD_MARKS) for token in tokenizer.display_tokens(range(len(tokenizer)))]
    closing = [bool(surface) and SENTENCE_END_MARKS.issuperset(surface) for surface in surfaces]
    closing[separator] = True
    return closing
