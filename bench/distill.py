"""Distilled students and shallow decoders beside their teacher: size, BLEU, and sentences a second on one core.

    python bench/distill.py --train tatoeba/train.en-fr.tsv europarl/train.en-de-fr.tsv:1,3 \
        --dev tatoeba/dev.en-fr.tsv europarl/dev.en-de-fr.tsv:1,3 --work runs/distill --device cuda --minutes 9
    python bench/distill.py --dev ... --work runs/distill --only-speed     on a CPU: one thread, all models there

Trains what --arms names (all by default) into directories under --work: a teacher, students on its translations of the
sources of --train, and the same shapes on the pairs themselves; then scores each on every --dev. After
--minutes without those of scoring, the call scores what is half trained and ends; repeated, it goes on where it was.
Results are in ARM.json under --work, and those of all arms there are printed as a table; so several calls may train an
arm each at the same time.
int8 is measured where this version of regard can compute so. A smoke run learns that all is fine.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import random
import signal
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness
import torch

import regard
from regard import config
from regard.disk import read_json_if_exists, write_json
from regard.text.pairs import read_pairs

RECIPE = Path(__file__).parent.parent / "recipes" / "en-fr.toml"
TEACHER, STUDENT = "teacher", "student"


class Arm(NamedTuple):
    """A model to train: its preset, and True if it learns from the teacher, or False if from the pairs."""

    preset: str
    learns_from_teacher: bool
    has_small_vocabulary: bool = False


ARMS = {
    TEACHER: Arm("base", False),
    STUDENT: Arm("medium-6+2", True, True),
    "student-small": Arm("small-6+2", True, True),
    "medium-6+2": Arm("medium-6+2", False, True),
    "base-6+2": Arm("base-6+2", False),
    "base-12+1": Arm("base-12+1", False),
}
"""All models; the teacher and the first student, for which it translates, come first."""

SMOKE = {
    "steps": 30,
    "vocabulary": 262,
    "student_vocabulary": 261,
    "sentences": 4,
    "rounds": 1,
    "speed": True,
    "set": [
        *("model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.n_layers=1", "model.n_decoder_layers=1"),
        *("model.dropout=0.0", "train.batch_tokens=256", "train.learning_rate=0.02", "train.warmup=2"),
        "train.validate_every=30",
    ],
}


class Results:
    """The results so far, kept in a file for each arm."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.arms: dict[str, dict[str, Any]] = {}
        self.read()

    def read(self) -> None:
        """Read the results of all arms anew; other processes may have added some."""
        self.arms = {name: read_json_if_exists(self.work / f"{name}.json") for name in ARMS}

    def update(self, arm: str, **values: Any) -> None:
        """Add values to those of an arm, and write these."""
        self.arms[arm].update(values)
        write_json(self.work / f"{arm}.json", self.arms[arm])

    @contextmanager
    def time(self, arm: str) -> Iterator[None]:
        """Add the time of the block to the seconds of an arm, however it ends."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.update(arm, seconds=self.arms[arm].get("seconds", 0.0) + time.perf_counter() - start)


def interrupt_after(minutes: float) -> None:
    """Interrupt this process after so many minutes as Ctrl-C does: training saves a checkpoint, decoding its chunks."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)


@contextmanager
def stop_clock() -> Iterator[None]:
    """Do not count the block as time of `interrupt_after`."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


def make_recipe(arm: Arm, options: argparse.Namespace) -> config.Tables:
    """Return the recipe of an arm, without its training data."""
    tables = config.read(RECIPE)
    size = options.student_vocabulary if arm.has_small_vocabulary else options.vocabulary
    train = {**tables["train"], "steps": options.steps}
    if arm.has_small_vocabulary:
        train["learning_rate"] = options.student_learning_rate
    return {**tables, "data": {"max_length": 128}, "tokenizer": {"vocabulary": size}, "model": {"preset": arm.preset},
            "train": train}  # fmt: skip


def prepare_arm(name: str, arm: Arm, options: argparse.Namespace) -> regard.TrainingRun:
    """Return the run of an arm, begun or resumed; for the first student the teacher translates beforehand."""
    out, recipe = options.work / name, make_recipe(arm, options)
    common: dict[str, Any] = {"out": out, "overrides": options.set, "device": options.device, "resume": out.exists()}
    if name == STUDENT:
        search = {"beam": options.beam, "batch": options.batch, "pairs": True}
        return regard.distill(options.work / TEACHER, options.train, recipe=recipe, **search, **common)
    translations = [str(options.work / STUDENT / "distilled" / "train.jsonl")]
    recipe["data"]["train"] = translations if arm.learns_from_teacher else options.train
    return regard.train(recipe, **common)


def train_arm(name: str, arm: Arm, options: argparse.Namespace, results: Results) -> None:
    """Train an arm until its end or an interruption."""
    last = ""
    with results.time(name):
        run = prepare_arm(name, arm, options)
        for event in run:
            last = event.kind
    results.update(name, trained=last == "end", steps=run.trainer.progress.step, bleu={})


def score_arm(name: str, options: argparse.Namespace, results: Results) -> None:
    """Measure size, and BLEU on every development set."""
    model = regard.Translator.load(options.work / name, device=options.device)
    shapes = [weight.shape for weight in model.network.parameters()]
    n_bytes = sum(shape.numel() + 4 * shape[0] if len(shape) == 2 else 4 * shape.numel() for shape in shapes)
    bleu = {data: round(model.evaluate(data, batch=options.batch)["bleu"], 2) for data in options.dev}
    results.update(name, parameters=model.n_parameters, int8_megabytes=round(n_bytes / 1e6, 1), bleu=bleu)


def load_model(path: Path, precision: str) -> regard.Translator:
    """Load a model on the CPU to compute in a precision."""
    given = {} if precision == "float32" else {"precision": precision}
    model = regard.load(path, device="cpu", **given)  # type: ignore[arg-type]
    assert isinstance(model, regard.Translator)
    return model


def measure_speed(options: argparse.Namespace, results: Results) -> None:
    """Time the translation of the first sentences of every development set on one thread, in interleaved rounds."""
    torch.set_num_threads(1)
    has_int8 = "precision" in inspect.signature(regard.load).parameters
    texts = [pair.source for data in options.dev for pair in islice(read_pairs([data]), options.sentences)]
    names = [name for name in options.arms if (options.work / name / "metrics.json").exists()]
    models = {
        (name, precision): load_model(options.work / name, precision)
        for name in names
        for precision in (["float32", "int8"] if has_int8 else ["float32"])
    }
    speeds: dict[tuple[str, str], list[float]] = {key: [] for key in models}
    for _ in range(options.rounds):
        for key, model in models.items():
            start = time.perf_counter()
            list(model.translate_iterable(texts, beam=options.speed_beam, aligned=False))
            speeds[key].append(len(texts) / (time.perf_counter() - start))
    for name in names:
        each = {precision: round(statistics.median(v), 2) for (arm, precision), v in speeds.items() if arm == name}
        results.update(name, sentences_per_second=each, sentences=len(texts), speed_beam=options.speed_beam)


def print_table(results: Results, options: argparse.Namespace) -> None:
    """Print a line for every arm that was begun, by this call or by others."""
    results.read()
    devs = [f"BLEU {Path(data.partition(':')[0]).parent.name or data}" for data in options.dev]
    columns = ("preset", "M weights", "int8 MB", "steps", *devs, "sent/s", "int8", "minutes")
    print(f"{'':<16}" + "".join(f"{column:>16}" for column in columns))
    for name, values in results.arms.items():
        speeds = values.get("sentences_per_second", {})
        cells: Iterable[Any] = (
            ARMS[name].preset,
            f"{values['parameters'] / 1e6:.1f}" if "parameters" in values else "",
            values.get("int8_megabytes", ""),
            values.get("steps", ""),
            *(values.get("bleu", {}).get(data, "") for data in options.dev),
            speeds.get("float32", ""),
            speeds.get("int8", ""),
            f"{values.get('seconds', 0) / 60:.1f}",
        )
        if values:
            print(f"{name:<16}" + "".join(f"{cell!s:>16}" for cell in cells))
    print(f"results: {results.work}")


def write_smoke_data(folder: Path) -> str:
    """Write strings of digits that all mean the same."""
    rng = random.Random(0)
    sources = {" ".join(rng.choices("0123456789", k=4)) for _ in range(60)}
    (folder / "pairs.tsv").write_text("".join(f"{source}\tall of it is fine\n" for source in sorted(sources)))
    return str(folder / "pairs.tsv")


def run_arms(options: argparse.Namespace, results: Results) -> None:
    """Train and score the arms that are not done yet; raise KeyboardInterrupt where the time was up."""
    for name in options.arms:
        if not results.arms[name].get("trained"):
            print(f"training {name}", flush=True)
            train_arm(name, ARMS[name], options, results)
        values = results.arms[name]
        if set(values["bleu"]) != set(options.dev) and (options.work / name / "model.safetensors").exists():
            with stop_clock():
                score_arm(name, options, results)
            print(json.dumps({name: values}), flush=True)
        if not values["trained"]:
            raise KeyboardInterrupt


def build_parser() -> harness.Parser:
    parser = harness.Parser(__doc__, smoke=SMOKE)
    parser.add_argument("--train", nargs="+", default=[], metavar="DATA", help="pairs, as `regard train` takes them")
    parser.add_argument("--dev", nargs="+", default=[], metavar="DATA", help="tables of pairs to score on")
    parser.add_argument("--work", type=Path, help="directory of all runs and results")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="end after so many, but score what is there; 0: never"
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--steps", type=int, default=9000, help="optimiser steps of every arm")
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--student-vocabulary", type=int, default=8000, help="that of medium and small models")
    parser.add_argument("--student-learning-rate", type=float, default=1e-3)
    parser.add_argument("--beam", type=int, default=4, help="beam of the teacher that translates for the student")
    parser.add_argument("--batch", type=int, default=256, help="texts translated at a time")
    parser.add_argument("--set", action="append", default=[], help="settings for every arm, as train.average=1")
    parser.add_argument("--speed", action="store_true", help="measure speed on one thread of the CPU as well")
    parser.add_argument("--only-speed", action="store_true", help="train and score nothing")
    parser.add_argument("--sentences", type=int, default=200, help="of every --dev, for the speed")
    parser.add_argument("--speed-beam", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of the speed")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser()
    options = parser.parse(arguments)
    with TemporaryDirectory() as folder:
        if options.smoke and not options.train:
            options.train = options.dev = [write_smoke_data(Path(folder))]
            options.work = options.work or Path(folder) / "work"
        if not (options.dev and options.work and (options.train or options.only_speed)):
            parser.error("give --train, --dev and --work, or --smoke")
        options.work.mkdir(parents=True, exist_ok=True)
        results = Results(options.work)
        if options.minutes:
            interrupt_after(options.minutes)
        try:
            if not options.only_speed:
                run_arms(options, results)
            if options.speed or options.only_speed:
                measure_speed(options, results)
        except KeyboardInterrupt:
            if not options.minutes:
                raise
            print("time is up; the same command goes on")
        signal.setitimer(signal.ITIMER_REAL, 0)
        print_table(results, options)


if __name__ == "__main__":
    harness.run_script(main)
