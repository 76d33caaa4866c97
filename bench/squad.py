"""Question answering on SQuAD: exact match and F1 of several ways to start, each over several seeds.

    python bench/squad.py train.json dev.json minilm=MINILM bert=runs/bert-small scratch rnn --seeds 3 --device cuda

An arm is NAME=MODEL, fine-tuned from this model, or one of `scratch` (a Transformer from random weights) and `rnn` (a
bi-LSTM with attention to the question). A twentieth of the training questions, by their contexts, chooses the best
checkpoint; the scores are those of dev.json. Every run is a directory of --out: what is finished is only read again,
and what was interrupted, by --minutes too, is continued, so that the same command continues where it ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

import regard

SCORES_FILE = "squad.json"
FROM_SCRATCH: dict[str, dict[str, Any]] = {"scratch": {}, "rnn": {"architecture": "rnn"}}
"""The ``[model]`` table of the arms that start from random weights."""


def build_parser() -> harness.Parser:
    parser = harness.Parser(__doc__, smoke={"seeds": 2, "device": "cpu"})
    parser.add_argument("train", nargs="?")
    parser.add_argument("dev", nargs="?")
    parser.add_argument("arms", nargs="*", metavar="NAME=MODEL | scratch | rnn")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/squad"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compiled", action="store_true", help="compile the training step, which takes a minute first")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after about this many minutes")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="one key of all recipes")
    return parser


def make_tables(arm: str, seed: int, options: argparse.Namespace) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the name and the recipe of an arm."""
    name, _, start = arm.partition("=")
    model = {"start": start} if start else FROM_SCRATCH[name]
    train = {"seed": seed, "compiled": options.compiled}
    return name, {"task": {"name": "qa"}, "data": {"train": (options.train,)}, "model": model, "train": train}


def train_one(tables: dict[str, dict[str, Any]], out: Path, options: argparse.Namespace, deadline: float) -> bool:
    """Train a run, or continue it, until the deadline; return True if it is finished."""
    run = regard.train(
        tables, out=out, overrides=options.set, device=options.device, resume=(out / "config.toml").exists()
    )
    saves = iter(run)
    for event in saves:
        if event.kind == "valid":
            print(f"{out.name}  step {event.step}  F1 {event.values['f1']:.3f}", flush=True)
            if time.monotonic() > deadline:
                saves.close()
                return False
    return True


def measure(arm: str, seed: int, options: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """Return the scores of one run, trained if it is not yet; None if the time was up."""
    name, tables = make_tables(arm, seed, options)
    out = options.out / f"{name}-{seed}"
    if (out / SCORES_FILE).exists():
        return dict(json.loads((out / SCORES_FILE).read_text(encoding="utf-8")))
    if time.monotonic() > deadline or not train_one(tables, out, options, deadline):
        return None
    scores = regard.QuestionAnswerer.load(out, device=options.device).evaluate(options.dev)
    (out / SCORES_FILE).write_text(json.dumps(scores), encoding="utf-8")
    return scores


def format_column(values: Sequence[float]) -> str:
    """Return mean and standard deviation in percent."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def print_table(options: argparse.Namespace) -> None:
    """Train what is missing, and print the table of all arms."""
    deadline = time.monotonic() + 60 * options.minutes
    lines = []
    for arm in options.arms:
        results = [measure(arm, seed, options, deadline) for seed in range(1, options.seeds + 1)]
        done = [scores for scores in results if scores is not None]
        columns = [format_column([scores[key] for scores in done]) if done else "-" for key in ("exact_match", "f1")]
        lines.append(f"{arm.partition('=')[0]:<16}{len(done):>6}{columns[0]:>16}{columns[1]:>16}")
    print(f"\n{'':<16}{'seeds':>6}{'exact match':>16}{'F1':>16}   (%, mean ± standard deviation)")
    print("\n".join(lines))


def make_questions(n: int) -> Iterator[dict[str, Any]]:
    """Yield synthetic questions for ``--smoke``, answered by the second word of a context."""
    words = [f"word{i}" for i in range(9)]
    for i in range(n):
        context = " ".join(words[(i + 4 * j) % 9] for j in range(6 + i % 3))
        yield {"question": f"what follows {words[i % 9]}", "context": context, "answers": [context.split()[1]]}


def run_smoke(parser: harness.Parser, folder: Path) -> None:
    """Run all arms on synthetic questions, and once more, which trains nothing."""
    for name in ("train", "dev"):
        text = "".join(f"{json.dumps(each)}\n" for each in make_questions(60))
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    tiny = {"train.steps": 2, "train.validate_every": 1, "train.save_every": 1, "train.batch_tokens": 512}
    sets = [word for key, value in tiny.items() for word in ("--set", f"{key}={value}")]
    files = [str(folder / "train.jsonl"), str(folder / "dev.jsonl")]
    common = ["--smoke", "--out", str(folder / "runs"), *sets]
    print_table(parser.parse([*files, "scratch", "rnn", *common, "--set", "model.preset=tiny"]))
    print_table(parser.parse([*files, f"tuned={folder / 'runs/scratch-1'}", *common, "--seeds", "1"]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser()
    options = parser.parse(arguments)
    if options.smoke and not options.arms:
        with TemporaryDirectory() as folder:
            run_smoke(parser, Path(folder))
        return
    unknown = [arm for arm in options.arms if "=" not in arm and arm not in FROM_SCRATCH]
    if unknown or not options.arms:
        parser.error(f"expected train.json, dev.json and arms, NAME=MODEL, scratch or rnn; found {options.arms}")
    print_table(options)


if __name__ == "__main__":
    harness.run_script(main)
