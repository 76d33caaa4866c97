"""Fine-tuning against features of a frozen encoder, on named entities (Devlin et al. 2019, table 7).

    python bench/features.py MODEL eng.train eng.testa [--seeds 3] [--device cuda] [--arms 4 5 "fine-tuned"]

Trains a tagger from MODEL for each arm and seed, and prints the entity F1 on the second file (mean, and the lowest and
highest of the seeds), the parameters that are trained, and the seconds of training. Heads are linear; Devlin et al. put
two LSTM layers on frozen features. With --recompute the frozen arms run a second time without the cache of features, to
measure what it saves.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness

import regard
from regard.training import feature_cache

Settings = dict[str, dict[str, Any]]

ARMS: dict[str, Settings] = {
    "fine-tuned, last layer": {},
    "fine-tuned, learned mix": {"task": {"layers": "mix"}},
    "frozen embeddings": {"train": {"freeze": "embeddings"}},
    "frozen, last layer": {"train": {"freeze": "encoder"}},
    "frozen, sum of last four": {"train": {"freeze": "encoder"}, "task": {"layers": "last4-sum"}},
    "frozen, last four concatenated": {"train": {"freeze": "encoder"}, "task": {"layers": "last4-concat"}},
    "frozen, learned mix": {"train": {"freeze": "encoder"}, "task": {"layers": "mix"}},
}


class TrainedArm(NamedTuple):
    """The outcome of one training run; `seconds` includes validation and the features."""

    f1: float
    n_trained: int
    seconds: float


def train_arm(options: Any, settings: Settings, seed: int, out: Path) -> TrainedArm:
    """Train one arm with one seed."""
    recipe: Settings = {
        "task": {"name": "tag", **settings.get("task", {})},
        "data": {"train": [options.train], "valid": [options.valid]},
        "model": {"start": options.model},
        "train": {"seed": seed, **settings.get("train", {})},
    }
    run = regard.train(recipe, out=out, overrides=options.set, device=options.device)
    start = time.perf_counter()
    values = [event.values for event in run if event.kind == "end"]
    seconds = time.perf_counter() - start
    info = regard.load(run.path, device="cpu").info()
    (f1,) = (each["f1"] for each in values)
    return TrainedArm(f1, info.get("trained_parameters", info["parameters"]), seconds)


def train_seeds(options: Any, name: str, settings: Settings, out: Path) -> None:
    """Train one arm with every seed and print its line."""
    runs = [train_arm(options, settings, seed, out / str(seed)) for seed in range(1, options.seeds + 1)]
    seconds = statistics.median(each.seconds for each in runs)
    scores = harness.format_scores([each.f1 for each in runs], digits=2)
    print(f"{name:<44}{scores}{runs[0].n_trained:>12,}{seconds:>10.1f}", flush=True)


def compare_arms(options: Any, arms: Mapping[int, tuple[str, Settings]], folder: Path) -> None:
    """Train the arms and print the table, each line as its arm ends."""
    print(f"{'':<44}{'F1':>9}  {'seeds':<16}{'trained':>12}{'seconds':>10}", flush=True)
    for number, (name, settings) in arms.items():
        train_seeds(options, name, settings, folder / str(number))
        if options.recompute and name.startswith("frozen,"):
            with features_recomputed():
                train_seeds(options, f"{name}, recomputed", settings, folder / f"{number}-recomputed")


@contextmanager
def features_recomputed() -> Iterator[None]:
    """Leave no memory to the cache of features."""
    fraction = feature_cache.MEMORY_FRACTION
    feature_cache.MEMORY_FRACTION = 0.0
    try:
        yield
    finally:
        feature_cache.MEMORY_FRACTION = fraction


def write_smoke_model(folder: Path) -> list[str]:
    """Pretrain a tiny encoder for one step and write tagged sentences; return the model and the two files."""
    rng = random.Random(0)
    words = ["cat", "dog", "tokyo", "lands", "the", "red", "plane", "in"]
    texts = [rng.choices(words, k=6) for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join("\n".join([" ".join(text)] * 2) for text in texts) + "\n")
    tagged = ["\n".join(f"{word} {'B-LOC' if word == 'tokyo' else 'O'}" for word in text) for text in texts]
    (folder / "tagged.conll").write_text("\n\n".join(tagged) + "\n")
    recipe: Settings = {
        "task": {"name": "pretrain", "objective": "masked", "length": 16},
        "data": {"train": [str(folder / "text.txt")]},
        "model": {"preset": "tiny", "n_layers": 4, "d_model": 16, "d_ff": 16},
        "train": {"steps": 1, "batch_tokens": 256},
    }
    encoder = regard.train(recipe, out=folder / "encoder", device="cpu").path
    return [str(encoder), *[str(folder / "tagged.conll")] * 2]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.ArmsParser(__doc__, smoke={"recompute": True, "set": ["train.steps=3"]})
    parser.add_argument("model", nargs="?", help="run directory or Hugging Face directory of an encoder")
    parser.add_argument("train", nargs="?", help="tagged words to train on")
    parser.add_argument("valid", nargs="?", help="tagged words to score")
    parser.add_argument("--recompute", action="store_true", help="the frozen arms also without cached features")
    options = parser.parse(arguments)
    arms = parser.select_arms(ARMS, options.arms)
    with TemporaryDirectory() as folder:
        if options.smoke and options.model is None:
            options.model, options.train, options.valid = write_smoke_model(Path(folder))
        if options.valid is None:
            parser.error("give a model and two files of tagged words, or --smoke")
        compare_arms(options, arms, Path(folder))


if __name__ == "__main__":
    harness.run_script(main)
