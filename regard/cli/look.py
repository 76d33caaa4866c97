"""Look inside a model while it takes a text: what it looked at, and whether to believe it.

A translator is looked at while it writes the translation that wins, or the one given with --target. Without --out
the view is drawn here; the suffix of --out says the form: .html is a page to explore, .png .svg .pdf a figure,
.json and .csv all numbers. Layers and heads are counted from 0.

    regard look runs/en-fr "I am good"
    regard look runs/en-fr "I am good" --view effective --kind cross --layer 1 --head 0
    regard look runs/en-fr "I am good" --words --out look.html
    regard look runs/en-fr --corpus test.en --view identifiability --out lengths.png
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Beam, Device, Model, given
from regard.errors import InputError
from regard.progress import say

if TYPE_CHECKING:
    from regard.look.survey import Survey

VIEWS = "attention effective identifiability attribution similarity rollout gradients faithfulness positions all"


def look(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The text to look at.")] = None,
    target: Annotated[str | None, typer.Option(help="What the model is made to write; else what wins.")] = None,
    view: Annotated[str, typer.Option(help=f"{VIEWS}; all is for .html, .json and .csv.")] = "",
    kind: Annotated[str | None, typer.Option(help="Only encoder, decoder or cross(-attention).")] = None,
    layer: Annotated[int | None, typer.Option(help="Only this layer.")] = None,
    head: Annotated[int | None, typer.Option(help="Only this head.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge the pieces of words.")] = False,
    estimate: Annotated[
        int | None, typer.Option(help="For attribution: K random directions of each token, with their error.")
    ] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(help="Instead of TEXT: identifiability by length over a file, or pairs.")
    ] = None,
    beam: Beam = None,
    out: Annotated[str, typer.Option(help="A file: .html .png .svg .pdf .json .csv.")] = "",
    device: Device = "auto",
) -> None:
    import regard
    from regard.look.save import check_form

    if out:
        check_form(out)
    loaded = regard.load(model, device=device)
    if corpus:
        if text is not None or (view or "identifiability") != "identifiability":
            raise InputError("--corpus takes no TEXT and shows --view identifiability only")
        _show(loaded.survey(corpus, **given(kind=kind)), out)
        return
    if text is None:
        raise InputError("there is nothing to look at; give a TEXT, or a file with --corpus")
    seen = loaded.look(text, target, **given(beam=beam))
    asked = given(kind=kind, layer=layer, head=head, estimate=estimate) | {"words": words}
    if out:
        say(f"written: {seen.save(out, view or _usual(out), **asked)}")
        return
    _introduce(seen.about)
    seen.show(view or "attention", **({"kind": seen.kinds[-1]} if kind is None and not view else {}) | asked)


def _usual(out: str) -> str:
    """What a file shows where no view is named: a page shows all of them."""
    return "all" if out.endswith((".html", ".json")) else "attention"


def _show(survey: Survey, out: str) -> None:
    print("\n".join(survey.lines()))
    if out:
        say(f"written: {survey.save(out)}")


def _introduce(about: dict[str, object]) -> None:
    for name in ("text", "target"):
        print(f"{name:<8}{about[name]}")
    print()
