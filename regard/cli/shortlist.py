"""Learn a shortlist of a translator: for each source token the target tokens that its translation may contain.

The model aligns the words of pairs of texts (docs/distill.md). `translate` and `evaluate` then take --shortlist FILE on
a CPU: they score these tokens alone instead of the whole vocabulary. A translation that needs another token is missed:
with a few thousand pairs several BLEU are lost, so give all that the model was trained on (on a GPU, they are many),
and compare with `regard evaluate`. It pays in float32 (up to a fifth); in int8 hardly, or not at all.

    regard shortlist runs/en-fr train.en train.fr --out en-fr.shortlist
    regard translate runs/en-fr --shortlist en-fr.shortlist "I am good"
    regard evaluate runs/en-fr test.en test.fr --shortlist en-fr.shortlist
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import (
    ColumnsOption,
    DeviceOption,
    ModelArgument,
    PrecisionOption,
    drop_none,
    load_model,
    split_commas,
)
from regard.errors import escape_unprintable


def shortlist(
    model: ModelArgument,
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Pairs of texts, as `regard evaluate` takes.")],
    out: Annotated[str, typer.Option(help="The file to write.")],
    columns: ColumnsOption = "",
    per_token: Annotated[
        int | None, typer.Option(help="Target tokens kept for each source token. Default: 100.")
    ] = None,
    common: Annotated[
        int | None, typer.Option(help="Most frequent target tokens that every translation may contain. Default: 1000.")
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    from regard.api import Translator

    translator = load_model(Translator, model, device, "learn a shortlist", precision)
    sizes = drop_none(per_token=per_token, common=common)
    translator.learn_shortlist(data, out, columns=split_commas(columns), **sizes)
    print(escape_unprintable(out))
