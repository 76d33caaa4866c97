"""Label texts given as arguments, the lines of a file, or what comes through a pipe.

One line for each text, in the same order: the label and its probability, or a score. Where a model was trained on
pairs, --pair gives the text that goes with a single TEXT; in files and pipes a pair is one line, its two texts parted
by a tab.

    regard classify runs/reviews "this movie was a great experience"
    regard classify runs/reviews --file news.en --json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, print_json
from regard.cli.text_inputs import FileOption, TextArguments, read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.tasks.classify import Classification, TextPair


def classify(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    pair: Annotated[str | None, typer.Option(help="The text that goes with TEXT.")] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Classifier, load_as

    if pair is not None and len(text or []) != 1:
        raise InputError("--pair goes with one TEXT; in a file, part the two texts of a line by a tab")
    if pair is not None and not pair.strip():
        raise InputError("--pair is empty; give at least one word, or leave it out")
    buffers, total = read_texts(text or [], file)
    labeller = load_as(Classifier, model, device, "classify")
    pairs = [[(text[0], pair)]] if text and pair is not None else _split_pairs(buffers)
    found = (
        (each, verdict) for buffer in pairs for each, verdict in zip(buffer, labeller.classify(buffer), strict=True)
    )
    for each, verdict in track(found, "classifying", total):
        _print_classification(each, verdict, as_json=as_json)


def _split_pairs(buffers: Iterable[Sequence[str]]) -> Iterator[list[TextPair]]:
    """Lines as pairs: the second text stands behind a tab, if there is one."""
    number = 0
    for buffer in buffers:
        pairs = []
        for line in buffer:
            number += 1
            first, tab, second = line.partition("\t")
            if not first.strip() or (tab and not second.strip()):
                which, so = ("its pair", "give both texts") if first.strip() else ("it", "leave it out")
                raise InputError(f"text {number:,}: {which} is empty; {so}")
            pairs.append((first, second))
        yield pairs


def _print_classification(texts: TextPair, classification: Classification, *, as_json: bool) -> None:
    if as_json:
        said = (
            {"score": classification.score}
            if classification.score is not None
            else {
                "label": classification.label,
                "probability": classification.probability,
                "probabilities": classification.probabilities,
            }
        )
        print_json({"text": texts[0], **({"pair": texts[1]} if texts[1] else {}), **said})
    elif classification.score is not None:
        print(f"{classification.score:.4f}", flush=True)
    else:
        print(f"{classification.label}\t{classification.probability:.4f}", flush=True)
