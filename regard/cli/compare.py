"""Measure on this machine what is claimed of the Transformer against recurrence, and say which claims held.

The parts are cost (time of a layer against length: self-attention O(n^2 d) in O(1) steps, an LSTM O(n d^2) in O(n)),
recall (how well a text is copied, by how far back its tokens lie, for every architecture), translation (BLEU by the
length of sentences: recurrence without attention, with it, and the Transformer) and flops (what those trainings cost,
beside the published table). One more, positions (every position scheme on translation and tagging), is only measured
where --only asks for it.

Without --data and --tagged, models learn from texts that are made up here. Every part is kept as it ends: its numbers
(PART.json), its figure (PART.png), and all of it on one page (report.html); recipes and runs are in the folders of
their parts. The same command goes on where it was stopped.

    regard compare --quick --out compare
    regard compare --only translation,flops --data train.en train.fr --out on-mine
    regard compare --only positions --tagged train.conllu --quick --out positions

The whole is sized for about half an hour on two idle cores, --quick for about two minutes.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DeviceOption, SeedOption, split_commas
from regard.cli.program_name import program_name
from regard.errors import InputError
from regard.progress import print_message


def _check_two_files(files: tuple[str, str] | None) -> tuple[str, str] | None:
    if files and files[1].startswith("--"):
        raise InputError(f"--data {files[0]}: expected two files of lines side by side, as in --data train.en train.fr")
    return files


def compare(
    out: Annotated[str, typer.Option(help="The folder to make, or to go on with.")] = "compare",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller models and fewer of everything.")] = False,
    only: Annotated[str, typer.Option(metavar="PART,...", help="Only these parts.")] = "",
    data: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Translate your own texts.", callback=_check_two_files),
    ] = None,
    tagged: Annotated[str, typer.Option(metavar="FILE", help="For positions: tag your own words.")] = "",
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
) -> None:
    from regard.compare import EXPERIMENTS
    from regard.compare import run_comparison as measure
    from regard.compare.experiment import ComparisonSettings
    from regard.compare.terminal import format_experiment

    setting = ComparisonSettings(Path(out), "quick" if quick else "full", seed, device, data or (), tagged)
    command = f"{program_name()} {shlex.join(sys.argv[1:])}"
    try:
        for name, kept in measure(setting, split_commas(only), command):
            part = EXPERIMENTS[name]
            for line in format_experiment(part, part.summarise(kept.found)):
                print(line, flush=True)
    except KeyboardInterrupt:
        print_message(f"stopped; what was finished is in {out}, and the same command goes on")
        raise
    print_message(f"the whole: {shlex.quote(str(setting.report_path))}        more: {program_name()} compare --help")
