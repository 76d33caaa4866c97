"""Score a model on test data, by the metrics of its task, with counts.

A translator has BLEU and chrF with their sacrebleu signatures, and perplexity; a classifier accuracy, F1 and Matthews,
or correlations; a tagger accuracy and strict entity F1; a pre-trained encoder accuracy and perplexity of masked words;
a language model perplexity by token and by word, and bits per character, read in windows of --window tokens, each
--stride after the one before (docs/language-models.md).
DATA is what the task is trained on: two files of lines or a table, labelled tables, CoNLL files, plain text. Labels of
words are read from the column that the tagger was trained on, or from --column.

    regard evaluate runs/en-fr test.en test.fr
    regard evaluate runs/en-fr europarl.tsv:1,3 --json
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
    SkipEmptyOption,
    drop_none,
    parse_columns,
    print_json,
)


def evaluate(
    model: ModelArgument,
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Test files.")],
    columns: ColumnsOption = "",
    column: ColumnOption = "",
    skip_empty: SkipEmptyOption = False,
    beam: BeamOption = None,
    alpha: AlphaOption = None,
    batch: BatchOption = None,
    window: Annotated[int | None, typer.Option(help="Of a language model: tokens read at once.")] = None,
    stride: Annotated[int | None, typer.Option(help="Of a language model: tokens from window to window.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Score without regard to case.")] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    import regard

    flags = {
        "columns": parse_columns(column, columns) or None,
        "skip_empty": skip_empty or None,
        "lowercase": lowercase or None,
    }
    numbers = {"beam": beam, "alpha": alpha, "batch": batch, "window": window, "stride": stride}
    scores = regard.load(model, device=device).evaluate(data, **drop_none(**flags, **numbers))
    if as_json:
        print_json(scores)
        return
    width = max(16, *(len(key) + 2 for key in scores))
    for key, value in scores.items():
        print(f"{key:<{width}}{value:.4g}" if isinstance(value, float) else f"{key:<{width}}{value}")
