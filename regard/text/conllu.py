"""Sentences as CoNLL-U: the words that were found in a text, and their labels.

Columns without a value are ``_``. tagged.py reads the format; the API writes it here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from regard.text.tagged import CONLLU_COLUMNS, NO_SPACE_AFTER
from regard.text.words import TextWord

LABEL_COLUMNS = ("lemma", "upos", "xpos", "feats", "head", "deprel", "deps")
"""Columns that may hold the labels of a tagger."""

UNIVERSAL_PARTS_OF_SPEECH = frozenset({"ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART"})
UNIVERSAL_PARTS_OF_SPEECH |= {"PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"}


def format_conllu(text: str, words: Sequence[TextWord], labels: Sequence[str], column: str) -> str:
    """Return a sentence, with an empty line at its end; nothing for a text without words.

    Labels are in `column`, or, if that is not one of `LABEL_COLUMNS`, under misc after its name. The white space of the
    text becomes single blanks.
    """
    if not words:
        return ""
    rows = _token_rows(text, list(zip(words, labels, strict=True)), column)
    return "\n".join([f"# text = {' '.join(text.split())}", *("\t".join(row) for row in rows), "", ""])


def _token_rows(text: str, labelled: Sequence[tuple[TextWord, str]], column: str) -> Iterator[list[str]]:
    """Yield the rows of words, those of a token of several words after a row for the token."""
    number = 1
    for token, group in groupby(labelled, lambda each: each[0].token):
        members = list(group)
        is_last = not text[token.end :].strip()
        misc = [] if is_last or text[token.end].isspace() else [NO_SPACE_AFTER]
        if len(members) > 1:
            last = number + len(members) - 1
            yield _row(f"{number}-{last}", text[token.start : token.end], "", "", misc)
            misc = []
        for word, label in members:
            yield _row(str(number), word.form, label, column, misc)
            number += 1


def _row(number: str, form: str, label: str, column: str, misc: Sequence[str]) -> list[str]:
    row = dict.fromkeys(CONLLU_COLUMNS, "_") | {"id": number, "form": " ".join(form.split())}
    if column in LABEL_COLUMNS:
        row[column] = label
    elif label:
        misc = [f"{column}={label}", *misc]
    return list((row | {"misc": "|".join(misc) or "_"}).values())
