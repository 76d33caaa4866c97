"""The claims for the Transformer over recurrence, measured on the user's own machine (SPEC 9).

    part.py          what a part is: numbers found, and what they show       folder.py    parts on the disk
    cost.py          layers.py, timing.py, measured.py, fits.py, cost_claims.py
    recall.py        copying.py
    translation.py   flops.py, positions.py: corpora.py, made_up.py, runs.py
    contenders.py    the models, as tables of recipes                        report.py    one page; charts.py, plain.py

`compare` measures part after part and keeps each as it ends; the command line prints what it yields.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from regard.compare import corpora, cost, flops, positions, recall, translation
from regard.compare.directory import ComparisonDirectory, ExperimentResult
from regard.compare.environment import collect_environment
from regard.compare.experiment import ComparisonSettings, Experiment
from regard.errors import InputError, MissingExtra, did_you_mean
from regard.progress import print_message
from regard.runs.device import select_device

EXPERIMENTS: dict[str, Experiment] = {
    "cost": cost.EXPERIMENT,
    "recall": recall.EXPERIMENT,
    "translation": translation.EXPERIMENT,
    "flops": flops.EXPERIMENT,
    "positions": positions.EXPERIMENT,
}

DEFAULT_EXPERIMENTS = ("cost", "recall", "translation", "flops")
"""What is measured where nobody asks for less, or for more."""


def resolve_experiments(names: Sequence[str]) -> list[str]:
    """The parts to measure, in order, with those that they need."""
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"no part is called '{name}'; {did_you_mean(name, EXPERIMENTS)}")
    chosen = set(names or DEFAULT_EXPERIMENTS)
    chosen |= {other for name in chosen for other in EXPERIMENTS[name].depends_on}
    return [name for name in EXPERIMENTS if name in chosen]


def run_comparison(
    settings: ComparisonSettings, names: Sequence[str], command: str
) -> Iterator[tuple[str, ExperimentResult]]:
    """Measure parts; gives each as it ends. What the folder holds already is taken over, by the same settings."""
    chosen = resolve_experiments(names)
    select_device(settings.device)
    if settings.seed < 0:
        raise InputError(f"seed {settings.seed}; expected 0 or more")
    folder = ComparisonDirectory(settings)
    corpora.check_data_files(settings, [name for name in chosen if not folder.has_result(name)])
    folder.create()
    for number, name in enumerate(chosen, 1):
        part = EXPERIMENTS[name]
        if folder.has_result(name):
            print_message(f"{number}/{len(chosen)} {part.title.lower()}: measured before")
        else:
            print_message(f"{number}/{len(chosen)} {part.title.lower()}")
            began = time.perf_counter()
            found = part.measure(settings, folder.read_measurements())
            folder.write_result(
                name,
                ExperimentResult(found, collect_environment(settings.device), time.perf_counter() - began, command),
            )
        _write_figure_and_report(folder, name)
        yield name, folder.read_result(name)


def _write_figure_and_report(directory: ComparisonDirectory, name: str) -> None:
    """Draw the figure of a part, and write the page of all parts that are there."""
    from regard.compare.report import render_report

    try:
        EXPERIMENTS[name].plot(directory.read_result(name).found, directory.figure_path(name))
    except MissingExtra as error:
        print_message(f"no figure: {error}")
    there = {each: directory.read_result(each) for each in EXPERIMENTS if directory.has_result(each)}
    directory.write_report(
        render_report({each: (EXPERIMENTS[each], kept, directory.figure_path(each)) for each, kept in there.items()})
    )
