"""Weights that are NaN or infinite: every verb says so in one line, and none prints them as results."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_directories import write_data, write_runs

from regard.cli import main

TEXT = "the red cat sits in tokyo"
COMMANDS = {
    "translate": ("translate", [TEXT]),
    "translate greedily": ("translate", [TEXT, "--beam", "1"]),
    "translate by sampling": ("translate", [TEXT, "--sample"]),
    "look": ("translate", [TEXT, "--target", "a cat"]),
    "generate": ("lm", [TEXT, "--max-tokens", "3"]),
    "generate a stream": ("lm", [TEXT, "--stream"]),
    "fill": ("pretrain", ["the [MASK] sits"]),
    "next": ("pretrain", [TEXT, TEXT]),
    "embed": ("pretrain", ["text.src", "--json"]),
    "match": ("pretrain", [TEXT, "a dog"]),
    "match sentences": ("embed", [TEXT, "a dog"]),
    "match words": ("vectors", ["cat"]),
    "cluster": ("pretrain", ["text.src", "--k", "2"]),
    "classify": ("classify", [TEXT]),
    "tag": ("tag", [TEXT]),
    "answer": ("qa", ["--question", "where", "--context", TEXT]),
    "evaluate": ("lm", ["documents.txt"]),
    "evaluate translations": ("translate", ["text.src", "text.tgt"]),
    "evaluate masked words": ("pretrain", ["documents.txt"]),
    "look at a class": ("classify", [TEXT, "--view", "gradients"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    write_runs(folder)
    write_data(folder)
    return folder


def _overflow(weights: dict[str, torch.Tensor]) -> None:
    """Finite weights whose products are not."""
    for weight in weights.values():
        weight.mul_(1e30)


def _poison(value: float) -> Callable[[dict[str, torch.Tensor]], None]:
    def poison(weights: dict[str, torch.Tensor]) -> None:
        for name in weights:
            if "embedding" in name:
                weights[name].fill_(value)

    return poison


DAMAGES = {"NaN": _poison(math.nan), "infinity": _poison(math.inf), "overflow": _overflow}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_outputs_that_are_no_numbers_are_refused(
    name: str, damage: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    task, arguments = COMMANDS[name]
    if (task, damage) == ("vectors", "overflow"):
        pytest.skip("word vectors are multiplied with nothing")
    path = folder / task / "model.safetensors"
    original = path.read_bytes()
    weights = load_file(path)
    DAMAGES[damage](weights)
    save_file(weights, path)
    try:
        with pytest.raises(SystemExit) as ended:
            main([name.split()[0], task, *arguments, "--device", "cpu"])
    finally:
        path.write_bytes(original)
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert err.endswith("the model's scores are not numbers; its weights are damaged, or its training went wrong\n")
    assert err.startswith("error: ")
    assert "nan" not in out
