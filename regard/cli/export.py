"""Write a model as a directory that other libraries load.

An encoder becomes a BERT, RoBERTa or DistilBERT with its heads, a language model a GPT-2, a post-norm translator a
Marian or BART. A setting that the other library lacks is refused by name. Word vectors become a file in word2vec's text
or binary (.bin) format, which gensim and others load.

    regard export runs/bert --to hf --out bert-hf
    regard export runs/vectors --to word2vec --out vectors.txt
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import ModelArgument
from regard.errors import escape_unprintable


def export(
    model: ModelArgument,
    out: Annotated[str, typer.Option(help="The directory, or for word vectors the file, to write.")],
    to: Annotated[str, typer.Option(help="The format: hf, a Hugging Face directory, or word2vec.")] = "hf",
) -> None:
    from pathlib import Path

    from regard.runs.import_export import export_model

    print(escape_unprintable(str(export_model(Path(model), Path(out), to))))
