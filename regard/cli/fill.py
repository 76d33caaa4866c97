"""Predict the words that [MASK] stands for, in texts given as arguments, the lines of a file, or standard input.

One line for each text, in the same order: the most likely words, each with its probability, tab-separated; an empty
line for an empty text. Several masks are predicted separately, and their predictions are separated by a |.

    regard fill runs/bert "the [MASK] exceeded the speed limit"
    regard fill runs/bert "[MASK] is the capital of [MASK]." --top 3 --json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, PrecisionOption, load_model, print_json
from regard.cli.text_inputs import FileOption, TextArguments, count_empty, read_texts
from regard.errors import InputError
from regard.progress import track
from regard.ranges import COUNT_RANGE, check_option

if TYPE_CHECKING:
    from regard.api import MaskedLanguageModel
    from regard.predict.mask_filling import MaskPrediction


def fill(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    top: Annotated[int, typer.Option(help="The number of words for each mask.")] = 5,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import MaskedLanguageModel

    check_option("--top", top, COUNT_RANGE)
    batches, total = read_texts(text or [], file)
    filler = load_model(MaskedLanguageModel, model, device, "fill", precision)
    texts = chain.from_iterable(count_empty(batches))
    for each, masks in track(_fill_texts(filler, texts, top, file), "filling", total):
        if as_json:
            print_json({"text": each, "masks": [[asdict(word) for word in words] for words in masks]})
        else:
            print("\t|\t".join(map(_format_predictions, masks)), flush=True)


def _fill_texts(
    model: MaskedLanguageModel, texts: Iterable[str], top: int, file: str
) -> Iterator[tuple[str, list[list[MaskPrediction]]]]:
    """Yield each text with the predictions for its masks; an error names the text by its number, from 1."""
    for number, text in enumerate(texts, 1):
        try:
            yield text, model.fill(text, top)
        except InputError as error:
            raise InputError(f"{f'{file}: ' if file else ''}text {number:,}: {error}") from None


def _format_predictions(words: Sequence[MaskPrediction]) -> str:
    return "\t".join(f"{each.word} {each.probability:.4f}" for each in words)
