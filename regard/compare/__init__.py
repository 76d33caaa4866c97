"""Experiments that test the claims of Vaswani et al. 2017 for the Transformer over recurrence on this machine.

    experiment.py       an experiment: measurements, and findings from them     directory.py   experiments on disk
    cost.py             layers.py, timing.py, layer_times.py, power_law.py, cost_claims.py
    recall.py           copy_task.py
    distance.py         majority_task.py, distance_claims.py, intervals.py
    translation.py      flops.py: corpora.py, synthetic.py, training_runs.py
    positions.py        position_claims.py, intervals.py: corpora.py, synthetic.py, training_runs.py
    compared_models.py  the models, as ``[model]`` tables                       report.py      charts.py, terminal.py
    comparison.py       `regard.compare_architectures`, the Python interface

`run_comparison` runs the experiments in order and saves each as it ends; the command line prints what it yields.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from regard.compare import corpora, cost, distance, flops, positions, recall, translation
from regard.compare.directory import ComparisonDirectory, ExperimentResult
from regard.compare.environment import collect_environment
from regard.compare.experiment import ComparisonSettings, Experiment
from regard.disk import convert_write_errors
from regard.errors import InputError, MissingExtra, did_you_mean
from regard.progress import print_message
from regard.ranges import SEED_RANGE, check_option
from regard.runs.device import select_device
from regard.runs.directory_lock import DirectoryLock

EXPERIMENTS: dict[str, Experiment] = {
    "cost": cost.EXPERIMENT,
    "recall": recall.EXPERIMENT,
    "distance": distance.EXPERIMENT,
    "translation": translation.EXPERIMENT,
    "flops": flops.EXPERIMENT,
    "positions": positions.EXPERIMENT,
}

DEFAULT_EXPERIMENTS = ("cost", "recall", "distance", "translation", "flops")
"""The experiments that run by default."""


def resolve_experiments(names: Sequence[str]) -> list[str]:
    """Return the experiments to run, in order, with those that they depend on."""
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"no part is called '{name}'; {did_you_mean(name, EXPERIMENTS)}")
    chosen = set(names or DEFAULT_EXPERIMENTS)
    chosen |= {other for name in chosen for other in EXPERIMENTS[name].depends_on}
    return [name for name in EXPERIMENTS if name in chosen]


def run_comparison(
    settings: ComparisonSettings, names: Sequence[str], command: str
) -> Iterator[tuple[str, ExperimentResult]]:
    """Run experiments and yield each as it ends; results already in the directory are reused."""
    chosen = resolve_experiments(names)
    select_device(settings.device)
    check_option("seed", settings.seed, SEED_RANGE)
    with DirectoryLock(settings.out):
        folder = ComparisonDirectory(settings)
        corpora.check_data_files(settings, [name for name in chosen if not folder.has_result(name)])
        folder.write_settings()
        yield from _run_experiments(settings, chosen, folder, command)


def _run_experiments(
    settings: ComparisonSettings, chosen: Sequence[str], folder: ComparisonDirectory, command: str
) -> Iterator[tuple[str, ExperimentResult]]:
    for number, name in enumerate(chosen, 1):
        experiment = EXPERIMENTS[name]
        if folder.has_result(name):
            print_message(f"{number}/{len(chosen)} {experiment.title.lower()}: measured before")
        else:
            print_message(f"{number}/{len(chosen)} {experiment.title.lower()}")
            began = time.perf_counter()
            with convert_write_errors(folder.path):  # files that cannot be read raise a DataError of their own
                measurements = experiment.measure(settings, folder.read_measurements())
            seconds = time.perf_counter() - began
            environment = collect_environment(settings.device)
            folder.write_result(name, ExperimentResult(measurements, environment, seconds, command))
        _write_figure_and_report(folder, name)
        yield name, folder.read_result(name)


def _write_figure_and_report(directory: ComparisonDirectory, name: str) -> None:
    """Plot the figure of an experiment, and write the report of all that have ended."""
    from regard.compare.report import render_report

    try:
        with convert_write_errors(directory.path):
            EXPERIMENTS[name].plot(directory.read_result(name).measurements, directory.figure_path(name))
    except MissingExtra as error:
        print_message(f"no figure: {error}")
    results = {each: directory.read_result(each) for each in EXPERIMENTS if directory.has_result(each)}
    directory.write_report(
        render_report({key: (EXPERIMENTS[key], each, directory.figure_path(key)) for key, each in results.items()})
    )
