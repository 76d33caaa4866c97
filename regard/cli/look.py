"""Look inside a model on one text: its attention, what mattered to its prediction, and which view to trust.

A translator is examined on its best translation, or on the one given with --target. Without --out the view is drawn in
the terminal; the suffix of --out sets the format: .html is a page to explore, .png .svg .pdf a figure, .json and .csv
all numbers. Layers and heads are counted from 0.

    regard look runs/en-fr "I am good"
    regard look runs/en-fr "I am good" --view summary
    regard look runs/en-fr "I am good" --view effective --kind cross --layer 1 --head 0
    regard look runs/en-fr "I am good" --words --out look.html
    regard look runs/en-fr --corpus test.en --view identifiability --out lengths.png

Encoders also show why two texts match, each read by itself, and one word in several sentences:

    regard look runs/bert "a man is asleep" --pair "somebody sleeps" --view match --words
    regard look runs/bert "the tea is hot" --pair "the tea of Tokyo" --view senses --word tea --out tea.png
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import BeamOption, DeviceOption, ModelArgument, drop_none, load_network, select_accepted
from regard.errors import InputError, did_you_mean
from regard.progress import print_message

if TYPE_CHECKING:
    from regard.api import TextEncoder
    from regard.look.render.renderable import RenderableView

VIEWS = (
    "summary attention effective norms identifiability attribution similarity rollout gradients faithfulness pooling "
    "positions"
)
COMPARISON_VIEWS = ("match", "senses")
"""Views of several texts, for encoders only."""

MAX_OCCURRENCES = 200
"""Occurrences of a word taken from a corpus, at most."""

MANY_TOKENS = 60
"""Tokens above which exact attribution is slow on a CPU."""


def look(
    model: ModelArgument,
    text: Annotated[str | None, typer.Argument(help="The text to look at.")] = None,
    target: Annotated[str | None, typer.Option(help="The translation to examine; by default the best one.")] = None,
    pair: Annotated[str | None, typer.Option(help="A second text, for encoders of pairs.")] = None,
    view: Annotated[str, typer.Option(help=f"{VIEWS} all; for encoders also {' '.join(COMPARISON_VIEWS)}.")] = "",
    kind: Annotated[str | None, typer.Option(help="Only encoder, decoder or cross attention.")] = None,
    layer: Annotated[int | None, typer.Option(help="Only this layer.")] = None,
    head: Annotated[int | None, typer.Option(help="Only this head.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge subwords to words.")] = False,
    estimate: Annotated[
        int | None, typer.Option(help="Estimate attribution from K random directions per token.")
    ] = None,
    word: Annotated[str | None, typer.Option(help="For senses: the word to find.")] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Instead of TEXT: identifiability by length over files; for senses: more texts."),
    ] = None,
    beam: BeamOption = None,
    out: Annotated[str, typer.Option(help="A file: .html .png .svg .pdf .json .csv.")] = "",
    device: DeviceOption = "auto",
) -> None:
    from regard.look.render.save import check_output_path, show_view

    known = [*VIEWS.split(), "all", *COMPARISON_VIEWS]
    if view and view not in known:
        raise InputError(f"unknown view '{view}'; {did_you_mean(view, known)}")
    if view in COMPARISON_VIEWS:
        rest = {"--target": target, "--kind": kind, "--layer": layer, "--head": head, "--estimate": estimate}
        if not_theirs := drop_none(**rest, **{"--beam": beam}):
            raise InputError(f"{view} compares texts; leave out {', '.join(not_theirs)}")
        if out:
            check_output_path(out)
        compared = _show_match if view == "match" else _show_senses
        compared(model, text, pair, word, corpus or [], words=words, out=out, device=device)
        return
    if word is not None:
        raise InputError("--word goes with --view senses")
    if corpus:
        options = {
            "TEXT": text,
            "--target": target,
            "--pair": pair,
            "--layer": layer,
            "--head": head,
            "--estimate": estimate,
        }
        options |= {"--words": words or None, "--beam": beam}
        options |= {"--view": None if view in ("", "identifiability") else view}
        _survey_corpus(model, corpus, kind, out, device, drop_none(**options))
        return
    if text is None:
        raise InputError("no text to look at; give a TEXT, or a file with --corpus")
    if out:
        check_output_path(out)
    loaded = load_network(model, device, "be looked into")
    look_options = {"target": target, "pair": pair, "beam": beam}
    owner = f"{model}: a model for {loaded.task.name}"
    inspection = loaded.look(text, **select_accepted(loaded.look, look_options, owner))
    view_options = drop_none(kind=kind, layer=layer, head=head, estimate=estimate) | {"words": words}
    n_tokens = sum(map(len, inspection.tokens.values()))
    chosen = view or inspection.default_view(out)
    if chosen == "all" and estimate is None and n_tokens > MANY_TOKENS:
        print_message(
            f"all views of {n_tokens} tokens may take minutes, attribution most of them; --estimate 16 is faster"
        )
    if out:
        print_message(f"written: {inspection.save(out, chosen, **view_options)}")
        return
    if kind is None and not view and inspection.kinds:
        view_options["kind"] = inspection.kinds[-1]
    view_data = inspection.view_data(chosen, **view_options)
    _print_header(view_data.about)
    show_view(view_data)


def _show_match(
    model: str,
    text: str | None,
    pair: str | None,
    word: str | None,
    corpus: list[str],
    *,
    words: bool,
    out: str,
    device: str,
) -> None:
    """Show the contribution of each pair of tokens, or words, to the cosine of two texts."""
    encoder = _load_encoder(model, device, "match")
    if text is None or pair is None or word is not None or corpus:
        raise InputError("match compares a TEXT with the text of --pair; give these two")
    _show_or_save(encoder.explain_match(text, pair), out, words=words)


def _show_senses(
    model: str,
    text: str | None,
    pair: str | None,
    word: str | None,
    corpus: list[str],
    *,
    words: bool,
    out: str,
    device: str,
) -> None:
    """Show the occurrences of one word in several sentences."""
    from regard.text.files import check_readable, read_lines

    encoder = _load_encoder(model, device, "senses")
    if word is None or words:
        raise InputError("senses compares one word across sentences; give it with --word, and leave out --words")
    given_texts = [each for each in (text, pair) if each is not None]
    for path in corpus:
        check_readable(path)
    texts = chain(given_texts, *(read_lines(path) for path in corpus))
    _show_or_save(encoder.senses(word, texts, max_occurrences=MAX_OCCURRENCES), out)


def _load_encoder(model: str, device: str, view: str) -> TextEncoder:
    """Load a model that must be an encoder."""
    from regard.api import TextEncoder

    loaded = load_network(model, device, "be looked into")
    if not isinstance(loaded, TextEncoder):
        raise InputError(f"{model}: a model for {loaded.task.name}; {view} is a view of encoders only")
    return loaded


def _show_or_save(view: RenderableView, out: str, **options: Any) -> None:
    from regard.look.render.save import show_view

    if out:
        print_message(f"written: {view.save(out, **options)}")
        return
    sheet = view.view_data(**options)
    _print_header(sheet.about)
    show_view(sheet)


def _survey_corpus(
    model: str, corpus: list[str], kind: str | None, out: str, device: str, unsupported_options: dict[str, Any]
) -> None:
    """Show identifiability by length over files; no other option applies."""
    from regard.look.corpus import survey

    if unsupported_options:
        raise InputError(
            f"--corpus shows identifiability by length, of all heads; leave out {', '.join(unsupported_options)}"
        )
    if out:
        survey.check_survey_path(out)
    found = load_network(model, device, "be looked into").survey(corpus, **drop_none(kind=kind))
    print("\n".join(found.summary_lines()))
    if out:
        print_message(f"written: {found.save(out)}")


def _print_header(about: Mapping[str, object]) -> None:
    for name in ("text", "pair", "target", "said"):
        if name in about:
            print(f"{name:<8}{about[name]}")
    print()
