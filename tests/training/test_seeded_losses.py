"""Seeded losses of every recipe, at a small size and on synthetic text: a pure refactoring changes none of them.

A change of maths changes them on purpose: write the file anew with ``python tests/training/test_seeded_losses.py`` and
say in docs/LOG.md why. Other processors round otherwise, so a part in ten thousand is let pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from regard import config
from regard.api import train

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).with_name("seeded_losses.json")
RECIPES = {path.stem: path for path in sorted((ROOT / "recipes").glob("*.toml"))}

OTHERS: dict[str, config.Tables] = {
    "classify": {"task": {"name": "classify"}, "model": {"architecture": "transformer"}},
    "classify-score": {"task": {"name": "classify", "kind": "score"}},
    "classify-rnn": {"task": {"name": "classify", "pooling": "attention"}, "model": {"architecture": "rnn"}},
    "classify-static": {
        "task": {"name": "classify", "pooling": "attention", "hops": 2, "penalty": 0.1},
        "model": {"architecture": "static"},
    },
    "embed": {"task": {"name": "embed", "chunk_tokens": 128}},
    "tag": {"task": {"name": "tag"}},
    "tag-rnn": {"task": {"name": "tag"}, "model": {"architecture": "rnn"}},
    "roberta": {"task": {"name": "pretrain", "objective": "masked"}, "model": {"positions": "rotary", "norm": "pre"}},
    "lm-rnn": {"task": {"name": "lm"}, "model": {"architecture": "rnn"}},
    "translate-relative": {"task": {"name": "translate"}, "model": {"positions": "relative-values"}},
}
"""Variants that no recipe covers."""

TINY: dict[str, Any] = {"preset": "tiny", "d_model": 32, "dropout": 0.1}
TRANSFORMER = {"n_layers": 1, "n_heads": 2, "d_ff": 64}
STEPS = {
    "steps": 6,
    "batch_tokens": 512,
    "warmup": 2,
    "log_every": 1,
    "validate_every": 3,
    "save_every": 6,
    "average": 1,
}
WORDS = ("the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "quickly")
WORDS += ("slowly", "and", "it", "was", "red", "blue")
DROPPED = ("preset", "d_model", "d_ff", "start")
KEPT = ("schedule", "learning_rate", "weight_decay", "layer_decay", "clip")


def words(rng: Random, n: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n))


def write_data(folder: Path, task: str, *, score: bool) -> list[str]:
    """Write synthetic text for a task; the same at every call."""
    rng = Random(0)
    lines = [words(rng, rng.randint(3, 9)) for _ in range(120)]
    if task == "translate":
        (folder / "train.en").write_text("\n".join(lines) + "\n", encoding="utf-8")
        reversed_lines = [" ".join(reversed(line.split())) for line in lines]
        (folder / "train.fr").write_text("\n".join(reversed_lines) + "\n", encoding="utf-8")
        return [str(folder / "train.en"), str(folder / "train.fr")]
    if task in ("lm", "pretrain", "vectors"):
        documents = ["\n".join(lines[start : start + 4]) for start in range(0, 120, 4)]
        (folder / "train.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        return [str(folder / "train.txt")]
    if task == "classify":
        labels = [str(len(line.split()) / 2) if score else ("long" if len(line) > 25 else "short") for line in lines]
        rows = [f"{line}\t{label}" for line, label in zip(lines, labels, strict=True)]
        (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
        return [str(folder / "train.tsv")]
    if task == "embed":
        rows = [f"{line}\t{' '.join(reversed(line.split()))}" for line in lines]
        (folder / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        return [str(folder / "train.tsv")]
    if task == "qa":
        rows = [
            json.dumps({"question": "what comes last", "context": line, "answers": line.split()[-1]}) for line in lines
        ]
        (folder / "train.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        return [str(folder / "train.jsonl")]
    tagged = ["\n".join(f"{word}\t{word[0].upper()}" for word in line.split()) for line in lines]
    (folder / "train.conll").write_text("\n\n".join(tagged) + "\n", encoding="utf-8")
    return [str(folder / "train.conll")]


def shrunk(tables: config.Tables, data: list[str]) -> config.Tables:
    """Return the recipe at a size that trains in a second."""
    model = {key: value for key, value in tables.get("model", {}).items() if key not in DROPPED}
    if TINY["d_model"] % model.get("n_heads", 1):
        del model["n_heads"]
    recurrent = model.get("architecture", "transformer") != "transformer"
    tokenizer = {key: value for key, value in tables.get("tokenizer", {}).items() if key != "vocabulary"}
    task: dict[str, Any] = dict(tables["task"])
    if "length" in task:
        task["length"] = 32
    return {
        "task": task,
        "data": {"train": data, "max_length": 64},
        "tokenizer": tokenizer,
        "model": {**TINY, **({} if recurrent else TRANSFORMER), **model},
        "train": {**STEPS, **{key: value for key, value in tables.get("train", {}).items() if key in KEPT}},
    }


def losses(name: str, folder: Path) -> list[float]:
    """Return the training loss of every step."""
    tables = config.read(RECIPES[name]) if name in RECIPES else OTHERS[name]
    data = write_data(folder, tables["task"]["name"], score=tables["task"].get("kind") == "score")
    run = train(shrunk(tables, data), out=folder / "run", device="cpu")
    log = (run.path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [record["loss"] for record in map(json.loads, log) if "loss" in record]


@pytest.mark.parametrize("name", [*RECIPES, *OTHERS])
def test_seeded_losses_are_unchanged(name: str, tmp_path: Path) -> None:
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    assert losses(name, tmp_path) == pytest.approx(expected, rel=1e-4)


def main() -> None:
    all_losses = {}
    for name in [*RECIPES, *OTHERS]:
        with TemporaryDirectory() as folder:
            all_losses[name] = losses(name, Path(folder))
    GOLDEN.write_text(json.dumps(all_losses, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
