"""Tagged text: sentences of words, each word with its label, from CoNLL columns, CoNLL-U or JSONL.

Reads, checks and counts; labels are returned as in the file, stripped of white space: `to_iob2` converts IOB1 to IOB2,
if the task asks for it. A sentence with an empty word or label is an error, or left out as a whole and counted. Called
by the tagging task.
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
from regard.text.files import check_readable, file_format, is_compressed, read_lines
from regard.text.json_values import describe_json_type, get_json_value, json_value_to_text, parse_json_object
from regard.text.limits import max_line_bytes, too_large_error
from regard.text.running_text import RunningText, SurfaceToken, align_tokens, join_tokens
from regard.text.table_columns import MAX_SHOWN_CHARACTERS, quote_names

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
ANNOTATION_COLUMNS = ("upos", "xpos", "head", "deprel")
"""Columns of CoNLL-U in which ``_`` means not annotated; in the others it is a value: no features."""
WORD_ID = re.compile(r"[0-9]+")
RANGE_OR_EMPTY_NODE_ID = re.compile(r"[0-9]+[-.][0-9]+")
"""A range, 1-2, for words written as one, or an empty node, 1.1, for a word not written at all."""
RANGE_ID = re.compile(r"([0-9]+)-([0-9]+)")
TEXT_COMMENT = re.compile(r"#\s*text\s*=\s?(.*)")
NO_SPACE_AFTER = "SpaceAfter=No"
DEFAULT_COLUMN = "upos"
DOCSTART = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
WORD_KEYS, LABEL_KEYS = ("words", "tokens"), ("labels", "tags", "ner_tags")
HEADER_NAMES = {
    "text",
    "sentence",
    "sentence #",
    "id",
    "form",
    "word",
    "token",
    "label",
    "tag",
    "ner",
    "pos",
    "upos",
    "xpos",
}
HEADER_NAMES |= {*WORD_KEYS, *LABEL_KEYS}
"""Usual column names of tables: a first line of these only is a header, not CoNLL."""
OUTSIDE_LABEL = "O"
EXPECTED_FORMAT = (
    "expected one word a line and its label after a tab or a space, with an empty line after each sentence"
)
MIN_PROSE_WORDS = 4
"""A number of words: if most lines of a sentence have that many in the first column, they are whole texts."""

MAX_SENTENCE_WORDS = 1 << 18
"""Maximum number of words of a sentence: if there are more, the file lacks empty lines."""
SENTENCE_END = "put an empty line after each sentence"

LabelSequenceValidator = Callable[[Sequence[str]], tuple[int, str] | None]
"""Returns the index of the first invalid label of a sentence and its fix, or None if all are valid."""


class TaggedSentence(NamedTuple):
    """The words of a sentence and, one for each, their labels; and its running text, if that is read and known."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    text: RunningText | None = None


class _NumberedSentence(NamedTuple):
    """Words and labels, any of which may be empty, with their lines; one line if there are no words.

    `text` is the running text, False if it is not that of the words.
    """

    line_numbers: Sequence[int]
    words: Sequence[str]
    labels: Sequence[str]
    text: RunningText | Literal[False] | None = None


class _ColumnLayout(NamedTuple):
    """The columns of the first word of a file; all others must have the same."""

    line: int
    tab_separated: bool
    n_columns: int
    label_index: int


def read_tagged_sentences(
    data: Sequence[str],
    column: str = "",
    *,
    skip_empty: bool = False,
    validate_labels: LabelSequenceValidator = lambda _: None,
    with_text: bool = False,
) -> Iterator[TaggedSentence]:
    """Yield the sentences of all files in order; the format follows from the file's name.

    ``.conllu``: words from the column form, labels from `column`, one of `CONLLU_COLUMNS`, else upos. ``.jsonl``: lists
    under "words" (or "tokens") and under `column`, else "labels" (or "tags", "ner_tags"). All others are CoNLL: a word
    per line, columns separated by tabs if the first line has one and else by spaces, sentences by empty lines; the word
    is in the first column and its label in the last, or in the one with the number `column`. A label for which
    `validate_labels` returns a problem is an error that names its line. `with_text` reads running text too, which only
    CoNLL-U has: sentences whose text is not that of their words are returned without it, and counted.
    """
    if not data:
        raise ConfigError("no data; name a file of tagged words, as in train.conllu")
    for path in data:
        check_readable(path)
    return _read_complete_sentences(
        [(path, _read_sentences(path, column, with_text)) for path in data], skip_empty, validate_labels
    )


def tagged_paths(data: Sequence[str]) -> list[Path]:
    """Return the files that `read_tagged_sentences` would read."""
    return [Path(item) for item in data]


def is_entity_scheme(labels: Iterable[str]) -> bool:
    """Return True if labels mark entities as in IOB1 and IOB2: each is O, or begins with B- or I-."""
    return all(label == OUTSIDE_LABEL or label.startswith(("B-", "I-")) for label in labels)


def to_iob2(labels: Sequence[str]) -> list[str]:
    """Return the labels of one sentence with B- at the start of every entity.

    In IOB1 an entity begins with I-, and with B- only right after another of its type; in IOB2 always with B-. So an
    I- that continues no entity of its type becomes B-, and all else is unchanged: IOB2, and labels of other schemes
    (S-, E-, NOUN), which continue no entity.
    """
    converted = []
    for before, label in pairwise([OUTSIDE_LABEL, *labels]):
        continues = before[:2] in ("B-", "I-") and before[2:] == label[2:]
        converted.append(f"B-{label[2:]}" if label.startswith("I-") and not continues else label)
    return converted


def _read_complete_sentences(
    files: list[tuple[str, Iterator[_NumberedSentence]]], skip_empty: bool, validate_labels: LabelSequenceValidator
) -> Iterator[TaggedSentence]:
    """Yield the complete sentences; a file without any is an error."""
    for path, sentences in files:
        n_kept = n_empty = n_other_texts = 0
        for sentence in sentences:
            missing = _find_missing(sentence)
            if missing is None:
                n_kept += 1
                labels = tuple([label.strip() for label in sentence.labels])
                if problem := validate_labels(labels):
                    raise DataError(path, problem[1], sentence.line_numbers[problem[0]])
                n_other_texts += sentence.text is False
                yield TaggedSentence(tuple(sentence.words), labels, sentence.text or None)
            elif skip_empty:
                n_empty += 1
            else:
                line, description = missing
                raise DataError(path, f"{description}; drop the sentence or pass --skip-empty", line)
        if n_kept == 0:
            raise DataError(path, "no sentences; none has words and their labels")
        if n_empty:
            counts = f"left out {n_empty:,} of {n_kept + n_empty:,} sentences"
            progress.warn(f"{path}: {counts}: no words, or an empty word or label")
        if n_other_texts:
            counts = f"{n_other_texts:,} of {n_kept:,} sentences have a text that is not that of their words"
            progress.warn(f"{path}: {counts}; these are used neither to learn word segmentation nor to score it")


def _find_missing(sentence: _NumberedSentence) -> tuple[int, str] | None:
    """Return the line and the description of the first missing word or label, if any."""
    if not sentence.words:
        return sentence.line_numbers[0], "no words"
    for line, word, label in zip(sentence.line_numbers, sentence.words, sentence.labels, strict=True):
        if not (word.strip() and label.strip()):
            return line, "empty label" if word.strip() else "empty word"
    return None


def _read_sentences(path: str, column: str, with_text: bool) -> Iterator[_NumberedSentence]:
    match _detect_format(path):
        case "conllu":
            return _read_conllu(path, column or DEFAULT_COLUMN, with_text)
        case "jsonl":
            return _read_jsonl_sentences(path, (column,) if column else LABEL_KEYS)
    return _read_conll(path, _parse_label_column(path, column) if column else None)


def is_conllu(path: str) -> bool:
    """Return True if a file is CoNLL-U by its name."""
    return _detect_format(path) == "conllu"


def _detect_format(path: str) -> Literal["conllu", "jsonl", "conll"]:
    if file_format(path) in ("csv", "parquet"):
        known = "expected .conllu, .jsonl, or columns separated by spaces or tabs under any other name"
        raise DataError(path, f"a {file_format(path)} table, not a file of tagged words; {known}")
    if file_format(path) == "jsonl":
        return "jsonl"
    name = Path(path).with_suffix("") if is_compressed(path) else Path(path)
    return "conllu" if name.suffix.lower() == ".conllu" else "conll"


def _read_sentence_blocks(path: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of each sentence, which ends at an empty line or the start of a document."""
    block: list[tuple[int, str]] = []
    limit, n_characters = max_line_bytes(), 0
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip() and not line.startswith(DOCSTART):
            block.append((number, line))
            n_characters += len(line)
            if n_characters > limit:
                raise too_large_error(path, "a sentence", SENTENCE_END, line=block[0][0])
            if len(block) > MAX_SENTENCE_WORDS:
                problem = f"a sentence of more than {MAX_SENTENCE_WORDS:,} words"
                raise DataError(path, f"{problem}; {SENTENCE_END}", block[0][0])
        elif block:
            yield block
            block, n_characters = [], 0
    if block:
        yield block


def _parse_label_column(path: str, column: str) -> int:
    if not (column.isascii() and column.isdecimal()):
        raise DataError(
            path, f"no column '{column}'; the columns of CoNLL have numbers, counted from 1: pass one with --column"
        )
    if int(column) == 0:
        raise DataError(path, "no column 0; columns are counted from 1")
    if int(column) == 1:
        raise DataError(path, "column 1 holds the words; name the one that holds their labels")
    return int(column)


def _read_conll(path: str, column: int | None) -> Iterator[_NumberedSentence]:
    layout: _ColumnLayout | None = None
    for block in _read_sentence_blocks(path):
        layout = layout or _detect_layout(path, *block[0], column)
        fields = [_split_fields(path, number, line, layout) for number, line in block]
        words, labels = [field[0] for field in fields], [field[layout.label_index] for field in fields]
        sizes = [len(word.split()) for word in words]
        if len(words) > 1 and median_low(sizes) >= MIN_PROSE_WORDS:
            first = next(i for i, size in enumerate(sizes) if size >= MIN_PROSE_WORDS)
            problem = f"'{words[first][:MAX_SHOWN_CHARACTERS]}' where a single word was expected"
            raise DataError(
                path, f"{problem}; {EXPECTED_FORMAT}; whole texts are labelled with classify", block[first][0]
            )
        yield _NumberedSentence([number for number, _ in block], words, labels)


def _detect_layout(path: str, line_number: int, line: str, column: int | None) -> _ColumnLayout:
    tabs = "\t" in line
    fields = _split_line(line, tabs)
    n_columns = len(fields)
    if n_columns < 2:
        raise DataError(path, f"1 column; {EXPECTED_FORMAT}", line_number)
    if all(field.strip().lower() in HEADER_NAMES for field in fields):
        fix = "CoNLL has none, and one word a line: drop the line, or learn labels of whole texts with classify"
        raise DataError(
            path, f"a header, {quote_names(fields)}, where a word and its label were expected; {fix}", line_number
        )
    if column is not None and column > n_columns:
        raise DataError(path, f"no column {column}; there are {n_columns}", line_number)
    return _ColumnLayout(line_number, tabs, n_columns, (column or n_columns) - 1)


def _split_fields(path: str, line_number: int, line: str, layout: _ColumnLayout) -> list[str]:
    fields = _split_line(line, layout.tab_separated)
    if len(fields) != layout.n_columns:
        separator = "tabs" if layout.tab_separated else "spaces"
        expected = f"line {layout.line} has {layout.n_columns}, separated by {separator}"
        raise DataError(path, f"{_describe_column_count(fields)}, but {expected}; {EXPECTED_FORMAT}", line_number)
    return fields


def _split_line(line: str, tab_separated: bool) -> list[str]:
    """Return the columns of a line; no-break spaces and the like belong to words."""
    return line.split("\t") if tab_separated else BLANKS.split(line.strip(" \t"))


def _describe_column_count(fields: Sequence[str]) -> str:
    return f"{len(fields)} column{'s' * (len(fields) > 1)}"


def _read_conllu(path: str, column: str, with_text: bool) -> Iterator[_NumberedSentence]:
    if column not in CONLLU_COLUMNS:
        raise DataError(path, f"no column '{column}' in CoNLL-U; {did_you_mean(column, CONLLU_COLUMNS)}")
    return _read_conllu_sentences(path, CONLLU_COLUMNS.index(column), column in ANNOTATION_COLUMNS, with_text)


def _read_conllu_sentences(
    path: str, label_index: int, underscore_is_missing: bool, with_text: bool
) -> Iterator[_NumberedSentence]:
    for block in _read_sentence_blocks(path):
        numbered = [
            (number, _split_conllu_fields(path, number, line)) for number, line in block if not line.startswith("#")
        ]
        words = [(number, fields) for number, fields in numbered if WORD_ID.fullmatch(fields[0])]
        labels = [
            "" if underscore_is_missing and fields[label_index] == "_" else fields[label_index] for _, fields in words
        ]
        if words:
            text = _read_running_text(block, [fields for _, fields in numbered]) if with_text else None
            yield _NumberedSentence([number for number, _ in words], [fields[1] for _, fields in words], labels, text)


def _read_running_text(
    block: Sequence[tuple[int, str]], rows: Sequence[Sequence[str]]
) -> RunningText | Literal[False] | None:
    """Return the text of the comment ``# text =``, or that of the marks of missing spaces; None without either."""
    comments = (TEXT_COMMENT.fullmatch(line) for _, line in block if line.startswith("#"))
    text = next((match[1] for match in comments if match), None)
    if text is None and not any(NO_SPACE_AFTER in fields[-1].split("|") for fields in rows):
        return None
    tokens = list(_surface_tokens(rows))
    words = [fields[1] for fields in rows if WORD_ID.fullmatch(fields[0])]
    if not all(token.forms for token in tokens) or [form for token in tokens for form in token.forms] != words:
        return False
    return align_tokens(join_tokens(tokens) if text is None else text, tokens) or False


def _surface_tokens(rows: Sequence[Sequence[str]]) -> Iterator[SurfaceToken]:
    """Yield the tokens as they are written; empty nodes are not, and words of a range are written as one."""
    forms = {_parse_id(fields[0]): fields[1] for fields in rows if WORD_ID.fullmatch(fields[0])}
    last = 0
    for number, form, *_, misc in rows:
        space_after = NO_SPACE_AFTER not in misc.split("|")
        if match := RANGE_ID.fullmatch(number):
            first, last = _parse_id(match[1]), _parse_id(match[2])
            yield SurfaceToken(form, tuple(forms[each] for each in forms if first <= each <= last), space_after)
        elif WORD_ID.fullmatch(number) and _parse_id(number) > last:
            yield SurfaceToken(form, (form,), space_after)


def _parse_id(digits: str) -> int:
    """Return the number of a word; of one with more digits than any sentence has words, the first digits."""
    return int(digits[: len(str(MAX_SENTENCE_WORDS)) + 1])


def _split_conllu_fields(path: str, line_number: int, line: str) -> list[str]:
    fields = line.split("\t")
    if len(fields) != len(CONLLU_COLUMNS):
        fix = "expected the ten of CoNLL-U, separated by tabs; a file of other columns is read under another name"
        raise DataError(path, f"{_describe_column_count(fields)}; {fix}", line_number)
    if not (WORD_ID.fullmatch(fields[0]) or RANGE_OR_EMPTY_NODE_ID.fullmatch(fields[0])):
        raise DataError(
            path,
            f"id '{fields[0][:MAX_SHOWN_CHARACTERS]}'; expected a number, a range as in 1-2 or an empty node as 1.1",
            line_number,
        )
    return fields


def _read_jsonl_sentences(path: str, label_keys: Sequence[str]) -> Iterator[_NumberedSentence]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line:
            yield _NumberedSentence([number], [], [])
            continue
        entry = parse_json_object(path, number, line)
        words = _read_text_list(path, number, entry, WORD_KEYS)
        labels = _read_text_list(path, number, entry, label_keys, may_be_numbers=True)
        if len(words) != len(labels):
            counts = f"{len(words)} words, but {len(labels)} labels"
            raise DataError(path, f"{counts}; every word has one label", number)
        yield _NumberedSentence([number] * max(1, len(words)), words, labels)


def _read_text_list(
    path: str, line_number: int, entry: dict[str, Any], keys: Sequence[str], may_be_numbers: bool = False
) -> list[str]:
    """Return the list under the first existing key."""
    key = next((key for key in keys if key in entry), keys[0])
    values = get_json_value(path, line_number, entry, key)
    if not isinstance(values, list):
        raise DataError(path, f"'{key}' is {describe_json_type(values)}; expected a list of texts", line_number)
    texts = [
        json_value_to_text(path, line_number, f"{key}[{i}]", value, may_be_numbers) for i, value in enumerate(values)
    ]
    broken = next((i for i, text in enumerate(texts) if "\n" in text), None)
    if broken is not None:
        raise DataError(
            path, f"'{key}[{broken}]' holds a line end; split it there, or write a space instead", line_number
        )
    return texts
