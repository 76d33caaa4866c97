"""Train a model from text files.

With a recipe: `regard train recipe.toml`. Without one, name a task and its data; vocabulary, model size, batch size
and number of steps are chosen from the amount of data and the device, and written into the run directory:

    regard train translate train.en train.fr --out runs/en-fr
    regard train translate corpus.tsv:1,3 more.jsonl --valid dev.en --valid dev.fr
    regard train translate train.en train.fr --out runs/en-fr --resume        # after any interruption

    regard train translate tatoeba.tsv:en=1,fr=2 europarl.tsv:en=1,de=2,fr=3 --out runs/en-de-fr      # six directions
    regard train translate mine.tsv --from runs/en-fr --keep corpus.tsv:1,3 --out runs/mine      # your own domain

    regard train pretrain books.txt --out runs/bert                           # BERT: blank lines between documents
    regard train classify reviews.tsv:text,label --from runs/bert --out runs/reviews
    regard train tag train.conllu --column upos --valid dev.conllu --out runs/pos      # from scratch, without --from
    regard train qa squad.json --from runs/bert --out runs/squad              # questions: docs/qa.md

    regard train translate train.en train.fr --architecture rnn --out runs/rnn         # recurrent: docs/recurrent.md

    regard train lm books.txt --out runs/books                                # a language model, of subwords
    regard train lm books.txt --characters --out runs/letters                 # or of characters
    regard train classify reviews.tsv:text,label --from runs/books --out runs/reviews-gpt      # docs/transfer.md

    regard train embed paraphrases.tsv --from runs/bert --out runs/sentences  # sentence vectors: docs/embed.md

    regard train vectors books.txt --out runs/vectors                         # word vectors: docs/vectors.md
    regard train classify reviews.tsv:text,label --from runs/vectors --out runs/words

For translation, tables (.tsv .csv .jsonl .parquet) stand alone and plain text files are given in pairs; classifiers are
trained on tables (text, label or text, pair, label), taggers on CoNLL, CoNLL-U and JSONL, question answering on SQuAD's
JSON, JSONL and Parquet (question, context, answers), sentence vectors on tables (two texts, or two and a hard negative)
or on one file of sentences; all also as .gz .xz .zst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import ColumnOption, ColumnsOption, DeviceOption, SkipEmptyOption, parse_columns
from regard.errors import ConfigError
from regard.progress import print_message


def train(
    recipe_or_task: Annotated[
        list[str], typer.Argument(metavar="RECIPE.toml | TASK DATA...", help="A recipe, or a task and its data.")
    ],
    out: Annotated[str, typer.Option(help="The run directory to create; runs/TASK-1, ... if not given.")] = "",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Set one key of the recipe.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    valid: Annotated[
        list[str] | None,
        typer.Option(help="A validation file; give it twice for a pair. Without it some examples are held out."),
    ] = None,
    columns: ColumnsOption = "",
    column: ColumnOption = "",
    characters: Annotated[
        bool, typer.Option("--characters", help="Every character is a token (tokenizer.kind = characters).")
    ] = False,
    architecture: Annotated[
        str, typer.Option(help="transformer, or another family: rnn, and for classify, tag and qa also static.")
    ] = "",
    start: Annotated[
        str, typer.Option("--from", metavar="MODEL", help="Start from this model, or from word vectors.")
    ] = "",
    keep: Annotated[
        list[str] | None,
        typer.Option(help="For a translator with --from: data that it was trained on, mixed in so that it keeps it."),
    ] = None,
    source_lang: Annotated[str, typer.Option(help="The source language: recorded, and that of unnamed data.")] = "",
    target_lang: Annotated[str, typer.Option(help="The target language: recorded, and that of unnamed data.")] = "",
    skip_empty: SkipEmptyOption = False,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    device: DeviceOption = "auto",
) -> None:
    from regard import config
    from regard.api import train as start_training
    from regard.cli.training_display import train_and_display

    if resume and not out:
        raise ConfigError("--resume: which run? pass its directory with --out")
    tables, where = _read_tables(recipe_or_task)
    options: dict[str, dict[str, Any]] = {
        "task": {"source_lang": source_lang, "target_lang": target_lang},
        "data": {
            "valid": tuple(valid or ()),
            "keep": tuple(keep or ()),
            "columns": parse_columns(column, columns),
            "skip_empty": skip_empty,
        },
        "model": {"start": start, "architecture": architecture},
        "tokenizer": {"kind": "characters" if characters else ""},
    }
    for name, table in options.items():
        tables[name] = tables.get(name, {}) | {key: value for key, value in table.items() if value}
    if seed is not None:
        tables["train"] = tables.get("train", {}) | {"seed": seed}
    tables = config.override(tables, overrides or [])
    try:
        run = start_training(tables, out=Path(out) if out else None, device=device, resume=resume, where=where)
    except KeyboardInterrupt:
        print_message("stopped before the first step; the same command begins again")
        raise
    train_and_display(run, device)


def _read_tables(recipe_or_task: list[str]) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the tables of the recipe, or of a task and its data, and the name to use in messages."""
    from regard import config

    if recipe_or_task[0].endswith(".toml"):
        if len(recipe_or_task) > 1:
            raise ConfigError(
                f"{recipe_or_task[1]}: data beside a recipe; put it in the recipe, or pass --set data.train=..."
            )
        return config.read(Path(recipe_or_task[0])), recipe_or_task[0]
    task, *files = recipe_or_task
    return {"task": {"name": task}, "data": {"train": tuple(files)}}, f"train {task}"
