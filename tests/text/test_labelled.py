from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.errors import ConfigError, DataError
from regard.text.labelled import KNOWN_COLUMNS, LabelledExample, labelled_paths, read_labelled_examples

PASS = "pass --columns TEXT,LABEL (or TEXT,PAIR,LABEL), by name or number as in 2,1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_bytes(text.encode())
    return name


def jsonl(name: str, *entries: dict[str, Any]) -> str:
    return write(name, "".join(json.dumps(entry) + "\n" for entry in entries))


def parquet(name: str, **columns: Any) -> str:
    pq.write_table(pa.table(columns), name)
    return name


def read(*data: str, columns: tuple[str, ...] = (), skip_empty: bool = False) -> list[LabelledExample]:
    return list(read_labelled_examples(data, columns, skip_empty=skip_empty))


def fault(*data: str, columns: tuple[str, ...] = (), skip_empty: bool = False) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        read(*data, columns=columns, skip_empty=skip_empty)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_error_of_an_invalid_label_names_its_line() -> None:
    """A line that is skipped because it has no text is not validated."""
    write("x.tsv", "text\tlabel\na\tyes\n\tno\nb\t no \n")

    def problem(label: str) -> str:
        return "" if label == "yes" else f"'{label}' is not yes"

    with pytest.raises(DataError, match=r"^x.tsv:4: 'no' is not yes$"):
        list(read_labelled_examples(["x.tsv"], skip_empty=True, validate_label=problem))


def test_columns_after_the_path_or_for_all() -> None:
    write("x.tsv", "pos\tgood \t1\nneg\tbad\t2\n")
    expected = [LabelledExample("good ", "", "pos"), LabelledExample("bad", "", "neg")]
    assert read("x.tsv:2,1") == read("x.tsv", columns=("2", "1")) == expected
    assert read("x.tsv:2,3,1")[0] == LabelledExample(text="good ", pair="1", label="pos")
    assert read(write("y.csv", "kind,words\na,b\n") + ":words,kind", "x.tsv", columns=("2", "1"))[:2] == [
        LabelledExample("b", "", "a"),
        LabelledExample("good ", "", "pos"),
    ]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("sentence\tlabel", LabelledExample("0", "", "1")),
        ("Label\tText", LabelledExample("1", "", "0")),
        ("text\tid\tclass", LabelledExample("0", "", "2")),
        ("score\tlabel\ttext", LabelledExample("2", "", "1")),
        ("text\tpair\tlabel", LabelledExample("0", "1", "2")),
        ("index\tsentence1\tsentence2\tscore", LabelledExample("1", "2", "3")),
        ("label\thypothesis\tpremise", LabelledExample("2", "1", "0")),
        ("index\tquestion\tsentence\tlabel", LabelledExample("1", "2", "3")),
        ("id\tquestion1\tquestion2\tis_duplicate", LabelledExample("1", "2", "3")),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", LabelledExample("3", "4", "0")),
        ("sentence\tquestion1\tlabel", LabelledExample("0", "", "2")),
    ],
)
def test_columns_are_recognised_by_name(header: str, expected: LabelledExample) -> None:
    numbers = [str(index) for index in range(header.count("\t") + 1)]
    assert read(write("x.tsv", f"{header}\n" + "\t".join(numbers))) == [expected]
    assert read(write("x.csv", header.replace("\t", ",") + "\n" + ",".join(numbers))) == [expected]
    entry = dict(zip(header.split("\t"), numbers, strict=True))
    assert read(write("x.jsonl", f"{json.dumps(entry)}\n")) == [expected]
    assert read(parquet("x.parquet", **{name: [value] for name, value in entry.items()})) == [expected]


def test_quotes_of_a_tsv_are_text() -> None:
    assert read(write("x.tsv", 'sentence\tlabel\n"a "" b\t0\n')) == [LabelledExample('"a "" b', "", "0")]


def test_labels_are_stripped() -> None:
    assert read(write("x.csv", "text,label\n a , yes \n")) == [LabelledExample(" a ", "", "yes")]


def test_compressed() -> None:
    Path("x.tsv.gz").write_bytes(gzip.compress(b"text\tlabel\na\tb\n"))
    assert read("x.tsv.gz") == read("x.tsv.gz:text,label") == [LabelledExample("a", "", "b")]


def test_numbers_and_booleans_become_text() -> None:
    values = [1, 3.8, True, False, -2, 5.0, 0, "x"]
    expected = ["1", "3.8", "true", "false", "-2", "5.0", "0", "x"]
    path = jsonl("x.jsonl", *({"text": "a", "label": value} for value in values))
    assert [example.label for example in read(path)] == expected
    assert fault(path, columns=("label", "text")) == "x.jsonl:1: 'label' is a number; expected a text"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 0], pa.int64()), ["1", "0"]),
        (pa.array([1, 0], pa.uint8()), ["1", "0"]),
        (pa.array([1, 0]).dictionary_encode(), ["1", "0"]),
        (pa.array([3.8, 5.0], pa.float64()), ["3.8", "5.0"]),
        (pa.array([3.8, 5.0], pa.float32()), ["3.8", "5.0"]),
        (pa.array([0.5, 5.0], pa.float16()), ["0.5", "5.0"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["yes", "no"]), ["yes", "no"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array | pa.DictionaryArray) else "",
)
def test_numbers_of_parquet_become_text(column: Any, expected: list[str]) -> None:
    path = parquet("x.parquet", text=["a", "b"], label=column)
    assert [example.label for example in read(path)] == expected
    assert [example.label for example in read(path, columns=("1", "2"))] == expected


def test_non_finite_numbers_are_refused_as_labels() -> None:
    path = write("x.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": NaN}\n')
    assert fault(path) == "x.jsonl:2: 'label' is nan; expected a text or a finite number"
    path = parquet("x.parquet", text=["a", "b"], label=pa.array([1.5, float("inf")], pa.float32()))
    assert fault(path) == "x.parquet:2: 'label' is inf; expected a text or a finite number"
    assert fault(jsonl("y.jsonl", {"text": "a", "label": [1]})) == (
        "y.jsonl:1: 'label' is a list; expected a text or a number"
    )
    assert fault(parquet("y.parquet", text=["a"], label=[[1]])) == (
        "y.parquet: column 'label' holds list<element: int64>; expected text or numbers; name another column"
    )
    message = fault(parquet("z.parquet", text=[1], label=[1]))
    assert message == "z.parquet: column 'text' holds int64; expected text; name another column"


def test_missing_known_columns_are_named() -> None:
    assert fault(write("x.tsv", "0\tgood\n")) == (
        f"x.tsv: no column known for text and label; the first line holds '0', 'good'; {PASS}"
    )
    assert fault(write("x.csv", "body,label\n")) == (
        f"x.csv: no column known for text; the first line holds 'body', 'label'; {PASS}"
    )
    assert fault(parquet("x.parquet", text=["a"], stars=[1])) == (
        f"x.parquet: no column known for label; the file holds 'text', 'stars'; {PASS}"
    )
    assert fault(jsonl("x.jsonl", {"body": "a", "stars": 1})) == (
        "x.jsonl: no column known for text and label; the first line holds 'body', 'stars'; "
        "pass --columns TEXT,LABEL (or TEXT,PAIR,LABEL), by name"
    )
    assert fault(write("y.tsv", "")) == "y.tsv: the file is empty: give one with texts and labels"


def test_errors_are_raised_before_reading() -> None:
    with pytest.raises(DataError, match=r"^y\.tsv: no such file"):
        read_labelled_examples([write("x.tsv", "text\tlabel\na\tb\n"), "y.tsv"])
    with pytest.raises(DataError, match=r"^z\.tsv: no column known"):
        read_labelled_examples(["x.tsv", write("z.tsv", "a\tb\n")])
    with pytest.raises(DataError, match=r"^z\.txt: not a table"):
        read_labelled_examples(["x.tsv", write("z.txt", "a\tb\n")], ("1", "2"))


def test_wrong_number_of_columns_is_refused() -> None:
    write("x.tsv", "text\tlabel\na\tb\n")
    expected = "expected text and label, or text, pair and label"
    assert fault("x.tsv:1") == f"x.tsv: columns '1'; {expected}, as in x.tsv:1,2"
    assert fault("x.tsv:1,,2") == f"x.tsv: columns '1,,2'; {expected}, as in x.tsv:1,2"
    assert fault("x.tsv", columns=("text",)) == f"columns: {expected}, found 1: text"
    assert fault("x.tsv:text,lable") == (
        "x.tsv: no column 'lable'; the first line holds 'text', 'label'; did you mean 'label'?"
    )
    assert fault(jsonl("x.jsonl", {"text": "a"}) + ":text,stars") == (
        "x.jsonl:1: no key 'stars'; the line holds 'text'; name one of these"
    )


def test_plain_text_files_are_refused() -> None:
    assert fault() == "no data; name a table of texts and labels, as in train.tsv"
    not_a_table = "x.txt: not a table; the names of tables end in .tsv, .csv, .jsonl, .parquet"
    assert fault(write("x.txt", "a\tb\n")) == not_a_table
    assert fault("x.txt", columns=("1", "2")) == not_a_table
    assert fault(".") == ".: a directory; name the files in it"


def test_single_texts_and_pairs_cannot_be_mixed() -> None:
    pairs, texts = write("x.tsv", "text\tpair\tlabel\na\tb\tc\n"), write("y.tsv", "text\tlabel\na\tc\n")
    end = "all tables must be of one kind: name as many columns of each"
    assert fault(pairs, texts) == f"y.tsv: one text a line, but x.tsv has two; {end}"
    assert fault(texts, pairs) == f"x.tsv: two texts a line, but y.tsv has one; {end}"
    assert len(read(texts, "x.tsv:text,label")) == 2


def test_lines_with_another_number_of_fields() -> None:
    write("x.tsv", "text\tlabel\na\tb\nc\td\te\n")
    ragged = "x.tsv:3: 3 fields, but the first line has 2; fields are separated by tabs"
    assert fault("x.tsv") == ragged
    assert fault("x.tsv", columns=("2", "1"), skip_empty=True).startswith("x.tsv:1: a header, ")
    assert fault(write("x.tsv", "a\tb\nc\td\nc\td\te\n"), columns=("2", "1")) == ragged
    assert fault(write("x.csv", "text,id,label\na,1,x\nb,2\n")) == (
        "x.csv:3: 2 fields, but the first line has 3; fields are separated by commas"
    )
    assert fault(write("y.tsv", "a\nb\n"), columns=("1", "2")) == (
        "y.tsv:1: 1 field, too few for column 2; fields are separated by tabs"
    )


def test_a_header_is_not_an_example() -> None:
    write("x.tsv", "index\tSentence\tlabel\n0\ta\tb\n")
    assert fault("x.tsv:2,3") == (
        "x.tsv:1: a header, 'Sentence', 'label', where an example was expected; "
        "ask for the columns by name, as in x.tsv:Sentence,label"
    )
    assert read("x.tsv:Sentence,label") == read("x.tsv:2,label") == [LabelledExample("a", "", "b")]
    assert read(jsonl("x.jsonl", {"text": "text", "label": "label"})) == [LabelledExample("text", "", "label")]


@pytest.mark.parametrize("empty_text", ["", " ", "\u3000\u2028"])
def test_error_of_an_empty_column_names_its_line(empty_text: str) -> None:
    fix = "drop the line or pass --skip-empty"
    write("x.tsv", f"text\tpair\tlabel\na\tb\tc\n{empty_text}\tb\tc\n")
    assert fault("x.tsv") == f"x.tsv:3: empty text; {fix}"
    assert read("x.tsv:pair,label") == [LabelledExample("b", "", "c")] * 2
    assert fault(write("x.tsv", f"text\tpair\tlabel\na\t{empty_text}\tc\n")) == f"x.tsv:2: empty pair; {fix}"
    assert fault(write("x.tsv", f"text\tlabel\na\t{empty_text}\n")) == f"x.tsv:2: empty label; {fix}"
    assert fault(write("x.csv", f'text,label\n"a\nb",c\nd,{empty_text}\n')) == f"x.csv:4: empty label; {fix}"
    assert fault(write("x.tsv", "text\tlabel\n\n")) == f"x.tsv:2: empty text; {fix}"
    assert fault(jsonl("x.jsonl", {"text": "a", "label": None})) == f"x.jsonl:1: empty label; {fix}"
    assert fault(parquet("x.parquet", text=["a", "b"], label=[1.0, None])) == f"x.parquet:2: empty label; {fix}"


def test_incomplete_examples_are_skipped_on_request_and_counted(capfd: pytest.CaptureFixture[str]) -> None:
    write("x.tsv", "text\tlabel\na\t1\n\t1\n\nb\t \n")
    write("y.tsv", "text\tpair\tlabel\na\tb\t1\na\t\t1\n")
    assert read("x.tsv", skip_empty=True) == [LabelledExample("a", "", "1")]
    assert read("y.tsv", skip_empty=True) == [LabelledExample("a", "b", "1")]
    assert capfd.readouterr().err.splitlines() == [
        "warning: x.tsv: left out 3 of 4 examples: empty text or label",
        "warning: y.tsv: left out 1 of 2 examples: empty text, pair or label",
    ]
    read("x.tsv:text,label", columns=("1", "2"), skip_empty=True)
    assert capfd.readouterr().err == ""


def test_files_without_examples() -> None:
    assert fault(write("x.tsv", "text\tlabel\n")) == "x.tsv: no examples; no line has a text and a label"
    assert fault(write("x.tsv", "text\tpair\tlabel\n\n"), skip_empty=True) == (
        "x.tsv: no examples; no line has a text, a pair and a label"
    )
    assert fault(write("x.tsv", ""), columns=("1", "2")).startswith("x.tsv: no examples; ")


def test_the_paths_without_their_columns() -> None:
    data = [write("a:1.tsv", ""), write("x.tsv", "") + ":en,fr", "y.csv", "x.tsv:1,2,3"]
    assert labelled_paths(data) == [Path("a:1.tsv"), Path("x.tsv"), Path("y.csv"), Path("x.tsv")]


fields = st.text(st.characters(exclude_characters="\n\r\t\ufeff", exclude_categories=["Cs"])).filter(str.strip)
"""Fields of a TSV: no tab and no line end."""


@given(st.lists(st.tuples(fields, fields), min_size=1))
def test_written_examples_are_read_back(examples: list[tuple[str, str]]) -> None:
    assume(not {field.strip().lower() for field in examples[0]} <= KNOWN_COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tsv"
        path.write_bytes("".join(f"{label}\t{text}\n" for text, label in examples).encode())
        assert read(f"{path}:2,1") == [LabelledExample(text, "", label.strip()) for text, label in examples]
