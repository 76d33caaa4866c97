"""Go on with a text: a language model writes what may follow.

What is printed is the continuation alone. Without a PROMPT a document begins; --file holds one prompt a line, and - is
standard input, read as it comes. Of several texts (--file, --n) each is one line, with line ends written as \\n; --json
prints an object for each: prompt, text, score (its log-probability), tokens, token_scores, and ended (end, stop or
length). A text ends where the model ends it, before a --stop string, or after --max-tokens. The same seed
gives the same text. A prompt longer than the model's context is read from where the context begins.

    regard generate runs/books "Once upon a time"
    regard generate runs/books "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 7 --stream
    regard generate runs/books "Once upon a time" --greedy --max-tokens 50 --stop "."
    regard generate runs/books --n 3 --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelArgument, SeedOption, drop_none, print_json
from regard.cli.text_inputs import read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.api import LanguageModel
    from regard.tasks.shared.text_generation import Continuation

JSON_KEYS = ("text", "score", "tokens", "token_scores", "ended")
"""What --json says of a continuation."""


def generate(
    model: ModelArgument,
    prompt: Annotated[str, typer.Argument(help="The text to go on with.")] = "",
    file: Annotated[str, typer.Option(help="A file with one prompt a line, also .gz .xz .zst; - is stdin.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Tokens of a continuation, at most.")] = 200,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1 is more careful, above 1 is wilder, 0 is --greedy; 1 if not given.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely token each time.")] = False,
    top_k: Annotated[int | None, typer.Option(help="Only the K likeliest tokens; 0, and if not given, is all.")] = None,
    top_p: Annotated[float, typer.Option(help="Only the likeliest tokens of mass P.")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: what was there is less likely again.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="End the text before this string; may be repeated.")] = None,
    n: Annotated[int, typer.Option("--n", help="Continuations of each prompt.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text while it is written.")] = False,
    batch: Annotated[int | None, typer.Option(help="Texts written at once; 16 where not given.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import LanguageModel, load_as

    if prompt == "-":
        prompt, file = "", file or "-"
    if prompt and file:
        raise InputError("both PROMPT and --file given; give one of them")
    if greedy and temperature:
        raise InputError(f"--greedy is temperature 0, but --temperature is {temperature}; leave one of them out")
    if stream and (file or as_json or n > 1):
        raise InputError("--stream prints one text while it is written; leave out --file, --json and --n")
    options = {
        "max_tokens": max_tokens,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "stop": tuple(stop or ()),
        "n": n,
        "seed": seed,
        **drop_none(temperature=0.0 if greedy else temperature, top_k=top_k, batch=batch),
    }
    writer = load_as(LanguageModel, model, device, "generate")
    if stream:
        _print_stream(writer, prompt, options)
        return
    buffers, total = read_texts([], file) if file else ([[prompt]], 1)
    found = track(writer.generate_iterable(buffers, **options), "writing", total)
    for text, continuations in found:
        for each in continuations:
            _print_continuation(text, each, as_json=as_json, is_single=not file and n == 1)


def _print_stream(model: LanguageModel, prompt: str, options: dict[str, object]) -> None:
    for piece in model.stream(prompt, **options):
        print(piece, end="", flush=True)
    print()


def _print_continuation(prompt: str, continuation: Continuation, *, as_json: bool, is_single: bool) -> None:
    if as_json:
        print_json({"prompt": prompt, **{key: getattr(continuation, key) for key in JSON_KEYS}})
    else:
        print(continuation.text if is_single else continuation.text.replace("\n", "\\n"), flush=True)
