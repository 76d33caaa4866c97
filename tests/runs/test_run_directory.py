"""The run directory: files are written completely or not at all; foreign and damaged ones are refused."""

from __future__ import annotations

import json
import math
import resource
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_runs import ready, recipe
from torch import nn

from regard.disk import json_text, write_atomically, write_json
from regard.errors import CheckpointError, ConfigError
from regard.models.weights import collect_weights, load_weights, read_tensors, write_tensors
from regard.runs.recipe import TrainConfig
from regard.runs.run_directory import RunDirectory
from regard.training.prepare import PreparedRun


def layer(seed: int = 0, width: int = 3) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(width, 2)


def load_error(path: Path, model: nn.Module | None = None) -> str:
    model = model or layer()
    before = collect_weights(model)
    with pytest.raises(CheckpointError) as caught:
        load_weights(model, path)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    return str(caught.value)


def test_weights_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, collect_weights(layer(1)), {"note": "é"})
    other = layer(2)
    load_weights(other, path)
    assert all(torch.equal(one, two) for one, two in zip(layer(1).parameters(), other.parameters(), strict=True))
    assert read_tensors(path)[1] == {"note": "é"}
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    assert load_error(path) == f"{path}: no such file; was training stopped before its first checkpoint?"
    save_file({"weight": torch.zeros(2, 3)}, path)
    assert load_error(path) == f"{path}: lacks the tensor 'bias'; is it from another model?"
    save_file({**collect_weights(layer()), "scale": torch.zeros(1)}, path)
    assert load_error(path) == f"{path}: holds a tensor 'scale' this model does not have; is it from another model?"
    save_file(collect_weights(layer(width=4)), path)
    assert load_error(path) == f"{path}: 'weight' has shape (2, 4), expected (2, 3); is it from another model?"


@pytest.mark.parametrize("length", [0, 4, 20, -1])
def test_truncated_file(tmp_path: Path, length: int) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, collect_weights(layer()))
    path.write_bytes(path.read_bytes()[:length])
    assert load_error(path).startswith(f"{path}: damaged or not a safetensors file (")
    assert load_error(path).endswith("); restore it from a copy")


def test_file_that_is_no_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_text("weights, honestly" * 100)
    assert "damaged or not a safetensors file" in load_error(path)
    path.unlink()
    path.mkdir()
    assert "not a file; restore it from a copy" in load_error(path)


def test_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_json(path, {"bleu": 1})

    def fail(aside: Path) -> None:
        aside.write_text("{")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"bleu": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


def test_non_finite_numbers_become_null_in_json(tmp_path: Path) -> None:
    value = {"é": [1.5, -math.inf, (math.nan, 2)], "best": {"perplexity": math.inf, "n": 3, "on": True, "no": None}}
    plain = {"é": [1.5, None, [None, 2]], "best": {"perplexity": None, "n": 3, "on": True, "no": None}}
    write_json(tmp_path / "x.json", value)
    for text in (json_text(value), (tmp_path / "x.json").read_text(encoding="utf-8")):
        assert json.loads(text, parse_constant=pytest.fail) == plain
        assert "é" in text
    assert "\n" not in json_text(value)


def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, collect_weights(layer()))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_tensors(path, {"weight": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    folder = tmp_path_factory.mktemp("run")
    return ready(recipe(folder), folder / "run")


def test_missing_run_directory(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none", "no such run directory; `regard train` makes one"),
        (tmp_path, "not a run directory: it has no config.toml; name one that `regard train` or `regard import` made"),
    ):
        with pytest.raises(CheckpointError) as caught:
            RunDirectory(path).load()
        assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize("has_checksums", [True, False])
def test_truncated_config_is_refused(prepared: PreparedRun, tmp_path: Path, has_checksums: bool) -> None:
    text = prepared.directory.config_path.read_text()
    if not has_checksums:  # as 0.1 wrote it
        text = text[text.index("[task]") : text.index("threads = ")]
    for length in range(len(text) - len("\n")):
        (tmp_path / "config.toml").write_text(text[:length])
        with pytest.raises((CheckpointError, ConfigError)) as caught:
            RunDirectory(tmp_path).read_config()
        assert str(caught.value).startswith(f"{tmp_path}/config.toml: ")


def test_comments_of_the_user_are_no_damage(prepared: PreparedRun, tmp_path: Path) -> None:
    lines = prepared.directory.config_path.read_text().splitlines(keepends=True)
    (tmp_path / "config.toml").write_text("".join(["# mine\n", "#\n", *lines[1:]]))
    assert RunDirectory(tmp_path).read_config() == prepared.config


@pytest.mark.parametrize("name", ["steps", "batch_tokens", "accumulate", "log_every", "average", "learning_rate"])
def test_settings_out_of_range(prepared: PreparedRun, name: str) -> None:
    values = vars(prepared.config.train)
    zero = type(values[name])(0)
    with pytest.raises(ConfigError, match=rf"^train.{name} = {zero}; expected "):
        TrainConfig(**values | {name: zero})
