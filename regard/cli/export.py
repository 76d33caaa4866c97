"""Write a model for another engine, run it there beside regard, and keep it only if both give the same results.

Transformers (hf): an encoder becomes a BERT, RoBERTa or DistilBERT with its heads, a language model a GPT-2, a
translator a Marian, BART, Pegasus or Blenderbot. CTranslate2: translators, language models, and encoders without heads
that predict. ONNX: encoders with their heads, and language models. What an engine lacks is refused by
name. Word vectors become a file in word2vec's text or binary (.bin) format, which gensim and others load. Beside the
model lie tokenizer.json and README.md, a model card with a script that uses the result.

To hand a model on (regard): a run directory without the state of its training, its weights in 8 bits (int8), in 16
(float16) or as they are. With --base, weights that another such directory has too are left out, and taken from there:
those of frozen layers are, in a model that was fine-tuned from it.

    regard export runs/en-fr --to ctranslate2 --out en-fr-ct2
    regard export runs/reviews --to onnx --quantization int8 --out reviews-onnx
    regard export runs/bert --to hf --licence apache-2.0 --out bert-hf
    regard export runs/vectors --to word2vec --out vectors.txt
    regard export runs/en-fr --to regard --quantization int8 --out en-fr
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import ModelArgument
from regard.errors import escape_unprintable


def export(
    model: ModelArgument,
    out: Annotated[str, typer.Option(help="The directory, or for word vectors the file, to write.")],
    to: Annotated[
        str, typer.Option(help="The format: hf, ctranslate2, onnx, regard, or for word vectors word2vec.")
    ] = "hf",
    quantization: Annotated[
        str,
        typer.Option(help="The type of the weights: int8 (onnx, ctranslate2, regard) and others. Default: float32."),
    ] = "",
    licence: Annotated[str, typer.Option(help="The licence in the model card, by its name on the Hub.")] = "unknown",
    base: Annotated[
        str, typer.Option(metavar="MODEL", help="For regard: a directory whose weights are not written again.")
    ] = "",
    notes: Annotated[str, typer.Option(help="A file of Markdown that ends the model card: data, limits.")] = "",
) -> None:
    from pathlib import Path

    from regard.export import export_model

    options = {"quantization": quantization, "licence": licence}
    written = export_model(
        Path(model), Path(out), to, notes=Path(notes) if notes else None, base=base or None, **options
    )
    print(escape_unprintable(str(written)))
