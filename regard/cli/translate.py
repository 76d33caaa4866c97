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

from regard.cli.options import (
    AlphaOption,
    BatchOption,
    BeamOption,
    DeviceOption,
    JsonOption,
    ModelArgument,
    SeedOption,
    drop_none,
    print_json,
)
from regard.cli.text_inputs import FileOption, TextArguments, read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.tasks.translate import Translation

JSON_KEYS = ("text", "score", "tokens", "token_scores", "alignment")
"""What --json says of a translation."""


def translate(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    beam: BeamOption = None,
    n_best: Annotated[int, typer.Option(help="Translations of each text, best first.")] = 1,
    alpha: AlphaOption = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random instead.")] = False,
    temperature: Annotated[float, typer.Option(help="For --sample: below 1 is more careful, above 1 is wilder.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="For --sample: only the K likeliest tokens; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="For --sample: only the likeliest tokens of mass P.")] = 1.0,
    batch: BatchOption = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show how each translation was written.")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Translator, load_as

    if steps and as_json:
        raise InputError("--json has the tokens and their scores already; leave --steps out")
    buffers, total = read_texts(text or [], file)
    found = load_as(Translator, model, device, "translate").translate_iterable(
        buffers,
        aligned=as_json,
        n_best=n_best,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        **drop_none(beam=beam, alpha=alpha, batch=batch),
    )
    for source, translations in track(found, "translating", total):
        _print_translations(source, translations, as_json=as_json, with_scores=n_best > 1, with_steps=steps)


def _print_translations(
    source: str, translations: Sequence[Translation], *, as_json: bool, with_scores: bool, with_steps: bool
) -> None:
    if as_json:
        print_json(
            {"text": source, "translations": [{key: getattr(each, key) for key in JSON_KEYS} for each in translations]}
        )
        return
    for each in translations:
        line = each.text.replace("\n", " ")  # a model may write a line end; its output is still one line
        print(f"{each.score:.4f}\t{line}" if with_scores else line, flush=True)
        if with_steps:
            print(
                "    "
                + " -> ".join(
                    ["<sos>", *(f"{t} ({s:.2f})" for t, s in zip(each.tokens, each.token_scores, strict=True))]
                )
            )
