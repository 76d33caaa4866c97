"""Scores of words, and of their labels, that were found in running text, as in the CoNLL 2018 shared task.

Words are aligned by their characters, white space left out. One that is written alone is right if it has the same
characters as one of the reference; where either side has a token of several words, the words of all tokens that share
characters with it are aligned by a longest common subsequence of their forms, whatever their case (Zeman et al. 2018,
section 5; conll18_ud_eval.py). Called by predict/raw_text_scores.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.text.words import TextWord


@dataclass
class SegmentationCounts:
    """Words of the reference and those found, with how many of them are aligned, and have the same label as well."""

    n_reference: int = 0
    n_found: int = 0
    n_aligned: int = 0
    n_same_label: int = 0

    def add(
        self,
        words: Sequence[TextWord],
        labels: Sequence[str],
        found_words: Sequence[TextWord],
        found_labels: Sequence[str],
    ) -> None:
        """Add the words of one text: those of the reference, and those found."""
        self.n_reference += len(words)
        self.n_found += len(found_words)
        for i, j in align_words(words, found_words):
            self.n_aligned += 1
            self.n_same_label += labels[i] == found_labels[j]

    def precision(self, n_right: int) -> float:
        """Return the fraction of the words found that are right."""
        return n_right / self.n_found if self.n_found else 0.0

    def recall(self, n_right: int) -> float:
        """Return the fraction of the words of the reference that were found."""
        return n_right / self.n_reference if self.n_reference else 0.0

    def f1(self, n_right: int) -> float:
        """Return the harmonic mean of precision and recall."""
        total = self.n_found + self.n_reference
        return 2 * n_right / total if total else 0.0


def align_words(reference: Sequence[TextWord], predicted: Sequence[TextWord]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the words that two segmentations of one text have in common."""
    i = j = 0
    while i < len(reference) and j < len(predicted):
        span, other_span = reference[i].token, predicted[j].token
        is_part, other_is_part = _is_part(reference, i), _is_part(predicted, j)
        if is_part or other_is_part:
            i += not is_part and span.start < other_span.start
            j += not other_is_part and other_span.start < span.start
            i_end, j_end = _overlap_end(reference, i, predicted, j, span.end if is_part else other_span.end)
            forms, other_forms = reference[i:i_end], predicted[j:j_end]
            yield from ((i + k, j + m) for k, m in _common_subsequence(forms, other_forms))
            i, j = i_end, j_end
        elif span == other_span:
            yield i, j
            i, j = i + 1, j + 1
        elif span.start <= other_span.start:
            i += 1
        else:
            j += 1


def _is_part(words: Sequence[TextWord], index: int) -> bool:
    """Return True for one of several words of a token."""
    token = words[index].token
    return any(0 <= other < len(words) and words[other].token == token for other in (index - 1, index + 1))


def _overlap_end(
    reference: Sequence[TextWord], i: int, predicted: Sequence[TextWord], j: int, end: int
) -> tuple[int, int]:
    """Return the ends of the words from `i` and `j` on that are in overlapping tokens, the first of which ends here."""
    while not (_is_behind(reference, i, end) and _is_behind(predicted, j, end)):
        is_next = i < len(reference) and (j >= len(predicted) or reference[i].token.start <= predicted[j].token.start)
        words, index = (reference, i) if is_next else (predicted, j)
        if _is_part(words, index):
            end = max(end, words[index].token.end)
        i, j = i + is_next, j + (not is_next)
    return i, j


def _is_behind(words: Sequence[TextWord], index: int, end: int) -> bool:
    """Return True if a word does not belong to the tokens that end here."""
    if index >= len(words):
        return True
    token = words[index].token
    return token.start >= end if _is_part(words, index) else token.end > end


def _common_subsequence(words: Sequence[TextWord], others: Sequence[TextWord]) -> list[tuple[int, int]]:
    """Return the indices of a longest common subsequence of forms, whatever their case."""
    forms, other_forms = [word.form.lower() for word in words], [word.form.lower() for word in others]
    lengths = [[0] * (len(others) + 1) for _ in range(len(words) + 1)]
    for i in reversed(range(len(words))):
        for j in reversed(range(len(others))):
            same = lengths[i + 1][j + 1] + 1 if forms[i] == other_forms[j] else 0
            lengths[i][j] = max(same, lengths[i + 1][j], lengths[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < len(words) and j < len(others):
        if forms[i] == other_forms[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i][j] == lengths[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
