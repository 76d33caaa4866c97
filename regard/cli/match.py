"""Print the similarity of texts: the cosine of their vectors, from -1 to 1.

Two texts are compared; or a text is compared with every line of a file of any length, and the best lines are printed:
score, line, text.

    regard match runs/bert "the driver exceeded the speed limit" "the car went too fast"
    regard match runs/bert "a man is asleep" --in news.en --top 5

`regard look MODEL A --pair B --view match` shows why two texts match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from regard.cli.line_inputs import NumberedLines, SkipEmptyLinesOption, read_numbered_lines
from regard.cli.options import DeviceOption, JsonOption, ModelArgument, print_json
from regard.errors import InputError
from regard.progress import progress_bar


def match(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="A text.")],
    other: Annotated[str | None, typer.Argument(help="The text to compare it with.")] = None,
    search_file: Annotated[str, typer.Option("--in", metavar="FILE", help="Search this file, one text a line.")] = "",
    top: Annotated[int | None, typer.Option(help="With --in: the K best lines; 10 by default.")] = None,
    skip_empty: SkipEmptyLinesOption = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import load_as
    from regard.api.encoders import TextEncoder

    if (other is None) == (not search_file):
        raise InputError("give two texts, or a text and a file with --in")
    if top is not None and (top < 1 or not search_file):
        raise InputError(f"--top {top}: expected at least 1, and a file with --in")
    if not text.strip() or (other is not None and not other.strip()):
        raise InputError("a text is empty; give at least one word")
    if other is not None:
        score = load_as(TextEncoder, model, device, "match").match(text, other)
        print_json({"text": text, "other": other, "score": score}) if as_json else print(f"{score:.4f}")
        return
    buffers, total = read_numbered_lines(search_file, skip_empty=skip_empty)
    encoder = load_as(TextEncoder, model, device, "match")
    for found in encoder.search(text, _track_lines(buffers, total), 10 if top is None else top):
        if as_json:
            print_json({"score": found.score, "line": found.corpus_id, "text": found.text})
        else:
            print(f"{found.score:.4f}\t{found.corpus_id}\t{found.text}")


def _track_lines(buffers: Iterable[NumberedLines], total: int | None) -> Iterator[NumberedLines]:
    with progress_bar("searching", total) as shown:
        for buffer in buffers:
            yield buffer
            shown.advance(len(buffer))
