"""Score a model on test data, by the metrics of its task, with counts.

A translator has BLEU and chrF with their sacrebleu signatures, and perplexity; a classifier accuracy, F1 and Matthews,
or correlations; a tagger accuracy and strict entity F1; a pre-trained encoder accuracy and perplexity of masked words.
DATA is what the task is trained on: two files of lines or a table, labelled tables, CoNLL files, plain text.

    regard evaluate runs/en-fr test.en test.fr
    regard evaluate runs/en-fr europarl.tsv:1,3 --json
    regard evaluate runs/pos dev.conllu
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import (
    Alpha,
    Batch,
    Beam,
    Columns,
    Device,
    Json,
    Model,
    SkipEmpty,
    given,
    print_json,
    split,
)


def evaluate(
    model: Model,
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Test files.")],
    columns: Columns = "",
    skip_empty: SkipEmpty = False,
    beam: Beam = None,
    alpha: Alpha = None,
    batch: Batch = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Score without regard to case.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    import regard

    wanted = {"columns": split(columns) or None, "skip_empty": skip_empty or None, "lowercase": lowercase or None}
    scores = regard.load(model, device=device).evaluate(data, **given(**wanted, beam=beam, alpha=alpha, batch=batch))
    if as_json:
        print_json(scores)
        return
    for key, value in scores.items():
        print(f"{key:<16}{value:.4g}" if isinstance(value, float) else f"{key:<16}{value}")
