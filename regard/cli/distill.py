"""Train a small translator, the student, on the translations of a large one, the teacher (Kim and Rush 2016).

The teacher translates every line of TEXT (a column of a table, or the sources of pairs), and the student is trained on
the result. It has the vocabulary of its teacher unless `--set tokenizer.vocabulary=8000` gives it one of its own.

    regard distill runs/en-fr train.en --out runs/student
    regard distill runs/en-fr train.en --out runs/student --resume                # after any interruption, at any time
    regard distill runs/en-fr train.en train.fr --references --out runs/student2
    regard distill runs/en-fr corpus.tsv:1,3 --interpolate --beam 4 --preset medium-6+2 --out runs/student3
    regard translate runs/student "I am good"

TEXT is one or more files of lines, or tables (.tsv .csv .jsonl .parquet), also as .gz .xz .zst. Duplicates are
translated once; translations that are empty, cut at the maximal length, or much longer or shorter than the text are
counted and left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import (
    AlphaOption,
    BeamOption,
    ColumnsOption,
    DeviceOption,
    PrecisionOption,
    SkipEmptyOption,
    drop_none,
    split_commas,
)
from regard.errors import ConfigError
from regard.progress import print_message


def distill(
    teacher: Annotated[
        str, typer.Argument(metavar="TEACHER", help="A translator: a run directory, or a Hugging Face model directory.")
    ],
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files of lines, tables, or pairs.")],
    out: Annotated[str, typer.Option(help="The run directory to create; runs/distill-1, ... if not given.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Resume the distillation in --out.")] = False,
    preset: Annotated[str, typer.Option(help="The size of the student. Default: small-6+2.")] = "",
    recipe: Annotated[str, typer.Option(metavar="RECIPE.toml", help="The student's recipe, without its data.")] = "",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Set one key of the student's recipe.")
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(help="Validation pairs, two files or a table; without it, translated texts are held out."),
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="TEXT is pairs, of which the sources are translated.")] = False,
    references: Annotated[
        bool, typer.Option("--references", help="TEXT is pairs; train on their own targets as well.")
    ] = False,
    interpolate: Annotated[
        bool,
        typer.Option(
            "--interpolate", help="TEXT is pairs; train on the hypothesis nearest to the target, by sentence BLEU."
        ),
    ] = False,
    beam: BeamOption = None,
    alpha: AlphaOption = None,
    batch: Annotated[int | None, typer.Option(help="Texts translated at a time. Default: 32, on a GPU 256.")] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option(
            help="Leave out translations more than this many times longer or shorter than the text. Default: 3."
        ),
    ] = None,
    columns: ColumnsOption = "",
    skip_empty: SkipEmptyOption = False,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers of the training.")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    from regard import config
    from regard.api.distillation import distill as start_distillation
    from regard.cli.training_display import train_and_display

    if resume and not out:
        raise ConfigError("--resume: which distillation? pass its directory with --out")
    tables: config.Tables = config.read(Path(recipe)) if recipe else {}
    if seed is not None:
        tables["train"] = tables.get("train", {}) | {"seed": seed}
    search: dict[str, Any] = drop_none(alpha=alpha, batch=batch, max_ratio=max_ratio)
    try:
        run = start_distillation(
            teacher,
            text,
            out=out or None,
            recipe=tables,
            overrides=overrides or [],
            preset=preset,
            valid=valid or [],
            columns=split_commas(columns),
            pairs=pairs,
            references=references,
            interpolate=interpolate,
            skip_empty=skip_empty,
            beam=beam,
            device=device,
            precision=precision,
            resume=resume,
            where=recipe or "distill",
            **search,
        )
    except KeyboardInterrupt:
        print_message("stopped; the same command continues from here" + ("" if resume else " with --resume"))
        raise
    train_and_display(run, device)
