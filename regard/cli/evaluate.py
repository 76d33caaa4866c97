"""Score a model on test data: BLEU and chrF with their sacrebleu signatures, perplexity, counts.

DATA is two files of lines (test.en test.fr) or a table (test.tsv, .csv, .jsonl, .parquet; also .gz .xz .zst).

    regard evaluate runs/en-fr test.en test.fr
    regard evaluate runs/en-fr europarl.tsv:1,3 --json
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
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Parallel files or tables.")],
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

    scores = regard.load(model, device=device).evaluate(
        data,
        columns=split(columns),
        skip_empty=skip_empty,
        lowercase=lowercase,
        **given(beam=beam, alpha=alpha, batch=batch),
    )
    if as_json:
        print_json(scores)
        return
    for key, value in scores.items():
        print(f"{key:<16}{value:.4g}" if isinstance(value, float) else f"{key:<16}{value}")
