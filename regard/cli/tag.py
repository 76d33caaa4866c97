"""Label the words of texts given as arguments, the lines of a file, or standard input.

One line for each text, in the same order: its words, each followed by a slash and its label, or its score; an empty
line for an empty text. --json prints one object for each text: text, words, labels, probabilities (or scores), offsets
(start and end characters of each word) and, where word segmentation was learned, tokens (surface tokens of several
words, such as "don't", which holds "do" and "n't"). --format conllu prints CoNLL-U, a sentence for each text, with the
labels in the column that the model was trained on. Text is segmented into words as in the training data if that had
running text to learn it from (CoNLL-U), or else at white space and punctuation; with --split, at white space only.

    regard tag runs/pos "The plane lands in Tokyo at 7:30 PM."
    regard tag runs/pos --file news.en --json
    regard tag runs/pos --file news.en --format conllu
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, PrecisionOption, load_model, print_json
from regard.cli.text_inputs import FileOption, TextArguments, count_empty, read_texts
from regard.errors import InputError, did_you_mean
from regard.progress import track
from regard.ranges import show_value

if TYPE_CHECKING:
    from regard.predict.tagging import TaggedWord
    from regard.tasks.tag import TaggingTask

FORMATS = ("text", "json", "conllu")


def tag(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    split: Annotated[bool, typer.Option("--split", help="Split words at white space only.")] = False,
    output_format: Annotated[str, typer.Option("--format", help="text, json (the same as --json) or conllu.")] = "",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Tagger

    output_format = _choose_format(output_format, as_json)
    batches, total = read_texts(text or [], file)
    tagger = load_model(Tagger, model, device, "tag", precision)
    results = (
        (each, words)
        for batch in count_empty(batches)
        for each, words in zip(batch, tagger.tag(batch, split=split), strict=True)
    )
    for each, words in track(results, "tagging", total):
        if output_format == "json":
            _print_words_json(each, words, tagger.task)
        elif output_format == "conllu":
            print(tagger.format_conllu(each, words), end="", flush=True)
        else:
            print(" ".join(f"{one.word}/{_format_label(one)}" for one in words), flush=True)


def _choose_format(output_format: str, as_json: bool) -> str:
    """Return the format of --format and --json; refuse an unknown one, and two that differ."""
    if output_format not in ("", *FORMATS):
        raise InputError(f"--format {show_value(output_format)}: {did_you_mean(output_format, FORMATS)}")
    if as_json and output_format not in ("", "json"):
        raise InputError(f"both --json and --format {output_format} given; pass one of them")
    return "json" if as_json else output_format or "text"


def _format_label(word: TaggedWord) -> str:
    return word.label if word.score is None else f"{word.score:.4f}"


def _print_words_json(text: str, words: Sequence[TaggedWord], task: TaggingTask) -> None:
    labels = {"labels": [one.label for one in words], "probabilities": [one.probability for one in words]}
    print_json(
        {
            "text": text,
            "words": [one.word for one in words],
            **({"scores": [one.score for one in words]} if task.is_regression else labels),
            "offsets": [[one.start, one.end] for one in words],
            **({"tokens": [[one.token_start, one.token_end] for one in words]} if task.segmenter else {}),
        }
    )
