"""The package of ready-made models and the script that makes it: what the index names exists, nothing is too large."""

from __future__ import annotations

import runpy
import sys
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sources import WORDPIECE, encoder, save

import regard
from regard import config
from regard.data.labels import Labels
from regard.runs.ready_made import CARD_FILE, list_ready_made
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
SPECS: dict[str, dict[str, Any]] = tomllib.loads((MODELS / "models.toml").read_text(encoding="utf-8"))
NAMES = {
    "en-fr",
    "fr-en",
    "en-de",
    "de-en",
    "fr-de",
    "de-fr",
    "bert-en",
    "sentiment-en",
    "pos-en",
    "sentences-en",
    "lm-en",
}
MAX_WHEEL_BYTES = 1_000_000
ZIP_ENTRY_BYTES = 200
"""The names and the checksum of a file in a wheel."""


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The names that build.py defines; run as a program with arguments, if there are any."""
    monkeypatch.syspath_prepend(MODELS)

    def run(*arguments: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["build.py", *arguments])
        return runpy.run_path(str(MODELS / "build.py"), run_name="__main__" if arguments else "build")

    return run


def test_all_names_are_planned_once() -> None:
    names = [name for spec in SPECS.values() for name in spec["names"]]
    assert sorted(names) == sorted(NAMES)
    for directory, spec in SPECS.items():
        assert (MODELS / "notes" / f"{directory}.md").read_text(encoding="utf-8").count("\n## ") >= 2
        assert spec.get("base", directory) in SPECS
        assert {each["name"] for each in spec["evaluate"]} == set(spec["names"])


@pytest.mark.parametrize("directory", [name for name, spec in SPECS.items() if (ROOT / spec["recipe"]).exists()])
def test_recipes_are_of_the_task(directory: str) -> None:
    tables = config.read(ROOT / SPECS[directory]["recipe"])
    assert tables["task"]["name"] == SPECS[directory]["task"]
    if "base" in SPECS[directory]:
        assert tables["model"]["start"] == f"runs/{SPECS[directory]['base']}"
        assert tables["train"]["freeze"] > 0


def test_every_name_of_the_index_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without names, as long as no weights are there."""
    monkeypatch.setenv("REGARD_MODELS", str(MODELS / "regard_models"))
    for name, model in list_ready_made().items():
        loaded = regard.load(name, device="cpu")
        assert loaded.config is not None
        assert loaded.config.task.name == model.entry.task
        card = (model.path / CARD_FILE).read_text(encoding="utf-8")
        for section in (
            "## Data, licence and attribution",
            "## What it is not good for",
            "## Scores of the stored model",
        ):
            assert section in card
        assert model.entry.scores
        assert (ROOT / SPECS[model.entry.directory]["recipe"]).exists()


def test_what_wheels_hold_is_small(build: Callable[..., dict[str, Any]]) -> None:
    """A wheel compresses each file by itself, as is done here."""
    limit = build()["MAX_MEGABYTES"]
    files = [each for each in (MODELS / "regard_models").rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) < limit * 1e6
    packaged = [each for pattern in ("*.py", "page/*") for each in (ROOT / "regard").rglob(pattern) if each.is_file()]
    assert sum(compressed_size(each) + ZIP_ENTRY_BYTES for each in packaged) < MAX_WHEEL_BYTES


def compressed_size(path: Path) -> int:
    return len(zlib.compress(path.read_bytes()))


def test_a_model_is_packed_scored_and_listed(
    build: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two tiny models, of which one was fine-tuned from the other."""
    body = encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE), d_model=64, d_ff=128)
    mood = encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, Labels(("no", "yes"))), d_model=64, d_ff=128)
    mood.network.encoder[0].load_state_dict(body.network.encoder[0].state_dict())
    monkeypatch.chdir(tmp_path)
    for name, source in {"bert-en": body, "sentiment-en": mood}.items():
        save(source, tmp_path / "runs" / name)
    Path("sst").mkdir()
    Path("sst/dev.tsv").write_text("text\tlabel\nthe red cat\tno\na slow dog\tyes\n", encoding="utf-8")
    monkeypatch.setenv("REGARD_MODELS", "")  # the script sets it
    names = build()
    package = tmp_path / "package"
    package.mkdir()
    (package / "index.toml").write_text("")
    functions = names["pack"].__globals__
    functions.update(PACKAGE=package, INDEX=package / "index.toml")
    specs = {"bert-en": {**SPECS["bert-en"], "evaluate": []}, "sentiment-en": SPECS["sentiment-en"]}
    for name, spec in specs.items():
        names["pack"](name, spec)
    assert "sentiment-en        0.1 MB" in capsys.readouterr().out
    monkeypatch.setenv("REGARD_MODELS", str(package))
    listed = list_ready_made()
    assert list(listed) == ["bert-en", "sentiment-en"]
    assert listed["sentiment-en"].entry.scores.keys() == {"SST-2 dev accuracy"}
    card = (package / "sentiment-en" / CARD_FILE).read_text(encoding="utf-8")
    assert "| `regard evaluate sentiment-en sst/dev.tsv` |" in card
    assert "## What it is not good for" in card
    assert isinstance(regard.load("sentiment-en", device="cpu"), regard.Classifier)


def test_data_are_prepared(build: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("tatoeba", "glue/SST-2", "wikipedia_en"):
        Path(folder).mkdir(parents=True)
    for language, word in (("fr", "Salut !"), ("de", "Hallo!")):
        rows = f"Hi!\t{word}\nHello.\t{word}\nhello!\t{word}\nGo.\tx\n"
        Path(f"tatoeba/train.en-{language}.tsv").write_text(rows, encoding="utf-8")
    article = "One two three four five. Six seven eight nine ten eleven. Short.\n\nSeven.\n"
    Path("wikipedia_en/train.txt").write_text(article, encoding="utf-8")
    for part in ("train", "dev"):
        rows = "sentence\tlabel\nit ca n't be -lrb- good -rrb- \t0\ngreat \t1\n"
        Path(f"glue/SST-2/{part}.tsv").write_text(rows, encoding="utf-8")
    build("prepare")
    assert Path("sst/dev.tsv").read_text() == "text\tlabel\nit can't be ( good )\tnegative\ngreat\tpositive\n"
    assert sorted(Path("tatoeba-en.txt").read_text().split("\n\n")) == ["", "Go.", "Hello.", "Hi!", "hello!"]
    pairs = [line.split("\t") for line in Path("paraphrases.tsv").read_text().splitlines()]
    assert pairs
    assert all("Hi!" in pair and len(pair) == 2 for pair in pairs)
    assert Path("neighbours.tsv").read_text() == "One two three four five.\tSix seven eight nine ten eleven.\n"


def test_the_metadata_of_the_package_name_the_entry_point() -> None:
    project = tomllib.loads((MODELS / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["regard.models"] == {"regard-models": "regard_models"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert extras["models"] == [f"{project['name']}>=0.1"]


def test_unknown_directories_are_refused(build: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build("pack", "bert-fr")
    assert "unknown: bert-fr; known: bert-en" in capsys.readouterr().err
