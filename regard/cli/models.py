"""List the ready-made models: what each is for, its languages, its size, its licence and its scores.

They are a package of their own: pip install 'regard[models]'. A name stands wherever a MODEL is asked for, also after
--from; a path that exists wins over a name. The directory of a model, in JSON its path, holds a card, README.md, with
its recipe, its data and what it is not good for.

    regard models
    regard models --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.cli.options import JsonOption, print_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from regard.runs.ready_made import ReadyMadeModel


def models(as_json: JsonOption = False) -> None:
    from regard.errors import MissingExtra
    from regard.progress import print_message
    from regard.runs.ready_made import EXTRA, are_installed, list_ready_made

    if not are_installed():
        raise MissingExtra("the list of ready-made models", EXTRA)
    listed = list_ready_made().values()
    if as_json:
        for model in listed:
            print_json(model.describe())
    elif listed:
        _print_table(listed)
    else:
        print_message("the installed package of models is empty")


def _print_table(models: Collection[ReadyMadeModel]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("name", "task", "languages", "MB", "scores", "licence", box=None, pad_edge=False)
    for model in models:
        scores = ", ".join(f"{name} {value:g}" for name, value in model.entry.scores.items())
        size = f"{model.n_bytes / 1e6:.1f}"
        languages = " ".join(model.entry.languages)
        table.add_row(*map(escape, (model.name, model.entry.task, languages, size, scores, model.entry.licence)))
    Console(highlight=False).print(table)
    sizes = {model.path: model.n_bytes for model in models}
    n_models = len(sizes)
    print(f"\n{n_models} model{'s' if n_models > 1 else ''} of {sum(sizes.values()) / 1e6:.1f} MB in all")
