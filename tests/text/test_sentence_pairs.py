"""Files of sentences, pairs, triples and scored pairs: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.errors import ConfigError, DataError
from regard.text.sentence_pairs import find_pair_kind, read_sentence_pairs

TWO_PAIRS = [("a b", "c d"), ("e", "f g")]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, *lines: str) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


def read(*data: str, columns: tuple[str, ...] = (), skip_empty: bool = False) -> list[tuple[str, ...]]:
    return [tuple(each) for each in read_sentence_pairs(data, columns, skip_empty=skip_empty)]


def test_every_format_of_pairs() -> None:
    tsv = write("p.tsv", *("\t".join(pair) for pair in TWO_PAIRS))
    csv = write("p.csv", "query,n,answer", *(f"{a},7,{b}" for a, b in TWO_PAIRS))
    jsonl = write("p.jsonl", *(json.dumps({"anchor": a, "positive": b}) for a, b in TWO_PAIRS))
    pq.write_table(
        pa.table({"sentence1": [a for a, _ in TWO_PAIRS], "sentence2": [b for _, b in TWO_PAIRS]}), "p.parquet"
    )
    for path in (tsv, csv, jsonl, "p.parquet", f"{csv}:query,answer"):
        assert find_pair_kind([path]) == "pairs"
        assert read(path) == [(*pair, "", "") for pair in TWO_PAIRS], path
    assert read(tsv, csv) == [(*pair, "", "") for pair in TWO_PAIRS] * 2


def test_sentences_are_lines() -> None:
    path = write("s.txt", "one two", "three")
    assert find_pair_kind([path]) == "sentences"
    assert read(path) == [("one two", "", "", ""), ("three", "", "", "")]


def test_a_third_column_is_a_negative_or_a_score() -> None:
    triples = write("t.tsv", "a\tb\tc", "d\te\t42")
    assert find_pair_kind(["t.tsv"]) == "scored", "numbers decide where no name does"
    triples = write("t.tsv", "anchor\tpositive\tnegative", "d\te\t42")
    assert (find_pair_kind([triples]), read(triples)) == ("triples", [("d", "e", "42", "")])
    plain = write("u.tsv", "a\tb\tc", "d\te\tf")
    assert (find_pair_kind([plain]), read(plain)[1]) == ("triples", ("d", "e", "f", ""))
    scored = write("v.tsv", "index\tsentence1\tsentence2\tscore", "0\ta\tb\t2.5")
    assert (find_pair_kind([scored]), read(scored)) == ("scored", [("a", "b", "", "2.5")])
    numbers = write("w.tsv", "a\tb\t0.5", "c\td\t1")
    assert (find_pair_kind([numbers]), read(numbers)[0]) == ("scored", ("a", "b", "", "0.5"))
    jsonl = write("x.jsonl", json.dumps({"text1": "a", "text2": "b", "similarity": 3}))
    assert read(jsonl) == [("a", "b", "", "3")]


ERRORS = [
    ((), ["one", "two"], "p.tsv: 1 column; expected two texts, or two and a hard negative, or two and a score; senten"),
    ((), ["a\tb\tc\td"], "p.tsv: 4 columns; expected two texts, or two and a hard negative, or two and a score; pass"),
    ((), ["a\tb", "c\t "], "p.tsv:2: empty positive; drop the line or pass --skip-empty"),
    ((), ["a\tb\tc", "d\te\t"], "p.tsv:2: empty negative; drop the line or pass --skip-empty"),
    ((), ["a\tb", "c\td\te"], "p.tsv:2: 3 fields, but the first line has 2; fields are separated by tabs"),
    ((), [], "p.tsv: the file is empty: give one with pairs of texts"),
    (
        (),
        ["first\tsecond\thow alike", "a\tb\t0.5"],
        "p.tsv:1: the score 'how alike' is not a finite number; correct it, o",
    ),
    ((), ["a\tb\t1", "c\td\tnan"], "p.tsv:2: the score 'nan' is not a finite number; correct it, or name the columns"),
    (("1", "2"), ["query\tanswer", "a\tb"], "p.tsv:1: a header, 'query', 'answer', where a pair was expected; ask for"),
    (("1",), ["a\tb"], "columns: expected two texts, or two and a hard negative, or two and a score, found 1: 1"),
]


@pytest.mark.parametrize(("columns", "lines", "message"), ERRORS, ids=[message[:40] for *_, message in ERRORS])
def test_mistakes_are_one_line(columns: tuple[str, ...], lines: list[str], message: str) -> None:
    with pytest.raises((DataError, ConfigError)) as error:
        read(write("p.tsv", *lines), columns=columns)
    assert str(error.value).startswith(message)


def test_incomplete_rows_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    path = write("p.tsv", "a\tb\tc", "d\te\t", "f\tg\th")
    assert read(path, skip_empty=True) == [("a", "b", "c", ""), ("f", "g", "h", "")]
    assert "p.tsv: left out 1 of 3 triples: empty anchor, positive or negative" in capsys.readouterr().err


def test_files_of_several_kinds_are_refused() -> None:
    pairs, triples, sentences = write("p.tsv", "a\tb"), write("t.tsv", "a\tb\tc"), write("s.txt", "a", "b")
    with pytest.raises(DataError, match=r"t\.tsv: holds triples, but p\.tsv holds pairs; give files of one kind"):
        read(pairs, triples)
    assert len(read(pairs, f"{triples}:1,2")) == 2
    with pytest.raises(DataError, match=r"s2\.txt: a second text file: sentences, or translations of the first\?"):
        read(sentences, write("s2.txt", "c"))
    with pytest.raises(ConfigError, match=r"columns: 1, 2: s\.txt is plain text, which has none"):
        read(sentences, columns=("1", "2"))
    with pytest.raises(DataError, match=r"x\.jsonl: no columns known for two texts; it holds 'a', 'b'; pass --columns"):
        read(write("x.jsonl", '{"a": "1", "b": "2"}'))
