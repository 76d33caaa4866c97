"""Translate texts given as arguments, the lines of a file, or what comes through a pipe.

One line of output for each line of input, in the same order. Without TEXT and --file, standard input is read, and
translated as it comes.

    regard translate runs/en-fr "I am good"
    regard translate runs/en-fr --file news.en > news.fr
    tail -f chat.en | regard translate runs/en-fr
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Alpha, Batch, Beam, Device, Json, Model, Seed, given, print_json
from regard.cli.texts import File, Texts, windows_of
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.tasks.translate import Translation

KEYS = ("text", "score", "tokens", "token_scores", "alignment")
"""What --json says of a translation."""


def translate(
    model: Model,
    text: Texts = None,
    file: File = "",
    beam: Beam = None,
    n_best: Annotated[int, typer.Option(help="Translations of each text, best first.")] = 1,
    alpha: Alpha = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random instead.")] = False,
    temperature: Annotated[float, typer.Option(help="For --sample: below 1 is more careful, above 1 is wilder.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="For --sample: only the K likeliest tokens; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="For --sample: only the likeliest tokens of mass P.")] = 1.0,
    batch: Batch = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show how each translation was written.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    from regard.api import Translator, load_as

    if steps and as_json:
        raise InputError("--json has the tokens and their scores already; leave --steps out")
    windows, total = windows_of(text or [], file)
    found = load_as(Translator, model, device, "translate").stream(
        windows,
        aligned=as_json,
        n_best=n_best,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        **given(beam=beam, alpha=alpha, batch=batch),
    )
    for source, translations in track(found, "translating", total):
        _print(source, translations, as_json=as_json, scored=n_best > 1, steps=steps)


def _print(source: str, translations: Sequence[Translation], *, as_json: bool, scored: bool, steps: bool) -> None:
    if as_json:
        print_json(
            {"text": source, "translations": [{key: getattr(each, key) for key in KEYS} for each in translations]}
        )
        return
    for each in translations:
        line = each.text.replace("\n", " ")  # a model may write a line end; its output is still one line
        print(f"{each.score:.4f}\t{line}" if scored else line, flush=True)
        if steps:
            print(
                "    "
                + " -> ".join(
                    ["<sos>", *(f"{t} ({s:.2f})" for t, s in zip(each.tokens, each.token_scores, strict=True))]
                )
            )
