"""Look inside a model on one text: its attention, what mattered to its prediction, and which view to trust.

A translator is examined on its best translation, or on the one given with --target. Without --out the view is drawn in
the terminal; the suffix of --out sets the format: .html is a page to explore, .png .svg .pdf a figure, .json and .csv
all numbers. Layers and heads are counted from 0.

    regard look runs/en-fr "I am good"
    regard look runs/en-fr "I am good" --view summary
    regard look runs/en-fr "I am good" --view effective --kind cross --layer 1 --head 0
    regard look runs/en-fr "I am good" --words --out look.html
    regard look runs/en-fr --corpus test.en --view identifiability --out lengths.png
    regard look runs/bert --corpus news.en --view attribution --sentences 400 --out mixing.png
    regard look runs/bert --corpus news.en --view effective --sentences 100 --out effective.png

The start and the end of an answer, for a model that answers questions about a context:

    regard look runs/squad "Where does the plane land?" --pair "The plane lands in Tokyo." --view summary

Encoders also show why two texts match, each read by itself, and one word in several sentences:

    regard look runs/bert "a man is asleep" --pair "somebody sleeps" --view match --words
    regard look runs/bert "the tea is hot" --pair "the tea of Tokyo" --view senses --word tea --out tea.png
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import (
    BeamOption,
    DeviceOption,
    ModelArgument,
    PrecisionOption,
    ToOption,
    drop_none,
    load_network,
    refuse_reduced,
    select_accepted,
)
from regard.errors import InputError, did_you_mean
from regard.progress import print_message

if TYPE_CHECKING:
    from regard.api import TextEncoder
    from regard.look.inspection import Inspection
    from regard.look.views.view_data import ViewData

VIEWS = (
    "summary attention scores effective alternative norms identifiability attribution similarity rollout gradients "
    "faithfulness pooling positions"
)
CORPUS_VIEWS = ("identifiability", "attribution", "effective")
"""Views over the texts of files."""

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
    to: ToOption = "",
    pair: Annotated[
        str | None, typer.Option(help="A second text, for encoders of pairs; the context of a question.")
    ] = None,
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
        typer.Option(help=f"Instead of TEXT: {', '.join(CORPUS_VIEWS)} over files; for senses: more texts."),
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(help="With --corpus: sentences to sample; 2000 by default, for effective 300.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --corpus: seed of the sample and of probes.")] = None,
    beam: BeamOption = None,
    out: Annotated[str, typer.Option(help="A file: .html .png .svg .pdf .json .csv.")] = "",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    refuse_reduced(precision, "look")
    texts = {"TEXT": text, "--target": target, "--pair": pair}
    parts = {"--layer": layer, "--head": head, "--estimate": estimate}
    _check_view_name(view)
    if view in COMPARISON_VIEWS:
        _refuse_options(f"{view} compares texts", {"--target": target, "--kind": kind, **parts, "--beam": beam})
        _check_output_path(out)
        if view == "match":
            _show_match(model, text, pair, word, corpus, words=words, out=out, device=device)
        else:
            _show_senses(model, text, pair, word, corpus, words=words, out=out, device=device)
    elif word is not None:
        raise InputError("--word goes with --view senses")
    elif corpus:
        view = _check_corpus_view(view)
        others = {"--layer": layer, "--head": head, "--words": words or None, "--beam": beam}
        others |= {} if view == "attribution" else {"--estimate": estimate}
        _refuse_options(f"--corpus shows {view} of many texts, of all heads", {**texts, **others})
        options = {"sentences": sentences, "seed": seed, "estimate": estimate}
        _survey_corpus(model, to, corpus, view, out, device, kind=kind, **options)
    elif sentences is not None or seed is not None:
        raise InputError("--sentences and --seed go with --corpus")
    elif text is None:
        raise InputError("no text to look at; give a TEXT, or a file with --corpus")
    else:
        _check_output_path(out)
        inspection = _inspect_text(
            model, text, device, {"target": target, "pair": pair, "beam": beam, "to": to or None}
        )
        _show_view(inspection, view, out, words=words, kind=kind, layer=layer, head=head, estimate=estimate)


def _check_view_name(view: str) -> None:
    known = [*VIEWS.split(), "all", *COMPARISON_VIEWS]
    if view and view not in known:
        raise InputError(f"unknown view '{view}'; {did_you_mean(view, known)}")


def _check_corpus_view(view: str) -> str:
    """Return the view, identifiability if none was named; refuse one that is not of many texts."""
    view = view or CORPUS_VIEWS[0]
    if view not in CORPUS_VIEWS:
        raise InputError(f"--corpus has no view '{view}'; {did_you_mean(view, CORPUS_VIEWS)}")
    return view


def _check_output_path(out: str) -> None:
    from regard.look.render.save import check_output_path

    if out:
        check_output_path(out)


def _refuse_options(reason: str, options: Mapping[str, object]) -> None:
    """Refuse the options that were given, which are those that are not None."""
    if given := drop_none(**options):
        raise InputError(f"{reason}; leave out {', '.join(given)}")


def _inspect_text(model: str, text: str, device: str, options: dict[str, Any]) -> Inspection:
    """Load a model and run it on the text; an option that it does not take is refused."""
    loaded = load_network(model, device, "be looked into")
    accepted = select_accepted(loaded.look, options, f"{model}: a model for {loaded.task.name}")
    inspection: Inspection = loaded.look(text, **accepted)
    return inspection


def _show_view(
    inspection: Inspection,
    view: str,
    out: str,
    *,
    words: bool,
    kind: str | None,
    layer: int | None,
    head: int | None,
    estimate: int | None,
) -> None:
    """Show a view in the terminal, or write it to `out`; by default one attention there, all views in a page."""
    chosen = view or inspection.default_view(out)
    if chosen == "all" and estimate is None:
        _announce_many_tokens(sum(map(len, inspection.tokens.values())))
    if out:
        path = inspection.save(out, chosen, words=words, kind=kind, layer=layer, head=head, estimate=estimate)
        print_message(f"written: {path}")
        return
    if kind is None and not view and inspection.kinds:
        kind = inspection.kinds[-1]
    _print_view(inspection.view_data(chosen, words=words, kind=kind, layer=layer, head=head, estimate=estimate))


def _announce_many_tokens(n_tokens: int) -> None:
    """Say that a long text takes long."""
    if n_tokens > MANY_TOKENS:
        print_message(
            f"all views of {n_tokens} tokens may take minutes, attribution most of them; --estimate 16 is faster"
        )


def _show_match(
    model: str,
    text: str | None,
    pair: str | None,
    word: str | None,
    corpus: list[str] | None,
    *,
    words: bool,
    out: str,
    device: str,
) -> None:
    """Show the contribution of each pair of tokens, or words, to the cosine of two texts."""
    encoder = _load_encoder(model, device, "match")
    if text is None or pair is None or word is not None or corpus:
        raise InputError("match compares a TEXT with the text of --pair; give these two")
    evidence = encoder.explain_match(text, pair)
    if out:
        print_message(f"written: {evidence.save(out, words=words)}")
    else:
        _print_view(evidence.view_data(words=words))


def _show_senses(
    model: str,
    text: str | None,
    pair: str | None,
    word: str | None,
    corpus: list[str] | None,
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
    for path in corpus or []:
        check_readable(path)
    texts = chain(given_texts, *(read_lines(path) for path in corpus or []))
    senses = encoder.senses(word, texts, max_occurrences=MAX_OCCURRENCES)
    if out:
        print_message(f"written: {senses.save(out)}")
    else:
        _print_view(senses.view_data())


def _load_encoder(model: str, device: str, view: str) -> TextEncoder:
    """Load a model that must be an encoder."""
    from regard.api import TextEncoder, load

    loaded = load(model, device=device)
    if not isinstance(loaded, TextEncoder):
        raise InputError(f"{model}: a model for {loaded.task.name}; {view} is a view of encoders only")
    return loaded


def _survey_corpus(
    model: str, to: str, corpus: list[str], view: str, out: str, device: str, *, kind: str | None, **options: int | None
) -> None:
    """Show a view over files: identifiability by length, attribution by layer, or effective attention."""
    from regard.look.corpus import survey

    if out:
        survey.check_survey_path(out)
    loaded = load_network(model, device, "be looked into", to=to)
    surveys: dict[str, Callable[..., Any]] = {
        "identifiability": loaded.survey,
        "attribution": loaded.survey_attribution,
        "effective": loaded.survey_effective_attention,
    }
    part = {"stack" if view == "attribution" else "kind": kind}
    result = surveys[view](corpus, **drop_none(**part, **options))
    print("\n".join(result.summary_lines()))
    if out:
        print_message(f"written: {result.save(out)}")


def _print_view(view_data: ViewData) -> None:
    """Print the text, its pair or translation, and what the model predicted; then the view."""
    from regard.look.render.save import show_view

    for name in ("text", "pair", "target", "prediction"):
        if name in view_data.about:
            print(f"{name:<12}{view_data.about[name]}")
    print()
    show_view(view_data)
