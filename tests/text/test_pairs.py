from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.errors import ConfigError, DataError
from regard.text.pairs import Pair, group_pair_files, pair_paths, read_pairs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_bytes(text.encode())
    return name


def read(*data: str, columns: tuple[str, ...] = (), skip_empty: bool = False) -> list[Pair]:
    return list(read_pairs(data, columns, skip_empty=skip_empty))


def fault(*data: str, columns: tuple[str, ...] = (), skip_empty: bool = False) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        read(*data, columns=columns, skip_empty=skip_empty)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_two_files_of_lines_keep_their_spaces() -> None:
    pairs = read(write("x.en", " a  b \nc\u2028d\n"), write("x.fr", "e\r\n\tf"))
    assert pairs == [Pair(" a  b ", "e"), Pair("c\u2028d", "\tf")]
    assert pairs[0].source == " a  b "


def test_one_pair_is_a_corpus() -> None:
    assert read(write("x.en", "a"), write("x.fr", "b")) == [("a", "b")]


def test_files_and_tables_together_in_order() -> None:
    Path("z.tsv.gz").write_bytes(gzip.compress(b"g\th\n"))
    data = [write("a.tsv", "a\tb\n"), write("x.en", "c\n"), write("x.fr", "d\n"), write("b.csv", '"e",f\n'), "z.tsv.gz"]
    assert read(*data) == [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]


def test_first_two_columns_are_the_default() -> None:
    pq.write_table(pa.table({"x": ["a"], "y": ["b"], "z": ["c"]}), "x.parquet")
    line = json.dumps({"target": "b", "source": "a"})
    for data in (write("x.tsv", "a\tb\tc\n"), write("x.csv", "a,b,c\n"), "x.parquet", write("x.jsonl", line)):
        assert read(data) == [("a", "b")], data


def test_columns_for_all_tables_and_for_one() -> None:
    tables = [write("x.tsv", "fr\tde\ten\na\tb\tc\n"), write("y.csv", "en,fr\nd,e\n")]
    assert read(*tables, columns=("en", "fr")) == [("c", "a"), ("d", "e")]
    assert read("x.tsv:de,fr", "y.csv", columns=("en", "fr")) == [("b", "a"), ("d", "e")]
    assert read("x.tsv:1,3", write("z.jsonl", '{"en": "f", "fr": "g"}') + ":fr,en") == [
        ("fr", "en"),
        ("a", "c"),
        ("g", "f"),
    ]


def test_colon_in_the_path() -> None:
    assert read(write("x.tsv:1,2", "a\n"), write("a:b", "c\n")) == [("a", "c")]
    assert read(write("d:1.tsv", "a\tb\n")) == [("a", "b")]
    assert read("d:1.tsv:2,1") == [("b", "a")]
    assert fault("no:such", "x") == "no:such: no such file"
    assert fault("d1.tsv:2,1") == "d1.tsv: no such file; did you mean 'd:1.tsv'?"


def test_the_paths_without_their_columns() -> None:
    data = [write("a:1.tsv", ""), write("x.tsv", "") + ":en,fr", "x.en", "x.fr"]
    assert pair_paths(data) == [Path("a:1.tsv"), Path("x.tsv"), Path("x.en"), Path("x.fr")]


def test_wrong_number_of_columns_is_refused() -> None:
    write("x.tsv", "Hello.\tBonjour.\n")
    assert fault("x.tsv:1") == "x.tsv: columns '1'; expected two, source and target, as in x.tsv:1,2"
    assert "expected two" in fault("x.tsv:1,2,3")
    assert "expected two" in fault("x.tsv:,2")
    assert fault("x.tsv", columns=("1",)) == "columns: expected two, source and target, found 1: 1"
    assert "the first line holds 'Hello.', 'Bonjour.'" in fault("x.tsv", columns=("en", "fr"))


def test_unpaired_files_are_refused() -> None:
    write("x.en", "a\n")
    assert fault("x.en") == (
        "x.en: a second file must go with it, as in train.en train.fr or --valid dev.en --valid dev.fr; tables are "
        ".tsv, .csv, .jsonl, .parquet"
    )
    assert fault("x.en", write("t.tsv", "a\tb\n"), "x.en", "x.en").startswith("x.en: a second file")
    assert fault().startswith("no data; ")
    assert fault(".") == ".: a directory; name the files in it"


def test_missing_file_is_reported_before_reading() -> None:
    with pytest.raises(DataError, match=r"^x\.fr: no such file$"):
        read_pairs([write("x.en", "a"), "x.fr"])


@pytest.mark.parametrize("n_lines", [(29_000, 28_999), (1, 1_003), (0, 2)])
def test_files_of_unequal_length_are_counted_to_the_end(n_lines: tuple[int, int]) -> None:
    n_en, n_fr = n_lines
    message = fault(write("train.en", "a\n" * n_en), write("train.fr", "b\n" * n_fr))
    counts = f"train.en: {n_en:,} lines, but train.fr has {n_fr:,}"
    assert message == f"{counts}; line by line, one must translate the other"


@pytest.mark.parametrize("empty_text", ["", " ", "\t\u3000\u2028"])
def test_error_of_an_empty_side_names_its_line(empty_text: str) -> None:
    fix = "drop the line or pass --skip-empty"
    assert fault(write("x.de", f"a\n{empty_text}\n"), write("x.en", "b\nc\n")) == f"x.de:2: empty source; {fix}"
    assert fault("x.en", "x.de") == f"x.de:2: empty target; {fix}"
    assert fault(write("x.csv", f'"a\nb",c\nd,{empty_text}\n')) == f"x.csv:3: empty target; {fix}"
    assert fault(write("x.tsv", "a\tb\n\n")) == f"x.tsv:2: empty source; {fix}"
    pq.write_table(pa.table({"x": ["a", "b"], "y": ["c", None]}), "x.parquet")
    assert fault("x.parquet") == f"x.parquet:2: empty target; {fix}"


def test_incomplete_pairs_are_skipped_on_request_and_counted_once(capfd: pytest.CaptureFixture[str]) -> None:
    data = [write("x.de", "a\n\nc\n"), write("x.en", "b\nx\n \n"), write("x.tsv", "d\te\n\n")]
    assert read(*data, skip_empty=True) == [("a", "b"), ("d", "e")]
    captured = capfd.readouterr()
    assert captured.err.splitlines() == [
        "warning: x.de, x.en: left out 2 of 3 pairs: empty source or target",
        "warning: x.tsv: left out 1 of 2 pairs: empty source or target",
    ]
    assert captured.out == ""


def test_no_warning_if_nothing_is_skipped(capfd: pytest.CaptureFixture[str]) -> None:
    read(write("x.tsv", "d\te\n"), skip_empty=True)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("text", "skip_empty"), [("", False), ("", True), ("\t\n\n", True), ("en\tfr\n", False)])
def test_files_without_pairs(text: str, skip_empty: bool) -> None:
    columns = ("en", "fr") if text.startswith("en") else ()
    message = fault(write("x.tsv", text), columns=columns, skip_empty=skip_empty)
    assert message == "x.tsv: no pairs; no line has a source and a target"


def test_two_empty_files() -> None:
    assert fault(write("x.en", ""), write("x.fr", "")).startswith("x.en: no pairs; ")


def test_a_pipe_is_read_once() -> None:
    """As with ``regard train translate <(zcat a.gz) <(zcat b.gz)``."""
    paths = []
    for text in (b"a\nb\n", b"c\nd\n"):
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        paths.append(f"/dev/fd/{reader}")
    assert read(*paths) == [("a", "c"), ("b", "d")]
    for path in paths:
        os.close(int(Path(path).name))


def test_count_of_skipped_pairs_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "once.en").write_text("a\n\nc\n")
    (tmp_path / "once.fr").write_text("a\nb\n\n")
    files = [str(tmp_path / "once.en"), str(tmp_path / "once.fr")]
    for _ in range(3):
        list(read_pairs(files, skip_empty=True))
    assert capsys.readouterr().err.count("left out 2 of 3 pairs") == 1


def test_files_of_lines_are_grouped_in_pairs_and_tables_alone() -> None:
    data = ["a.en", "a.fr", "b.tsv:1,3", "c.en", "d.jsonl", "c.fr"]
    assert group_pair_files(data) == [["a.en", "a.fr"], ["b.tsv:1,3"], ["c.en", "c.fr"], ["d.jsonl"]]
