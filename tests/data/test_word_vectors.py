"""Files of word vectors: round trips, what gensim and GloVe write, and files that contradict themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from regard.data.word_vectors import WordVectorTable, read_word_vectors, write_word_vectors
from regard.errors import DataError, InputError
from regard.text import files

WORDS = ["the", "café", "n't", "3,5"]
VECTORS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
TABLE = WordVectorTable(WORDS, VECTORS)


def binary(words: list[str], vectors: np.ndarray, header: str = "", end: bytes = b"\n") -> bytes:
    rows = b"".join(word.encode() + b" " + row.tobytes() + end for word, row in zip(words, vectors, strict=True))
    return (header or f"{len(words)} {vectors.shape[1]}").encode() + b"\n" + rows


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin"])
def test_round_trip_is_exact(tmp_path: Path, name: str) -> None:
    write_word_vectors(tmp_path / name, TABLE)
    table = read_word_vectors(tmp_path / name)
    assert list(table.words) == WORDS
    np.testing.assert_array_equal(table.vectors, VECTORS)


@pytest.mark.parametrize("end", [b"\n", b""], ids=["word2vec", "gensim"])
def test_reads_both_kinds_of_binary_files(tmp_path: Path, end: bytes) -> None:
    """word2vec's own program ends each vector with a line feed, gensim does not."""
    (tmp_path / "v.bin").write_bytes(binary(WORDS, VECTORS, end=end))
    table = read_word_vectors(tmp_path / "v.bin")
    assert list(table.words) == WORDS
    np.testing.assert_array_equal(table.vectors, VECTORS)


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.gz"])
def test_reads_glove(tmp_path: Path, name: str) -> None:
    """No header; spaces in a word, as in glove.840B."""
    text = "the 0.5 -1 2e-1\n. . . 1 2 3\n1 1 1 1\n"
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    table = read_word_vectors(tmp_path / name)
    assert list(table.words) == ["the", ". . .", "1"]
    np.testing.assert_allclose(table.vectors, [[0.5, -1, 0.2], [1, 2, 3], [1, 1, 1]])


def test_trailing_spaces_are_allowed(tmp_path: Path) -> None:
    """word2vec's own program writes a space after the last number."""
    (tmp_path / "v.txt").write_text("1 2\na 1 2 \n")
    assert read_word_vectors(tmp_path / "v.txt").vectors.tolist() == [[1, 2]]


TEXT_FAULTS = {
    "unequal width": ("a 1 2\nb 1 2 3\n", r"v.txt:2: 3 numbers for 'b', but the first line has 2"),
    "too few": ("a 1 2\nb 1\n", r"v.txt:2: 1 numbers for 'b', but the first line has 2"),
    "header's width": ("2 3\na 1 2\nb 1 2\n", r"v.txt:2: 2 numbers for 'a', but the header says 3"),
    "header's count": ("3 2\na 1 2\nb 1 2\n", r"v.txt:1: the header says 3 words, but 2 follow"),
    "duplicate": ("a 1 2\nb 1 2\na 3 4\n", r"v.txt:3: 'a' is a duplicate of line 1; keep one of them"),
    "no number": ("a 1 2\nb 1 x\n", r"v.txt:2: 'x' is not a number; expected a word and 2 numbers"),
    "not finite": ("a 1 2\nb nan 2\n", r"v.txt: the vector of 'b' has a number that is not finite"),
    "words alone": ("hello\n", r"v.txt:1: expected a word and its numbers, found 'hello'"),
    "header alone": ("0 5\n", r"v.txt: no vectors"),
    "empty": ("", r"v.txt:1: expected a word and its numbers"),
    "blank line": ("a 1 2\n\nb 1 2\n", r"v.txt:2: 0 numbers for ''"),
}


@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_refuses_text_that_contradicts_itself(tmp_path: Path, fault: str) -> None:
    text, message = TEXT_FAULTS[fault]
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_word_vectors(tmp_path / "v.txt")


BINARY_FAULTS = {
    "cut short": (binary(WORDS, VECTORS)[:-20], r"v.bin: (cut short in vector 4 of 4|the header says)"),
    "cut in the middle": (binary(WORDS, VECTORS)[:30], r"the header says 4 vectors of 3 numbers, but 26 bytes follow"),
    "count too high": (binary(WORDS, VECTORS, "99999999999 3"), r"the header says 99,999,999,999 vectors of 3 numbers"),
    "count too low": (binary(WORDS, VECTORS, "3 3"), r"the header says 3 vectors, but more bytes follow"),
    "duplicate": (binary(["a", "b", "a", "c"], VECTORS), r"'a' is a duplicate of vector 1; keep one of them"),
    "no header": (b"\x80\x02}q\x00", r"not a word2vec binary file"),
    "word": (b"1 1\n\xff\xfe " + VECTORS[0, :1].tobytes(), r"the word of vector 1 is not UTF-8"),
}


@pytest.mark.parametrize("fault", BINARY_FAULTS)
def test_refuses_binary_files_that_contradict_themselves(tmp_path: Path, fault: str) -> None:
    data, message = BINARY_FAULTS[fault]
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_word_vectors(tmp_path / "v.bin")


def test_refuses_to_write_words_with_spaces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="white space"):
        write_word_vectors(tmp_path / "v.txt", WordVectorTable(["a b"], VECTORS[:1]))
    assert not list(tmp_path.iterdir())


def test_case_of_the_words() -> None:
    assert TABLE.is_lowercase
    assert not WordVectorTable(["The"], VECTORS[:1]).is_lowercase


@pytest.mark.parametrize("end", [b"\n", b""])
def test_compressed_binary_files_are_streamed(tmp_path: Path, end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 5)
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(binary(WORDS, VECTORS, end=end)))
    table = read_word_vectors(tmp_path / "v.bin.gz")
    assert list(table.words) == WORDS
    np.testing.assert_array_equal(table.vectors, VECTORS)


COMPRESSED_FAULTS = {
    "count too high": (binary(WORDS, VECTORS, "99999999999 3"), r"cut short in vector 5 of 99,999,999,999"),
    "zeros": (binary(WORDS, VECTORS, "99999999999 3") + bytes(1 << 20), r"cut short in vector 5 of 99,999,999,999"),
    "too wide": (binary(WORDS, VECTORS, "4 99999999999"), r"a vector of 99,999,999,999 numbers, of more than"),
    "no width": (binary(WORDS, VECTORS, "4 0"), r"not a word2vec binary file"),
}


@pytest.mark.parametrize("fault", COMPRESSED_FAULTS)
def test_headers_of_compressed_files_allocate_nothing(tmp_path: Path, fault: str) -> None:
    data, message = COMPRESSED_FAULTS[fault]
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(data))
    with pytest.raises(DataError, match=message):
        read_word_vectors(tmp_path / "v.bin.gz")
