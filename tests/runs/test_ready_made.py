"""Names of ready-made models: found in installed packages, taken wherever a model is asked for, and refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ready_made_package import ENTRIES, PACKAGE, SCORES, build, install, write_index
from sources import WORDPIECE, encoder, save
from tiny_runs import merged, recipe, trained

import regard
from regard.errors import CheckpointError
from regard.runs.model_loading import has_word_vectors, open_model
from regard.runs.ready_made import INDEX_FILE, find_ready_made, list_ready_made, locate_model
from regard.tasks.pretrain import PretrainConfig, PretrainingTask


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def models(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an installed package, from a current directory without models."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return install(built, tmp_path / "site", monkeypatch)


def test_installed_packages_are_found_and_not_imported(models: Path) -> None:
    listed = {name: each for name, each in list_ready_made().items() if name in ENTRIES}
    assert list(listed) == list(ENTRIES)
    assert [each.path for each in listed.values()] == [models / str(each["directory"]) for each in ENTRIES.values()]
    about = listed["toy-en-fr"].describe()
    assert list(about) == ["name", "task", "languages", "bytes", "path", "licence", "scores"]
    assert about["scores"] == SCORES
    files = [each for each in (models / "toy-translator").iterdir() if each.is_file()]
    assert about["bytes"] == sum(each.stat().st_size for each in files) > 0


def test_a_variable_stands_in_place_of_packages(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = models.parent / "other"
    other.mkdir()
    write_index(other, {"toy-mood": {**ENTRIES["toy-mood"], "directory": "elsewhere"}, "mine": ENTRIES["toy-mood"]})
    monkeypatch.setenv("REGARD_MODELS", f"{other}{os.pathsep}{models}")
    assert list(list_ready_made()) == ["toy-mood", "mine", "toy-en-fr", "toy-fr-en"]
    assert locate_model("toy-mood") == other / "elsewhere"  # the first of two
    monkeypatch.setenv("REGARD_MODELS", "")
    assert list_ready_made() == {}


def test_a_name_loads_with_its_direction(models: Path) -> None:
    forward, backward = (regard.Translator.load(name, device="cpu") for name in ("toy-en-fr", "toy-fr-en"))
    assert forward.path == backward.path == models / "toy-translator"
    assert (forward.to, backward.to) == ("fr", "en")
    assert regard.Translator.load(models / "toy-translator", device="cpu").to == ""
    assert forward.info()["ready_made"]["licence"] == "CC BY 2.0"
    mood = regard.load("toy-mood", device="cpu")
    assert isinstance(mood, regard.Classifier)
    assert mood.classify("the red cat").label in ("negative", "positive")


def test_a_path_wins_over_a_name_and_says_so_once(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE)), Path("toy-mood"))
    for _ in range(2):
        assert isinstance(regard.load("toy-mood", device="cpu"), regard.MaskedLanguageModel)
    warning = "toy-mood: taken from the current directory, where it exists; a ready-made model has that name too"
    assert capsys.readouterr().err == f"warning: {warning}\n"
    assert find_ready_made("./toy-mood") is None
    assert capsys.readouterr().err == ""


def test_training_starts_from_a_name(models: Path, tmp_path: Path) -> None:
    assert not has_word_vectors(Path("toy-mood"))
    _, task, _ = open_model(Path("toy-en-fr"))
    tables = merged(recipe(tmp_path), {"train": {"steps": 1}})
    trained({**tables, "model": {"start": "toy-en-fr"}, "tokenizer": {}}, tmp_path / "run")
    run_config, own_task, _ = open_model(tmp_path / "run")
    assert run_config.model.start == "toy-en-fr"
    assert own_task.tokenizers.source.fingerprint == task.tokenizers.source.fingerprint  # type: ignore[attr-defined]


def test_a_vocabulary_comes_from_a_name(models: Path, tmp_path: Path) -> None:
    tables = merged(recipe(tmp_path), {"model": {"n_positions": 64}, "train": {"steps": 1}})
    trained({**tables, "tokenizer": {"start": "toy-en-fr"}}, tmp_path / "run")
    loaded, named = (regard.Translator.load(each, device="cpu") for each in (tmp_path / "run", "toy-en-fr"))
    assert loaded.task.tokenizers.source.fingerprint == named.task.tokenizers.source.fingerprint


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("toy-en-fx", "and no ready-made model has that name; did you mean 'toy-en-fr'?"),
        ("toy-en-es", "and no ready-made model has that name; did you mean 'toy-en-fr'?"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(models: Path, name: str, end: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        regard.load(name, device="cpu")
    assert str(raised.value) == f"{name}: no such run directory, {end}"


def test_without_a_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_MODELS", "")
    with pytest.raises(CheckpointError) as raised:
        regard.load("en-fr", device="cpu")
    install_it = "a ready-made model needs the extra 'models'; run: pip install 'regard[models]'"
    assert str(raised.value) == f"en-fr: no such run directory; `regard train` makes one; {install_it}"


def test_an_empty_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / INDEX_FILE).write_text("")
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path))
    with pytest.raises(CheckpointError, match="no ready-made model has that name; there is none"):
        locate_model("en-fr")


def test_damaged_weights_are_named(models: Path) -> None:
    path = models / "toy-translator" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"toy-translator/model\.safetensors: damaged \(its checksum does not"):
        regard.load("toy-fr-en", device="cpu")


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ("[x]\nnothing", "damaged, or not an index of models"),
        ('[x]\ntask = "translate"\n', r"no value for x\.directory; install the package again"),
        ('[x]\ntasks = "translate"\n', r"unknown key 'x\.tasks'; did you mean 'x\.task'\?"),
        ("x = 1\n", "damaged, or not an index of models"),
        ('[x]\ndirectory = "x"\ntask = "lm"\nlicence = ""\nscores = { bits = "2" }\n', "the score 'bits' is '2'"),
        ("\xff", "damaged, or not an index of models"),
        (None, "no such file"),
    ],
)
def test_a_damaged_index_is_one_line(index: str | None, problem: str, models: Path) -> None:
    path = models / INDEX_FILE
    path.unlink()
    if index is not None:
        path.write_bytes(index.encode("latin-1"))
    with pytest.raises(CheckpointError, match=problem) as raised:
        regard.load("toy-mood", device="cpu")
    assert str(path) in str(raised.value)


def test_a_package_that_is_gone(models: Path) -> None:
    (models / "__init__.py").unlink()
    models.rename(models.parent / "moved")
    with pytest.raises(CheckpointError, match=f"{PACKAGE}: this package of models is installed, but not there"):
        locate_model("toy-mood")
