"""Compute the similarity of texts: the cosine of their vectors, from -1 to 1.

Two texts are compared; or a text is compared with every line of a file, and the most similar lines are printed: score,
line number, text. A file of any length can be searched.

    regard match runs/bert "the driver exceeded the speed limit" "the car went too fast"
    regard match runs/bert "a man is asleep" --in news.en --top 5

`regard look MODEL A --pair B --view match` shows why two texts match.

With word vectors, trained by `regard train vectors` or in a file of word2vec's or GloVe's format, one word or one
expression gives the nearest words, and two give their similarity (docs/vectors.md):

    regard match runs/vectors king
    regard match runs/vectors "king - man + woman" --top 5
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.line_inputs import NumberedLines, SkipEmptyLinesOption, read_numbered_lines
from regard.cli.options import DeviceOption, JsonOption, ModelArgument, load_model, print_json
from regard.errors import InputError
from regard.progress import progress_bar

if TYPE_CHECKING:
    from regard.api import TextEncoder, WordVectors


def match(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="A text; with word vectors, a word or an expression.")],
    other: Annotated[str | None, typer.Argument(help="The text to compare it with.")] = None,
    search_file: Annotated[str, typer.Option("--in", metavar="FILE", help="Search this file, one text per line.")] = "",
    top: Annotated[int | None, typer.Option(help="The number of lines, or of words, to print. Default: 10.")] = None,
    skip_empty: SkipEmptyLinesOption = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import TextEncoder, WordVectors, load

    if not text.strip() or (other is not None and not other.strip()):
        raise InputError("a text is empty; give at least one word")
    if other is not None and search_file:
        raise InputError("give two texts, or a text and a file with --in")
    if top is not None and (top < 1 or other is not None):
        raise InputError(f"--top {top}: expected at least 1, and a file with --in, or one word for word vectors")
    if other is None and not search_file:
        vectors = load(model, device=device)
        if not isinstance(vectors, WordVectors):
            raise InputError("give two texts, or a text and a file with --in")
        _print_nearest_words(vectors, text, 10 if top is None else top, as_json)
        return
    if other is not None:
        score = _load_matcher(model, device).match(text, other)
        print_json({"text": text, "other": other, "score": score}) if as_json else print(f"{score:.4f}")
        return
    batches, total = read_numbered_lines(search_file, skip_empty=skip_empty)
    encoder = load_model(TextEncoder, model, device, "match")
    for hit in encoder.search(text, _track_lines(batches, total), 10 if top is None else top):
        if as_json:
            print_json({"score": hit.score, "line": hit.corpus_id, "text": hit.text})
        else:
            print(f"{hit.score:.4f}\t{hit.corpus_id}\t{hit.text}")


def _load_matcher(model: str, device: str) -> TextEncoder | WordVectors:
    """Load an encoder or word vectors; refuse others as `load_model` does."""
    from regard.api import TextEncoder, WordVectors, load

    loaded = load(model, device=device)
    return loaded if isinstance(loaded, WordVectors | TextEncoder) else load_model(TextEncoder, model, device, "match")


def _print_nearest_words(vectors: WordVectors, query: str, top: int, as_json: bool) -> None:
    for hit in vectors.nearest(query, top):
        print_json({"score": hit.score, "word": hit.word}) if as_json else print(f"{hit.score:.4f}\t{hit.word}")


def _track_lines(batches: Iterable[NumberedLines], total: int | None) -> Iterator[NumberedLines]:
    with progress_bar("searching", total) as progress:
        for batch in batches:
            yield batch
            progress.advance(len(batch))
