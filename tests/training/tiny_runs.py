"""Tiny corpora, recipes and runs, for the tests of training, of the API and of the command line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from regard import config
from regard.training.loop import Trainer, TrainingEvent
from regard.training.prepare import PreparedRun, prepare_run

CPU = torch.device("cpu")

TINY: config.Tables = {
    "task": {"name": "translate"},
    "data": {"max_length": 32},
    "tokenizer": {"vocabulary": 266},
    "model": {
        "preset": "tiny",
        "d_model": 16,
        "n_layers": 1,
        "n_decoder_layers": 1,
        "n_heads": 2,
        "d_ff": 32,
        "n_positions": 32,
    },
    "train": {
        "steps": 6,
        "batch_tokens": 64,
        "learning_rate": 3e-3,
        "warmup": 2,
        "log_every": 1,
        "validate_every": 3,
        "save_every": 3,
        "average": 1,
        "patience": 0,
    },
}
"""A recipe that trains in a fraction of a second."""

TO_LEARN: config.Tables = {
    "task": {"label_smoothing": 0.0},
    "model": {"d_model": 32, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 60, "batch_tokens": 256, "learning_rate": 1e-2, "validate_every": 20, "log_every": 10},
}
"""Changes to it with which it overfits a handful of pairs."""


def digits(n_pairs: int, *, seed: int = 0, least: int = 4, most: int = 6) -> list[tuple[str, str]]:
    """Return distinct strings of digits, each with its reversal."""
    generator = random.Random(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < n_pairs:
        drawn = generator.choices("0123456789", k=generator.randint(least, most))
        pairs[" ".join(drawn)] = " ".join(reversed(drawn))
    return list(pairs.items())


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[str]:
    """Write source and target files; equal files that exist are left untouched, with their modification times."""
    paths = [folder / f"{name}.{side}" for side in ("src", "tgt")]
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return [str(path) for path in paths]


def recipe(folder: Path, *changes: config.Tables, n_pairs: int = 24, n_valid: int = 4) -> config.Tables:
    """Return the tiny recipe with changes, on a corpus written into the folder."""
    pairs = digits(n_pairs + n_valid)
    files: config.Table = {"train": write_pairs(folder, "train", pairs[n_valid:])}
    if n_valid:
        files["valid"] = write_pairs(folder, "valid", pairs[:n_valid])
    return merged(TINY, {"data": files}, *changes)


def written(folder: Path, tables: config.Tables) -> Path:
    """Write the tables to a file."""
    path = folder / "recipe.toml"
    path.write_text(config.dump(tables), encoding="utf-8")
    return path


def merged(*every: config.Tables) -> config.Tables:
    """Merge tables key by key; later ones win."""
    result: config.Tables = {}
    for tables in every:
        for name, table in tables.items():
            result[name] = {**result.get(name, {}), **table}
    return result


def ready(tables: config.Tables, out: Path, *, resume: bool = False) -> PreparedRun:
    """Prepare a run, and let others prepare it too; a `Trainer` takes the lock again."""
    prepared = prepare_run(tables, out, CPU, where="test", resume=resume)
    prepared.directory.lock.release()
    return prepared


def trained(tables: config.Tables, out: Path, *, resume: bool = False) -> list[TrainingEvent]:
    """Train to the end, and return the events except reports of progress, which depend on time."""
    events = Trainer(ready(tables, out, resume=resume)).train()
    return [event for event in events if event.kind != "progress"]


def abandon_after(tables: config.Tables, out: Path, events: int) -> None:
    """Begin or resume a run, and abandon it after so many events."""
    run = Trainer(ready(tables, out, resume=True)).train()
    for _, _ in zip(range(events), run, strict=False):
        pass
    run.close()


def contents(out: Path) -> dict[str, Any]:
    """Return what equal runs share bit by bit: the best weights, the log, the training state without its times."""
    state = {name: tensor.numpy().tobytes() for name, tensor in load_file(out / "train.safetensors").items()}
    return {
        "model": (out / "model.safetensors").read_bytes(),
        "log": (out / "log.jsonl").read_bytes(),
        "config": (out / "config.toml").read_bytes(),
        "snapshots": {path.name: path.read_bytes() for path in sorted(out.glob("snapshots/*"))},
        **state,
    }


EIGHT = digits(8)


def learned(folder: Path) -> Path:
    """Return a run that overfitted eight pairs."""
    data = write_pairs(folder, "eight", EIGHT)
    trained(recipe(folder, TO_LEARN, {"data": {"train": data, "valid": data}}), folder / "learned")
    return folder / "learned"
