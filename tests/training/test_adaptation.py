"""Adaptation of a translator: what it learned before is mixed in, and both domains are scored before and after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import TO_LEARN, contents, digits, learned, merged, ready, recipe, trained, write_pairs

from regard import config
from regard.data.corpus import KEPT_SET
from regard.errors import ConfigError
from regard.training.loop import Trainer


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator that reverses digits."""
    return learned(tmp_path_factory.mktemp("start"))


def adaptation(folder: Path, start: Path, *changes: config.Tables) -> config.Tables:
    """Return the recipe of that model adapted to other texts, whose digits it is to copy."""
    own = [(source, source) for source, _ in digits(8, seed=5)]
    table: config.Table = {"train": write_pairs(folder, "own", own), "valid": write_pairs(folder, "test", own)}
    kept = write_pairs(folder, "kept", digits(8))
    table |= {"keep": kept, "keep_valid": kept}
    train = {**TO_LEARN["train"], "steps": 60, "validate_every": 30, "learning_rate": 1e-2, "interpolation": 1.0}
    return merged(
        {"task": {"name": "translate"}, "data": table, "train": train, "model": {"start": str(start)}}, *changes
    )


def test_what_was_learned_before_is_kept(start: Path, tmp_path: Path) -> None:
    """The end of training says what was before and what is after, of both."""
    events = trained(adaptation(tmp_path, start), tmp_path / "kept")
    assert (events[0].kind, events[0].step) == ("valid", 0)
    metrics = json.loads((tmp_path / "kept/metrics.json").read_text())
    before, after = metrics["before"], metrics["after"]
    assert before == {key: value for key, value in events[0].values.items() if key != "best"}
    assert before["bleu_kept"] > 90 > 10 > before["bleu_own"]
    assert after["bleu_kept"] > 60
    assert after["bleu_own"] > before["bleu_own"] + 40
    assert after["bleu"] == pytest.approx((after["bleu_own"] + after["bleu_kept"]) / 2)


def test_kept_weights_are_between_the_start_and_the_trained_ones(start: Path, tmp_path: Path) -> None:
    steps: config.Tables = {"train": {"steps": 4, "validate_every": 2, "average": 2}}
    snapshots = []
    for fraction in (1.0, 0.25):
        changes: config.Tables = {"train": {"interpolation": fraction}}
        trained(adaptation(tmp_path, start, steps, changes), tmp_path / f"run-{fraction}")
        files = (tmp_path / f"run-{fraction}/snapshots").iterdir()
        snapshots.append([load_file(path) for path in sorted(files)])
    before = load_file(start / "model.safetensors")
    assert len(snapshots[0]) == len(snapshots[1]) == 2
    for whole, part in zip(*snapshots, strict=True):
        assert all(torch.allclose(part[name], before[name].lerp(whole[name], 0.25), atol=1e-6) for name in before)
        assert any(not torch.allclose(part[name], whole[name], atol=1e-4) for name in before)


def test_resuming_is_exact(start: Path, tmp_path: Path) -> None:
    start = shutil.copytree(start, tmp_path / "start")
    changes: config.Tables = {"train": {"steps": 8, "validate_every": 4, "save_every": 4, "interpolation": 0.5}}
    tables = adaptation(tmp_path, start, changes)
    trained(tables, tmp_path / "whole")
    for step in (0, 4):
        stopped = Trainer(ready(tables, tmp_path / "parts", resume=step > 0))
        for event in stopped.train():
            if event.step == step:
                stopped.request_stop()
    shutil.rmtree(start)
    trained(tables, tmp_path / "parts", resume=True)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_own_and_kept_examples_by_their_ratio(start: Path, tmp_path: Path) -> None:
    prepared = ready(adaptation(tmp_path, start, {"data": {"keep_ratio": 0.25}}), tmp_path / "run")
    sets = prepared.task.example_sets(prepared.train_store)
    assert sets.tolist() == [0] * 8 + [KEPT_SET] * 8
    for epoch in range(2):
        drawn = np.concatenate([each.items for each in prepared.train_order.iterate_epoch(epoch)])
        assert sorted(drawn[sets[drawn] == 0]) == list(range(8))
        assert (sets[drawn] == KEPT_SET).sum() == 3
    none = ready(adaptation(tmp_path, start, {"data": {"keep_ratio": 0.0}}), tmp_path / "none")
    assert set(none.task.example_sets(none.train_store)) == {0}
    assert set(none.task.example_sets(none.valid_store)) == {0, KEPT_SET}


def test_settings_that_cannot_be(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.keep_valid scores what data\.keep holds"):
        ready(recipe(tmp_path, {"data": {"keep_valid": ("x",)}}), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"data\.keep is for a translator that starts from another; add --from"):
        ready(recipe(tmp_path, {"data": {"keep": ("x",)}}), tmp_path / "run")
    table = {"task": {"name": "classify"}, "data": {"train": ("x.tsv",), "temperature": 2.0}}
    with pytest.raises(ConfigError, match=r"data\.temperature and data\.keep are for translators"):
        ready(table, tmp_path / "run")
