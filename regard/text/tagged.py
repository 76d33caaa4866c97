"""Tagged text: sentences of words, each word with its label, from CoNLL columns, CoNLL-U or JSONL.

Reads, checks and counts; labels are handed on as the file has them: `to_iob2` brings the two ways of writing entities
to one, and the task decides whether that is wanted. Only blanks around a label are no part of it. A sentence with a
hole in it is an error, or left out as a whole and counted. Called by the tagging task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any, Literal, NamedTuple

from regard import progress
from regard.errors import ConfigError, DataError, did_you_mean
from regard.text.files import kind, lines, packed, require
from regard.text.tables import SHOWN, json_object, json_text, json_type, json_value, listed

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
ANNOTATED = ("upos", "xpos", "head", "deprel")
"""Columns of CoNLL-U in which ``_`` says that nobody filled them in; in the others it is a value: no features."""
WORD_ID = re.compile(r"[0-9]+")
NOT_A_WORD = re.compile(r"[0-9]+[-.][0-9]+")
"""A range, 1-2, for words written as one, or an empty node, 1.1, for a word not written at all."""
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
WORD_KEYS, LABEL_KEYS = ("words", "tokens"), ("labels", "tags", "ner_tags")
HEADER = {"text", "sentence", "sentence #", "id", "form", "word", "token", "label", "tag", "ner", "pos", "upos", "xpos"}
HEADER |= {*WORD_KEYS, *LABEL_KEYS}
"""What the columns of a table are called, which is no line of CoNLL where all of them are."""
OUTSIDE = "O"
FORMAT = "expected one word a line and its label behind a tab or a blank, with an empty line after each sentence"
PROSE = 4
"""Words in the column of words: where most lines of a sentence have so many, they are whole texts."""

Problem = Callable[[Sequence[str]], tuple[int, str] | None]
"""The place of the first label of a sentence that is wrong, and what to do about it; None where all are right."""


class Tagged(NamedTuple):
    """The words of a sentence and, one for each, their labels."""

    words: tuple[str, ...]
    labels: tuple[str, ...]


class _Sentence(NamedTuple):
    """Words and labels, any of which may be empty, with the lines they stand on; one line where there are no words."""

    lines: Sequence[int]
    words: Sequence[str]
    labels: Sequence[str]


class _Layout(NamedTuple):
    """How the first word of a file of columns is written; all others must be written likewise."""

    line: int
    tabs: bool
    n_columns: int
    place: int


def read_tagged(
    data: Sequence[str], column: str = "", *, skip_empty: bool = False, problem: Problem = lambda _: None
) -> Iterator[Tagged]:
    """The sentences of all files in order; the name of each says how it is written.

    ``.conllu``: words from the column form, labels from `column`, one of `CONLLU`, else upos. ``.jsonl``: lists under
    "words" (or "tokens") and under `column`, else "labels" (or "tags", "ner_tags"). All others are CoNLL: one word a
    line, columns parted by tabs if the first line has one and else by blanks, sentences by empty lines; the word is in
    the first column and its label in the last, or in that with the number `column`. A label that has a `problem` is an
    error which names its line.
    """
    if not data:
        raise ConfigError("no data; name a file of tagged words, as in train.conllu")
    for path in data:
        require(path)
    return _checked([(path, _sentences(path, column)) for path in data], skip_empty, problem)


def paths_of(data: Sequence[str]) -> list[Path]:
    """The files that `read_tagged` would read."""
    return [Path(item) for item in data]


def is_entity_scheme(labels: Iterable[str]) -> bool:
    """Whether labels mark entities as IOB1 and IOB2 do: each is O, or begins with B- or I-."""
    return all(label == OUTSIDE or label.startswith(("B-", "I-")) for label in labels)


def to_iob2(labels: Sequence[str]) -> list[str]:
    """The labels of one sentence with B- at the start of every entity, whichever way they were written.

    In IOB1 an entity begins with I-, and with B- only right after another of its type; in IOB2 always with B-. So an
    I- that continues nothing of its type becomes B-, and all else stays: IOB2 is left as it is, a sentence that mixes
    the two comes out whole, and labels of other schemes (S-, E-, NOUN) stay and continue nothing.
    """
    written = []
    for before, label in pairwise([OUTSIDE, *labels]):
        continues = before[:2] in ("B-", "I-") and before[2:] == label[2:]
        written.append(f"B-{label[2:]}" if label.startswith("I-") and not continues else label)
    return written


def _checked(parts: list[tuple[str, Iterator[_Sentence]]], skip_empty: bool, problem: Problem) -> Iterator[Tagged]:
    """The sentences without a hole; a file without any is an error."""
    for path, sentences in parts:
        n_kept = n_empty = 0
        for sentence in sentences:
            hole = _hole(sentence)
            if hole is None:
                n_kept += 1
                labels = tuple([label.strip() for label in sentence.labels])
                if wrong := problem(labels):
                    raise DataError(path, wrong[1], sentence.lines[wrong[0]])
                yield Tagged(tuple(sentence.words), labels)
            elif skip_empty:
                n_empty += 1
            else:
                line, missing = hole
                raise DataError(path, f"{missing}; drop the sentence or pass --skip-empty", line)
        if n_kept == 0:
            raise DataError(path, "no sentences; not one holds words and their labels")
        if n_empty:
            counts = f"left out {n_empty:,} of {n_kept + n_empty:,} sentences"
            progress.warn(f"{path}: {counts}: no words, or an empty word or label")


def _hole(sentence: _Sentence) -> tuple[int, str] | None:
    """The first thing missing from a sentence and its line."""
    if not sentence.words:
        return sentence.lines[0], "no words"
    for line, word, label in zip(*sentence, strict=True):
        if not (word.strip() and label.strip()):
            return line, "empty label" if word.strip() else "empty word"
    return None


def _sentences(path: str, column: str) -> Iterator[_Sentence]:
    match _form(path):
        case "conllu":
            return _conllu(path, column or "upos")
        case "jsonl":
            return _jsonl(path, (column,) if column else LABEL_KEYS)
    return _conll(path, _number(path, column) if column else None)


def _form(path: str) -> Literal["conllu", "jsonl", "conll"]:
    if kind(path) in ("csv", "parquet"):
        known = "expected .conllu, .jsonl, or columns parted by blanks or tabs under any other name"
        raise DataError(path, f"a {kind(path)} table, not a file of tagged words; {known}")
    if kind(path) == "jsonl":
        return "jsonl"
    name = Path(path).with_suffix("") if packed(path) else Path(path)
    return "conllu" if name.suffix.lower() == ".conllu" else "conll"


def _blocks(path: str) -> Iterator[list[tuple[int, str]]]:
    """Lines with their numbers, up to an empty one or the start of a document."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines(path), start=1):
        if line.strip() and not line.startswith(DOCUMENT):
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _number(path: str, column: str) -> int:
    if not (column.isascii() and column.isdecimal()):
        raise DataError(
            path, f"no column '{column}'; the columns of CoNLL have numbers, counted from 1: pass one with --column"
        )
    if int(column) == 0:
        raise DataError(path, "no column 0; columns are counted from 1")
    if int(column) == 1:
        raise DataError(path, "column 1 holds the words; name the one that holds their labels")
    return int(column)


def _conll(path: str, column: int | None) -> Iterator[_Sentence]:
    layout: _Layout | None = None
    for block in _blocks(path):
        layout = layout or _layout(path, *block[0], column)
        fields = [_fields(path, number, line, layout) for number, line in block]
        words, labels = [field[0] for field in fields], [field[layout.place] for field in fields]
        sizes = [len(word.split()) for word in words]
        if len(words) > 1 and median_low(sizes) >= PROSE:
            first = next(place for place, size in enumerate(sizes) if size >= PROSE)
            found = f"'{words[first][:SHOWN]}' where a single word was expected"
            raise DataError(path, f"{found}; {FORMAT}; whole texts are labelled with classify", block[first][0])
        yield _Sentence([number for number, _ in block], words, labels)


def _layout(path: str, number: int, line: str, column: int | None) -> _Layout:
    tabs = "\t" in line
    fields = _split(line, tabs)
    n_columns = len(fields)
    if n_columns < 2:
        raise DataError(path, f"1 column; {FORMAT}", number)
    if all(field.strip().lower() in HEADER for field in fields):
        fix = "CoNLL has none, and one word a line: drop the line, or learn labels of whole texts with classify"
        raise DataError(path, f"a header, {listed(fields)}, where a word and its label were expected; {fix}", number)
    if column is not None and column > n_columns:
        raise DataError(path, f"no column {column}; there are {n_columns}", number)
    return _Layout(number, tabs, n_columns, (column or n_columns) - 1)


def _fields(path: str, number: int, line: str, layout: _Layout) -> list[str]:
    fields = _split(line, layout.tabs)
    if len(fields) != layout.n_columns:
        there = f"line {layout.line} has {layout.n_columns}, parted by {'tabs' if layout.tabs else 'blanks'}"
        raise DataError(path, f"{_n_columns(fields)}, but {there}; {FORMAT}", number)
    return fields


def _split(line: str, tabs: bool) -> list[str]:
    """The columns of a line; a no-break space and its like are parts of a word."""
    return line.split("\t") if tabs else BLANKS.split(line.strip(" \t"))


def _n_columns(fields: Sequence[str]) -> str:
    return f"{len(fields)} column{'s' * (len(fields) > 1)}"


def _conllu(path: str, column: str) -> Iterator[_Sentence]:
    if column not in CONLLU:
        raise DataError(path, f"no column '{column}' in CoNLL-U; {did_you_mean(column, CONLLU)}")
    return _conllu_sentences(path, CONLLU.index(column), column in ANNOTATED)


def _conllu_sentences(path: str, place: int, annotated: bool) -> Iterator[_Sentence]:
    for block in _blocks(path):
        numbered = [(number, _conllu_fields(path, number, line)) for number, line in block if not line.startswith("#")]
        words = [(number, fields) for number, fields in numbered if WORD_ID.fullmatch(fields[0])]
        labels = ["" if annotated and fields[place] == "_" else fields[place] for _, fields in words]
        if words:
            yield _Sentence([number for number, _ in words], [fields[1] for _, fields in words], labels)


def _conllu_fields(path: str, number: int, line: str) -> list[str]:
    fields = line.split("\t")
    if len(fields) != len(CONLLU):
        fix = "expected the ten of CoNLL-U, parted by tabs; a file of other columns is read under another name"
        raise DataError(path, f"{_n_columns(fields)}; {fix}", number)
    if not (WORD_ID.fullmatch(fields[0]) or NOT_A_WORD.fullmatch(fields[0])):
        raise DataError(path, f"id '{fields[0]}'; expected a number, a range as in 1-2 or an empty node as 1.1", number)
    return fields


def _jsonl(path: str, label_keys: Sequence[str]) -> Iterator[_Sentence]:
    for number, line in enumerate(lines(path), start=1):
        if not line:
            yield _Sentence([number], [], [])
            continue
        entry = json_object(path, number, line)
        words = _texts(path, number, entry, WORD_KEYS)
        labels = _texts(path, number, entry, label_keys, may_be_numbers=True)
        if len(words) != len(labels):
            counts = f"{len(words)} words, but {len(labels)} labels"
            raise DataError(path, f"{counts}; every word has one label", number)
        yield _Sentence([number] * max(1, len(words)), words, labels)


def _texts(
    path: str, number: int, entry: dict[str, Any], keys: Sequence[str], may_be_numbers: bool = False
) -> list[str]:
    """The list under the first of the keys that is there."""
    key = next((key for key in keys if key in entry), keys[0])
    values = json_value(path, number, entry, key)
    if not isinstance(values, list):
        raise DataError(path, f"'{key}' is {json_type(values)}; expected a list of texts", number)
    texts = [json_text(path, number, f"{key}[{place}]", value, may_be_numbers) for place, value in enumerate(values)]
    broken = next((place for place, text in enumerate(texts) if "\n" in text), None)
    if broken is not None:
        raise DataError(path, f"'{key}[{broken}]' holds a line end; split it there, or write a blank instead", number)
    return texts
