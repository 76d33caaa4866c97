"""Classifiers from language models beside those from scratch and from BERT (ULMFiT, Howard and Ruder 2018; GPT; ELMo).

    python bench/transfer.py --data trec-train.tsv trec-test.tsv --lm runs/lm --bert runs/bert [--device cuda]
    python bench/transfer.py --data sst-train.tsv sst-test.tsv --lm runs/lstm --backward-lm runs/lstm-backward

Trains a classifier for each arm and seed, with validation texts held out of the first file, and prints its accuracy on
the second file: the mean, the lowest and the highest of the seeds, and the median of the seconds of training. --lm may
be given several times. --arms selects arms by number or by the beginning of their names, so that each can run in a
process of its own. The model from scratch has the shape of the first language model and a vocabulary of its own.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness

import regard
from regard import config
from regard.models.lm_encoder import make_encoder_config
from regard.runs.run_directory import RunDirectory

ULMFIT: config.Table = {"schedule": "slanted-triangular", "layer_decay": 1 / 2.6, "unfreeze": "epoch"}
"""The options of Howard and Ruder 2018 for the classifier: sections 3.2 and 3.3."""

SCRATCH_KEYS = ("architecture", "d_model", "n_layers", "n_heads", "d_ff", "cell", "directions", "dropout", "norm")
"""Settings that the model from scratch shares with the language model."""


class TrainedArm(NamedTuple):
    """The outcome of one training run."""

    accuracy: float
    seconds: float


def list_arms(options: Any) -> dict[str, config.Tables]:
    """Return the recipe of each arm."""
    shape = config.to_tables({"model": read_encoder_config(options.lm[0])})["model"]
    arms: dict[str, config.Tables] = {
        "from scratch": {"model": {"preset": "tiny", **{key: shape[key] for key in SCRATCH_KEYS if key in shape}}}
    }
    for path in options.lm:
        start: config.Tables = {"model": {"start": path}}
        name = Path(path).name
        arms[f"{name}, frozen"] = {**start, "train": {"freeze": "encoder"}}
        arms[f"{name}, fine-tuned"] = start
        arms[f"{name}, ULMFiT's options"] = {**start, "train": ULMFIT}
    if options.backward_lm:
        both = {"start": options.lm[0], "start_backward": options.backward_lm}
        arms["forward and backward, frozen (ELMo)"] = {"model": both}
    if options.bert:
        arms[f"{Path(options.bert).name}, fine-tuned"] = {"model": {"start": options.bert}}
    return arms


def read_encoder_config(path: str) -> Any:
    """Return the config of the encoder that the layers of a language model become."""
    run_config = RunDirectory(Path(path)).read_config()
    return make_encoder_config(run_config.model, run_config.task.direction)


def train_arm(options: Any, arm: config.Tables, seed: int, out: Path) -> TrainedArm:
    """Train one arm with one seed, and score it."""
    train, test = options.data
    recipe: config.Tables = {
        "task": {"name": "classify"},
        "data": {"train": [train], **({"columns": options.columns.split(",")} if options.columns else {})},
        "model": arm["model"],
        "train": {"seed": seed, **arm.get("train", {})},
    }
    run = regard.train(recipe, out=out, overrides=options.set, device=options.device)
    start = time.perf_counter()
    for _ in run:
        pass
    seconds = time.perf_counter() - start
    model = regard.load(run.path, device=options.device)
    assert isinstance(model, regard.Classifier)
    return TrainedArm(model.evaluate(test)["accuracy"], seconds)


def compare_arms(options: Any, arms: Mapping[int, tuple[str, config.Tables]], folder: Path) -> None:
    """Train the arms and print the table, each line as its arm ends."""
    print(f"{'':<44}{'accuracy':>9}  {'seeds':<16}{'seconds':>8}", flush=True)
    for number, (name, arm) in arms.items():
        seeds = range(1, options.seeds + 1)
        runs = [train_arm(options, arm, seed, folder / f"{number}-{seed}") for seed in seeds]
        scores = harness.format_scores([each.accuracy for each in runs], digits=1)
        seconds = statistics.median(each.seconds for each in runs)
        print(f"{name:<44}{scores}{seconds:>8.1f}", flush=True)


def write_smoke_models(folder: Path) -> tuple[str, str, str]:
    """Train two tiny language models for one step and write labelled texts; return the texts and both models."""
    rng = random.Random(0)
    words = ["cat", "dog", "bird", "sees", "the", "red", "old", "and"]
    texts = [" ".join(rng.choices(words, k=6)) for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")
    rows = [f"{text}\t{'yes' if 'cat' in text else 'no'}" for text in texts]
    (folder / "labelled.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    for direction in ("forward", "backward"):
        recipe: config.Tables = {
            "task": {"name": "lm", "length": 16, "direction": direction},
            "data": {"train": [str(folder / "text.txt")]},
            "model": {"architecture": "rnn", "preset": "tiny", "d_model": 16},
            "train": {"steps": 1, "batch_tokens": 256},
        }
        for _ in regard.train(recipe, out=folder / direction, device="cpu"):
            pass
    return str(folder / "labelled.tsv"), str(folder / "forward"), str(folder / "backward")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.ArmsParser(__doc__, smoke={"set": ["train.steps=2"]})
    parser.add_argument("--data", nargs=2, metavar=("TRAIN", "TEST"), help="labelled texts to train on, and to score")
    parser.add_argument("--columns", default="", help="the columns of both files, as text,label")
    parser.add_argument("--lm", action="append", default=[], help="run directory of a language model")
    parser.add_argument("--backward-lm", help="run directory of a backward one, beside the first --lm")
    parser.add_argument("--bert", help="run directory or Hugging Face directory of an encoder")
    options = parser.parse(arguments)
    with TemporaryDirectory() as folder:
        if options.smoke and options.data is None:
            table, forward, options.backward_lm = write_smoke_models(Path(folder))
            options.data, options.lm = [table, table], [forward]
        if options.data is None or not options.lm:
            parser.error("give --data and --lm, or --smoke")
        compare_arms(options, parser.select_arms(list_arms(options), options.arms), Path(folder))


if __name__ == "__main__":
    harness.run_script(main)
