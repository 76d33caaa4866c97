"""An encoder fine-tuned on GLUE: scores on the development sets beside the published ones of the smaller BERTs.

    python bench/glue.py runs/bert-en glue --seeds 3 --device cuda --parallel 8
    python bench/glue.py runs/bert-en glue --arms RTE MRPC --set task.pooling=mean --set train.learning_rate=1e-4

Trains with the settings that `regard train classify` chooses, laid over by --set, with every seed; several trainings
run side by side where --parallel says so, those of the largest data first. The checkpoint with the best validation is
scored on the same data, as is usual on GLUE's development sets. The published scores are of the test sets (Turc et al.
2019), each the best of several rates and batch sizes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness
import torch

import regard


class GlueTask(NamedTuple):
    """One data set: its columns, the metric reported, and the published scores of Tiny, Mini, Small and Medium."""

    columns: str
    metric: str
    published: tuple[float, float, float, float]
    task: dict[str, Any]


CLASSES: dict[str, Any] = {"name": "classify"}
ARMS: dict[str, GlueTask] = {
    "SST-2": GlueTask("sentence,label", "accuracy", (83.2, 85.9, 89.7, 89.6), CLASSES),
    "CoLA": GlueTask("4,2", "matthews", (0.0, 0.0, 27.8, 38.0), CLASSES),
    "STS-B": GlueTask("sentence1,sentence2,score", "spearman", (74.3, 75.4, 78.8, 80.4), CLASSES | {"kind": "score"}),
    "MRPC": GlueTask("#1 String,#2 String,Quality", "f1", (81.1, 81.1, 83.4, 86.6), CLASSES),
    "RTE": GlueTask("sentence1,sentence2,label", "accuracy", (57.2, 57.9, 61.8, 62.2), CLASSES),
}
"""The tasks of GLUE with at most 70,000 examples, from the largest."""

N_COMPILED_EXAMPLES = 20_000
"""Examples from which compiling pays off on a GPU."""
SMOKE_SETTINGS = ["train.steps=2", "train.batch_tokens=128"]


@dataclass(frozen=True)
class Job:
    """One fine-tuning."""

    name: str
    seed: int
    model: str
    folder: Path
    out: Path
    device: str
    settings: tuple[str, ...]


class JobResult(NamedTuple):
    """The score of one fine-tuning on the development data, and its seconds."""

    score: float
    seconds: float


def fine_tune(job: Job) -> JobResult:
    """Fine-tune with one seed and score the development data."""
    start, glue = time.perf_counter(), ARMS[job.name]
    train, dev = (str(job.folder / job.name / f"{part}.tsv") for part in ("train", "dev"))
    with Path(train).open(encoding="utf-8") as lines:
        is_compiled = job.device.startswith("cuda") and sum(1 for _ in lines) > N_COMPILED_EXAMPLES
    recipe = {
        "task": dict(glue.task),
        "data": {"train": [train], "valid": [dev], "columns": glue.columns.split(",")},
        "model": {"start": job.model},
        "train": {"seed": job.seed, "compiled": is_compiled},
    }
    run = regard.train(recipe, out=job.out, overrides=job.settings, device=job.device)
    metrics = regard.load(run.path, device=job.device).evaluate(dev)
    shutil.rmtree(job.out)
    return JobResult(metrics[glue.metric], time.perf_counter() - start)


def run_jobs(jobs: Sequence[Job], n_parallel: int) -> Iterator[JobResult]:
    """Yield the results in the order of the jobs."""
    if n_parallel == 1:
        yield from map(fine_tune, jobs)
        return
    one_thread = {"initializer": torch.set_num_threads, "initargs": (1,)}
    with ProcessPoolExecutor(n_parallel, mp_context=get_context("spawn"), **one_thread) as pool:
        yield from pool.map(fine_tune, jobs)


def print_table(results: dict[str, list[JobResult]]) -> None:
    """Print a line for each task, and the means."""
    print(f"{'':<7}{'metric':<10}{'mean':>9}  {'':<16}{'Tiny':>7}{'Mini':>7}{'Small':>7}{'Medium':>8}{'seconds':>9}")
    for name, each in results.items():
        glue, seconds = ARMS[name], statistics.fmean(result.seconds for result in each)
        scores = harness.format_scores([result.score for result in each], 1)
        tiny, mini, small, medium = glue.published
        print(f"{name:<7}{glue.metric:<10}{scores}{tiny:>7}{mini:>7}{small:>7}{medium:>8}{seconds:>9.0f}")
    means = [statistics.fmean(result.score for result in each) for each in results.values()]
    published = (statistics.fmean(ARMS[name].published[n] for name in results) for n in range(4))
    tiny, mini, small, medium = (f"{each:.1f}" for each in published)
    print(f"{'mean':<17}{harness.format_scores([statistics.fmean(means)], 1)}{tiny:>7}{mini:>7}{small:>7}{medium:>8}")


def write_smoke_data(folder: Path) -> None:
    """Write the five data sets with a few lines each, in the form of the official files."""
    rng = random.Random(0)

    def text() -> str:
        return " ".join(rng.choices(["ab", "cd", "ef", "gh"], k=4))

    rows = {
        "SST-2": ("sentence\tlabel", lambda n: f"{text()}\t{n % 2}"),
        "CoLA": ("", lambda n: f"src\t{n % 2}\t\t{text()}"),
        "STS-B": ("sentence1\tsentence2\tscore", lambda n: f"{text()}\t{text()}\t{n % 5}.5"),
        "MRPC": ("Quality\t#1 String\t#2 String", lambda n: f"{n % 2}\t{text()}\t{text()}"),
        "RTE": ("sentence1\tsentence2\tlabel", lambda n: f"{text()}\t{text()}\t{'not_' * (n % 2)}entailment"),
    }
    for name, (header, make_row) in rows.items():
        (folder / name).mkdir()
        lines = [*([header] if header else ()), *map(make_row, range(12))]
        for part in ("train", "dev"):
            (folder / name / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_smoke_model(folder: Path) -> str:
    """Pre-train a tiny encoder on the sentences."""
    text = folder / "text.txt"
    text.write_text("ab cd ef gh ab cd\n" * 40, encoding="utf-8")
    recipe = {
        "task": {"name": "pretrain", "objective": "masked", "length": 32},
        "data": {"train": [str(text)]},
        "model": {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "norm": "pre"},
        "train": {"steps": 2, "batch_tokens": 128},
    }
    return str(regard.train(recipe, out=folder / "encoder", device="cpu").path)


def make_jobs(names: Sequence[str], options: argparse.Namespace, out: Path) -> list[Job]:
    """Return the fine-tunings, those of the largest data first."""
    settings = (*(SMOKE_SETTINGS if options.smoke else ()), *options.set)
    seeds = range(1, options.seeds + 1)
    return [
        Job(name, seed, options.model, Path(options.glue), out / f"{name}-{seed}", options.device, settings)
        for name in names
        for seed in seeds
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.ArmsParser(__doc__, smoke={"parallel": 1, "arms": ["CoLA", "STS-B"]})
    parser.add_argument("model", nargs="?", help="a pre-trained encoder: a run or a Hugging Face directory")
    parser.add_argument("glue", nargs="?", help="the directory with SST-2/train.tsv, SST-2/dev.tsv and so on")
    parser.add_argument("--parallel", type=int, default=1, help="fine-tunings that run side by side")
    options = parser.parse(arguments)
    with TemporaryDirectory() as folder:
        if options.smoke and options.glue is None:
            write_smoke_data(Path(folder))
            options.model, options.glue = write_smoke_model(Path(folder)), folder
        if options.glue is None:
            parser.error("give an encoder and the directory of GLUE, or --smoke")
        names = [name for name, _ in parser.select_arms(ARMS, options.arms).values()]
        jobs = make_jobs(names, options, Path(folder))
        results: dict[str, list[JobResult]] = defaultdict(list)
        for job, result in zip(jobs, run_jobs(jobs, options.parallel), strict=True):
            results[job.name].append(result)
            print(f"{job.name}, seed {job.seed}: {100 * result.score:.1f}, {result.seconds:.0f} s", flush=True)
        print_table(results)


if __name__ == "__main__":
    harness.run_script(main)
