"""Find the words that [MASK] stands for in a text.

One line for each word, the likeliest first: its probability and the word; of several masks each is found by itself.

    regard fill runs/bert "the [MASK] exceeded the speed limit"
    regard fill runs/bert "[MASK] is the capital of [MASK]." --top 3 --json
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from regard.cli.options import Device, Json, Model, print_json
from regard.errors import InputError


def fill(
    model: Model,
    text: Annotated[str, typer.Argument(help="A text with [MASK] in it.")],
    top: Annotated[int, typer.Option(help="Words for each mask.")] = 5,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    from regard.api import Filler, load_as

    if top < 1:
        raise InputError(f"--top {top}: expected at least 1")
    found = load_as(Filler, model, device, "fill").fill(text, top)
    if as_json:
        print_json({"text": text, "masks": [[asdict(each) for each in words] for words in found]})
        return
    for number, words in enumerate(found, 1):
        if len(found) > 1:
            print(f"{'' if number == 1 else chr(10)}mask {number}")
        for each in words:
            print(f"{each.probability:.4f}  {each.word}")
