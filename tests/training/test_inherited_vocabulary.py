"""`tokenizer.start`: a run takes the vocabulary of another translator instead of learning one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_runs import contents, digits, learned, merged, ready, recipe, trained, write_pairs

from regard import config
from regard.errors import ConfigError, RegardError
from regard.runs.run_directory import RunDirectory


def others(folder: Path, *changes: config.Tables) -> config.Tables:
    """Return the tiny recipe on other pairs, whose own vocabulary would be another one, without a size for it."""
    letters = [(source.replace("1", "un"), target.replace("1", "eins")) for source, target in digits(30, seed=3)]
    data = {"train": write_pairs(folder, "other", letters), "valid": write_pairs(folder, "few", letters[:4])}
    tables = merged(recipe(folder), {"data": data}, *changes)
    return {**tables, "tokenizer": {k: v for k, v in tables["tokenizer"].items() if k not in ("vocabulary", "joint")}}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("teacher"))


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
def test_vocabulary_is_that_of_the_other_model(tmp_path: Path, joint: bool) -> None:
    tables = recipe(tmp_path, {"tokenizer": {"joint": joint, "vocabulary": 264}})
    ready(tables, tmp_path / "teacher")
    prepared = ready(others(tmp_path, {"tokenizer": {"start": f"{tmp_path}/teacher"}}), tmp_path / "run")
    for name in ("tokenizer.json", *([] if joint else ["tokenizer.target.json"])):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "teacher" / name).read_bytes()
    assert prepared.task.tokenizers.is_joint == joint
    assert prepared.config.tokenizer.start == f"{tmp_path}/teacher"
    assert prepared.config.tokenizer.vocabulary == 264
    assert not any(key.startswith("tokenizer") for key in prepared.chosen_settings)
    own = ready(others(tmp_path), tmp_path / "own")
    assert own.task.fingerprint != prepared.task.fingerprint


def test_resumed_without_the_other_model(tmp_path: Path, teacher: Path) -> None:
    tables = others(tmp_path, {"tokenizer": {"start": f"{tmp_path}/teacher"}})
    shutil.copytree(teacher, tmp_path / "teacher")
    trained(tables, tmp_path / "whole")
    ready(tables, tmp_path / "run")
    again = config.read(tmp_path / "run" / "config.toml")
    trained(again, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "whole"), "the resolved recipe makes the same run"
    shutil.rmtree(tmp_path / "teacher")
    trained({"task": {"name": "translate"}}, tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_fine_tuning_takes_the_vocabulary_with_the_weights(tmp_path: Path, teacher: Path) -> None:
    ready(others(tmp_path, {"tokenizer": {"start": str(teacher)}}), tmp_path / "run")
    RunDirectory(tmp_path / "run").read_config()
    data = others(tmp_path)["data"]
    tables: config.Tables = {"task": {"name": "translate"}, "data": data, "model": {"start": str(teacher)}}
    prepared = ready(tables, tmp_path / "tuned")
    assert prepared.config.tokenizer.start == ""
    with pytest.raises(ConfigError, match=r"tokenizer\.start: the vocabulary is that of .*; leave it out"):
        ready(merged(tables, {"tokenizer": {"start": str(teacher)}}), tmp_path / "both")


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"vocabulary": 300}, "test: tokenizer.vocabulary = 300, but the vocabulary of tokenizer.start has 266 ({}); "),
        ({"joint": False}, "test: tokenizer.joint = False, but the vocabulary of tokenizer.start has True ({}); "),
    ],
    ids=["size", "joint"],
)
def test_another_vocabulary_is_refused(tmp_path: Path, teacher: Path, tokenizer: config.Table, message: str) -> None:
    tables = others(tmp_path)
    with pytest.raises(ConfigError) as error:
        ready({**tables, "tokenizer": {"start": str(teacher), **tokenizer}}, tmp_path / "run")
    assert str(error.value) == message.format(teacher) + "leave one of the two out"
    assert not (tmp_path / "run").exists()


def test_models_without_such_a_vocabulary_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(source for source, _ in digits(40)))
    lm: config.Tables = {
        "task": {"name": "lm", "length": 16},
        "data": {"train": [str(text)]},
        "tokenizer": {"vocabulary": 260},
        "model": {"preset": "tiny", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16},
        "train": {"steps": 1, "batch_tokens": 64},
    }
    ready(lm, tmp_path / "lm")
    with pytest.raises(ConfigError, match=r"tokenizer\.start = .*/lm: a model for lm, not a translator; name a"):
        ready(others(tmp_path, {"tokenizer": {"start": f"{tmp_path}/lm"}}), tmp_path / "run")
    with pytest.raises(RegardError, match="nowhere: no such run directory"):
        ready(others(tmp_path, {"tokenizer": {"start": f"{tmp_path}/nowhere"}}), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"tokenizer\.start is for translators, not for lm; leave it out"):
        ready(merged({**lm, "tokenizer": {}}, {"tokenizer": {"start": f"{tmp_path}/lm"}}), tmp_path / "run")
