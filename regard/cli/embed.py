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

from regard.cli.line_inputs import LinesFileArgument, NumberedLines, SkipEmptyLinesOption, read_numbered_lines
from regard.cli.options import DeviceOption, JsonOption, ModelArgument, print_json, split_commas
from regard.errors import InputError
from regard.progress import print_message, progress_bar

if TYPE_CHECKING:
    from regard.data.vector_files import VectorMetadata, Vectors
    from regard.tasks.shared.embedder import Embedder


def embed(
    model: ModelArgument,
    file: LinesFileArgument,
    out: Annotated[str, typer.Option(help="A file for the vectors: .npy or .parquet.")] = "",
    level: Annotated[str, typer.Option(help="Of what: text, word or token.")] = "text",
    layers: Annotated[str, typer.Option(help="Layers, as in -1 or 1,2,3, or static.")] = "-1",
    pooling: Annotated[str | None, typer.Option(help="For texts: cls, mean, attention, max or last.")] = None,
    normalised: Annotated[
        bool | None, typer.Option("--normalised/--not-normalised", help="Whether vectors are set to length 1.")
    ] = None,
    skip_empty: SkipEmptyLinesOption = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import load_as
    from regard.api.encoders import TextEncoder
    from regard.data.vector_files import TEXT_VECTOR_COLUMNS, check_vector_path, open_vector_file

    if bool(out) == as_json:
        raise InputError("give --out vectors.npy, --out vectors.parquet, or --json, which prints vectors")
    place = check_vector_path(out) if out else None
    buffers, total = read_numbered_lines(file, skip_empty=skip_empty)
    embedder = load_as(TextEncoder, model, device, "embed").make_embedder(
        level=level, layers=_parse_layers(layers), pooling=pooling, normalised=normalised
    )
    made = _embed_lines(buffers, embedder, total)
    if place is None:
        _print_vectors(made, level)
        return
    width, count = embedder.model.config.d_model, 0
    columns = TEXT_VECTOR_COLUMNS if level == "text" else ("line", "place", level)
    with open_vector_file(place, width, columns) as written:
        for rows, vectors in made:
            written.write(rows, vectors)
            count += len(rows)
    print_message(f"written: {place}: {count:,} vectors of {width:,} numbers")


def _parse_layers(text: str) -> str | tuple[int, ...]:
    try:
        return text if text == "static" else tuple(int(part) for part in split_commas(text))
    except ValueError:
        raise InputError(f"--layers {text}: expected numbers parted by commas, as in -1 or 1,2,3, or static") from None


def _embed_lines(
    buffers: Iterable[NumberedLines], embedder: Embedder, total: int | None
) -> Iterator[tuple[list[VectorMetadata], Vectors]]:
    """The vectors of each buffer of texts, and what they are of."""
    import numpy as np

    with progress_bar("embedding", total) as shown:
        for buffer in buffers:
            texts = [text for _, text in buffer]
            if embedder.options.level == "text":
                yield list(buffer), embedder.embed_texts(texts)
            else:
                named = embedder.embed_words_or_tokens(texts)
                lines = [(line, each) for (line, _), each in zip(buffer, named, strict=True)]
                rows: list[VectorMetadata] = [
                    (line, place, name) for line, each in lines for place, name in enumerate(each.names)
                ]
                yield rows, np.concatenate([each.vectors for each in named])
            shown.advance(len(buffer))


def _print_vectors(batches: Iterable[tuple[list[VectorMetadata], Vectors]], level: str) -> None:
    for rows, vectors in batches:
        for row, vector in zip(rows, vectors.tolist(), strict=True):
            print_json({"line": row[0], level: row[-1], "vector": vector})
