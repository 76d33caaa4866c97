"""Continue a text with a language model.

Only the continuation is printed. Without a PROMPT, or after an empty one, a new document begins; --file holds one
prompt per line, and - is standard input, read as it arrives. With --file or --n, each continuation is one line, with
line breaks written as \\n; --json prints an object for each: prompt, text, score (its log-probability), tokens,
token_scores, and ended (end, stop or length). A text ends where the model ends it, before a --stop string, or after
--max-tokens. The same seed gives the same text. Of a prompt longer than the model's context, only the end is read.

    regard generate runs/books "Once upon a time"
    regard generate runs/books "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 7 --stream
    regard generate runs/books "Once upon a time" --greedy --max-tokens 50 --stop "."
    regard generate runs/books --n 3 --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    SeedOption,
    drop_none,
    load_model,
    print_json,
)
from regard.cli.text_inputs import read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.api import LanguageModel
    from regard.generate import GenerationConfig
    from regard.predict.text_generation import Continuation

JSON_KEYS = ("text", "score", "tokens", "token_scores", "ended")
"""The keys of a continuation in JSON."""


def generate(
    model: ModelArgument,
    prompt: Annotated[str, typer.Argument(help="The text to continue.")] = "",
    file: Annotated[
        str, typer.Option(help="A file with one prompt per line, also .gz .xz .zst; - is standard input.")
    ] = "",
    max_tokens: Annotated[
        int | None, typer.Option(help="The largest number of tokens of a continuation. Default: 200.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Below 1 is more conservative, above 1 more diverse, 0 is --greedy. Default: 1."),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely token each time.")] = False,
    top_k: Annotated[
        int | None, typer.Option(help="Draw from the K most likely tokens only; 0 is all. Default: all.")
    ] = None,
    top_p: Annotated[float, typer.Option(help="Draw from the most likely tokens of total probability P.")] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1, tokens that occurred before are less likely.")
    ] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="End the text before this string; may be repeated.")] = None,
    n: Annotated[int, typer.Option("--n", help="The number of continuations of each prompt.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text while it is generated.")] = False,
    batch: Annotated[int | None, typer.Option(help="Texts generated at a time. Default: 16.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import LanguageModel
    from regard.generate import GenerationConfig

    if prompt == "-":
        prompt, file = "", file or "-"
    if prompt and file:
        raise InputError("both PROMPT and --file given; give one of them")
    if greedy and temperature:
        raise InputError(f"--greedy is temperature 0, but --temperature is {temperature}; leave one of them out")
    if stream and (file or as_json or n > 1):
        raise InputError("--stream prints one text while it is generated; leave out --file, --json and --n")
    config = GenerationConfig(
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        stop=tuple(stop or ()),
        n=n,
        seed=seed,
        **drop_none(max_tokens=max_tokens, temperature=0.0 if greedy else temperature, top_k=top_k, batch=batch),
    )
    language_model = load_model(LanguageModel, model, device, "generate", precision)
    if stream:
        _print_stream(language_model, prompt, config)
        return
    batches, total = read_texts([], file) if file else ([[prompt]], 1)
    results = language_model.generate_each(batches, config)
    for text, continuation in track(results, "generating", None if total is None else total * n):
        _print_continuation(text, continuation, as_json=as_json, is_single=not file and n == 1)


def _print_stream(model: LanguageModel, prompt: str, config: GenerationConfig) -> None:
    for text in model.predictor.stream(prompt, config):
        print(text, end="", flush=True)
    print()


def _print_continuation(prompt: str, continuation: Continuation, *, as_json: bool, is_single: bool) -> None:
    if as_json:
        print_json({"prompt": prompt, **{key: getattr(continuation, key) for key in JSON_KEYS}})
    else:
        print(continuation.text if is_single else continuation.text.replace("\n", "\\n"), flush=True)
