"""Classify texts given as arguments, the lines of a file, the rows of a table, or standard input.

One line for each text, in the same order: the label and its probability, or a score; an empty line for an empty text.
Where a model was trained on pairs, --pair gives the text that goes with a single TEXT; in files and pipes a line holds
both texts, tab-separated. With --columns, FILE is a table (.tsv .csv .jsonl .parquet): one column, or two for pairs.

    regard classify runs/reviews "this movie was a great experience"
    regard classify runs/reviews --file news.en --json
    regard classify runs/reviews --file reviews.tsv --columns text
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    load_model,
    print_json,
    split_commas,
)
from regard.cli.text_inputs import FileOption, TextArguments, count_empty, read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.predict.classification import Classification, TextPair


def classify(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    pair: Annotated[str | None, typer.Option(help="The text that goes with TEXT.")] = None,
    columns: Annotated[
        str, typer.Option(help="FILE is a table: the column of the texts, or text,pair; by header or number.")
    ] = "",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Classifier

    _check_pair(pair, text or [])
    batches, total = _read_table(text or [], file, columns) if columns else read_texts(text or [], file)
    classifier = load_model(Classifier, model, device, "classify", precision)
    pairs = [[(text[0], pair)]] if text and pair is not None else _split_pairs(count_empty(batches))
    results = (
        (each, result) for batch in pairs for each, result in zip(batch, classifier.classify(batch), strict=True)
    )
    for each, result in track(results, "classifying", total):
        _print_classification(each, result, as_json=as_json)


def _check_pair(pair: str | None, texts: Sequence[str]) -> None:
    if pair is not None and len(texts) != 1:
        raise InputError("--pair goes with one TEXT; in a file, write both texts on one line, tab-separated")
    if pair is not None and not pair.strip():
        raise InputError("--pair is empty; give at least one word, or leave it out")


def _read_table(texts: Sequence[str], file: str, columns: str) -> tuple[Iterable[Sequence[str]], None]:
    """Return the rows of a table as lines, the two texts of a pair tab-separated."""
    from regard.data.buckets import buffered_read
    from regard.text.tables import read_rows

    names = split_commas(columns)
    if texts or not file:
        raise InputError("--columns goes with a table: --file FILE, and no TEXT")
    if len(names) > 2:
        raise InputError(f"--columns {columns}: expected one column, or two for pairs")
    rows = read_rows(file, names)
    return buffered_read("\t".join(value.replace("\t", " ") for value in row.values) for row in rows), None


def _split_pairs(batches: Iterable[Sequence[str]]) -> Iterator[list[TextPair]]:
    """Split lines into text and pair at their first tab; a line without one has no pair."""
    number = 0
    for batch in batches:
        pairs = []
        for line in batch:
            number += 1
            first, tab, second = line.partition("\t")
            if line.strip() and (not first.strip() or (tab and not second.strip())):
                side = "its pair" if first.strip() else "its first side"
                raise InputError(f"text {number:,}: {side} is empty; give both texts")
            pairs.append((first.strip() and first, second.strip() and second))
        yield pairs


def _print_classification(texts: TextPair, classification: Classification, *, as_json: bool) -> None:
    is_empty = not texts[0]
    if as_json:
        result = _to_dict(classification)
        pair = {"pair": texts[1]} if texts[1] else {}
        print_json({"text": texts[0], **pair, **(dict.fromkeys(result) if is_empty else result)})
    elif is_empty:
        print(flush=True)
    elif classification.score is not None:
        print(f"{classification.score:.4f}", flush=True)
    else:
        print(f"{classification.label}\t{classification.probability:.4f}", flush=True)


def _to_dict(classification: Classification) -> dict[str, object]:
    if classification.score is not None:
        return {"score": classification.score}
    return {
        "label": classification.label,
        "probability": classification.probability,
        "probabilities": classification.probabilities,
    }
