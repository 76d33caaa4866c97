"""Documents between blank lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import ConfigError, DataError
from regard.text import documents
from regard.text.documents import DocumentChunk, read_document_chunks, read_documents


def write(folder: Path, text: str, name: str = "a.txt") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_blank_lines_separate_documents(tmp_path: Path) -> None:
    files = [write(tmp_path, "\n\none\n two \n \n\nthree\n"), write(tmp_path, "four", "b.txt")]
    assert list(read_documents(files)) == [("one\ntwo",), ("three",), ("four",)]


def test_very_long_document_counts_as_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT_LINES", 2)
    assert list(read_documents([write(tmp_path, "1\n2\n3\n4\n5\n\n6\n")])) == [("1\n2",), ("3\n4",), ("5",), ("6",)]


def test_unreadable_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data; name files of plain text, with blank lines between documents"):
        read_documents([])
    with pytest.raises(DataError, match=r"a.tsv: a table; plain text is read here"):
        read_documents([write(tmp_path, "x\ty\n", "a.tsv")])
    with pytest.raises(DataError, match=r"a.txt: no text; the file is empty or blank: give one with text"):
        list(read_documents([write(tmp_path, "\n \n")]))
    with pytest.raises(DataError, match="no such file"):
        read_documents(["nowhere.txt"])


SENTENCES = "the first line\n  indented,  two spaces \nthe third"


def whole(chunks: list[DocumentChunk]) -> list[str]:
    """Return the documents, concatenated from their chunks."""
    documents, parts = [], ""
    for each in chunks:
        assert parts.endswith(each.preceding_text)
        assert bool(each.preceding_text) == bool(parts)
        parts += each.text
        if not each.continues:
            documents.append(parts)
            parts = ""
    assert not parts
    return documents


class TestDocumentChunks:
    def test_text_is_unchanged(self, tmp_path: Path) -> None:
        files = [write(tmp_path, f"\n\n{SENTENCES}\n \n\n\tthree\n"), write(tmp_path, "four", "b.txt")]
        assert list(read_document_chunks(files)) == [
            DocumentChunk(SENTENCES),
            DocumentChunk("\tthree"),
            DocumentChunk("four"),
        ]

    def test_a_file_may_be_one_document(self, tmp_path: Path) -> None:
        files = [write(tmp_path, f"\n\n{SENTENCES}\n \n\n\tthree\n\n"), write(tmp_path, "four", "b.txt")]
        assert list(read_document_chunks(files, one_document_per_file=True)) == [
            DocumentChunk(f"\n\n{SENTENCES}\n \n\n\tthree\n"),
            DocumentChunk("four"),
        ]

    @pytest.mark.parametrize("most", [1, 2, 7, 20, 1000])
    @pytest.mark.parametrize("as_one", [True, False])
    def test_chunks_concatenate_to_the_document(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, as_one: bool
    ) -> None:
        path = write(tmp_path, f"\n{SENTENCES}\n\n{'x' * 50} {'y' * 9}\n{SENTENCES}\n")
        expected = whole(list(read_document_chunks([path], one_document_per_file=as_one)))
        monkeypatch.setattr(documents, "MAX_CHUNK_CHARACTERS", most)
        chunks = list(read_document_chunks([path], one_document_per_file=as_one))
        assert whole(chunks) == expected
        assert all(0 < len(each.text) <= most for each in chunks)

    def test_chunks_end_between_lines_or_words(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(documents, "MAX_CHUNK_CHARACTERS", 12)
        path = write(tmp_path, "one\ntwo\nthree\na line of several words\n")
        texts = [each.text for each in read_document_chunks([path])]
        assert texts == ["one\ntwo", "\nthree", "\na line of", " several", " words"]

    def test_little_text_gives_enough_chunks_to_hold_some_out(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a word and another " * 30)
        assert len(list(read_document_chunks([path]))) == 1
        chunks = list(read_document_chunks([path], ensure_min_chunks=True))
        assert len(chunks) >= 40
        assert whole(chunks) == ["a word and another " * 30]
        many = write(tmp_path, "\n\n".join(["one\ntwo"] * 20), "b.txt")
        assert list(read_document_chunks([many], ensure_min_chunks=True)) == list(read_document_chunks([many]))

    def test_long_line_is_split_without_loss(self, tmp_path: Path) -> None:
        path = write(tmp_path, "word " * 2_000_000)
        assert sum(len(chunk.text) for chunk in read_document_chunks([path])) == 10_000_000

    def test_unreadable_data_is_refused(self, tmp_path: Path) -> None:
        for as_one in (True, False):
            with pytest.raises(DataError, match=r"a.txt: no text; the file is empty or blank: give one with text"):
                list(read_document_chunks([write(tmp_path, "\n \n")], one_document_per_file=as_one))
            with pytest.raises(DataError, match=r"a.txt: no text; the file is empty or blank: give one with text"):
                list(read_document_chunks([write(tmp_path, "")], one_document_per_file=as_one))
        with pytest.raises(DataError, match=r"a.tsv: a table"):
            read_document_chunks([write(tmp_path, "x\ty\n", "a.tsv")])


def test_document_of_long_lines_counts_as_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARACTERS", 5)
    assert list(read_documents([write(tmp_path, "abc\nde\nf\n\nghijklm\nn\n")])) == [
        ("abc\nde",),
        ("f",),
        ("ghijklm",),
        ("n",),
    ]
