"""All view data in a browser: any kinds of attention, one view, an unknown one, hostile, damaged or large ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from page_driver import Mount, OpenFile, array, close
from sample_view_data import HOSTILE, LAYER, hostile, make_view_data

from regard.look.render.page import render_iframe, render_page
from regard.look.views.view_data import Axis, Focus, ViewArray, ViewData

KINDS = ("encoder", "decoder", "cross")
LARGEST = 20_000_000
"""Bytes that 300 tokens in 12 layers of 12 heads may take, raw and effective; as float32 they would be 104 million."""


@pytest.mark.parametrize("kinds", [some for count in (1, 2, 3) for some in combinations(KINDS, count)], ids="-".join)
def test_every_set_of_kinds_works(mount: Mount, kinds: tuple[str, ...]) -> None:
    seen = make_view_data(kinds, n_layers=2, n_heads=2)
    opened = mount(seen)
    for kind in kinds:
        opened.until(kind=kind)
        weights = array(seen, "attention", kind)[0, 0]
        shown = opened.point("raw", 1, 1, (weights.shape[0], weights.shape[1]))
        assert close(shown["raw"], float(weights[1, 1]))
        opened.tab.keyboard.press("k")


def test_every_view_works_alone(mount: Mount, whole: ViewData) -> None:
    for view in dict.fromkeys(each.view for each in whole.arrays):
        opened = mount(replace(whole, arrays=list(whole.arrays_of(view)), notes={}, about={}))
        name = "attention" if view == "effective" else view
        assert opened.tab.locator("details.view").evaluate_all("all => all.map(e => e.dataset.view)") == [name]
    assert "Nothing to show" in mount(replace(whole, arrays=[])).tab.inner_text(".views")


def test_a_view_nobody_knows_is_a_matrix(mount: Mount, whole: ViewData) -> None:
    values = torch.randn(3, 2, 8, 8)
    values[1, 1, 0, 0] = float("nan")
    axes = (LAYER, Axis("way", labels=("there", "back")), Axis("query", ("encoder",)), Axis("key", ("encoder",)))
    curve = torch.tensor([1.0, float("nan"), -2.0, 4.0])
    odd = [ViewArray("new", "encoder", "numbers", axes, values), ViewArray("odd", "", "curve", (Axis("step"),), curve)]
    opened = mount(replace(whole, arrays=[*whole.arrays_of("attention"), *odd]))
    opened.tab.locator("[data-view=odd]").scroll_into_view_if_needed()
    opened.tab.wait_for_selector("[data-view=odd] rect")
    assert opened.marked("[data-view=odd] rect") == 3
    layer, way = opened.tab.locator("[data-view=new] input").all()
    layer.press("ArrowLeft")  # of layers, the last is shown first
    way.press("ArrowRight")
    opened.tab.wait_for_selector('[aria-label$="layer 1, way back"]')
    assert close(opened.point("new.encoder.numbers", 2, 3, (8, 8))["numbers"], float(values[1, 1, 2, 3]))
    opened.tab.mouse.move(5, 5)
    box = opened.tab.locator('[data-matrix="new.encoder.numbers"]').bounding_box()
    opened.tab.mouse.move(box["x"] + 4, box["y"] + 4)
    assert "no number" in opened.tab.inner_text(".tip")


def test_views_without_a_drawing_of_their_own_are_explained(mount: Mount) -> None:
    over, hop = Axis("input", ("encoder",)), Axis("hop", labels=("0",))
    matrix = (LAYER, Axis("query", ("encoder",)), Axis("key", ("encoder",)))
    arrays = [
        ViewArray(view, "", "numbers", matrix, torch.rand(2, 3, 3)) for view in ("norms", "match", "senses", "odd")
    ]
    arrays += [
        ViewArray("pooling", "", "weights", (over, hop), torch.tensor([[0.2], [0.5], [0.3]])),
        ViewArray("clusters", "", "map", (over, Axis("coordinate", labels=("x", "y"))), torch.rand(3, 2)),
    ]
    opened = mount(ViewData({"encoder": ["a", "great", "film"]}, arrays, {}, {}))
    for view in ("norms", "match", "senses", "pooling", "clusters"):
        section = opened.tab.locator(f"[data-view={view}]")
        assert section.locator("h2").inner_text()[0].isupper()
        assert section.locator("p.explained").first.inner_text().endswith(".")
    assert opened.marked("[data-view=odd] p.explained") == 0
    opened.tab.locator("[data-view=pooling]").scroll_into_view_if_needed()
    opened.tab.wait_for_selector("[data-view=pooling] rect")
    assert opened.marked("[data-view=pooling] rect") == 3, "one hop is bars"
    assert "weight of each token in the vector" in opened.tab.inner_text("[data-view=pooling] .chart-title")
    assert opened.tab.locator("[data-view=pooling] .tick").all_text_contents()[-3:] == ["a", "great", "film"]


def test_names_are_cut_under_bars_alone(mount: Mount) -> None:
    names = ("integrated gradients", "🙂" * 12, "random")
    curve = ViewArray("odd", "", "score", (Axis("method", labels=names),), torch.tensor([1.0, 2.0, 3.0]))
    opened = mount(ViewData({}, [curve]))
    opened.tab.wait_for_selector("[data-view=odd] rect")
    ticks = opened.tab.locator("[data-view=odd] .tick").all_text_contents()[-3:]
    assert ticks == ["integrat…", "🙂" * 8 + "…", "random"]
    for bar, name in zip(opened.tab.locator("[data-view=odd] rect").all(), names, strict=True):
        bar.hover()
        assert f"method {name}" in opened.tab.inner_text(".tip")


@pytest.mark.parametrize(
    ("about", "texts", "facts"),
    [
        (
            {"text": "one", "pair": "two", "score": 0.6145, "prediction": "cosine 0.6145"},
            ["one", "two", "cosine 0.6145"],
            [],
        ),
        ({"text": "one", "target": "un", "score": -0.4172}, ["one", "un"], ["score"]),
        ({"model": "demo/run", "word": "bank", "occurrences": 6}, [], ["model", "word", "occurrences"]),
    ],
    ids=["match", "translator", "senses"],
)
def test_texts_and_prediction_stand_above_the_facts(
    mount: Mount, whole: ViewData, about: dict[str, object], texts: list[str], facts: list[str]
) -> None:
    opened = mount(replace(whole, arrays=list(whole.arrays_of("rollout")), about=about))
    assert opened.tab.locator(".header [class^=about-]").all_inner_texts() == texts
    assert opened.tab.locator(".header .fact span").all_inner_texts() == facts


@pytest.mark.parametrize("mark", ["▁", "##"])
def test_the_space_marker_is_explained_if_present(mount: Mount, whole: ViewData, mark: str) -> None:
    sides = {side: [token.replace("▁", mark) for token in tokens] for side, tokens in whole.sides.items()}
    sentence = mount(replace(whole, arrays=list(whole.arrays_of("rollout")), sides=sides)).tab.inner_text(".footer")
    assert "Tokens are the subwords the model reads" in sentence
    assert ("▁" in sentence) == (mark == "▁")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (Axis("output", ("encoder",)), "raise the log-probability of the predicted token (blue)"),
        (Axis("output", ("encoder",), predicts_next=True), "raise the log-probability of the predicted token (blue)"),
        (Axis("output", ("tagged",)), "raise the log-probability of the predicted label (blue)"),
        (Axis("output", labels=("positive",)), "raise the log-probability of the predicted class (blue)"),
        (Axis("output", labels=("score",)), "raise the score (blue)"),
    ],
    ids=["encoder", "decoder", "tagger", "classifier", "score"],
)
def test_gradients_name_the_explained_quantity(mount: Mount, output: Axis, sentence: str) -> None:
    sides = {"encoder": ["a", "b", "c"], "tagged": ["a/X", "b/Y"]}
    n_outputs = len(output.labels) or len(sides[output.over[0]])
    values = torch.randn(3, n_outputs)
    found = ViewArray("gradients", "", "integrated_gradients", (Axis("input", ("encoder",)), output), values)
    explained = mount(ViewData(sides, [found])).tab.inner_text("[data-view=gradients]")
    assert sentence in explained
    assert ("the token read and the token written after it" in explained) == output.predicts_next


def test_one_layer_and_one_head_keep_their_numbers(mount: Mount, whole: ViewData) -> None:
    """View data may hold but layer 2 and head 3; they are still called so."""
    arrays = []
    for each in whole.arrays:
        values, axes = each.values, list(each.axes)
        for name, number in (("layer", 2), ("head", 3)):
            if (place := each.axis_index(name)) >= 0:
                values = values.index_select(place, torch.tensor([number]))
                axes[place] = Axis(name, labels=(str(number),))
        arrays.append(replace(each, values=values, axes=tuple(axes)))
    opened = mount(replace(whole, arrays=arrays))
    opened.until(layer=2, head=3)
    assert opened.tab.inner_text("[data-view=attention] h3") == "encoder · layer 2, head 3"
    assert close(opened.point("raw", 1, 1, (8, 8))["raw"], float(array(whole, "attention", "encoder")[2, 3, 1, 1]))
    assert opened.tab.locator("[data-view=attribution] output:visible").inner_text() == "2"


def test_theme_follows_the_system(open_file: OpenFile, whole: ViewData) -> None:
    for scheme in ("dark", "light"):
        opened = open_file(render_page(whole), scheme=scheme)
        assert opened.state("theme") == scheme
        assert opened.tab.title() == "look: the old pilot who had landed in <eos>"


def test_hostile_texts_are_escaped(open_file: OpenFile) -> None:
    for width in (1600, 390):
        opened = open_file(render_page(hostile()), width=width)
        assert opened.tab.evaluate("window.harmed") is None
        assert opened.marked("img") + opened.marked(".regard script") == 0
        assert opened.tab.locator(".strip .token").nth(0).inner_text() == HOSTILE[0]
        assert opened.tab.locator(".strip .token").nth(10).inner_text() == "∅"
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_damaged_page_says_so(open_file: OpenFile) -> None:
    text = render_page(make_view_data(("encoder",), source=30, n_heads=8))
    block = re.search(r'"blocks": \["([^"]{200})', text)
    assert block is not None
    opened = open_file(text.replace(block[1], "A" * 200), built=False)
    opened.tab.wait_for_selector(".trouble:visible")
    assert "could not be drawn" in opened.tab.inner_text(".trouble")
    assert opened.complaints
    opened.complaints.clear()


def test_a_notebook_shows_it(open_file: OpenFile, whole: ViewData) -> None:
    opened = open_file(f"<!doctype html><p>In [1]:</p>{render_iframe(whole)}", built=False)
    inside = opened.tab.frame_locator("iframe")
    inside.locator("#look[data-built=true]").wait_for()
    assert inside.locator("#look").get_attribute("data-layer") == "0"


@pytest.fixture(scope="module")
def large() -> ViewData:
    return make_view_data(("encoder",), source=300, n_layers=12, n_heads=12, width=64)


def test_three_hundred_tokens_and_144_heads(open_file: OpenFile, large: ViewData) -> None:
    text = render_page(large)
    size = len(text.encode())
    assert size < LARGEST
    opened = open_file(text, width=1700)
    assert f"This page is {size / 1e6:.1f} MB" in opened.tab.inner_text(".footer")
    opened.tab.click('[data-heads=overview] [data-layer="11"][data-head="4"]')
    opened.until(layer=11, head=4)
    raw, effective = (array(large, view, "encoder")[11, 4] for view in ("attention", "effective"))
    error = float(next(record["code"]["error"] for record in data_of(text) if record["view"] == "effective"))
    pixels = opened.pixels("raw")
    assert pixels.shape == (300, 300, 3)
    darkest = pixels.sum(-1).argmin(-1)
    assert (raw[range(300), darkest] >= raw.max(-1).values - 2 * error).all()
    for query, key in ((150, 149), (299, 0), (7, 290)):
        shown = opened.point("raw", query, key, (300, 300))
        assert close(shown["raw"], float(raw[query, key]), error)
        assert close(shown["effective"], float(effective[query, key]), error)
    assert "strongest of" in opened.tab.locator(".lines-note").nth(0).inner_text()
    opened.tab.wait_for_function("document.querySelectorAll('[data-heads=overview] [data-drawn]').length === 144")


def data_of(text: str) -> list[dict[str, Any]]:
    """The arrays in a page."""
    found: list[dict[str, Any]] = json.loads(text.split('id="view-data">')[1].split("</script>")[0])["arrays"]
    return found


def with_importance(data: ViewData, focus: Focus) -> ViewData:
    """The view data with a summary of its decoder, and a focus."""
    n_inputs, n_outputs = sum(map(len, data.sides.values())), len(data.sides["decoder"])
    axes = (Axis("input", tuple(data.sides)), Axis("output", ("decoder",), predicts_next=True))
    summary = ViewArray("summary", "", "importance", axes, torch.rand(n_inputs, n_outputs))
    written = [*data.sides["decoder"][1:], "<eos>"]
    return replace(data, arrays=[summary, *data.arrays], next_tokens={"decoder": written}, focus=focus)


def test_a_page_opens_with_the_summary_and_its_focus(open_file: OpenFile, whole: ViewData) -> None:
    data = with_importance(whole, Focus("cross", 2, 1, {"encoder": 1, "decoder": 2}))
    opened = open_file(render_page(data), unfolded=False)
    opened.until(kind="cross", layer=2, head=1)
    sections = opened.tab.locator("details.view").evaluate_all("all => all.map(e => [e.dataset.view, e.open])")
    assert sections[:3] == [["summary", True], ["faithfulness", False], ["attention", True]]
    assert not any(is_open for _, is_open in sections[3:])
    read, written = whole.sides["decoder"][2:4]
    assert f"{read} → {written}" in opened.tab.inner_text("[data-view=summary] .heat-title")
    assert f"{read} → {written}" in opened.tab.locator("[data-view=summary] .labels-left").inner_text()
    opened.tab.click(".nav button:has-text('Gradients')")
    opened.tab.wait_for_selector("[data-view=gradients][open]")


def test_identifiable_attention_is_one_line(mount: Mount) -> None:
    opened = mount(make_view_data(("encoder",), source=5, n_layers=2, n_heads=2))
    opened.until(measure="raw")
    assert opened.marked("figure[data-measure=effective]:visible") == 0
    assert "raw and effective attention are equal" in opened.tab.inner_text("[data-view=attention]")
    assert "every fraction below would be 0" in opened.tab.inner_text("[data-view=identifiability] .main")
    assert opened.marked("[data-view=identifiability] .heads:visible") == 0
