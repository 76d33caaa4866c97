"""Compute the similarity of texts: the cosine of their vectors, from -1 to 1.

Two texts are compared; or a text is compared with every line of a file, and the most similar lines are printed: score,
line number, text. A file of any length can be searched. An empty line is similar to no text; a warning counts such
lines.

    regard match runs/bert "the driver exceeded the speed limit" "the car went too fast"
    regard match runs/bert "a man is asleep" --in news.en --top 5

`regard look MODEL A --pair B --view match` shows why two texts match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from regard.cli.line_inputs import NumberedLines, number_lines
from regard.cli.options import DeviceOption, JsonOption, ModelArgument, load_model, print_json
from regard.cli.text_inputs import read_texts
from regard.errors import InputError
from regard.progress import progress_bar


def match(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="A text.")],
    other: Annotated[str | None, typer.Argument(help="The text to compare it with.")] = None,
    search_file: Annotated[str, typer.Option("--in", metavar="FILE", help="Search this file, one text per line.")] = "",
    top: Annotated[int | None, typer.Option(help="With --in: the number of lines to print. Default: 10.")] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import TextEncoder

    if (other is None) == (not search_file):
        raise InputError("give two texts, or a text and a file with --in")
    if top is not None and (top < 1 or not search_file):
        raise InputError(f"--top {top}: expected at least 1, and a file with --in")
    if not text.strip() or (other is not None and not other.strip()):
        raise InputError("a text is empty; give at least one word")
    if other is not None:
        score = load_model(TextEncoder, model, device, "match").match(text, other)
        print_json({"text": text, "other": other, "score": score}) if as_json else print(f"{score:.4f}")
        return
    batches, total = read_texts([], search_file)
    encoder = load_model(TextEncoder, model, device, "match")
    numbered = _track_lines(number_lines(search_file, batches), total)
    for hit in encoder.search(text, numbered, 10 if top is None else top):
        if as_json:
            print_json({"score": hit.score, "line": hit.corpus_id, "text": hit.text})
        else:
            print(f"{hit.score:.4f}\t{hit.corpus_id}\t{hit.text}")


def _track_lines(batches: Iterable[NumberedLines], total: int | None) -> Iterator[NumberedLines]:
    with progress_bar("searching", total) as progress:
        for batch in batches:
            yield batch
            progress.advance(len(batch))
