"""Say how alike texts are: the cosine of their vectors, from -1 to 1.

Two texts are compared; or a text is compared with every line of a file, and the best are printed: score, line, text.
A file of any length can be searched.

    regard match runs/bert "the driver exceeded the speed limit" "the car went too fast"
    regard match runs/bert "a man is asleep" --in news.en --top 5

`regard look MODEL A --pair B --view match` shows why two texts match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from regard.cli.lines import Numbered, SkipBlank, windows_of_lines
from regard.cli.options import Device, Json, Model, print_json
from regard.errors import InputError
from regard.progress import bar


def match(
    model: Model,
    text: Annotated[str, typer.Argument(help="A text.")],
    other: Annotated[str | None, typer.Argument(help="The text to compare it with.")] = None,
    within: Annotated[str, typer.Option("--in", metavar="FILE", help="Search this file, one text a line.")] = "",
    top: Annotated[int | None, typer.Option(help="With --in: the K best lines; 10 where not given.")] = None,
    skip_empty: SkipBlank = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    from regard.api import load_as
    from regard.api.encoder import Encoder

    if (other is None) == (not within):
        raise InputError("give two texts, or a text and a file with --in")
    if top is not None and (top < 1 or not within):
        raise InputError(f"--top {top}: expected at least 1, and a file with --in")
    if not text.strip() or (other is not None and not other.strip()):
        raise InputError("a text is empty; give at least one word")
    if other is not None:
        score = load_as(Encoder, model, device, "match").match(text, other)
        print_json({"text": text, "other": other, "score": score}) if as_json else print(f"{score:.4f}")
        return
    windows, total = windows_of_lines(within, skip_empty=skip_empty)
    encoder = load_as(Encoder, model, device, "match")
    for found in encoder.searched(text, _tracked(windows, total), 10 if top is None else top):
        if as_json:
            print_json({"score": found.score, "line": found.number, "text": found.text})
        else:
            print(f"{found.score:.4f}\t{found.number}\t{found.text}")


def _tracked(windows: Iterable[Numbered], total: int | None) -> Iterator[Numbered]:
    with bar("searching", total) as shown:
        for window in windows:
            yield window
            shown.advance(len(window))
