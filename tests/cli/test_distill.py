"""`regard distill` as a user types it: texts, student, translations; resume, own vocabulary, one line for a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import EIGHT, TINY, TO_LEARN, learned, merged, write_pairs

Fail = Callable[..., str]
Regard = Callable[..., tuple[str, str]]

SIZES = {key: value for key, value in merged(TINY, TO_LEARN)["model"].items() if key != "preset"}
TRAINING = merged(TINY, TO_LEARN)["train"]
SETTINGS = [
    part
    for name, table in (("model", SIZES), ("train", TRAINING), ("task", {"label_smoothing": 0.0}))
    for key, value in table.items()
    for part in ("--set", f"{name}.{key}={json.dumps(value)}")
]
SOURCES, TARGETS = [source for source, _ in EIGHT], [target for _, target in EIGHT]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("teacher"))


@pytest.fixture
def text(folder: Path) -> str:
    write_pairs(folder, "eight", EIGHT)
    return "eight.src"


VALID = ["--valid", "eight.src", "--valid", "eight.tgt"]


def test_from_texts_to_translations(regard: Regard, teacher: Path, text: str) -> None:
    command = ["distill", teacher, text, *VALID, "--out", "student", "--preset", "tiny", *SETTINGS]
    out, err = regard(*command)
    assert out == "student\n"
    lines = err.splitlines()
    assert lines[0] == "distilled  8 of 8 texts"
    assert any(line.startswith("done: BLEU 100") for line in lines)
    assert regard("translate", "student", *SOURCES)[0].splitlines() == TARGETS
    assert f"distilled_from {teacher}" in " ".join(regard("info", "student")[0].split())
    again, err = regard(*command, "--resume")
    assert again == "student\n"
    assert "nothing to do: this run ended at step 60" in err
    assert regard("train", "student/config.toml", "--out", "student", "--resume")[0] == "student\n"


def test_vocabulary_of_its_own(regard: Regard, teacher: Path, text: str) -> None:
    command = ["distill", teacher, text, *VALID, "--out", "student", *SETTINGS, "--set", "train.steps=1", "--seed", 4]
    regard(*command, "--set", "tokenizer.vocabulary=262")
    config = json.loads(regard("info", "student", "--json")[0])["config"]
    assert (config["tokenizer"]["vocabulary"], config["tokenizer"]["start"]) == (262, "")
    assert (config["train"]["seed"], config["model"]["preset"]) == (4, "small-6+2")


def test_recipe_is_read(regard: Regard, fail: Fail, teacher: Path, text: str) -> None:
    Path("student.toml").write_text('[model]\npreset = "tiny"\nd_model = 16\n[train]\nsteps = 1\nbatch_tokens = 64\n')
    regard("distill", teacher, text, *VALID, "--recipe", "student.toml", "--out", "student")
    assert json.loads(regard("info", "student", "--json")[0])["config"]["model"]["d_model"] == 16
    Path("student.toml").write_text('[data]\ntrain = ["x"]\n')
    assert fail("distill", teacher, text, "--recipe", "student.toml", "--out", "other") == (
        "student.toml: data.train of a student is given by TEXT; leave it out of the recipe"
    )


def test_mistakes_are_one_line(fail: Fail, teacher: Path, text: str) -> None:
    Path("empty").write_text("")
    assert fail("distill", teacher, "empty") == "empty: no text; give one text per line"
    assert fail("distill", teacher, "eigth.src") == "eigth.src: no such file; did you mean 'eight.src'?"
    assert fail("distill", "nowhere", text).startswith("nowhere: no such ")
    assert fail("distill", teacher, text, "--resume") == ("--resume: which distillation? pass its directory with --out")
    assert "Missing argument" in fail("distill", teacher)
    assert fail("distill", teacher, text, "--max-ratio", "1").startswith("max-ratio 1.0: expected more than 1")
