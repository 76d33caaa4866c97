"""Questions about texts, with answers that are spans of these texts: SQuAD's JSON, JSONL and Parquet.

    SQuAD     {"data": [{"paragraphs": [{"context": ..., "qas": [{"question": ..., "answers": [...]}]}]}]}
    a row     {"question": ..., "context": ..., "answers": {"text": [...], "answer_start": [...]}}

Answers may also be a list of objects with "text" and "answer_start", a list of texts, or one text; without
"answer_start" the first occurrence counts. No answers, or "is_impossible", mean that the context does not answer the
question (SQuAD 2.0). Reads, checks and counts; called by the question answering task and `regard answer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard import progress
from regard.errors import ConfigError, DataError
from regard.text.files import STDIN, check_readable, file_format, is_compressed
from regard.text.json_entries import read_json_entries
from regard.text.json_values import describe_json_type, json_value_to_text
from regard.text.table_columns import MAX_SHOWN_CHARACTERS, quote_names
from regard.text.tables import read_objects, split_path_and_columns

COLUMNS = ("question", "context", "answers")
EXPECTED_COLUMNS = "question, context and answers"


class AnswerSpan(NamedTuple):
    """A reference answer and the character of the context at which it starts."""

    text: str
    start: int


class QuestionExample(NamedTuple):
    """A question about a context; `answers` are the references, none if the context does not answer it."""

    question: str
    context: str
    answers: tuple[AnswerSpan, ...]
    question_id: str = ""


class _Record(NamedTuple):
    """A question as a file holds it, with its line and, in messages, its name."""

    values: dict[str, Any]
    line: int | None
    name: str = ""


class _RecordReader(NamedTuple):
    """The reader of the records of one file: its path, the names of the columns, and if answers are read."""

    path: str
    columns: tuple[str, ...]
    with_answers: bool

    def parse(self, record: _Record) -> QuestionExample:
        question, context = (self._text(record, key) for key in self.columns[:2])
        answers = self._answers(record, context) if question.strip() and context.strip() else ()
        question_id = record.values.get("id")
        return QuestionExample(question, context, answers, "" if question_id is None else str(question_id))

    def fault(self, record: _Record, problem: str) -> DataError:
        return DataError(self.path, f"{record.name}{problem}", record.line)

    def _text(self, record: _Record, key: str) -> str:
        if record.values and key not in record.values:
            raise self.fault(record, f"no key '{key}'; there are {quote_names(list(record.values))}")
        return json_value_to_text(self.path, record.line, key, record.values.get(key))

    def _answers(self, record: _Record, context: str) -> tuple[AnswerSpan, ...]:
        key = self.columns[2]
        if not self.with_answers or record.values.get("is_impossible") is True:
            return ()
        if key not in record.values:
            fix = "give the answers, [] where there is none, or name another column with --columns"
            raise self.fault(record, f"no key '{key}'; there are {quote_names(list(record.values))}; {fix}")
        answers = tuple(self._locate(record, context, *each) for each in self._references(record, key))
        if not answers and record.values.get("is_impossible") is False:
            raise self.fault(record, "no answers, although is_impossible is false; give one, or set it to true")
        return answers

    def _references(self, record: _Record, key: str) -> list[tuple[Any, Any]]:
        """Return texts and starts in whichever form the answers are given."""
        value = record.values[key]
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            starts = value.get("answer_start")
            starts = [None] * len(value["text"]) if starts is None else starts
            if not isinstance(starts, list) or len(starts) != len(value["text"]):
                raise self.fault(record, f"'{key}' has {len(value['text'])} texts, but not as many answer_start")
            return list(zip(value["text"], starts, strict=True))
        entries = [] if value is None else value if isinstance(value, list) else [value]
        return [
            (each.get("text"), each.get("answer_start")) if isinstance(each, dict) else (each, None) for each in entries
        ]

    def _locate(self, record: _Record, context: str, text: Any, start: Any) -> AnswerSpan:
        """Return the span of an answer, which must be in the context at the given position."""
        if not isinstance(text, str):
            raise self.fault(record, f"an answer is {describe_json_type(text)}; expected a text, or a list of texts")
        name = f"the answer '{text[:MAX_SHOWN_CHARACTERS]}'"
        if not text.strip():
            raise self.fault(record, "an answer is empty; leave it out, and give [] where there is none")
        if text not in context:
            raise self.fault(record, f"{name} is not in its context; an answer must be copied from it letter by letter")
        if start is None:
            return AnswerSpan(text, context.find(text))
        if type(start) is not int or start < 0 or not context.startswith(text, start):
            position = f"is not at character {start} of its context, but at {context.find(text)}"
            raise self.fault(
                record, f"{name} {position}; correct answer_start, or leave it out to take the first occurrence"
            )
        return AnswerSpan(text, start)


def read_questions(
    data: Sequence[str], columns: Sequence[str] = (), *, skip_empty: bool = False, with_answers: bool = True
) -> Iterator[QuestionExample]:
    """Yield the questions of all files in order.

    In JSONL and Parquet the columns may have other names, given in `columns` or after the path as in
    ``x.jsonl:ask,text,spans``. A question or context without text is an error or, with `skip_empty`, left out and
    counted. Without `with_answers` the references are neither needed nor read.
    """
    if not data:
        raise ConfigError("no data; name a file of questions, as in train.json")
    if len(columns) not in (0, len(COLUMNS)):
        raise ConfigError(f"columns: expected {EXPECTED_COLUMNS}, found {len(columns)}: {', '.join(columns)}")
    readers = []
    for item in data:
        path, own_columns = _split_item(item)
        check_readable(path)
        readers.append(_RecordReader(path, own_columns or tuple(columns) or COLUMNS, with_answers))
    return (example for reader in readers for example in _read_complete(reader, skip_empty))


def question_paths(data: Sequence[str]) -> list[Path]:
    """Return the files that `read_questions` would read."""
    return [Path(_split_item(item)[0]) for item in data]


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
    return split_path_and_columns(item, (len(COLUMNS),), EXPECTED_COLUMNS)


def _read_complete(reader: _RecordReader, skip_empty: bool) -> Iterator[QuestionExample]:
    """Yield the examples of a file that have a question and a context; a file without any is an error."""
    n_kept = n_empty = 0
    for record in _read_records(reader.path):
        example = reader.parse(record)
        if example.question.strip() and example.context.strip():
            n_kept += 1
            yield example
        elif skip_empty:
            n_empty += 1
        else:
            name = "context" if example.question.strip() else "question"
            raise reader.fault(record, f"empty {name}; drop the question or pass --skip-empty")
    if n_kept == 0:
        raise DataError(reader.path, "no questions; none has a question and a context")
    if n_empty:
        counts = f"left out {n_empty:,} of {n_kept + n_empty:,} questions"
        progress.warn(f"{reader.path}: {counts}: empty question or context")


def _read_records(path: str) -> Iterator[_Record]:
    name = Path(path).with_suffix("") if is_compressed(path) else Path(path)
    if path == STDIN or file_format(path) in ("jsonl", "parquet"):
        return (_Record(values, line) for line, values in read_objects(path))
    if name.suffix.lower() == ".json":
        return _read_squad(path)
    raise DataError(path, "not a file of questions; expected SQuAD's .json, or .jsonl or .parquet with a row for each")


def _read_squad(path: str) -> Iterator[_Record]:
    """Yield the records of a JSON file: those of SQuAD, or a list of rows."""
    expected = 'not SQuAD: expected {"data": [{"paragraphs": [...]}]}, or a list of questions'
    for number, entry in enumerate(read_json_entries(path, "data", expected), start=1):
        if not isinstance(entry, dict):
            raise DataError(path, f"entry {number} is {describe_json_type(entry)}; expected an object")
        if "paragraphs" in entry:
            yield from _flatten_article(path, number, entry)
        else:
            yield _Record(entry, None, f"entry {number}: ")


def _flatten_article(path: str, number: int, article: dict[str, Any]) -> Iterator[_Record]:
    """Yield the questions of an article, each with its context."""
    if not isinstance(article["paragraphs"], list):
        kind = describe_json_type(article["paragraphs"])
        raise DataError(path, f"article {number}: 'paragraphs' is {kind}; expected a list")
    for paragraph in article["paragraphs"]:
        if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
            raise DataError(path, f"article {number}: a paragraph without a list of questions, 'qas'")
        for question in paragraph["qas"]:
            if not isinstance(question, dict):
                raise DataError(path, f"article {number}: a question is {describe_json_type(question)}, not an object")
            context = {"context": paragraph["context"]} if "context" in paragraph else {}
            name = str(question.get("id", number))[:MAX_SHOWN_CHARACTERS]
            yield _Record({**question, **context}, None, f"question '{name}': ")
