"""Label the words of texts given as arguments, the lines of a file, or what comes through a pipe.

One line for each text, in the same order: its words, each with its label behind a slash. --json prints one object for
each text, with words, labels, probabilities and the characters each word stands at. Words are letters and digits with
single signs between them, or single signs; with --split they are what stands between spaces.

    regard tag runs/pos "The plane lands in Tokyo at 7:30 PM."
    regard tag runs/pos --file news.en --json
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, print_json
from regard.cli.text_inputs import FileOption, TextArguments, read_texts
from regard.progress import track

if TYPE_CHECKING:
    from regard.tasks.tag import TaggedWord


def tag(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    split: Annotated[bool, typer.Option("--split", help="Words are what stands between spaces.")] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Tagger, load_as

    buffers, total = read_texts(text or [], file)
    tagger = load_as(Tagger, model, device, "tag")
    found = (
        (each, words)
        for buffer in buffers
        for each, words in zip(buffer, tagger.tag_iterable(buffer, split=split), strict=True)
    )
    for each, words in track(found, "tagging", total):
        if as_json:
            _print_words_json(each, words)
        else:
            print(" ".join(f"{one.word}/{one.label}" for one in words), flush=True)


def _print_words_json(text: str, words: Sequence[TaggedWord]) -> None:
    print_json(
        {
            "text": text,
            "words": [one.word for one in words],
            "labels": [one.label for one in words],
            "probabilities": [one.probability for one in words],
            "offsets": [[one.start, one.end] for one in words],
        }
    )
