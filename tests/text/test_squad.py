"""Files of questions: SQuAD's JSON, JSONL and Parquet in every form, and each fault in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from regard.errors import ConfigError, DataError
from regard.text.squad import AnswerSpan, QuestionExample, question_paths, read_questions

CONTEXT = "Anna lives in Rome. Ben lives in Oslo, near Rome."
EXPECTED = QuestionExample("Where does Ben live", CONTEXT, (AnswerSpan("Oslo", 33),))


def squad(path: Path, *questions: dict[str, Any], context: Any = CONTEXT) -> str:
    article = {"title": "x", "paragraphs": [{"context": context, "qas": list(questions)}]}
    path.write_text(json.dumps({"version": "1.1", "data": [article]}))
    return str(path)


def rows(path: Path, *entries: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return str(path)


def row(**values: Any) -> dict[str, Any]:
    return {"question": EXPECTED.question, "context": CONTEXT, "answers": ["Oslo"], **values}


FORMS = [
    {"text": ["Oslo"], "answer_start": [33]},
    {"text": ["Oslo"]},
    [{"text": "Oslo", "answer_start": 33}],
    [{"text": "Oslo"}],
    ["Oslo"],
    "Oslo",
]


@pytest.mark.parametrize("answers", FORMS, ids=str)
def test_every_form_of_answers(answers: Any, tmp_path: Path) -> None:
    assert list(read_questions([rows(tmp_path / "x.jsonl", row(answers=answers))])) == [EXPECTED]
    if isinstance(answers, list) and isinstance(answers[0], dict):
        question = {"id": "q1", "question": EXPECTED.question, "answers": answers}
        assert list(read_questions([squad(tmp_path / "x.json", question)])) == [EXPECTED._replace(question_id="q1")]


def test_the_first_occurrence_counts_without_a_start(tmp_path: Path) -> None:
    one, other = row(answers=["Rome"]), row(answers=[{"text": "Rome", "answer_start": 44}])
    found = [each.answers for each in read_questions([rows(tmp_path / "x.jsonl", one, other)])]
    assert found == [(AnswerSpan("Rome", 14),), (AnswerSpan("Rome", 44),)]


def test_questions_without_an_answer(tmp_path: Path) -> None:
    plausible = row(is_impossible=True, answers=[{"text": "nowhere", "answer_start": 0}])
    forms = [row(answers=[]), row(answers=None), row(answers={"text": [], "answer_start": []}), plausible]
    assert [each.answers for each in read_questions([rows(tmp_path / "x.jsonl", *forms)])] == [()] * 4


def test_parquet_and_compressed_files(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = [
        row(id="a", answers={"text": ["Oslo"], "answer_start": [33]}),
        row(id="b", answers={"text": [], "answer_start": []}),
    ]
    parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "x.parquet")
    expected = [EXPECTED._replace(question_id="a"), EXPECTED._replace(question_id="b", answers=())]
    assert list(read_questions([str(tmp_path / "x.parquet")])) == expected
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(json.dumps(table).encode()))
    assert list(read_questions([str(tmp_path / "x.json.gz")])) == expected


def test_columns_by_other_names(tmp_path: Path) -> None:
    renamed = {"ask": EXPECTED.question, "passage": CONTEXT, "span": "Oslo"}
    path = rows(tmp_path / "x.jsonl", renamed)
    assert list(read_questions([path], ("ask", "passage", "span"))) == [EXPECTED]
    assert list(read_questions([f"{path}:ask,passage,span"])) == [EXPECTED]
    assert question_paths([f"{path}:ask,passage,span"]) == [Path(path)]
    with pytest.raises(ConfigError, match="columns: expected question, context and answers, found 1: ask"):
        read_questions([path], ("ask",))


def test_questions_to_be_answered_need_no_answers(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.jsonl", {"question": "Who", "context": CONTEXT}, row(answers=["not there"]))
    assert [each.answers for each in read_questions([path], with_answers=False)] == [(), ()]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (row(answers=["Paris"]), ":1: the answer 'Paris' is not in its context; an answer must be copied from it"),
        (
            row(answers={"text": ["Oslo"], "answer_start": [3]}),
            ":1: the answer 'Oslo' is not at character 3 of its context, but at 33; correct answer_start, or leave it",
        ),
        (row(answers=[{"text": "Oslo", "answer_start": -16}]), "is not at character -16 of its context"),
        (row(answers=[{"text": "Anna", "answer_start": -1}]), "is not at character -1 of its context, but at 0"),
        (row(answers=[{"text": "Anna", "answer_start": False}]), "is not at character False of its context, but at 0"),
        (
            row(answers={"text": ["Oslo"], "answer_start": []}),
            ":1: 'answers' has 1 texts, but not as many answer_start",
        ),
        (row(answers=[" "]), ":1: an answer is empty; leave it out"),
        (row(answers=[3]), ":1: an answer is a number; expected a text"),
        (row(answers=[], is_impossible=False), ":1: no answers, although is_impossible is false"),
        (row(context=" "), ":1: empty context; drop the question or pass --skip-empty"),
        (row(question=""), ":1: empty question; drop the question or pass --skip-empty"),
        (row(context=7), ":1: 'context' is a number; expected a text"),
        ({"question": "Who", "answers": []}, ":1: no key 'context'; there are 'question', 'answers'"),
        (
            {"question": "Who", "context": "x"},
            ":1: no key 'answers'; there are 'question', 'context'; give the answers",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults_name_the_line(entry: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(read_questions([rows(tmp_path / "x.jsonl", entry)]))
    assert str(caught.value).startswith(str(tmp_path / "x.jsonl"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_faults_of_squad_name_the_question(tmp_path: Path) -> None:
    question = {"id": "q7", "question": "Who", "answers": [{"text": "Paris", "answer_start": 0}]}
    with pytest.raises(DataError, match=r"x.json: question 'q7': the answer 'Paris' is not in its context"):
        list(read_questions([squad(tmp_path / "x.json", question)]))
    with pytest.raises(DataError, match=r"x.json: question 'q7': empty context"):
        list(read_questions([squad(tmp_path / "x.json", question, context="")]))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", "{", "x.json:1: not JSON: .*; one object a line is JSONL: name the file .jsonl"),
        ("x.json", '{"a": 1}', 'x.json: not SQuAD: expected {"data": '),
        ("x.json", '{"data": [1]}', "x.json: entry 1 is a number; expected an object"),
        (
            "x.json",
            '{"data": [{"paragraphs": [{"context": "a"}]}]}',
            "article 1: a paragraph without a list of questions",
        ),
        ("x.json", '{"data": [{"paragraphs": null}]}', "article 1: 'paragraphs' is null; expected a list"),
        ("x.json", '{"data": []}', "x.json: no questions; none has a question and a context"),
        ("x.txt", "a", "x.txt: not a file of questions; expected SQuAD's .json, or .jsonl or .parquet"),
    ],
)
def test_files_that_are_something_else(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_questions([str(tmp_path / name)]))


def test_empty_rows_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(row())}\n\n{json.dumps(row(context=''))}\n")
    assert list(read_questions([str(path)], skip_empty=True)) == [EXPECTED]
    assert "left out 2 of 3 questions: empty question or context" in capsys.readouterr().err
