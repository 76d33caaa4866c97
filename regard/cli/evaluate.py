"""Score a model on test data, by the metrics of its task, with counts.

For a translator: BLEU and chrF with their sacrebleu signatures, and perplexity; for a classifier: accuracy, F1 and
Matthews correlation; for a tagger: accuracy and strict entity F1 on given words, and, of files with running text
(CoNLL-U), F1 of the words found in that, and of words with their labels (raw_words_f1, raw_tags_f1: docs/tagging.md);
for scores of texts or words: Pearson and Spearman correlations and the mean squared error; for question answering:
exact match and F1 as in SQuAD; for sentence vectors: Spearman and Pearson correlations with scores, or mean reciprocal
rank and accuracy at k of retrieval; for a pre-trained encoder: accuracy and perplexity of masked words; for a language
model: perplexity by token and by word, and bits per character, read in windows of --window tokens, each --stride tokens
after the one before (docs/language-models.md).
DATA has the form the task is trained on: two files of lines or a table, labelled tables, CoNLL files, SQuAD files,
plain text. The labels of words are read from the column that the tagger was trained on, or from --column.

    regard evaluate runs/en-fr test.en test.fr
    regard evaluate runs/en-fr europarl.tsv:1,3 --json
    regard evaluate runs/en-de-fr europarl.tsv:1,3 --source-lang en --target-lang fr
    regard evaluate runs/en-de-fr europarl.tsv:en=1,de=2,fr=3              # in all directions
    regard evaluate runs/pos dev.conllu
    regard evaluate runs/books books.txt --stride 64
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import (
    AlphaOption,
    BatchOption,
    BeamOption,
    ColumnOption,
    ColumnsOption,
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShortlistOption,
    SkipEmptyOption,
    load_network,
    parse_columns,
    print_json,
    select_accepted,
)
from regard.errors import InputError


def evaluate(
    model: ModelArgument,
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Test files.")],
    columns: ColumnsOption = "",
    column: ColumnOption = "",
    skip_empty: SkipEmptyOption = False,
    beam: BeamOption = None,
    alpha: AlphaOption = None,
    batch: BatchOption = None,
    window: Annotated[int | None, typer.Option(help="For a language model: tokens read at a time.")] = None,
    stride: Annotated[
        int | None, typer.Option(help="For a language model: tokens from one window to the next.")
    ] = None,
    source_lang: Annotated[str, typer.Option(help="For a translator of several: the language of the sources.")] = "",
    target_lang: Annotated[str, typer.Option(help="For a translator of several: the language of the targets.")] = "",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    shortlist: ShortlistOption = "",
    as_json: JsonOption = False,
) -> None:
    loaded = load_network(model, device, "be evaluated", precision)
    options = {
        "columns": parse_columns(column, columns) or None,
        "skip_empty": skip_empty or None,
        "lowercase": lowercase or None,
        "source_lang": source_lang or None,
        "target_lang": target_lang or None,
        "beam": beam,
        "alpha": alpha,
        "batch": batch,
        "window": window,
        "stride": stride,
    }
    owner = f"{model}: a model for {loaded.task.name}"
    if shortlist:
        from regard.api import Translator

        if not isinstance(loaded, Translator):
            raise InputError(f"{owner} does not take --shortlist; leave it out")
        loaded.use_shortlist(shortlist)
    scores = loaded.evaluate(data, **select_accepted(loaded.evaluate, options, owner))
    if as_json:
        print_json(scores)
        return
    width = max(16, *(len(key) + 2 for key in scores))
    for key, value in scores.items():
        print(f"{key:<{width}}{value:.4g}" if isinstance(value, float) else f"{key:<{width}}{value}")
