"""Embed texts: one vector for each text, each of its words, or each of its tokens.

The suffix of --out sets the format. .npy is one float32 array: row i is line i of FILE; for words and tokens, a .tsv
beside it names each row (line, place, word). .parquet is a table with the columns line, text (or place and word) and
vector. Without --out, --json prints the vectors. An empty line has no vector: NaN in files, null in JSON, and no words
or tokens; a warning counts such lines. `regard match --in vectors.npy` searches the vectors of lines; the files record
which model made them (vectors.npy.json, the metadata of vectors.parquet).

    regard embed runs/bert news.en --out vectors.npy
    regard embed runs/bert news.en --layers 0,-1 --pooling mean --normalised --out vectors.parquet
    regard embed runs/bert news.en --level word --layers static --out words.npy
    cat news.en | regard embed runs/bert - --level token --json

Layer 0 is the input of the first layer, -1 the output of the last; several layers are averaged; static is the
token embedding without its position. --pooling makes one vector of a text: cls takes its first token, last its last
token, mean the mean of all, max the largest value in each dimension, attention the weights a classifier has learned. By
default the pooling and scaling of the model are used. A text longer than the model is read in overlapping windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.line_inputs import LinesFileArgument, NumberedLines, number_lines
from regard.cli.options import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    load_model,
    print_json,
    split_commas,
)
from regard.cli.text_inputs import count_empty, read_texts
from regard.errors import InputError
from regard.progress import print_message, progress_bar

if TYPE_CHECKING:
    from regard.data.vector_files import VectorMetadata, Vectors
    from regard.predict.embedding import Embedder


def embed(
    model: ModelArgument,
    file: LinesFileArgument,
    out: Annotated[str, typer.Option(help="A file for the vectors: .npy or .parquet.")] = "",
    level: Annotated[str, typer.Option(help="One vector for each text, word or token.")] = "text",
    layers: Annotated[str, typer.Option(help="Layers to take vectors from, as in -1 or 1,2,3, or static.")] = "-1",
    pooling: Annotated[str | None, typer.Option(help="For texts: cls, mean, attention, max or last.")] = None,
    normalised: Annotated[
        bool | None, typer.Option("--normalised/--not-normalised", help="Scale vectors to length 1.")
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import TextEncoder
    from regard.data.vector_files import TEXT_VECTOR_COLUMNS, check_vector_path, open_vector_file

    if bool(out) == as_json:
        raise InputError("give --out vectors.npy, --out vectors.parquet, or --json, which prints the vectors")
    path = check_vector_path(out) if out else None
    batches, total = read_texts([], file)
    embedder = load_model(TextEncoder, model, device, "embed", precision).make_embedder(
        level=level, layers=_parse_layers(layers), pooling=pooling, normalised=normalised
    )
    embedded = _embed_lines(number_lines(file, count_empty(batches)), embedder, total)
    if path is None:
        _print_vectors(embedded, level)
        return
    width, count = embedder.model.config.d_model, 0
    columns = TEXT_VECTOR_COLUMNS if level == "text" else ("line", "place", level)
    with open_vector_file(path, width, columns, embedder.origin) as vector_file:
        for rows, vectors in embedded:
            vector_file.write(rows, vectors)
            count += len(rows)
    print_message(f"written: {path}: {count:,} vectors of {width:,} numbers")


def _parse_layers(text: str) -> str | tuple[int, ...]:
    try:
        return text if text == "static" else tuple(int(part) for part in split_commas(text))
    except ValueError:
        raise InputError(f"--layers {text}: expected comma-separated numbers, as in -1 or 1,2,3, or static") from None


def _embed_lines(
    batches: Iterable[NumberedLines], embedder: Embedder, total: int | None
) -> Iterator[tuple[list[VectorMetadata], Vectors]]:
    """Yield the vectors of each batch of lines, with the line, position and name of each."""
    import numpy as np

    from regard.api.embed_batches import embed_batch, embed_batch_words_or_tokens

    with progress_bar("embedding", total) as progress:
        for batch in batches:
            texts = [text for _, text in batch]
            if embedder.options.level == "text":
                yield list(batch), embed_batch(embedder, texts)
            else:
                named = embed_batch_words_or_tokens(embedder, texts)
                lines = [(line, each) for (line, _), each in zip(batch, named, strict=True)]
                rows: list[VectorMetadata] = [
                    (line, position, name) for line, each in lines for position, name in enumerate(each.names)
                ]
                yield rows, np.concatenate([each.vectors for each in named])
            progress.advance(len(batch))


def _print_vectors(batches: Iterable[tuple[list[VectorMetadata], Vectors]], level: str) -> None:
    for rows, vectors in batches:
        for row, vector in zip(rows, vectors.tolist(), strict=True):
            print_json({"line": row[0], level: row[-1], "vector": None if all(map(isnan, vector)) else vector})
