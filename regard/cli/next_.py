"""Predict whether one text follows another: two texts given as arguments, pairs in a file, or standard input.

One line for each pair, in the same order: the probability that the second text follows the first, as next-sentence
prediction learns it in pre-training. In files and pipes a line holds both texts, tab-separated; the result of an empty
line is empty. --json prints one object for each pair: text, pair, probability and is_next.

    regard next runs/bert "She opened the door." "It was raining outside."
    regard next runs/bert --file pairs.tsv --json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, PrecisionOption, load_model, print_json
from regard.cli.text_inputs import count_empty, read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.predict.classification import TextPair
    from regard.predict.next_sentence import NextSentencePrediction

TwoTextsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT NEXT]", help="Two texts; - is standard input.")
]
PairsFileOption = Annotated[
    str, typer.Option(help="A file with two texts per line, tab-separated, also .gz .xz .zst; - is standard input.")
]


def next_(
    model: ModelArgument,
    text: TwoTextsArgument = None,
    file: PairsFileOption = "",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import MaskedLanguageModel

    batches, total = _read_pairs(text or [], file)
    loaded = load_model(MaskedLanguageModel, model, device, "predict next sentences", precision)
    results = (each for batch in batches for each in zip(batch, loaded.next_sentence(batch), strict=True))
    for pair, prediction in track(results, "predicting", total):
        _print_prediction(pair, prediction, as_json=as_json)


def _read_pairs(texts: list[str], file: str) -> tuple[Iterable[list[TextPair]], int | None]:
    """Return pairs of texts in batches, and their number where it is known."""
    if file or not texts or texts == ["-"]:
        batches, total = read_texts(texts, file)
        return _split_lines(count_empty(batches)), total
    if len(texts) != 2:
        given = f"{len(texts)} text{'s' * (len(texts) > 1)} given"
        raise InputError(f"{given}; give two, or pairs with --file, one a line, tab-separated")
    if not all(text.strip() for text in texts):
        raise InputError("a text is empty; give at least one word")
    return [[(texts[0], texts[1])]], 1


def _split_lines(batches: Iterable[Sequence[str]]) -> Iterator[list[TextPair]]:
    """Yield the two texts of each line; those of an empty line are empty."""
    number = 0
    for batch in batches:
        pairs = []
        for line in batch:
            number += 1
            sides = line.split("\t") if line.strip() else ["", ""]
            if len(sides) != 2 or (line.strip() and not all(side.strip() for side in sides)):
                raise InputError(f"line {number:,}: expected two texts, tab-separated, found '{line[:40]}'")
            pairs.append((sides[0], sides[1]))
        yield pairs


def _print_prediction(pair: TextPair, prediction: NextSentencePrediction, *, as_json: bool) -> None:
    is_empty = not pair[0]
    if as_json:
        values = {"probability": prediction.probability, "is_next": prediction.is_next}
        print_json({"text": pair[0], "pair": pair[1], **(dict.fromkeys(values) if is_empty else values)})
    else:
        print("" if is_empty else f"{prediction.probability:.4f}", flush=True)
