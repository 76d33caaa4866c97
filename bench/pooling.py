"""Poolings of a classifier beside each other: accuracy over seeds, and where attention pooling looks.

    python bench/pooling.py SST-2/train.tsv SST-2/dev.tsv --seeds 3
    python bench/pooling.py imdb/train.tsv imdb/test.tsv --columns text,label --set task.length=512 --device cuda

Every arm differs in ``[task]`` alone. The best checkpoint is chosen on examples held out of the training file; the
second file is only evaluated. Accuracy is the mean over seeds with its sample standard deviation. "attended" is the
exponential of the entropy of a text's weights, the effective number of tokens; "words" are those with the largest mean
weight among words that occur at least `--min-count` times, both on 500 texts drawn at random and of the first seed.
Runs stay under `--out`, for ``regard look``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness
import torch

import regard
from regard.look.views.focus import is_special_token
from regard.text.labelled import read_labelled_examples

ARMS: dict[str, dict[str, Any]] = {
    "cls": {"pooling": "cls"},
    "mean": {"pooling": "mean"},
    "max": {"pooling": "max"},
    "ones, scaled": {"pooling": "attention", "query": "ones"},
    "dot": {"pooling": "attention", "score": "dot"},
    "scaled": {"pooling": "attention"},
    "scaled, projected": {"pooling": "attention", "project": True},
    "additive": {"pooling": "attention", "score": "additive"},
    "additive, 4 hops": {"pooling": "attention", "score": "additive", "hops": 4, "penalty": 0.1},
    "hierarchical": {"pooling": "hierarchical", "score": "additive"},
}
SMOKE_ARMS = ["mean", "additive", "hierarchical"]
N_LOOKED_AT, N_NAMED = 500, 6


class ArmResult(NamedTuple):
    """The accuracy of each seed, and of the first the parameters, seconds, mean attended tokens and top words."""

    accuracies: list[float]
    n_parameters: int
    seconds: float
    attended: float | None
    words: list[str]


def train_arm(name: str, options: argparse.Namespace, texts: Sequence[str]) -> ArmResult:
    """Train and evaluate an arm with every seed."""
    accuracies, seconds = [], []
    for seed in range(1, options.seeds + 1):
        out = Path(options.out) / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
        start = time.perf_counter()
        run = regard.train(make_recipe(name, options, seed), out=out, overrides=options.set, device=options.device)
        path = run.path
        seconds.append(time.perf_counter() - start)
        model = regard.load(path, device=options.device)
        accuracies.append(model.evaluate(options.test, columns=options.columns)["accuracy"])
        if seed == 1:
            n_parameters = sum(weight.numel() for weight in model.network.parameters())
            attended, words = describe_attention(model, texts, options.min_count)
    return ArmResult(accuracies, n_parameters, statistics.mean(seconds), attended, words)


def make_recipe(name: str, options: argparse.Namespace, seed: int) -> dict[str, dict[str, Any]]:
    """Return the recipe of an arm."""
    data = {"train": [options.train], "columns": options.columns.split(",") if options.columns else []}
    steps = {"steps": options.steps} if options.steps else {}
    return {
        "task": {"name": "classify", **ARMS[name]},
        "data": data,
        "model": {"preset": options.preset, "architecture": options.architecture},
        "train": {"seed": seed, **steps},
    }


def describe_attention(model: Any, texts: Sequence[str], min_count: int) -> tuple[float | None, list[str]]:
    """Return how many tokens the weights of a text are spread over, on average, and the words that weigh most."""
    if model.task.config.pooling not in ("attention", "hierarchical"):
        return None, []
    spreads: list[float] = []
    by_word: dict[str, list[float]] = defaultdict(list)
    for words, weights in weigh_words(model, texts):
        spreads.append(float((-(weights * weights.clamp(min=1e-12).log()).sum()).exp()))
        for word, weight in words:
            by_word[word].append(weight)
    means = {word: statistics.mean(values) for word, values in by_word.items() if len(values) >= min_count}
    return statistics.mean(spreads), sorted(means, key=means.__getitem__, reverse=True)[:N_NAMED]


def weigh_words(model: Any, texts: Sequence[str]) -> Iterator[tuple[list[tuple[str, float]], torch.Tensor]]:
    """Yield for each text its words with their weights, without special tokens, and the weights of its tokens."""
    fitting = [text for text in texts if fits(model, text)]
    if len(fitting) < len(texts):
        print(f"{len(texts) - len(fitting)} of {len(texts)} texts are longer than the model and are not looked at")
    for text in fitting:
        target = model.look(text).look_target
        weights = target.output_token_weights()[0].cpu()
        (side,) = target.sides.values()
        words = [(word.text, float(weights[list(word.token_indices)].sum())) for word in side.words]
        yield [each for each in words if not is_special_token(each[0])], weights


def fits(model: Any, text: str) -> bool:
    """Return True if a text can be looked at whole."""
    n_tokens = len(model.task.template.wrap(model.task.tokenizer.encode(text)).ids)
    return bool(n_tokens <= model.network.config.n_positions)


def print_table(results: dict[str, ArmResult]) -> None:
    """Print a line for each arm."""
    width = max(map(len, results))
    print(f"{'':<{width}}  accuracy          parameters  seconds  attended  words")
    for name, result in results.items():
        spread = f"± {statistics.stdev(result.accuracies):.2%}" if len(result.accuracies) > 1 else ""
        attended = f"{result.attended:8.1f}" if result.attended is not None else f"{'-':>8}"
        print(
            f"{name:<{width}}  {statistics.mean(result.accuracies):7.2%} {spread:<8}  {result.n_parameters:>10,}  "
            f"{result.seconds:7.1f}  {attended}  {' '.join(result.words) or '-'}"
        )


def write_smoke_data(folder: Path) -> str:
    """Write texts of two sentences in which one word is the label."""
    rng = random.Random(0)
    words = ["ab", "cd", "ef", "gh"]
    lines = [
        f"{rng.choice(words)} {label} . {' '.join(rng.choices(words, k=3))} .\t{label}" for label in ["xx", "yy"] * 20
    ]
    path = folder / "texts.tsv"
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return str(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(
        __doc__,
        smoke={"arms": SMOKE_ARMS, "seeds": 1, "steps": 2, "preset": "tiny", "architecture": "static", "min_count": 1},
    )
    parser.add_argument("train", nargs="?", help="labelled texts to train on")
    parser.add_argument("test", nargs="?", help="labelled texts to evaluate on")
    parser.add_argument("--columns", default="", help="columns text,label where headers do not say it")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="optimiser steps; by default chosen from the data")
    parser.add_argument("--architecture", default="rnn")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--set", nargs="+", default=[], metavar="TABLE.KEY=VALUE", help="further settings of all arms")
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", help="directory of the runs; by default a temporary one")
    options = parser.parse(arguments)
    with TemporaryDirectory() as folder:
        if options.smoke and options.train is None:
            options.train = options.test = write_smoke_data(Path(folder))
        if options.test is None:
            parser.error("give two tables of labelled texts, to train and to evaluate on, or --smoke")
        options.out = options.out or folder
        columns = options.columns.split(",") if options.columns else []
        texts = [each.text for each in read_labelled_examples([options.test], columns, skip_empty=True)]
        texts = random.Random(0).sample(texts, min(N_LOOKED_AT, len(texts)))
        results: dict[str, ArmResult] = {}
        for name in options.arms:
            results[name] = train_arm(name, options, texts)
            print(f"{name}: {' '.join(f'{each:.2%}' for each in results[name].accuracies)}", flush=True)
        print_table(results)


if __name__ == "__main__":
    harness.run_script(main)
