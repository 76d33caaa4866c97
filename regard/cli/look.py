"""Look inside a model while it takes a text: what it looked at, and whether to believe it.

A translator is looked at while it writes the translation that wins, or the one given with --target. Without --out
the view is drawn here; the suffix of --out says the form: .html is a page to explore, .png .svg .pdf a figure,
.json and .csv all numbers. Layers and heads are counted from 0.

    regard look runs/en-fr "I am good"
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

from regard.cli.options import Beam, Device, Model, given
from regard.errors import InputError, did_you_mean
from regard.progress import say

if TYPE_CHECKING:
    from regard.api.encoder import Encoder
    from regard.look.shown import Shown

VIEWS = (
    "attention effective norms identifiability attribution similarity rollout gradients faithfulness pooling positions"
)
COMPARED = ("match", "senses")
"""Views of several texts, which only encoders have."""

MOST = 200
"""Occurrences of a word that are taken from a corpus."""

MANY = 60
"""Tokens of which an exact attribution takes long on a CPU."""


def look(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The text to look at.")] = None,
    target: Annotated[str | None, typer.Option(help="What a translator is made to write; else what wins.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text that an encoder reads with it.")] = None,
    view: Annotated[str, typer.Option(help=f"{VIEWS} all; of encoders also {' '.join(COMPARED)}.")] = "",
    kind: Annotated[str | None, typer.Option(help="Only encoder, decoder or cross(-attention).")] = None,
    layer: Annotated[int | None, typer.Option(help="Only this layer.")] = None,
    head: Annotated[int | None, typer.Option(help="Only this head.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge the pieces of words.")] = False,
    estimate: Annotated[
        int | None, typer.Option(help="For attribution: K random directions of each token, with their error.")
    ] = None,
    word: Annotated[str | None, typer.Option(help="For senses: the word to look for.")] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Instead of TEXT: identifiability by length over a file, or pairs; for senses more texts."),
    ] = None,
    beam: Beam = None,
    out: Annotated[str, typer.Option(help="A file: .html .png .svg .pdf .json .csv.")] = "",
    device: Device = "auto",
) -> None:
    import regard
    from regard.look.save import check_form, show

    known = [*VIEWS.split(), "all", *COMPARED]
    if view and view not in known:
        raise InputError(f"no view is called '{view}'; {did_you_mean(view, known)}")
    if view in COMPARED:
        rest = {"--target": target, "--kind": kind, "--layer": layer, "--head": head, "--estimate": estimate}
        if not_theirs := given(**rest, **{"--beam": beam}):
            raise InputError(f"{view} compares texts; leave out {', '.join(not_theirs)}")
        if out:
            check_form(out)
        compared = _match if view == "match" else _senses
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
        _survey(model, corpus, kind, out, device, given(**options))
        return
    if text is None:
        raise InputError("there is nothing to look at; give a TEXT, or a file with --corpus")
    if out:
        check_form(out)
    seen = regard.load(model, device=device).look(text, **given(target=target, pair=pair, beam=beam))
    asked = given(kind=kind, layer=layer, head=head, estimate=estimate) | {"words": words}
    n_tokens = sum(map(len, seen.tokens.values()))
    chosen = view or seen.usual(out)
    if chosen == "all" and estimate is None and n_tokens > MANY:
        say(f"all views of {n_tokens} tokens may take minutes, attribution most of them; --estimate 16 is faster")
    if out:
        say(f"written: {seen.save(out, chosen, **asked)}")
        return
    if kind is None and not view and seen.kinds:
        asked["kind"] = seen.kinds[-1]
    sheet = seen.sheet(chosen, **asked)
    _introduce(sheet.about)
    show(sheet)


def _match(
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
    """What each pair of tokens, or words, adds to the cosine of two texts."""
    encoder = _encoder(model, device, "match")
    if text is None or pair is None or word is not None or corpus:
        raise InputError("match compares a TEXT with the text of --pair; give these two")
    _shown(encoder.evidence(text, pair), out, words=words)


def _senses(
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
    """One word in several sentences."""
    from regard.text.files import lines, require

    encoder = _encoder(model, device, "senses")
    if word is None or words:
        raise InputError("senses shows one word in several sentences; give it with --word, and no --words")
    given_texts = [each for each in (text, pair) if each is not None]
    for path in corpus:
        require(path)
    texts = chain(given_texts, *(lines(path) for path in corpus))
    _shown(encoder.senses(word, texts, most=MOST), out)


def _encoder(model: str, device: str, view: str) -> Encoder:
    """The model, which must be an encoder to have a view of several texts."""
    import regard
    from regard.api.encoder import Encoder

    found = regard.load(model, device=device)
    if not isinstance(found, Encoder):
        raise InputError(f"{model}: a model for {found.config.task.name}; {view} is a view of encoders only")
    return found


def _shown(found: Shown, out: str, **asked: Any) -> None:
    from regard.look.save import show

    if out:
        say(f"written: {found.save(out, **asked)}")
        return
    sheet = found.sheet(**asked)
    _introduce(sheet.about)
    show(sheet)


def _survey(model: str, corpus: list[str], kind: str | None, out: str, device: str, others: dict[str, Any]) -> None:
    """Identifiability by length over files; it takes no other options."""
    import regard
    from regard.look import survey

    if others:
        raise InputError(f"--corpus shows identifiability by length, of all heads; leave out {', '.join(others)}")
    if out:
        survey.check(out)
    found = regard.load(model, device=device).survey(corpus, **given(kind=kind))
    print("\n".join(found.lines()))
    if out:
        say(f"written: {found.save(out)}")


def _introduce(about: Mapping[str, object]) -> None:
    for name in ("text", "pair", "target", "said"):
        if name in about:
            print(f"{name:<8}{about[name]}")
    print()
