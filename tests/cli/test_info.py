"""`regard info`: finished and unfinished runs, and models of other libraries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from theirs import CASES, save
from tiny_runs import ready, recipe

from regard.cli.info import MAX_SPARKLINE_POINTS, draw_sparkline
from regard.training.loop import Trainer

Regard = Callable[..., tuple[str, str]]


def table(text: str) -> dict[str, str]:
    """The printed values by key."""
    return {key: value.strip() for key, _, value in (line.partition(" ") for line in text.splitlines())}


@pytest.fixture
def stopped(folder: Path) -> Path:
    """A run that was interrupted after four of six steps."""
    trainer = Trainer(ready(recipe(folder, {"train": {"validate_every": 2}}), folder / "stopped"))
    for event in trainer.train():
        if event.step == 4:
            trainer.request_stop()
    return folder / "stopped"


def test_unfinished_run_has_step_best_score_and_curve(regard: Regard, stopped: Path) -> None:
    values = table(regard("info", stopped)[0])
    assert values["training.steps"] == "4 of 6, not finished"
    assert int(values["training.best.step"]) in (2, 4)
    assert float(values["training.best.bleu"]) >= 0
    assert values["training.curve"].startswith("bleu ")
    assert values["training.curve"].endswith(" at step 4)")
    assert "training.finished" not in values


def test_unfinished_run_as_json(regard: Regard, stopped: Path) -> None:
    training = json.loads(regard("info", stopped, "--json")[0])["training"]
    assert training["finished"] is False
    assert (training["steps"], training["planned_steps"]) == (4, 6)
    assert training["best"].keys() == {"bleu", "step", "averaged"}
    assert training["curve"]["metric"] == "bleu"
    assert training["curve"]["steps"] == [2, 4]
    assert len(training["curve"]["values"]) == 2


def test_run_before_its_first_validation_has_no_best_score(regard: Regard, folder: Path) -> None:
    trainer = Trainer(ready(recipe(folder), folder / "early"))
    for event in trainer.train():
        if event.step == 2:
            trainer.request_stop()
    training = json.loads(regard("info", folder / "early", "--json")[0])["training"]
    assert (training["steps"], training["best"], training["curve"]["values"]) == (2, {}, [])
    assert "training.curve" not in table(regard("info", folder / "early")[0])


def test_finished_run(regard: Regard, run: Path) -> None:
    training = json.loads(regard("info", run, "--json")[0])["training"]
    assert training["finished"] is True
    assert training["tokens_per_second"] > 0
    assert training["curve"]["steps"] == [3, 6]
    assert table(regard("info", run)[0])["training.steps"] == "6 of 6"


def test_hugging_face_directory_has_no_placeholders(regard: Regard, folder: Path) -> None:
    case = next(case for case in CASES if case.name == "BERT classes")
    save(case, folder / "theirs")
    regard("import", "theirs", "--out", "imported")
    for path in ("theirs", "imported"):
        about = json.loads(regard("info", path, "--json")[0])
        assert about["config"].keys() == {"task", "tokenizer", "model"}
        assert about["imported_from"] == "Hugging Face transformers (BERT)"
        assert about["config"]["tokenizer"].keys() == {"vocabulary"}
        assert not about["config"]["task"].keys() & {"hops", "query", "class_weights"}
        assert not about["config"]["model"].keys() & {"sinusoid_base", "spread", "tied"}
        assert about["config"]["model"].keys() >= {"first_position", "pooler", "positions"}
        assert about["training"] == {}
        lines = table(regard("info", path)[0])
        assert not [key for key in lines if key.startswith(("config.train", "config.data"))]
        assert lines["config.model.d_key"] == "0 (d_model / n_heads)"


def test_imported_encoder_states_no_fraction_of_masked_tokens(regard: Regard, folder: Path) -> None:
    case = next(case for case in CASES if case.name == "BERT words")
    save(case, folder / "masked")
    config = json.loads(regard("info", "masked", "--json")[0])["config"]
    assert config["task"]["name"] == "pretrain"
    assert "masked" not in config["task"]


def test_library_of_an_imported_translator(regard: Regard, folder: Path) -> None:
    case = next(case for case in CASES if case.name.startswith("Marian"))
    save(case, folder / "marian")
    about = json.loads(regard("info", "marian", "--json")[0])
    assert about["imported_from"] == "Hugging Face transformers (Marian)"
    assert "joint" in about["config"]["tokenizer"]
    assert not about["config"]["task"].keys() & {"label_smoothing", "r_drop"}


def test_run_directory_imported_by_an_earlier_version_does_not_name_the_library(regard: Regard, folder: Path) -> None:
    save(next(case for case in CASES if case.name == "BERT classes"), folder / "older")
    regard("import", "older", "--out", "older-run")
    path = folder / "older-run" / "config.toml"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if line[0] != "#"))
    assert table(regard("info", "older-run")[0])["imported_from"] == "another library"


def test_run_states_the_settings_that_have_an_effect(regard: Regard, run: Path) -> None:
    about = json.loads(regard("info", run, "--json")[0])
    assert "imported_from" not in about
    model = about["config"]["model"]
    assert model["positions"] == "sinusoidal"
    assert model.keys() >= {"sinusoid_base", "spread", "tied"}
    assert "first_position" not in model
    assert about["config"]["tokenizer"].keys() == {"kind", "vocabulary", "joint", "start"}
    assert about["config"]["task"].keys() >= {"label_smoothing", "r_drop"}


def test_kernels_in_use_are_named(regard: Regard, run: Path) -> None:
    kernels = json.loads(regard("info", run, "--json")[0])["kernels"]
    assert {"device", "packed_self_attention", "linear"} < kernels.keys()
    assert all(text.endswith("pytorch") for key, text in kernels.items() if key != "device")
    assert "kernels.linear" in table(regard("info", run)[0])


def test_sparkline() -> None:
    assert draw_sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert draw_sparkline([11, 12, 13, 14, 15, 16, 17, 18]) == "▁▂▃▄▅▆▇█"
    assert draw_sparkline([3.0]) == "▁"
    assert draw_sparkline([2.0, 2.0]) == "▁▁"
    rising = draw_sparkline(range(10 * MAX_SPARKLINE_POINTS + 1))
    assert len(rising) <= MAX_SPARKLINE_POINTS
    assert rising[-1] == "█"
