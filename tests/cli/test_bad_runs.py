"""Invalid decoding options, and missing, foreign or damaged run directories: one-line errors, never a traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tiny_runs import recipe, written

from regard.cli import main

Fail = Callable[..., str]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam", "0"], "beam 0: expected at least 1"),
        (["--n-best", "0"], "n-best 0: expected at least 1"),
        (["--batch", "0"], "batch 0: expected at least 1"),
        (["--n-best", "5", "--beam", "4"], "n-best 5 needs a beam at least as wide; pass --beam 5 or more"),
        (["--alpha", "-1"], "alpha -1.0: expected 0 (no length penalty) or more"),
        (["--sample", "--top-p", "0"], "top-p 0.0: expected more than 0 and at most 1"),
        (["--sample", "--top-p", "1.5"], "top-p 1.5: expected more than 0 and at most 1"),
        (["--sample", "--top-k", "-1"], "top-k -1: expected 0 (no limit) or more"),
        (["--sample", "--temperature", "0"], "temperature 0.0: expected more than 0; for the most likely token use gr"),
        (["--sample", "--beam", "4"], "beam belongs to beam search, which --sample replaces; leave one of them out"),
        (["--steps", "--json"], "--json has the tokens and their scores already; leave --steps out"),
        (["--file", "valid.src"], "both TEXT and --file given; give one of them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_decoding_options(fail: Fail, run: Path, options: list[str], message: str) -> None:
    assert fail("translate", run, "1 2 3", *options).startswith(message)


def test_empty_text(fail: Fail, run: Path) -> None:
    assert fail("translate", run, "") == "a text is empty; give at least one word"


def test_lone_surrogate(fail: Fail, run: Path) -> None:
    assert fail("translate", run, "1 \udcff").startswith("character 3 of a text is half a character (lone surrogate")


LONG = "x" * 300
FOREIGN = "\udcff"
PATHS = {
    "too long, to read": (["translate", LONG, "1 2"], f"{LONG}: "),
    "too long, to write": (["look", "run", "1 2", "--out", f"{LONG}.html"], f"{LONG}.html: "),
    "too long, to train": (["train", "r.toml", "--out", LONG], f"{LONG}: "),
    "too long, of text": (["translate", "run", "--file", LONG], f"{LONG}: "),
    "a NUL, of text": (["translate", "run", "--file", "a\0b"], "a\\x00b: "),
    "a dangling link": (
        ["translate", "run", "--file", "dangling"],
        "dangling: a link to nowhere, which does not exist; ",
    ),
    "not UTF-8, to train": (["train", "r.toml", "--out", FOREIGN], "\\udcff: this path is not UTF-8; rename it"),
    "not UTF-8, of a run": (
        ["translate", FOREIGN, "1"],
        "\\udcff/model.safetensors: this path is not UTF-8; rename it",
    ),
    "not UTF-8, of a demo": (["demo", "--out", FOREIGN], "\\udcff: this path is not UTF-8; rename it"),
    "NUL, of a demo": (["demo", "--out", "a\0b"], "a\\x00b: this path holds NUL; rename it"),
    "NUL, to train": (["train", "r.toml", "--out", "a\0b"], "a\\x00b: this path holds NUL; rename it"),
    "not UTF-8, of text": (["train", "r.toml", "--set", f"data.train={FOREIGN}"], "r.toml: data.train = "),
}


@pytest.mark.parametrize("name", PATHS)
def test_paths_that_cannot_be_are_one_line(fail: Fail, run: Path, folder: Path, name: str) -> None:
    written(folder, recipe(folder)).rename("r.toml")
    Path("dangling").symlink_to("nowhere")
    shutil.copytree(run, FOREIGN)
    command, message = PATHS[name]
    assert fail(*command).startswith(message)


VERBS = {
    "translate": ["translate", "run", "1 2"],
    "evaluate": ["evaluate", "run", "valid.src", "valid.tgt"],
    "info": ["info", "run"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_missing_run_directory(fail: Fail, verb: str) -> None:
    assert fail(*VERBS[verb]).startswith("run: no such run directory")
    Path("run").mkdir()
    assert fail(*VERBS[verb]).startswith("run: not a run directory: it has no config.toml; name one that `regard tra")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("verb", VERBS)
def test_missing_or_truncated_files_of_a_run(fail: Fail, run: Path, verb: str) -> None:
    for name, cut_message, missing_message in (
        ("model.safetensors", "damaged or not a safetensors file (", "no such file; was training stopped before"),
        ("tokenizer.json", "damaged (its checksum does not match); ", "no such tokenizer"),
        ("config.toml", "", None),
    ):
        original = (run / name).read_bytes()
        truncate(run / name)
        assert fail(*VERBS[verb]).startswith(f"run/{name}: {cut_message}")
        if missing_message is not None:
            (run / name).unlink()
            assert fail(*VERBS[verb]).startswith(f"run/{name}: {missing_message}")
        (run / name).write_bytes(original)


def test_weights_of_another_model(fail: Fail, run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    name = "encoder.0.feed_forward.up_projection.weight"
    save_file(weights | {name: weights[name][:5].clone()}, run / "model.safetensors")
    assert fail("info", run) == (
        f"run/model.safetensors: '{name}' has shape (5, 16), expected (32, 16); is it from another model?"
    )
    save_file({f"bert.{key}": value for key, value in weights.items()}, run / "model.safetensors")
    assert fail("info", run).startswith("run/model.safetensors: lacks the tensor '")
    save_file(weights | {"pooler": torch.zeros(1)}, run / "model.safetensors")
    assert fail("info", run).startswith("run/model.safetensors: holds a tensor 'pooler' this model does not have")


def delete_checksums(run: Path) -> str:
    """Delete the comments of config.toml, as users do who change files, and return what is left."""
    lines = (run / "config.toml").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#"))
    (run / "config.toml").write_text(text)
    return text


def test_foreign_tokenizer(fail: Fail, run: Path) -> None:
    delete_checksums(run)
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    (run / "tokenizer.json").write_text(other.to_str())
    assert fail("info", run).startswith("run/tokenizer.json: no token for 'pad'; it would be <pad> or [PAD]")


def test_config_with_an_unknown_key(fail: Fail, run: Path) -> None:
    text = delete_checksums(run)
    (run / "config.toml").write_text(text.replace("n_heads", "heads"))
    assert fail("info", run) == "run/config.toml: unknown key 'model.heads'; did you mean 'model.n_heads'?"
    (run / "config.toml").write_text(text.replace('name = "translate"', 'name = "sing"'))
    assert fail("info", run).startswith("run/config.toml: task.name = 'sing' is unknown; known: translate, ")


def test_resuming_with_damaged_files(fail: Fail, run: Path) -> None:
    command = ["train", run / "config.toml", "--out", run, "--resume", "--device", "cpu"]
    for name, message in (
        ("train.safetensors", "damaged or not a safetensors file ("),
        ("log.jsonl", "shorter than the checkpoint says; restore it from a copy"),
        ("tokenizer.json", "damaged (its checksum does not match); "),
    ):
        original = (run / name).read_bytes()
        truncate(run / name)
        assert fail(*command).startswith(f"run/{name}: {message}")
        (run / name).write_bytes(original)
    save_file({"x": torch.zeros(1)}, run / "train.safetensors")
    assert fail(*command).startswith("run/train.safetensors: not a checkpoint of this run (")


def test_resuming_with_other_data_or_another_shape(fail: Fail, folder: Path) -> None:
    good = written(folder, recipe(folder))
    with pytest.raises(SystemExit):
        main(["train", str(good), "--out", "mine", "--device", "cpu", "--set", "train.steps=2"])
    assert fail("train", good, "--out", "mine", "--resume", "--set", "model.d_model=32").endswith(
        "model.d_model = 32, but the run in mine has 16; leave it out, or begin another run"
    )
    Path("train.src").write_text(Path("train.src").read_text().replace("1", "2"))
    assert fail("train", good, "--out", "mine", "--resume").startswith(
        "mine/store/train: the data, or how this version reads it, changed since the run began, "
    )


def test_damaged_metrics(fail: Fail, run: Path) -> None:
    (run / "metrics.json").write_text('{"best": ')
    assert fail("info", run).startswith(f"{run / 'metrics.json'}: damaged, or not JSON (")


def test_checkpoint_without_config_is_refused(fail: Fail, run: Path) -> None:
    (run / "config.toml").unlink()
    message = fail("train", "translate", "train.src", "train.tgt", "--out", run)
    assert message == f"{run}: holds a checkpoint but no config.toml; restore it, or choose another --out"
