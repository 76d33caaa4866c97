"""Test the claims for the Transformer over recurrence on this machine, and report which of them held.

The parts are cost (time of a layer against length: self-attention O(n^2 d) in O(1) steps, an LSTM O(n d^2) in O(n)),
recall (accuracy of copying a text by the distance of its tokens, for every architecture), distance (the fraction of a
final vector owed to each position, and the gradient by distance), translation (BLEU by sentence length: recurrence
without attention, with attention, and the Transformer) and flops (training cost, beside the published table). One more,
positions (every position scheme on translation, tagging, sequence classification and span extraction, with several
seeds), runs only if --only names it.

Without --data, --tagged, --labelled and --questions, models learn from synthetic text. Every part is saved as
it ends: its measurements (PART.json), its figure (PART.png), and the report of all parts (report.html); recipes and
runs are in the directories of their parts. The same command resumes an interrupted comparison.

    regard compare --quick --out compare
    regard compare --only translation,flops --data train.en train.fr --out on-mine
    regard compare --only positions --tagged train.conllu --labelled reviews.tsv --questions squad.json --out positions

The parts that run by default take about half an hour on two idle cores, about two minutes with --quick.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options import DeviceOption, SeedOption, split_commas
from regard.cli.program_name import program_name
from regard.errors import InputError
from regard.progress import print_message


def _check_two_files(files: tuple[str, str] | None) -> tuple[str, str] | None:
    if files and files[1].startswith("--"):
        raise InputError(f"--data {files[0]}: expected two parallel files, as in --data train.en train.fr")
    return files


def compare(
    out: Annotated[str, typer.Option(help="Directory to create, or to resume.")] = "compare",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller models, fewer examples and fewer steps.")] = False,
    only: Annotated[str, typer.Option(metavar="PART,...", help="Run only these parts.")] = "",
    data: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Translate your own text.", callback=_check_two_files),
    ] = None,
    tagged: Annotated[str, typer.Option(metavar="FILE", help="For positions: your own tagged words.")] = "",
    labelled: Annotated[str, typer.Option(metavar="FILE", help="For positions: your own labelled texts.")] = "",
    questions: Annotated[
        str, typer.Option(metavar="FILE", help="For positions: your own questions, with answers in their texts.")
    ] = "",
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
) -> None:
    from regard.compare import EXPERIMENTS, run_comparison
    from regard.compare.experiment import ComparisonSettings
    from regard.compare.terminal import format_experiment

    pace: Literal["quick", "full"] = "quick" if quick else "full"
    settings = ComparisonSettings(Path(out), pace, seed, device, data or (), tagged, labelled, questions)
    command = f"{program_name()} {shlex.join(sys.argv[1:])}"
    try:
        for name, result in run_comparison(settings, split_commas(only), command):
            experiment = EXPERIMENTS[name]
            for line in format_experiment(experiment, experiment.summarise(result.measurements)):
                print(line, flush=True)
    except (KeyboardInterrupt, SystemExit):  # the latter on SIGTERM
        print_message(f"interrupted; finished parts are in {out}; the same command resumes")
        raise
    print_message(f"report: {shlex.quote(str(settings.report_path))}        more: {program_name()} compare --help")
