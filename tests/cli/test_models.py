"""`regard models`, and names of ready-made models in place of directories, in the verbs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ready_made_package import ENTRIES, build, install, write_index
from tiny_runs import TINY

from regard import config
from regard.training import teacher_translations
from regard.training.teacher_translations import TeacherPair

Fail = Callable[..., str]
Regard = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def models(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of models, and no other."""
    directory = install(built, tmp_path / "site", monkeypatch)
    monkeypatch.setenv("REGARD_MODELS", str(directory))
    return directory


def test_the_list(models: Path, regard: Regard) -> None:
    rows = [json.loads(line) for line in regard("models", "--json")[0].splitlines()]
    assert [row["name"] for row in rows] == list(ENTRIES)
    assert all(list(row) == ["name", "task", "languages", "bytes", "path", "licence", "scores"] for row in rows)
    assert all(Path(row["path"], "README.md").exists() for row in rows)
    table = regard("models")[0]
    for row in rows:
        assert row["name"] in table
        assert row["licence"] in table
    assert "BLEU 31.5" in table
    n_bytes = sum({row["path"]: row["bytes"] for row in rows}.values())
    assert table.endswith(f"2 models of {n_bytes / 1e6:.1f} MB in all\n")


def test_without_a_package(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_MODELS", "")
    expected = "the list of ready-made models needs the extra 'models'; run: pip install 'regard[models]'"
    assert fail("models") == fail("models", "--json") == expected


def test_an_empty_package(models: Path, regard: Regard) -> None:
    (models / "index.toml").write_text("")
    assert regard("models") == ("", "the installed package of models is empty\n")
    assert regard("models", "--json")[0] == ""


def test_names_in_the_verbs(models: Path, regard: Regard) -> None:
    assert regard("translate", "toy-en-fr", "the red cat")[0].count("\n") == 1
    assert regard("classify", "toy-mood", "the red cat")[0].startswith(("negative", "positive"))
    assert json.loads(regard("look", "toy-mood", "the cat", "--view", "attribution", "--out", "x.json") and "{}") == {}
    assert Path("x.json").exists()
    about = regard("info", "toy-en-fr")[0]
    for line in ("ready_made.name ", "ready_made.licence ", "ready_made.scores.BLEU ", "ready_made.path "):
        assert line in about
    regard("export", "toy-en-fr", "--to", "regard", "--quantization", "int8", "--out", "copy")
    first, second = (json.loads(regard("info", each, "--json")[0]) for each in ("toy-en-fr", "copy"))
    assert first.pop("ready_made")["name"] == "toy-en-fr"
    assert first == second
    assert (models / "toy-translator/model.safetensors").read_bytes() == Path("copy/model.safetensors").read_bytes()


def test_a_teacher_by_name(models: Path, regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    accept = lambda _, example, *__: TeacherPair(example.text, example.text, "", example.direction)  # noqa: E731
    monkeypatch.setattr(teacher_translations, "judge_translation", accept)
    Path("texts.txt").write_text("".join(f"the red cat sits near {n}\n" for n in range(40)), encoding="utf-8")
    student = {"model": TINY["model"], "train": {**TINY["train"], "steps": 1}, "data": {"max_length": 32}}
    Path("student.toml").write_text(config.dump(student), encoding="utf-8")
    options = ["--recipe", "student.toml", "--beam", "1", "--out", "student"]
    regard("distill", "toy-en-fr", "texts.txt", *options)
    about = json.loads(regard("info", "student", "--json")[0])
    assert about["distilled_from"] == "toy-en-fr"
    assert about["config"]["task"]["target_lang"] == "fr"


def test_unknown_and_broken(models: Path, fail: Fail) -> None:
    problem = "no such run directory, and no ready-made model has that name"
    assert fail("translate", "toy-en-fx", "x") == f"toy-en-fx: {problem}; did you mean 'toy-en-fr'?"
    assert fail("translate", "toy-mood", "x").startswith("toy-mood: a model for classify, which cannot translate")
    write_index(models, {"toy-mood": {**ENTRIES["toy-mood"], "directory": "gone"}})
    assert fail("classify", "toy-mood", "x") == f"{models}/gone: no such run directory; `regard train` makes one"
