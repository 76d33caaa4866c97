"""Question answering by the command line: train, answer, evaluate, look, and each mistake in one line."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from questions import questions, write_questions

from regard.cli import main

Regard = Callable[..., tuple[str, str]]
Fail = Callable[..., str]

QUESTION, CONTEXT = "which city", "There is A Dog Near A Tokyo."
ONE = ("--question", QUESTION, "--context", CONTEXT)
SMALL = [
    *("--set", "model.d_model=16", "--set", "model.n_layers=1", "--set", "model.n_heads=2", "--set", "model.d_ff=32"),
    *("--set", "train.steps=4", "--set", "train.batch_tokens=512", "--set", "train.validate_every=4"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was hardly trained, on questions of which some have no answer."""
    folder = tmp_path_factory.mktemp("answer")
    data = write_questions(folder / "train.jsonl", questions(60, unanswered=0.2))
    with pytest.raises(SystemExit) as ended:
        main(["train", "qa", data, "--out", str(folder / "run"), *SMALL, "--device", "cpu"])
    assert ended.value.code == 0
    return folder / "run"


def test_one_question(model: Path, regard: Regard) -> None:
    out, _ = regard("answer", model, *ONE, "--always-answer")
    assert re.fullmatch(r"[^\t\n]+\t0\.\d{4}\n", out)
    out, _ = regard("answer", model, *ONE, "--always-answer", "--n-best", 3)
    assert len(out.splitlines()) == 3
    out, _ = regard("answer", model, *ONE, "--no-answer", "--threshold", -100)
    assert re.fullmatch(r"\t0\.\d{4}\n", out)


@pytest.mark.parametrize("question", ["which city?", "Which city", "?", "\u2603"])
def test_question_without_a_mark_or_without_known_words(model: Path, regard: Regard, question: str) -> None:
    out, err = regard("answer", model, "--question", question, "--context", CONTEXT, "--always-answer")
    answer, _, score = out.rstrip("\n").partition("\t")
    assert answer in CONTEXT
    assert 0 < float(score) <= 1
    assert err == ""


def test_json_has_the_characters(model: Path, regard: Regard) -> None:
    found = json.loads(regard("answer", model, *ONE, "--json", "--n-best", 2, "--always-answer")[0])
    assert list(found) == ["question", "answer", "score", "start", "end", "n_best"]
    assert found["answer"] == CONTEXT[found["start"] : found["end"]]
    assert found["n_best"][0] == {key: found[key] for key in ("answer", "score", "start", "end")}
    found = json.loads(regard("answer", model, *ONE, "--json", "--threshold", -100)[0])
    assert (found["answer"], found["start"], found["end"]) == ("", None, None)
    assert found["score"] == found["no_answer_score"]


def test_the_context_in_a_file(model: Path, regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("news.txt").write_text(f"{CONTEXT}\nThere is more.\n")
    out, _ = regard("answer", model, "--question", QUESTION, "--file", "news.txt", "--json", "--always-answer")
    found = json.loads(out)
    assert Path("news.txt").read_text()[found["start"] : found["end"]] == found["answer"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path("news.txt").read_bytes())))
    assert regard("answer", model, "--question", QUESTION, "--file", "-", "--json", "--always-answer")[0] == out


def test_many_questions_in_order(model: Path, regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"id": f"q{i}", **entry} for i, entry in enumerate(questions(30, seed=3))]
    for entry in entries:
        del entry["answers"]
    data = write_questions(Path("questions.jsonl"), entries)
    out, _ = regard("answer", model, "--file", data, "--json", "--always-answer")
    found = [json.loads(line) for line in out.splitlines()]
    assert [(each["id"], each["question"]) for each in found] == [(e["id"], e["question"]) for e in entries]
    for each, entry in zip(found, entries, strict=True):
        assert each["answer"] == entry["context"][each["start"] : each["end"]] != ""
    renamed = [{"ask": entry["question"], "text": entry["context"], "id": entry["id"]} for entry in entries]
    other = write_questions(Path("other.jsonl"), renamed)
    assert regard("answer", model, "--file", other, "--columns", "ask,text", "--json", "--always-answer")[0] == out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path(data).read_bytes())))
    assert regard("answer", model, "--file", "-", "--json", "--always-answer")[0] == out


def test_evaluate(model: Path, regard: Regard) -> None:
    data = write_questions(Path("test.jsonl"), questions(20, unanswered=0.3))
    scores = json.loads(regard("evaluate", model, data, "--json")[0])
    assert {"exact_match", "f1", "answerable_f1", "unanswerable_f1", "best_f1", "best_threshold"} < scores.keys()
    assert (scores["task"], scores["n"]) == ("qa", 20)


def test_look_explains_start_and_end(model: Path, regard: Regard) -> None:
    out, _ = regard("look", model, QUESTION, "--pair", CONTEXT, "--view", "summary", "--words")
    printed = " ".join(out.split())
    assert f"text {QUESTION} pair {CONTEXT} prediction " in printed
    claim = r"(mattered most to|ranked highest \(no proof that it mattered\) for) each output"
    assert re.search(rf"{claim}, by [a-z ]+: start: \S+ ← .*; end: \S+ ← .*\)", printed)
    regard("look", model, QUESTION, "--pair", CONTEXT, "--view", "gradients", "--out", "look.json")
    saved = json.loads(Path("look.json").read_text())
    assert "log-probability of a position" in json.dumps(saved)
    regard("look", model, QUESTION, "--pair", CONTEXT, "--out", "look.html")


def test_training_names_the_command_to_use(regard: Regard) -> None:
    data = write_questions(Path("train.jsonl"), questions(40))
    _, err = regard("train", "qa", data, "--out", "run", *SMALL)
    assert re.search(r'^use it: .* answer run --question "..." --context "..."', err, re.MULTILINE)


def test_mistakes(model: Path, fail: Fail) -> None:
    assert fail("answer", model) == (
        "no question; give --question with --context or --file, or a file of questions by --file"
    )
    one_context = "a question has one context; give it with --context, or as a text file with --file"
    assert fail("answer", model, "--question", "who") == one_context
    assert fail("answer", model, *ONE, "--file", "x.txt") == one_context
    empty = "--context is empty; give at least one word"
    assert fail("answer", model, "--question", "who", "--context", " ") == empty
    assert fail("answer", model, "--question", "", "--context", "x") == "--question is empty; give at least one word"
    Path("empty.txt").write_text("\n")
    assert fail("answer", model, "--question", "who", "--file", "empty.txt").startswith("empty.txt: no text; ")
    assert fail("answer", model, "--question", "who", "--file", "none.txt").startswith("none.txt: no such file")
    Path("x.jsonl").write_text("{}\n")
    assert "leave --question out" in fail("answer", model, "--question", "who", "--file", "x.jsonl")
    assert (
        fail("answer", model, "--file", "x.jsonl")
        == "x.jsonl:1: empty question; drop the question or pass --skip-empty"
    )
    assert fail("answer", model, *ONE, "--n-best", 0) == "n-best 0: expected at least 1 and at most 1,000"
    assert fail("answer", model, "--file", "x.jsonl", "--columns", "a") == (
        "--columns a: expected two, those of the questions and of their contexts"
    )
    assert (
        fail("look", model, "who") == "a question is looked at with its context; give it with --pair, in Python as pair"
    )


def test_mistakes_in_training_data(fail: Fail) -> None:
    bad = [*questions(30), {"question": "which city", "context": "There is A Fox.", "answers": ["Oslo"]}]
    data = write_questions(Path("bad.jsonl"), bad)
    message = "the answer 'Oslo' is not in its context; an answer must be copied from it letter by letter"
    assert fail("train", "qa", data, "--out", "x") == f"bad.jsonl:31: {message}"
    write_questions(Path(data), [*questions(30), {"question": "which city", "context": "", "answers": []}])
    assert fail("train", "qa", data, "--out", "x") == (
        "bad.jsonl:31: empty context; drop the question or pass --skip-empty"
    )
    assert not Path("x").exists()


def test_another_model_cannot_answer(run: Path, fail: Fail) -> None:
    assert "a model for translate, which cannot answer; use it with: regard translate" in fail("answer", run, *ONE)
