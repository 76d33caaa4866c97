"""Label the words of texts given as arguments, the lines of a file, or standard input.

One line for each text, in the same order: its words, each followed by a slash and its label, or its score; an empty
line for an empty text. --json prints one object for each text: text, words, labels, probabilities (or scores) and
offsets (start and end characters).
Punctuation is separated from words; with --split, words are separated by white space only.

    regard tag runs/pos "The plane lands in Tokyo at 7:30 PM."
    regard tag runs/pos --file news.en --json
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, PrecisionOption, load_model, print_json
from regard.cli.text_inputs import FileOption, TextArguments, count_empty, read_texts
from regard.progress import track

if TYPE_CHECKING:
    from regard.predict.tagging import TaggedWord


def tag(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    split: Annotated[bool, typer.Option("--split", help="Split words at white space only.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Tagger

    batches, total = read_texts(text or [], file)
    tagger = load_model(Tagger, model, device, "tag", precision)
    results = (
        (each, words)
        for batch in count_empty(batches)
        for each, words in zip(batch, tagger.tag(batch, split=split), strict=True)
    )
    for each, words in track(results, "tagging", total):
        if as_json:
            _print_words_json(each, words, has_scores=tagger.task.is_regression)
        else:
            print(" ".join(f"{one.word}/{_format_label(one)}" for one in words), flush=True)


def _format_label(word: TaggedWord) -> str:
    return word.label if word.score is None else f"{word.score:.4f}"


def _print_words_json(text: str, words: Sequence[TaggedWord], *, has_scores: bool) -> None:
    labels = {"labels": [one.label for one in words], "probabilities": [one.probability for one in words]}
    print_json(
        {
            "text": text,
            "words": [one.word for one in words],
            **({"scores": [one.score for one in words]} if has_scores else labels),
            "offsets": [[one.start, one.end] for one in words],
        }
    )
