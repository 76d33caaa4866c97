"""Turn texts into vectors: of whole texts, of their words, or of their tokens.

The suffix of --out says the form. .npy is one float32 array: row i is line i of FILE; of words and tokens a .tsv beside
it names them (line, place, word). .parquet is a table with line, text or place and word, and vector. Without --out,
--json prints them.

    regard embed runs/bert news.en --out vectors.npy
    regard embed runs/bert news.en --layers 0,-1 --pooling mean --normalised --out vectors.parquet
    regard embed runs/bert news.en --level word --layers static --out words.npy
    cat news.en | regard embed runs/bert - --level token --json

Layers are counted from 0, what enters them; -1 is the last; several give their mean; static is a token by itself,
without its place. --pooling makes one vector of a text: cls is its first token, last its last, mean all of them, max
the largest value in each dimension, attention what a classifier has learned. Where nothing is said, the model's own
way is taken. A text longer than the model is read in overlapping windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lines import Lines, Numbered, SkipBlank, windows_of_lines
from regard.cli.options import Device, Json, Model, print_json, split
from regard.errors import InputError
from regard.progress import bar, say

if TYPE_CHECKING:
    from regard.data.vectors import Row, Vectors
    from regard.tasks.vectors import Embedder


def embed(
    model: Model,
    file: Lines,
    out: Annotated[str, typer.Option(help="A file for the vectors: .npy or .parquet.")] = "",
    level: Annotated[str, typer.Option(help="Of what: text, word or token.")] = "text",
    layers: Annotated[str, typer.Option(help="Layers, as in -1 or 1,2,3, or static.")] = "-1",
    pooling: Annotated[str | None, typer.Option(help="For texts: cls, mean, attention, max or last.")] = None,
    normalised: Annotated[
        bool | None, typer.Option("--normalised/--not-normalised", help="Whether vectors are set to length 1.")
    ] = None,
    skip_empty: SkipBlank = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    from regard.api import load_as
    from regard.api.encoder import Encoder
    from regard.data.vectors import TEXTS, check_form, vector_file

    if bool(out) == as_json:
        raise InputError("give --out vectors.npy, --out vectors.parquet, or --json, which prints vectors")
    place = check_form(out) if out else None
    windows, total = windows_of_lines(file, skip_empty=skip_empty)
    embedder = load_as(Encoder, model, device, "embed").embedder(
        level=level, layers=_layers(layers), pooling=pooling, normalised=normalised
    )
    made = _tracked(windows, embedder, total)
    if place is None:
        _print(made, level)
        return
    width, count = embedder.model.config.d_model, 0
    columns = TEXTS if level == "text" else ("line", "place", level)
    with vector_file(place, width, columns) as written:
        for rows, vectors in made:
            written.write(rows, vectors)
            count += len(rows)
    say(f"written: {place}: {count:,} vectors of {width:,} numbers")


def _layers(text: str) -> str | tuple[int, ...]:
    try:
        return text if text == "static" else tuple(int(part) for part in split(text))
    except ValueError:
        raise InputError(f"--layers {text}: expected numbers parted by commas, as in -1 or 1,2,3, or static") from None


def _tracked(windows: Iterable[Numbered], embedder: Embedder, total: int | None) -> Iterator[tuple[list[Row], Vectors]]:
    """The vectors of each window of texts, and what they are of."""
    import numpy as np

    with bar("embedding", total) as shown:
        for window in windows:
            texts = [text for _, text in window]
            if embedder.how.level == "text":
                yield list(window), embedder.texts(texts)
            else:
                named = embedder.parts(texts)
                lines = [(line, each) for (line, _), each in zip(window, named, strict=True)]
                rows: list[Row] = [(line, place, name) for line, each in lines for place, name in enumerate(each.names)]
                yield rows, np.concatenate([each.vectors for each in named])
            shown.advance(len(window))


def _print(made: Iterable[tuple[list[Row], Vectors]], level: str) -> None:
    for rows, vectors in made:
        for row, vector in zip(rows, vectors.tolist(), strict=True):
            print_json({"line": row[0], level: row[-1], "vector": vector})
