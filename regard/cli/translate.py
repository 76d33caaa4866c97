"""Translate texts given as arguments, the lines of a file, or standard input.

One line of output for each line of input, in the same order; an empty line for an empty line. Without TEXT and --file,
standard input is read, and each line translated as soon as it arrives.

    regard translate runs/en-fr "I am good"
    regard translate runs/en-fr --file news.en > news.fr
    regard translate runs/en-de-fr "I am good" --to fr              # a model of several languages
    regard translate runs/en-fr --engine ctranslate2 --file news.en > out.fr
    tail -f chat.en | regard translate runs/en-fr
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    AlphaOption,
    BatchOption,
    BeamOption,
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    SeedOption,
    ShortlistOption,
    ToOption,
    drop_none,
    load_model,
    print_json,
)
from regard.cli.text_inputs import FileOption, TextArguments, count_empty, read_texts
from regard.errors import InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.export.ctranslate2_engine import CTranslate2Translator
    from regard.predict.translation import Translation

JSON_KEYS = ("text", "score", "tokens", "token_scores", "alignment")
"""The keys of a translation in JSON."""

ENGINES = ("local", "ctranslate2")
EngineOption = Annotated[
    str,
    typer.Option(
        help="The engine that translates: local (regard) or ctranslate2, for which MODEL may also be a directory that "
        "`regard export --to ctranslate2` wrote; ctranslate2 gives no word alignments."
    ),
]


def translate(
    model: ModelArgument,
    text: TextArguments = None,
    file: FileOption = "",
    to: ToOption = "",
    beam: BeamOption = None,
    n_best: Annotated[int, typer.Option(help="The number of translations of each text, best first.")] = 1,
    alpha: AlphaOption = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")] = False,
    temperature: Annotated[
        float, typer.Option(help="For --sample: below 1 is more conservative, above 1 more diverse.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="For --sample: draw from the K most likely tokens only; 0 is all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="For --sample: draw from the most likely tokens of total probability P.")
    ] = 1.0,
    batch: BatchOption = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show the tokens of each translation with their scores.")
    ] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    engine: EngineOption = ENGINES[0],
    shortlist: ShortlistOption = "",
    as_json: JsonOption = False,
) -> None:
    from regard.api import Translator
    from regard.generate import DecodingConfig

    if steps and as_json:
        raise InputError("--json has the tokens and their scores already; leave --steps out")
    if engine not in ENGINES:
        raise InputError(f"--engine {engine}: accepted: {', '.join(ENGINES)}")
    if engine != ENGINES[0] and precision != "auto":
        raise InputError(
            f"--precision goes with --engine {ENGINES[0]}; regard export --quantization sets that of {engine}"
        )
    if engine != ENGINES[0] and shortlist:
        raise InputError(f"--shortlist goes with --engine {ENGINES[0]}; leave one of them out")
    batches, total = read_texts(text or [], file)
    config = DecodingConfig(
        n_best=n_best,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        **drop_none(beam=beam, alpha=alpha, batch=batch),
    )
    with ExitStack() as stack:
        if engine == ENGINES[0]:
            translator = load_model(Translator, model, device, "translate", precision)
            translator.use_shortlist(shortlist or None)
            results = translator.translate_batches(count_empty(batches), config, aligned=as_json, to=to)
        else:
            exported = stack.enter_context(_open_ctranslate2(model, device))
            with_scores = as_json or steps or n_best > 1
            results = exported.translate_batches(count_empty(batches), config, with_scores=with_scores, to=to)
        keys = {key: key != "alignment" or engine == ENGINES[0] for key in JSON_KEYS}
        for source, translations in track(results, "translating", total):
            if as_json:
                _print_json(source, translations, keys)
            else:
                _print_translations(translations, with_scores=n_best > 1, with_steps=steps)


def _open_ctranslate2(model: str, device: str) -> AbstractContextManager[CTranslate2Translator]:
    from pathlib import Path

    from regard.export.ctranslate2_engine import open_engine
    from regard.runs.device import select_device

    return open_engine(Path(model), select_device(device))


def _print_json(source: str, translations: Sequence[Translation], is_available: Mapping[str, bool]) -> None:
    """Print one object; a key that the engine does not have is null."""
    listed = [{key: getattr(each, key) if is_available[key] else None for key in JSON_KEYS} for each in translations]
    print_json({"text": source, "translations": listed})


def _print_translations(translations: Sequence[Translation], *, with_scores: bool, with_steps: bool) -> None:
    for each in translations:
        line = each.text.replace("\n", " ")  # a translation may contain a line break; its output is still one line
        print(f"{each.score:.4f}\t{line}" if with_scores else line, flush=True)
        if with_steps:
            steps = (f"{token} ({score:.2f})" for token, score in zip(each.tokens, each.token_scores, strict=True))
            print("    " + " -> ".join(["<sos>", *steps]))
