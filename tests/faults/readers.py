"""Fuzz of every reader: files of each format, damaged, hostile or of the wrong types, plain and compressed.

Each case is a small file that can be read, changed in one to three places before or after it is compressed. Reading all
of it must succeed, or raise one line that names the file. The long form is

    python tests/faults/campaign.py readers --cases 1000
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from fault_counts import FaultCounts
from isolation import REFUSED, run_isolated

from regard.data.word_vectors import read_word_vectors
from regard.errors import RegardError
from regard.text.documents import read_document_chunks, read_documents
from regard.text.files import read_lines
from regard.text.labelled import read_labelled_examples
from regard.text.limits import DEFAULT_MAX_LINE_BYTES
from regard.text.pairs import read_pairs
from regard.text.squad import read_questions
from regard.text.tagged import read_tagged_sentences

MAX_MESSAGE_CHARACTERS = 2000
"""Characters of an error at most: what a file holds may not flood the terminal."""

LONG_LINE_BYTES = DEFAULT_MAX_LINE_BYTES + 1

CONTEXT = "Anna lives in Rome. Ben lives in Oslo."
QUESTION = {"id": "1", "question": "Where?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [33]}}
QUESTIONS = [{"id": 1, "question": "Where?", "answers": [{"text": "Oslo"}]}]
SQUAD = {"version": 1, "data": [{"paragraphs": [{"context": CONTEXT, "qas": QUESTIONS}]}] * 2}
ROW = {"source": "a cat", "target": "un chat", "text": "a cat", "label": 1, "words": ["a", "cat"], "labels": ["D", "N"]}
CONLLU_LINE = "\t".join(("1", "cat", "cat", "NOUN", "NN", "_", "0", "root", "_", "_"))
LINES = "a cat sat\non a mat\n\nthe ñandú 😀 ran\n"

JSON_VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 10**30, "", " ", "Oslo", "\ud800", [], [None], [[]], {}, {"text": 1}),
]
FRAGMENTS = [
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\t", b",", b'"'),
    *(b"'", b" ", b"\\ud800", b"NaN", b"Infinity", b"-", b"1e999", "\u2028\x85".encode(), b"\x1b[31m", b"-DOCSTART-"),
    *(b"9" * 5000, b"a" * 100_000, b"[" * 50_000, b'{"a":' * 20_000, b"\n" * 10_000, b"a\t" * 20_000, b'"a\n",' * 5000),
]
ARROW_COLUMNS: list[Any] = [
    pa.array(["a", None, ""]),
    pa.array([1, None, 3]),
    pa.array([1.5, float("nan"), None]),
    pa.array([True, False, None]),
    pa.array([b"\xff", b"", None]),
    pa.array([["a"], [], None]),
    pa.array([{"text": ["Oslo"]}, {"text": None}, None]),
    pa.array(["a", "a", "b"]).dictionary_encode(),
    pa.array(["a", None, "b"], pa.large_string()),
    pa.array([0, 1, 2], pa.timestamp("s")),
    pa.array([1, 2, 3], pa.decimal128(5)),
    pa.nulls(3),
]


class FileKind(NamedTuple):
    """The name of a file, its content, and its reader."""

    name: str
    content: bytes
    read: Callable[[str], Iterable[object]]


def to_jsonl(value: dict[str, Any]) -> bytes:
    return (json.dumps(value) + "\n").encode() * 3


def to_parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=2)
    return sink.getvalue()


def to_word2vec(n_words: int = 3, width: int = 2) -> bytes:
    rows = b"".join(f"w{i} ".encode() + struct.pack(f"<{width}f", *[i] * width) for i in range(n_words))
    return f"{n_words} {width}\n".encode() + rows


PAIR_COLUMNS = {"source": ["a", "b", "c"], "target": ["d", "e", "f"]}
LABELLED_COLUMNS = {"text": ["a", "b", "c"], "label": [0, 1, 0]}
QUESTION_COLUMNS = {key: [value] * 3 for key, value in QUESTION.items()}

FILE_KINDS = [
    FileKind("x.txt", LINES.encode(), read_lines),
    FileKind("documents.txt", LINES.encode(), lambda path: read_documents([path])),
    FileKind("chunks.txt", LINES.encode(), lambda path: read_document_chunks([path], ensure_min_chunks=True)),
    FileKind("pairs.tsv", b"a\tb\nc\td\n" * 3, lambda path: read_pairs([path])),
    FileKind("pairs.csv", b'a,"b ""c"" d"\n"e\nf",g\n' * 3, lambda path: read_pairs([path], skip_empty=True)),
    FileKind("pairs.jsonl", to_jsonl(ROW), lambda path: read_pairs([path])),
    FileKind("pairs.parquet", to_parquet(PAIR_COLUMNS), lambda path: read_pairs([path])),
    FileKind("labels.tsv", b"text\tlabel\na\t0\nb\t1\n", lambda path: read_labelled_examples([path])),
    FileKind("labels.csv", b"text,pair,label\na,b,0\n", lambda path: read_labelled_examples([path])),
    FileKind("labels.jsonl", to_jsonl(ROW), lambda path: read_labelled_examples([path], skip_empty=True)),
    FileKind("labels.parquet", to_parquet(LABELLED_COLUMNS), lambda path: read_labelled_examples([path])),
    FileKind("x.conll", b"-DOCSTART- O\n\na D\ncat N\n\nsat V\n", lambda path: read_tagged_sentences([path])),
    FileKind("x.conllu", f"# x\n{CONLLU_LINE}\n\n".encode() * 3, lambda path: read_tagged_sentences([path])),
    FileKind("tags.jsonl", to_jsonl(ROW), lambda path: read_tagged_sentences([path], skip_empty=True)),
    FileKind("squad.json", json.dumps(SQUAD).encode(), lambda path: read_questions([path])),
    FileKind("rows.json", json.dumps([QUESTION] * 2, indent=1).encode(), lambda path: read_questions([path])),
    FileKind("questions.jsonl", to_jsonl(QUESTION), lambda path: read_questions([path], skip_empty=True)),
    FileKind("questions.parquet", to_parquet(QUESTION_COLUMNS), lambda path: read_questions([path])),
    FileKind("vectors.txt", b"2 3\na 1 2 3\nb 4 5 6\n", lambda path: [read_word_vectors(path)]),
    FileKind("glove.txt", b"a 1 2 3\nb 4 5 6\n", lambda path: [read_word_vectors(path)]),
    FileKind("vectors.bin", to_word2vec(), lambda path: [read_word_vectors(path)]),
]
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}


class Fuzzer:
    """Draws files and damages them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.changes = [self._truncate, self._flip_bits, self._insert, self._delete, self._repeat, self._replace_all]

    def draw_file(self, kind: FileKind) -> tuple[str, bytes]:
        """Return the name of a damaged file and its content."""
        suffix = self.random.choice(["", "", *COMPRESSIONS])
        content = self._change_values(kind)
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            content = self.random.choice(self.changes)(content)
        packed = COMPRESSIONS[suffix](content)
        if suffix and self.random.random() < 0.3:
            packed = self.random.choice([self._truncate, self._flip_bits])(packed)
        return f"{kind.name}{suffix}", packed

    def _change_values(self, kind: FileKind) -> bytes:
        """Return content of the right form with values of other types, for formats that have types."""
        if self.random.random() < 0.5:
            return kind.content
        if kind.name.endswith(".json"):
            return json.dumps(self._change_json(json.loads(kind.content))).encode()
        if kind.name.endswith(".jsonl"):
            lines = [self._change_json(json.loads(line)) for line in kind.content.splitlines()]
            return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if kind.name.endswith(".parquet"):
            names = pq.read_schema(io.BytesIO(kind.content)).names
            return to_parquet({name: self.random.choice(ARROW_COLUMNS) for name in names})
        return kind.content

    def _change_json(self, value: Any) -> Any:
        """Return a value with one part of it replaced, removed or nested."""
        if not isinstance(value, dict | list) or not value or self.random.random() < 0.2:
            return self.random.choice([*JSON_VALUES, [value], {"data": value}])
        changed = value.copy()
        key = self.random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if self.random.random() < 0.2:
            del changed[key]
        else:
            changed[key] = self._change_json(value[key])
        return changed

    def _position(self, data: bytes) -> int:
        return self.random.randint(0, len(data))

    def _truncate(self, data: bytes) -> bytes:
        return data[: self._position(data)]

    def _flip_bits(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.random.choice([1, 1, 3, 20]) if data else 0):
            changed[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(changed)

    def _insert(self, data: bytes) -> bytes:
        position = self._position(data)
        fragment = b"a" * LONG_LINE_BYTES if self.random.random() < 0.03 else self.random.choice(FRAGMENTS)
        return data[:position] + fragment + data[position:]

    def _delete(self, data: bytes) -> bytes:
        position = self._position(data)
        return data[:position] + data[position + self.random.choice([1, 2, 10]) :]

    def _repeat(self, data: bytes) -> bytes:
        position = self._position(data)
        return data[:position] + data[position : position + 20] * self.random.choice([2, 100, 5000]) + data[position:]

    def _replace_all(self, data: bytes) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 10, 1000]))


def read_or_refuse(read: Callable[[str], Iterable[object]], path: Path) -> None:
    """Read a file to its end, or print its error and exit as the command line does."""
    try:
        for _ in read(str(path)):
            pass
    except RegardError as error:
        message = str(error)
        assert message.startswith(str(path)), f"the file is not named: {message}"
        assert message.isprintable(), f"more than one line: {message!a}"
        assert len(message) - len(str(path)) < MAX_MESSAGE_CHARACTERS, f"{len(message):,} characters"
        print(f"error: {message}", file=sys.stderr)
        sys.exit(REFUSED)


def run(n_cases: int, seed: int) -> FaultCounts:
    """Read so many damaged files, and count how that ended; the kinds of files come in turn."""
    fuzzer, counts = Fuzzer(seed), FaultCounts("readers")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(n_cases):
            kind = FILE_KINDS[number % len(FILE_KINDS)]
            name, content = fuzzer.draw_file(kind)
            path = Path(folder) / name
            path.write_bytes(content)
            counts.add(f"case {number} of seed {seed}, {name}", run_isolated(partial(read_or_refuse, kind.read, path)))
            path.unlink()
    return counts
