"""What a figure says it is of: the text, what the model made of it, or how many texts there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from figure_contents import texts, within
from sample_view_data import make_view_data

from regard.look.render.plots.caption import MAX_TEXT_LINES, build_caption
from regard.look.views.view_data import ViewData


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"text": "I am good", "target": "je vais bien", "score": -0.4}, ["I am good", "→ je vais bien"]),
        ({"text": "a great film", "prediction": "positive (98%)"}, ["a great film", "→ positive (98%)"]),
        ({"text": "one", "pair": "two", "prediction": "cosine 0.6145"}, ["one", "/ two", "→ cosine 0.6145"]),
        ({"word": "bank", "occurrences": 6}, ["“bank” occurs 6 times"]),
        ({"texts": 1200, "k": 3, "seed": 0}, ["1,200 texts in 3 clusters"]),
        ({"model": "demo/run", "difference": 1e-6}, []),
        ({"text": " two\n lines"}, ["two lines"]),
    ],
    ids=["translator", "classifier", "match", "senses", "clusters", "nothing", "lines"],
)
def test_caption_of_view_data(about: dict[str, object], expected: list[str]) -> None:
    assert build_caption(about, 6.0) == expected


@pytest.mark.parametrize("text", ["word " * 200, "w" * 900, "日本語" * 300], ids=["words", "one word", "Chinese"])
def test_a_long_text_is_cut_and_that_is_seen(text: str) -> None:
    lines = build_caption({"text": text, "prediction": "positive (98%)"}, 4.0)
    assert len(lines) == MAX_TEXT_LINES + 1
    assert lines[MAX_TEXT_LINES - 1].endswith(" …")
    assert 0.9 * len(lines[0]) < len(lines[MAX_TEXT_LINES - 1]) <= len(lines[0]), "the last line is used as well"
    assert lines[-1] == "→ positive (98%)", "what the model says is never cut with the text"


@pytest.mark.parametrize("kind", ["encoder", "cross"])
def test_the_caption_is_over_the_figure_and_covers_nothing(kind: str, drawn: Callable[[ViewData], Any]) -> None:
    data = make_view_data(("encoder", "decoder", "cross"), n_layers=1, n_heads=1)
    arrays = [array for array in data.arrays_of("attention") if array.kind == kind]
    about = {"text": "the pilot " * 90, "target": "$x$ le pilote", "prediction": "so"}
    figure = drawn(replace(data, arrays=arrays, about=about))
    assert within(figure)
    above = figure._suptitle.get_window_extent()
    assert figure.bbox.x0 <= above.x0
    assert above.x1 <= figure.bbox.x1
    assert above.y1 <= figure.bbox.y1
    assert max(part.bbox.y1 for part in figure.subfigs) <= above.y0 + 1
    assert "→ $x$ le pilote\n→ so" in figure._suptitle.get_text()
    assert not any("pilot" in text for text in texts(drawn(replace(data, arrays=arrays, about={}))) if "\n" in text)
