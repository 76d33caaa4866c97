"""Choices of pre-training beside each other: validation loss of masked words after equally many steps (encoders.md).

    python bench/cramming.py wikipedia_en/train.txt --valid wikipedia_en/valid.txt --device cuda --parallel 3
    python bench/cramming.py TRAIN... --arms recipe post-norm dropout --steps 3000 --set train.batch_tokens=131072

Every arm is recipes/bert-en.toml with one choice undone, most of them those of Geiping and Goldstein 2023. The text is
read once. Arms train for equally many steps, so that their losses do not depend on what else the machine does; the
speed, which does, is printed beside them (with --parallel 1 an arm has the machine to itself). All are scored alike,
whatever they were trained on: 15 % of the tokens of the validation text masked.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

from regard import config
from regard.runs.device import select_device
from regard.runs.recipe import build_run_config
from regard.runs.run_directory import RunDirectory
from regard.tasks.shared.token_masking import TokenMasker
from regard.training.defaults import SCHEDULE_DEFAULTS
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun, prepare_run
from regard.training.validation import validate

RECIPE = Path(__file__).parents[1] / "recipes" / "bert-en.toml"
SCORED_FRACTION = 0.15
"""Tokens masked where arms are scored: BERT's."""

ARMS: dict[str, config.Tables] = {
    "recipe": {},
    "post-norm": {"model": {"norm": "post"}},
    "dropout 0.1": {"model": {"dropout": 0.1}},
    "linear": {"train": {"schedule": "linear"}},
    "cosine": {"train": {"schedule": "cosine"}},
    "trapezoid": {"train": {"schedule": "trapezoid"}},
    "constant batches": {"train": {"batch_ramp": 0.0}},
    "small batches": {"train": {"batch_ramp": 0.0, "accumulate": 1, "batch_tokens": 65536}},
    "15 % masked": {"task": {"masked": 0.15}},
    "40 % masked": {"task": {"masked": 0.4}},
    "no gate": {"model": {"activation": "gelu", "d_ff": 1440}},
    "8 x 448": {"model": {"n_layers": 8, "d_model": 448, "n_heads": 7, "d_ff": 1152}},
    "6 x 512": {"model": {"n_layers": 6, "d_model": 512, "n_heads": 8, "d_ff": 1280}},
    "rate 5e-4": {"train": {"learning_rate": 5e-4}},
    "rate 2e-3": {"train": {"learning_rate": 2e-3}},
    "weight decay 0.1": {"train": {"weight_decay": 0.1}},
}

SMOKE_SETTINGS = ["task.length=32", "tokenizer.vocabulary=40", "train.batch_tokens=256", "train.learning_rate=0.01"]
SMOKE_MODEL = {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}


@dataclass(frozen=True)
class ArmResult:
    """The outcome of one arm."""

    n_parameters: int
    steps: int
    tokens: int
    seconds: float
    loss: float
    perplexity: float
    accuracy: float


@dataclass(frozen=True)
class Job:
    """An arm to train: its directory, with the tokens of the text in it, and its device."""

    out: Path
    device: str


def merge(*every: Mapping[str, Mapping[str, Any]]) -> config.Tables:
    """Return tables laid over each other, key by key."""
    return {name: {k: v for each in every for k, v in each.get(name, {}).items()} for table in every for name in table}


def read_text(options: argparse.Namespace, folder: Path) -> RunDirectory:
    """Return a run that holds tokenizer, tokens and settings of the recipe, and was never trained."""
    recipe = config.read(RECIPE)
    small = {"model": SMOKE_MODEL, "train": {"log_every": 1}} if options.smoke else {}
    data = {"data": {"train": options.train, "valid": options.valid}, "train": {"steps": 1000}}
    tables = config.override(merge(recipe, data, small), [*(SMOKE_SETTINGS if options.smoke else ()), *options.set])
    prepared = prepare_run(tables, folder, select_device(options.device), where=str(RECIPE))
    prepared.directory.lock.release()
    return prepared.directory


def make_job(name: str, run: RunDirectory, out: Path, options: argparse.Namespace) -> Job:
    """Copy what the text became into the directory of an arm, with the arm's settings."""
    shutil.copytree(run.path, out, copy_function=os.link)
    tables = merge(run.read_config().tables(), ARMS[name])
    tables = merge(tables, {"model": SMOKE_MODEL}) if options.smoke else tables
    tables["train"] |= schedule_for(tables["train"]["schedule"], options.steps)
    (out / "config.toml").unlink()
    RunDirectory(out).write_config(build_run_config(tables, name))
    return Job(out, options.device)


def schedule_for(schedule: str, steps: int) -> dict[str, Any]:
    """Return the settings of an arm that depend on the number of steps."""
    warmup = steps // 2 if schedule == "one-cycle" else min(SCHEDULE_DEFAULTS["warmup"](steps), steps // 2)
    intervals = dict.fromkeys(("validate_every", "save_every"), steps) | {"log_every": max(1, steps // 10)}
    return {"minutes": 0.0, "steps": steps, "warmup": warmup, **intervals}


def train_arm(job: Job) -> ArmResult:
    """Train and score an arm."""
    prepared = prepare_run({}, job.out, select_device(job.device), where=str(job.out), resume=True)
    trainer = Trainer(prepared)
    for _ in trainer.train():
        pass
    progress, scores = trainer.progress, score(prepared)
    n_parameters = sum(weight.numel() for weight in prepared.model.parameters())
    scored = (scores[key] for key in ("valid_loss", "valid_perplexity", "masked_accuracy"))
    return ArmResult(n_parameters, progress.step, progress.tokens, progress.seconds, *scored)


def score(prepared: PreparedRun) -> dict[str, float]:
    """Return the metrics of the last weights on the validation text, masked as for every other arm."""
    masker = prepared.task.masker
    prepared.task.masker = TokenMasker(prepared.task.tokenizer, masker.mask_id, SCORED_FRACTION)
    return validate(prepared, prepared.scored_examples)


def run_jobs(jobs: Mapping[str, Job], n_parallel: int) -> Iterator[tuple[str, ArmResult]]:
    """Yield the result of every arm."""
    if n_parallel == 1:
        yield from ((name, train_arm(job)) for name, job in jobs.items())
        return
    with ProcessPoolExecutor(n_parallel, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from zip(jobs, pool.map(train_arm, jobs.values()), strict=True)


def print_result(name: str, result: ArmResult, best_loss: float) -> None:
    """Print the line of an arm; the loss is also shown beside that of the first arm."""
    speed = result.tokens / max(result.seconds, 1e-9)
    print(
        f"{name:<18}{result.n_parameters:>11,}{speed:>12,.0f}{result.steps:>8,}{result.tokens / 1e6:>9.1f}"
        f"{result.loss:>9.4f}{result.loss - best_loss:>+9.4f}{result.perplexity:>9.2f}{result.accuracy:>9.2%}",
        flush=True,
    )


def write_smoke_text(folder: Path, n_documents: int) -> str:
    """Write short documents of a few words."""
    rng, words = random.Random(0), ["the", "driver", "of", "a", "car", "saw", "red", "train", "stop"]
    documents = ("\n".join(" ".join(rng.choices(words, k=12)) for _ in range(2)) for _ in range(n_documents))
    path = folder / f"{n_documents}.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return str(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.ArmsParser(__doc__, smoke={"steps": 2, "parallel": 1, "arms": ["recipe", "post", "15 %"]})
    parser.add_argument("train", nargs="*", help="plain text to train on")
    parser.add_argument("--valid", nargs="+", help="plain text to score on")
    parser.add_argument("--steps", type=int, default=1000, help="steps of every arm")
    parser.add_argument("--parallel", type=int, default=1, help="arms trained at the same time")
    parser.add_argument("--out", help="directory of the runs; by default a temporary one")
    options = parser.parse(arguments)
    with TemporaryDirectory() as folder:
        if options.smoke and not options.train:
            options.train, options.valid = ([write_smoke_text(Path(folder), n)] for n in (20, 2))
        if not options.train or not options.valid:
            parser.error("give plain text to train on and --valid, or --smoke")
        out = Path(options.out or folder)
        run = read_text(options, out / "text")
        names = [name for name, _ in parser.select_arms(ARMS, options.arms).values()]
        jobs = {name: make_job(name, run, out / f"arm-{n}", options) for n, name in enumerate(names, 1)}
        print(
            f"{'':<18}{'parameters':>11}{'tokens/s':>12}{'steps':>8}{'Mtokens':>9}{'loss':>9}{'':>9}{'ppl':>9}{'right':>9}"
        )
        first = None
        for name, result in run_jobs(jobs, options.parallel):
            first = first or result
            print_result(name, result, first.loss)


if __name__ == "__main__":
    harness.run_script(main)
