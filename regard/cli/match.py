"""Compute the similarity of texts: the cosine of their vectors, from -1 to 1.

Two texts are compared; or a text is compared with every line of a file, and the most similar lines are printed: score,
line number, text. A file of any length can be searched. An empty line is similar to no text; a warning counts such
lines.

    regard match runs/bert "the driver exceeded the speed limit" "the car went too fast"
    regard match runs/bert "a man is asleep" --in news.en --top 5

--in also takes the vectors that `regard embed` wrote of such a file, so that it is embedded once; they must be of the
same model. vectors.parquet holds the texts; for vectors.npy, --texts names their file, which must not have changed.

    regard embed runs/bert news.en --out vectors.npy
    regard match runs/bert "a man is asleep" --in vectors.npy --texts news.en

`regard look MODEL A --pair B --view match` shows why two texts match.

With word vectors, trained by `regard train vectors` or in a file of word2vec's or GloVe's format, one word or one
expression gives the nearest words, and two give their similarity (docs/vectors.md):

    regard match runs/vectors king
    regard match runs/vectors "king - man + woman" --top 5
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.line_inputs import NumberedLines, number_lines
from regard.cli.options import DeviceOption, JsonOption, ModelArgument, PrecisionOption, load_model, print_json
from regard.cli.text_inputs import read_texts
from regard.errors import InputError
from regard.progress import progress_bar
from regard.ranges import COUNT_RANGE, check_option

if TYPE_CHECKING:
    from regard.api import TextEncoder, WordVectors
    from regard.api.embedding_model import SearchHit

DEFAULT_TOP = 10
"""Lines or words printed at most."""


def match(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="A text; with word vectors, a word or an expression.")],
    other: Annotated[str | None, typer.Argument(help="The text to compare it with.")] = None,
    search_file: Annotated[
        str, typer.Option("--in", metavar="FILE", help="Search this file: texts, or their vectors.")
    ] = "",
    texts_file: Annotated[
        str, typer.Option("--texts", metavar="FILE", help="The texts of vectors.npy, given with --in.")
    ] = "",
    top: Annotated[int | None, typer.Option(help="The number of lines, or of words, to print. Default: 10.")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    if not text.strip() or (other is not None and not other.strip()):
        raise InputError("a text is empty; give at least one word")
    if other is not None and search_file:
        raise InputError("give two texts, or a text and a file with --in")
    if top is not None:
        check_option("--top", top, COUNT_RANGE)
        if other is not None:
            raise InputError("--top goes with a file, given with --in, or with one word for word vectors")
    options = {"device": device, "precision": precision}
    if texts_file and not search_file.lower().endswith(".npy"):
        raise InputError("--texts goes with --in vectors.npy, whose texts it names")
    if search_file.lower().endswith((".npy", ".parquet")):
        _search_vectors(model, text, search_file, texts_file, top or DEFAULT_TOP, options, as_json=as_json)
        return
    if search_file:
        _search_file(model, text, search_file, top or DEFAULT_TOP, options, as_json=as_json)
        return
    if other is None:
        _print_nearest_words(model, text, top or DEFAULT_TOP, options, as_json=as_json)
        return
    score = _load_matcher(model, options).match(text, other)
    print_json({"text": text, "other": other, "score": score}) if as_json else print(f"{score:.4f}")


def _load_matcher(model: str, options: dict[str, str]) -> TextEncoder | WordVectors:
    """Load an encoder or word vectors; refuse others as `load_model` does."""
    from regard.api import TextEncoder, WordVectors, load

    loaded = load(model, **options)
    if isinstance(loaded, WordVectors | TextEncoder):
        return loaded
    return load_model(TextEncoder, model, verb="match", **options)


def _search_file(model: str, text: str, file: str, top: int, options: dict[str, str], *, as_json: bool) -> None:
    """Print the lines of a file that are most similar to a text."""
    from regard.api import TextEncoder

    batches, total = read_texts([], file)
    encoder = load_model(TextEncoder, model, verb="match", **options)
    _print_hits(encoder.search(text, _track_lines(number_lines(file, batches), total), top), as_json=as_json)


def _search_vectors(
    model: str, text: str, file: str, texts_file: str, top: int, options: dict[str, str], *, as_json: bool
) -> None:
    """Print the lines whose vectors, in a file, are most similar to a text."""
    from regard.api import TextEncoder
    from regard.text.files import check_readable, read_lines

    if texts_file:
        check_readable(texts_file)
    texts = read_lines(texts_file) if texts_file else None
    encoder = load_model(TextEncoder, model, verb="match", **options)
    hits = encoder.search_stored(text, Path(file), texts, texts_file, top)
    _print_hits(hits, as_json=as_json)


def _print_hits(hits: Iterable[SearchHit], *, as_json: bool) -> None:
    """Print score, line and text of each hit; the text of vectors without texts is empty, in JSON null."""
    for hit in hits:
        if as_json:
            print_json({"score": hit.score, "line": hit.corpus_id, "text": hit.text or None})
        else:
            print(f"{hit.score:.4f}\t{hit.corpus_id}\t{hit.text}")


def _print_nearest_words(model: str, query: str, top: int, options: dict[str, str], *, as_json: bool) -> None:
    """Print the words nearest to a word or an expression; a model of texts has none."""
    from regard.api import WordVectors, load

    vectors = load(model, **options)
    if not isinstance(vectors, WordVectors):
        raise InputError("give two texts, or a text and a file with --in")
    for hit in vectors.nearest(query, top):
        print_json({"score": hit.score, "word": hit.word}) if as_json else print(f"{hit.score:.4f}\t{hit.word}")


def _track_lines(batches: Iterable[NumberedLines], total: int | None) -> Iterator[NumberedLines]:
    with progress_bar("searching", total) as progress:
        for batch in batches:
            yield batch
            progress.advance(len(batch))
