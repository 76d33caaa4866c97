"""Turn a Hugging Face directory into a run directory.

It holds config.json, model.safetensors and tokenizer.json (or vocab.txt) of a BERT, RoBERTa, XLM-R, DistilBERT, GPT-2,
Marian or BART; folders of sentence-transformers too. Every verb also takes such a directory directly; import
it to keep a copy as a run.

    regard import bert-hf --out runs/imported
    regard fill bert-hf "the [MASK] exceeded the speed limit"
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.errors import escape_unprintable


def import_(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A Hugging Face directory.")],
    out: Annotated[str, typer.Option(help="The run directory to create.")],
) -> None:
    from pathlib import Path

    from regard.runs.import_export import import_model

    print(escape_unprintable(str(import_model(Path(directory), Path(out)))))
