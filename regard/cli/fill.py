"""Find the words that [MASK] stands for, in texts given as arguments, the lines of a file, or from a pipe.

One line for each text, in the same order: the likeliest words, each with its probability, parted by tabs; of several
masks each is found by itself, and a | stands between them.

    regard fill runs/bert "the [MASK] exceeded the speed limit"
    regard fill runs/bert "[MASK] is the capital of [MASK]." --top 3 --json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, print_json
from regard.cli.text_inputs import FileOption, TextArguments, read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.api import MaskedLanguageModel
    from regard.tasks.pretrain import MaskPrediction


def fill(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    top: Annotated[int, typer.Option(help="Words for each mask.")] = 5,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import MaskedLanguageModel, load_as

    if top < 1:
        raise InputError(f"--top {top}: expected at least 1")
    buffers, total = read_texts(text or [], file)
    filler = load_as(MaskedLanguageModel, model, device, "fill")
    for each, found in track(_fill_texts(filler, chain.from_iterable(buffers), top, file), "filling", total):
        if as_json:
            print_json({"text": each, "masks": [[asdict(word) for word in words] for words in found]})
        else:
            print("\t|\t".join(map(_format_fillings, found)), flush=True)


def _fill_texts(
    model: MaskedLanguageModel, texts: Iterable[str], top: int, file: str
) -> Iterator[tuple[str, list[list[MaskPrediction]]]]:
    """Texts as they come, with the words for their masks; a mistake says in which text it is, counted from 1."""
    for number, text in enumerate(texts, 1):
        try:
            yield text, model.fill(text, top)
        except InputError as error:
            raise InputError(f"{f'{file}: ' if file else ''}text {number:,}: {error}") from None


def _format_fillings(words: Sequence[MaskPrediction]) -> str:
    return "\t".join(f"{each.word} {each.probability:.4f}" for each in words)
