from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError, DataError
from regard.text import tagged
from regard.text.tagged import (
    EXPECTED_FORMAT,
    TaggedSentence,
    is_entity_scheme,
    read_tagged_sentences,
    tagged_paths,
    to_iob2,
)

CONLLU = (
    "# newdoc id = x\n"
    "# text = Don't go.\n"
    "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=Yes\n"
    "1\tDo\tdo\tAUX\tVB\tMood=Imp\t3\taux\t3:aux\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t3:advmod\t_\n"
    "3\tgo\tgo\tVERB\tVB\tMood=Imp\t0\troot\t0:root\tSpaceAfter=No\n"
    "3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t0:root\t_\n"
    "4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t3:punct\t_\n"
    "\n"
    "# text = 10 000\n"
    "1\t10 000\t10000\tNUM\tCD\t_\t0\troot\t0:root\t_\n"
    "\n"
)
NAMES = "id, form, lemma, upos, xpos, feats, head, deprel, deps, misc"
FIX = "drop the sentence or pass --skip-empty"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_bytes(text.encode())
    return name


def jsonl(*entries: dict[str, Any]) -> str:
    return write("x.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))


def read(*data: str, column: str = "", skip_empty: bool = False) -> list[TaggedSentence]:
    return list(read_tagged_sentences(data, column, skip_empty=skip_empty))


def fault(*data: str, column: str = "", skip_empty: bool = False) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        read(*data, column=column, skip_empty=skip_empty)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_error_of_an_invalid_label_names_its_line() -> None:
    write("x.conll", "a X\nb Y\n\nc Y\nd X\n")

    def problem(labels: Sequence[str]) -> tuple[int, str] | None:
        return (labels.index("X"), "an X behind a Y") if labels[0] == "Y" else None

    with pytest.raises(DataError, match=r"^x.conll:5: an X behind a Y$"):
        list(read_tagged_sentences(["x.conll"], validate_labels=problem))


@pytest.mark.parametrize("header", ["text\tlabel", "Word\tTag", "Sentence #\tWord\tPOS\tTag", "tokens ner_tags"])
def test_header_is_refused(header: str) -> None:
    message = fault(write("x.tsv", f"{header}\na\tb\n"))
    assert message.startswith("x.tsv:1: a header, '")
    assert message.endswith("drop the line, or learn labels of whole texts with classify")


class TestConll:
    TEXT = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\n. . O O\n\n\n-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER"

    def test_documents_sentences_and_columns(self) -> None:
        path = write("eng.train", self.TEXT)
        assert read(path) == [TaggedSentence(("EU", "."), ("I-ORG", "O")), TaggedSentence(("Peter",), ("I-PER",))]
        assert read(path, column="4") == read(path)
        assert read(path, column="2") == [
            TaggedSentence(("EU", "."), ("NNP", ".")),
            TaggedSentence(("Peter",), ("NNP",)),
        ]

    def test_a_document_ends_a_sentence(self) -> None:
        assert read(write("x", "a O\n-DOCSTART-\nb O\n")) == [
            TaggedSentence(("a",), ("O",)),
            TaggedSentence(("b",), ("O",)),
        ]

    def test_tab_in_the_first_line_makes_tab_separated_columns(self) -> None:
        assert read(write("x.tsv", "New York\tB-LOC \n's\tO\n")) == [TaggedSentence(("New York", "'s"), ("B-LOC", "O"))]
        assert read(write("x.bio", "  New   B-LOC\nYork \t I-LOC \r\n \t \r\n")) == [
            TaggedSentence(("New", "York"), ("B-LOC", "I-LOC"))
        ]

    def test_unusual_spaces_belong_to_words(self) -> None:
        assert read(write("x", "10\xa0000 NUM\na\u2028\x85b X\n# SYM\n")) == [
            TaggedSentence(("10\xa0000", "a\u2028\x85b", "#"), ("NUM", "X", "SYM"))
        ]

    def test_compressed(self) -> None:
        Path("x.conll.gz").write_bytes(gzip.compress(self.TEXT.encode()))
        assert len(read("x.conll.gz")) == 2

    def test_ragged_lines(self) -> None:
        fault_at_4 = fault(write("x", "-DOCSTART- O\n\na X O\nb O\n"))
        assert fault_at_4 == f"x:4: 2 columns, but line 3 has 3, separated by spaces; {EXPECTED_FORMAT}"
        assert (
            fault(write("x", "a\tO\n\nb O\n"))
            == f"x:3: 1 column, but line 1 has 2, separated by tabs; {EXPECTED_FORMAT}"
        )
        assert fault(write("x", "a\nb\n")) == f"x:1: 1 column; {EXPECTED_FORMAT}"

    def test_whole_texts_in_place_of_words_are_refused(self) -> None:
        """A table of texts and labels is not CoNLL, though each line has two columns; words may contain spaces."""
        rows = ["dull\tbad", "it is great fun\tgood", "a very long and very dull film\tbad"]
        message = fault(write("x.tsv", "a\tO\n\n" + "\n".join(rows)))
        expected = f"x.tsv:4: 'it is great fun' where a single word was expected; {EXPECTED_FORMAT}"
        assert message == f"{expected}; whole texts are labelled with classify"
        assert len(read(write("x.tsv", "1 000 000\tNUM\nNew York City\tLOC\n"))) == 1
        assert len(read(write("x.tsv", "Công ty Cổ phần Sữa Việt Nam\tORG\nlà\tO\n"))) == 1

    def test_missing_columns_are_refused(self) -> None:
        write("x", "\na X O\n")
        assert fault("x", column="4") == "x:2: no column 4; there are 3"
        assert fault("x", column="0") == "x: no column 0; columns are counted from 1"
        assert fault("x", column="1") == "x: column 1 holds the words; name the one that holds their labels"
        numbers = "the columns of CoNLL have numbers, counted from 1: pass one with --column"
        assert fault("x", column="ner") == f"x: no column 'ner'; {numbers}"

    def test_empty_words_and_labels(self) -> None:
        assert fault(write("x", "a\tO\nb\t\n")) == f"x:2: empty label; {FIX}"
        assert fault(write("x", "a\tO\n\tO\n")) == f"x:2: empty word; {FIX}"


class TestConllu:
    def test_words_without_ranges_and_empty_nodes(self) -> None:
        path = write("x.conllu", CONLLU)
        words = ("Do", "n't", "go", ".")
        assert read(path) == [
            TaggedSentence(words, ("AUX", "PART", "VERB", "PUNCT")),
            TaggedSentence(("10 000",), ("NUM",)),
        ]
        assert read(path, column="deprel")[0].labels == ("aux", "advmod", "root", "punct")
        assert read(path, column="feats")[0] == TaggedSentence(words, ("Mood=Imp", "_", "Mood=Imp", "_"))
        for index, column in enumerate(NAMES.split(", ")):
            assert read(path, column=column)[1].labels == (CONLLU.splitlines()[-2].split("\t")[index],)

    def test_compressed(self) -> None:
        Path("X.CONLLU.gz").write_bytes(gzip.compress(CONLLU.encode()))
        assert len(read("X.CONLLU.gz")) == 2

    def test_missing_columns_are_refused(self) -> None:
        path = write("x.conllu", CONLLU)
        assert fault(path, column="xpo") == "x.conllu: no column 'xpo' in CoNLL-U; did you mean 'xpos'?"
        assert fault(path, column="4") == f"x.conllu: no column '4' in CoNLL-U; known: {NAMES}"

    def test_malformed_lines_are_refused(self) -> None:
        other = "expected the ten of CoNLL-U, separated by tabs; a file of other columns is read under another name"
        assert fault(write("x.conllu", CONLLU + "1\tgo\tVERB\n")) == f"x.conllu:13: 3 columns; {other}"
        assert fault(write("x.conllu", CONLLU.replace("4\t.", "4a\t."))) == (
            "x.conllu:8: id '4a'; expected a number, a range as in 1-2 or an empty node as 1.1"
        )

    def test_empty_words_and_labels(self, capfd: pytest.CaptureFixture[str]) -> None:
        path = write("x.conllu", CONLLU.replace("VERB\tVB\tMood", "_\t_\tMood"))
        assert fault(path) == fault(path, column="xpos") == f"x.conllu:6: empty label; {FIX}"
        assert read(path, skip_empty=True) == [TaggedSentence(("10 000",), ("NUM",))]
        warning = "x.conllu: left out 1 of 2 sentences: no words, or an empty word or label"
        assert capfd.readouterr().err == f"warning: {warning}\n"


class TestJsonl:
    def test_keys(self) -> None:
        entry = {"id": 1, "words": ["a", "b c"], "labels": ["X", "Y"], "pos": ["P", "Q"]}
        assert read(jsonl(entry)) == [TaggedSentence(("a", "b c"), ("X", "Y"))]
        assert read("x.jsonl", column="pos") == [TaggedSentence(("a", "b c"), ("P", "Q"))]

    @pytest.mark.parametrize("key", ["labels", "tags", "ner_tags"])
    def test_alternative_keys(self, key: str) -> None:
        assert read(jsonl({"tokens": ["a", "b"], key: [0, 3]})) == [TaggedSentence(("a", "b"), ("0", "3"))]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"words": ["a", "b"], "labels": ["X"]}', "2 words, but 1 labels; every word has one label"),
            ('{"text": ["a"], "labels": ["X"]}', "no key 'words'; the line holds 'text', 'labels'; name one of these"),
            (
                '{"words": ["a"], "label": ["X"]}',
                "no key 'labels'; the line holds 'words', 'label'; did you mean 'label'?",
            ),
            ('{"words": "a", "labels": ["X"]}', "'words' is a text; expected a list of texts"),
            ('{"words": ["a", 1], "labels": ["X", "X"]}', "'words[1]' is a number; expected a text"),
            ('{"words": ["a"], "labels": [["X"]]}', "'labels[0]' is a list; expected a text or a number"),
            ('{"words": ["a"], "labels": [NaN]}', "'labels[0]' is nan; expected a text or a finite number"),
            (
                '{"words": ["a", "b\\nc"], "labels": ["X", "X"]}',
                "'words[1]' holds a line end; split it there, or write a space instead",
            ),
            ('{"words": [], "labels": []}', f"no words; {FIX}"),
            ('{"words": ["a", " "], "labels": ["X", "X"]}', f"empty word; {FIX}"),
            ('{"words": ["a", "b"], "labels": ["X", null]}', f"empty label; {FIX}"),
            ("", f"no words; {FIX}"),
            ("[1]", "a list, not an object; expected one object a line; unpack a list with: jq -c '.[]'"),
        ],
    )
    def test_faults(self, line: str, message: str) -> None:
        path = write("x.jsonl", f'{{"words": ["a"], "labels": ["X"]}}\n{line}\n')
        assert fault(path) == f"x.jsonl:2: {message}"

    def test_incomplete_sentences_are_skipped_on_request(self, capfd: pytest.CaptureFixture[str]) -> None:
        path = jsonl({"words": ["a"], "labels": ["X"]}, {"words": [], "labels": []}, {"words": ["b"], "labels": [""]})
        assert read(path, skip_empty=True) == [TaggedSentence(("a",), ("X",))]
        assert "left out 2 of 3 sentences" in capfd.readouterr().err


def test_files_in_order() -> None:
    data = [write("x.conll", "a X\n"), write("x.conllu", CONLLU), jsonl({"words": ["b"], "labels": ["Y"]})]
    assert [sentence.labels[0] for sentence in read(*data)] == ["X", "AUX", "NUM", "Y"]
    assert tagged_paths(data) == [Path("x.conll"), Path("x.conllu"), Path("x.jsonl")]


@pytest.mark.parametrize("name", ["x", "x.conllu", "x.jsonl"])
def test_a_file_without_a_sentence(name: str) -> None:
    none = f"{name}: no sentences; none has words and their labels"
    assert fault(write(name, "")) == none
    assert fault(write(name, "\n\n"), skip_empty=True) == none
    if name != "x.jsonl":
        comments = "# nothing\n\n" if name == "x.conllu" else "-DOCSTART- O\n\n"
        assert fault(write(name, comments)) == none


def test_files_that_cannot_be_read() -> None:
    assert fault() == "no data; name a file of tagged words, as in train.conllu"
    assert fault("x.conllu") == "x.conllu: no such file"
    known = "expected .conllu, .jsonl, or columns separated by spaces or tabs under any other name"
    for kind in ("csv", "parquet"):
        assert fault(write(f"x.{kind}", "a,O\n")) == f"x.{kind}: a {kind} table, not a file of tagged words; {known}"


def test_errors_of_arguments_are_raised_before_reading() -> None:
    with pytest.raises(DataError, match=r"^y\.conllu: no column"):
        read_tagged_sentences([write("x.jsonl", ""), write("y.conllu", "")], "pos")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
        ("I-PER I-LOC", "B-PER B-LOC"),
        ("B-PER I-PER O B-LOC B-LOC", "B-PER I-PER O B-LOC B-LOC"),
        ("B-PER I-LOC I-LOC I-PER", "B-PER B-LOC I-LOC B-PER"),
        ("I-A-B I-A-B I-A", "B-A-B I-A-B B-A"),
        ("S-PER I-PER E-PER NOUN", "S-PER B-PER E-PER NOUN"),
        ("", ""),
    ],
)
def test_iob2_worked_by_hand(labels: str, expected: str) -> None:
    assert to_iob2(labels.split()) == expected.split()


def test_entity_schemes_are_recognised() -> None:
    assert is_entity_scheme(["O", "B-PER", "I-A-B"])
    assert is_entity_scheme(["O"])
    for other in ("S-PER", "E-PER", "L-PER", "NOUN", "B", "I", "o", "", "B_PER"):
        assert not is_entity_scheme(["B-PER", other]), other


entity_labels = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "I-", "S-X", "NOUN"]))


@given(entity_labels)
def test_iob2_is_unchanged(labels: list[str]) -> None:
    once = to_iob2(labels)
    assert to_iob2(once) == once
    assert [label[2:] for label in once] == [label[2:] for label in labels]
    assert all(new == old or (new[:2], old[:2]) == ("B-", "I-") for new, old in zip(once, labels, strict=True))


spans = st.lists(st.tuples(st.sampled_from(["X", "Y", ""]), st.integers(1, 3)))
"""Runs of words, each an entity of a type or, without a type, outside."""


@given(spans)
def test_iob1_and_iob2_give_the_same_entities(runs: list[tuple[str, int]]) -> None:
    """The same entities, written in IOB1 and in IOB2."""
    iob1: list[str] = []
    iob2: list[str] = []
    before = ""
    for label, n_words in runs:
        rest = [f"I-{label}"] * (n_words - 1)
        iob1 += [f"{'B' if label == before else 'I'}-{label}", *rest] if label else ["O"] * n_words
        iob2 += [f"B-{label}", *rest] if label else ["O"] * n_words
        before = label
    assert to_iob2(iob1) == to_iob2(iob2) == iob2


tokens = st.text(st.characters(exclude_characters="\n\r\t ", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip() and text == text.strip() and not text.startswith(("-DOCSTART-", "\ufeff"))
)


@given(st.lists(st.lists(st.tuples(tokens, tokens), min_size=1), min_size=1), st.sampled_from([" ", "\t"]))
def test_written_sentences_are_read_back(sentences: list[list[tuple[str, str]]], separator: str) -> None:
    blocks = ("".join(f"{word}{separator}{label}\n" for word, label in sentence) for sentence in sentences)
    entries = [
        {"words": [w for w, _ in sentence], "labels": [label for _, label in sentence]} for sentence in sentences
    ]
    with tempfile.TemporaryDirectory() as folder:
        conll, lines = Path(folder) / "x.conll", Path(folder) / "x.jsonl"
        conll.write_bytes("\n".join(blocks).encode())
        lines.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
        expected = [TaggedSentence(tuple(entry["words"]), tuple(entry["labels"])) for entry in entries]
        assert read(str(conll)) == read(str(lines)) == expected


def test_file_without_empty_lines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged, "MAX_SENTENCE_WORDS", 3)
    path = tmp_path / "x.conll"
    path.write_text("a X\nb X\nc X\n\nd X\ne X\nf X\n")
    assert len(list(read_tagged_sentences([str(path)]))) == 2
    path.write_text("a X\n\n" + "b X\n" * 4)
    with pytest.raises(DataError, match=r"x.conll:3: a sentence of more than 3 words; put an empty line after each"):
        list(read_tagged_sentences([str(path)]))
