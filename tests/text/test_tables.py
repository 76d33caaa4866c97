from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.errors import DataError
from regard.text.tables import read_column_names, read_rows, split_path_and_columns


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def pack(data: bytes, suffix: str) -> bytes:
    match suffix:
        case ".gz":
            return gzip.compress(data)
        case ".xz":
            return lzma.compress(data)
    return pa.compress(data, "zstd", asbytes=True)


def read(path: Path, *columns: str) -> list[tuple[int, Sequence[str]]]:
    return [(line, values) for line, values in read_rows(path, columns)]


def fault(path: Path, *columns: str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_rows(path, columns))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


class TestTsv:
    def test_columns_by_number_include_the_first_line(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", "a\tb\tc\r\nd\te\tf\textra\n")
        assert read(path, "3", "1") == [(1, ("c", "a")), (2, ("f", "d"))]

    def test_columns_by_name_use_a_header(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", "\ufeffen\tde\tfr\na\tb\tc\n")
        assert read(path, "fr", "en") == [(2, ("c", "a"))]
        assert read(path, "fr", "1") == [(2, ("c", "a"))]

    def test_quotes_are_text(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", '"a\tb"\n""\t"\n')
        assert read(path, "1", "2") == [(1, ('"a', 'b"')), (2, ('""', '"'))]

    def test_unusual_line_ends_and_spaces_are_kept(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", " a \u2028\t\x85b\x0b\n")
        assert read(path, "1", "2") == [(1, (" a \u2028", "\x85b\x0b"))]

    def test_an_empty_line_is_a_row_of_empty_text(self, tmp_path: Path) -> None:
        assert read(write(tmp_path / "x.tsv", "a\tb\n\n"), "1", "2")[1] == (2, ("", ""))

    def test_too_few_fields(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", "en\tfr\na\tb\nc d\n")
        assert fault(path, "1", "2") == ":3: 1 field, too few for column 2; fields are separated by tabs"
        assert fault(path, "fr", "en") == ":3: 1 field, too few for column fr; fields are separated by tabs"

    def test_unknown_columns(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", "english\tfrench\na\tb\n")
        holds = "the first line holds 'english', 'french'"
        assert fault(path, "english", "frensh") == f": no column 'frensh'; {holds}; did you mean 'french'?"
        assert fault(path, "1", "xx") == f": no column 'xx'; {holds}; without a header, ask by number, as in 1,2"
        assert fault(path, "english", "3") == ": no column 3; there are 2"
        assert fault(path, "0") == ": no column 0; columns are counted from 1"

    def test_long_first_line_is_shortened_in_messages(self, tmp_path: Path) -> None:
        assert len(fault(write(tmp_path / "x.tsv", f"{'word ' * 99}\tb\n"), "en", "fr")) < 200

    def test_repeated_column_name_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", "en\ten\na\tb\n")
        assert fault(path, "en") == ": column 'en' occurs 2 times; ask for it by number"

    def test_empty_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.tsv", "")
        assert read(path, "1", "2") == read(path, "en", "fr") == []

    def test_compressed(self, tmp_path: Path) -> None:
        path = tmp_path / "x.tsv.gz"
        path.write_bytes(gzip.compress(b"a\tb\n"))
        assert read(path, "2") == [(1, ("b",))]


class TestCsv:
    def test_quoting_and_the_line_a_row_starts_on(self, tmp_path: Path) -> None:
        text = 'en,fr\r\n"a, ""b""","c\r\n\r\nd"\r\ne,\u2028f\r\n'
        path = write(tmp_path / "x.csv", text)
        assert read(path, "en", "fr") == [(2, ('a, "b"', "c\n\nd")), (5, ("e", "\u2028f"))]
        assert read(path, "2")[0] == (1, ("fr",))

    def test_an_empty_line_is_a_row_of_empty_text(self, tmp_path: Path) -> None:
        assert read(write(tmp_path / "x.csv", "a,b\n\nc,d\n"), "1", "2")[1:] == [(2, ("", "")), (3, ("c", "d"))]

    def test_a_long_document_in_a_field(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.csv", f"a,{'x' * 200_000}\n")
        assert len(read(path, "2")[0][1][0]) == 200_000

    def test_faults(self, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        fix = 'a quote inside a field is written ""'
        assert fault(write(path, 'a,b\nc,"d\ne,f\n'), "1") == f":2: a quote is opened and never closed; {fix}"
        assert fault(write(path, 'a,b\nc,"d"x\n'), "1").startswith(":2: not CSV: ")
        assert fault(write(path, "a,b\nc\rd\n"), "1").startswith(":2: not CSV: new-line character")
        assert (
            fault(write(path, "a,b\nc\n"), "2") == ":2: 1 field, too few for column 2; fields are separated by commas"
        )


class TestJsonl:
    def test_keys(self, tmp_path: Path) -> None:
        entries = [{"en": "a\n", "fr": "é", "id": 1}, {"fr": "😀", "en": "", "more": []}, {"en": None, "fr": "x"}]
        path = write(tmp_path / "x.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries) + "\n")
        assert read(path, "fr", "en") == [(1, ("é", "a\n")), (2, ("😀", "")), (3, ("x", "")), (4, ("", ""))]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"en": "a"', ":2: not JSON: "),
            ('[{"en": "a"}]', ":2: a list, not an object; expected one object a line; unpack a list with: jq -c '.[]'"),
            ("null", ":2: null, not an object"),
            ("[" * 100_000, ":2: "),
            ('{"eng": "a"}', ":2: no key 'en'; the line holds 'eng'; did you mean 'eng'?"),
            ('{"text": "a"}', ":2: no key 'en'; the line holds 'text'; name one of these"),
            ('{"en": 1.5}', ":2: 'en' is a number; expected a text"),
            ('{"en": ["a"]}', ":2: 'en' is a list; expected a text"),
            ('{"en": "a\\ud83d"}', ":2: 'en' holds half a character"),
            (" ", ":2: not JSON: "),
        ],
    )
    def test_faults(self, tmp_path: Path, line: str, message: str) -> None:
        path = write(tmp_path / "x.jsonl", f'{{"en": "fine"}}\n{line}\n')
        assert fault(path, "en").startswith(message)


class TestParquet:
    def parquet(self, path: Path, **columns: object) -> Path:
        pq.write_table(pa.table(columns), path, row_group_size=2)
        return path

    def test_names_and_numbers(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path / "x.parquet", id=[1, 2, 3], en=["a", None, "\u2028c"], fr=["d", "e", "f"])
        expected = [(1, ("d", "a")), (2, ("e", "")), (3, ("f", "\u2028c"))]
        assert read(path, "fr", "en") == read(path, "3", "en") == expected
        assert read(path, "en", "en")[0] == (1, ("a", "a"))

    def test_other_arrow_types_of_text(self, tmp_path: Path) -> None:
        column = pa.array(["a", "a", "b"])
        path = self.parquet(tmp_path / "x.parquet", en=column.dictionary_encode(), fr=column.cast(pa.large_string()))
        assert [values for _, values in read(path, "en", "fr")] == [("a", "a"), ("a", "a"), ("b", "b")]

    def test_faults(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path / "x.parquet", en=["a"], id=[1], words=[["a"]], blob=[b"a"])
        assert fault(path, "eng") == (
            ": no column 'eng'; the file holds 'en', 'id', 'words', 'blob'; did you mean 'en'?"
        )
        assert fault(path, "5") == ": no column 5; there are 4"
        assert fault(path, "id") == ": column 'id' holds int64; expected text; name another column"
        assert "expected text" in fault(path, "words")
        assert "expected text" in fault(path, "blob")
        assert "no such file" in fault(tmp_path / "y.parquet", "en")

    def test_damage(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path / "x.parquet", en=["a" * 100] * 1000)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        assert fault(path, "en").startswith(": damaged, or not a parquet file: ")
        assert fault(write(path, ""), "en").startswith(": damaged, or not a parquet file: ")

    @pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
    def test_compressed(self, tmp_path: Path, suffix: str) -> None:
        whole = self.parquet(tmp_path / "x.parquet", en=["a", "b", None], fr=["d", "e", "f"]).read_bytes()
        path = tmp_path / f"x.parquet{suffix}"
        path.write_bytes(pack(whole, suffix))
        assert read(path, "fr", "1") == [(1, ("d", "a")), (2, ("e", "b")), (3, ("f", ""))]
        path.write_bytes(path.read_bytes()[:-20])
        assert fault(path, "en").startswith(": damaged or cut short: ")
        path.write_bytes(pack(whole[:-20], suffix))
        assert fault(path, "en").startswith(": damaged, or not a parquet file: ")


def test_a_file_of_lines_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not a table; the names of tables end in \.tsv, "):
        read_rows(tmp_path / "x.txt", ["1"])
    with pytest.raises(DataError, match=r"not a table; the names of tables end in \.tsv, "):
        read_column_names(tmp_path / "x.txt")


def test_equal_number_of_fields_can_be_required(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "a\tb\n\nc\td\n\te\tf\n")
    assert len(list(read_rows(path, ["1"]))) == 4
    with pytest.raises(DataError, match=r"x\.tsv:4: 3 fields, but the first line has 2; fields are separated by tabs$"):
        list(read_rows(path, ["1"], require_equal_fields=True))


def test_numbers_only_in_numeric_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"a": 1, "b": 2.5}\n{"a": "x", "b": false}\n{"a": "y", "b": null}\n\n')
    values = [row.values for row in read_rows(path, ["b", "a"], numeric_columns=["a", "b"])]
    assert values == [("2.5", "1"), ("false", "x"), ("", "y"), ("", "")]
    with pytest.raises(DataError, match=r"x\.jsonl:1: 'a' is a number; expected a text$"):
        list(read_rows(path, ["b", "a"], numeric_columns=["b"]))


def test_column_names(tmp_path: Path) -> None:
    assert read_column_names(write(tmp_path / "x.tsv", "\ufeffen\t fr\na\tb\n")) == ["en", " fr"]
    assert read_column_names(write(tmp_path / "x.csv", '"e\n""n""",fr\n')) == ['e\n"n"', "fr"]
    assert read_column_names(write(tmp_path / "x.jsonl", '\n{"en": "a", "fr": 1}\n{"de": "b"}\n')) == ["en", "fr"]
    pq.write_table(pa.table({"en": ["a"], "id": [1]}), tmp_path / "x.parquet")
    assert read_column_names(tmp_path / "x.parquet") == ["en", "id"]
    for name in ("x.tsv", "x.csv", "x.jsonl"):
        assert read_column_names(write(tmp_path / name, "")) == []
    with pytest.raises(DataError, match="damaged, or not a parquet file"):
        read_column_names(write(tmp_path / "x.parquet", "PAR1"))


def test_columns_named_after_a_path(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tsv")
    assert split_path_and_columns(path, (1, 2), "one or two") == (path, ())
    assert split_path_and_columns(f"{path}:a", (1, 2), "one or two") == (path, ("a",))
    assert split_path_and_columns(f"{path}:a,2", (1, 2), "one or two") == (path, ("a", "2"))
    assert split_path_and_columns("x.txt:1", (1, 2), "one or two") == ("x.txt:1", ())
    with pytest.raises(DataError, match=r"x\.tsv: columns '1,2,3'; expected one or two, as in .*x\.tsv:1,2$"):
        split_path_and_columns(f"{path}:1,2,3", (1, 2), "one or two")


def test_messages_repeat_few_names_and_no_line_ends(tmp_path: Path) -> None:
    many = "\t".join(f"name{i}" for i in range(10_000))
    assert "'name19', ... (10,000 in all)" in fault(write(tmp_path / "x.tsv", f"{many}\n"), "z")
    assert "holds 'a\\nb'" in fault(write(tmp_path / "x.csv", '"a\nb"\n'), "z")
    assert "holds '\\ud800'" in fault(write(tmp_path / "x.jsonl", '{"\\ud800": 1}\n'), "z")
    assert fault(write(tmp_path / "x.tsv", "a\n"), "9" * 5000).startswith(": no column 999999999...;")
