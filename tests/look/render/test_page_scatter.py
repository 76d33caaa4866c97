"""Maps of points on the page: every point where it lies, its name under the pointer, its group in its colour."""

from __future__ import annotations

import re
from dataclasses import replace

import torch
from page_driver import Mount, OpenPage

from regard.look.render.figures import LINE_STYLES
from regard.look.views.view_data import Axis, ViewArray, ViewData

POINTS = torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0], [0.0, 2.0]])
COORDINATE = Axis("coordinate", labels=("x", "y"))


def grouped() -> ViewData:
    text = Axis("text", labels=("first text", "second text", "third text", "<b>fourth</b>"))
    return ViewData(
        {},
        [
            ViewArray("clusters", "", "map", (text, COORDINATE), POINTS),
            ViewArray("clusters", "", "cluster", (text,), torch.tensor([0, 1, 1, 0]), "label"),
        ],
        {"clusters": ["two groups"]},
        {"model": "m"},
    )


def layered() -> ViewData:
    layer = Axis("layer", labels=("static", "0", "1"))
    values = torch.stack([torch.zeros(4, 2), POINTS, POINTS.flip(0)])
    side = {"occurrence": ["1 a cat", "2 the cat", "3 cats", "4 cat"]}
    return ViewData(
        side, [ViewArray("senses", "", "map", (layer, Axis("occurrence", ("occurrence",)), COORDINATE), values)]
    )


def point_at(opened: OpenPage, across: float, up: float) -> str:
    """Move the pointer into a map, by shares of its sides; what the page then says."""
    field = opened.tab.locator("[data-map]")
    field.scroll_into_view_if_needed()
    box = field.bounding_box()
    opened.tab.mouse.move(box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"])
    return "\n".join(opened.tab.locator(".tip:visible").all_inner_texts())


def places(opened: OpenPage) -> tuple[float, float, float]:
    """Where the least and the most lie along the longer side, and by how much the shorter one is off the middle."""
    size = opened.tab.locator("[data-map]").bounding_box()["width"]
    margin = 26 / size
    return margin, 1 - margin, (1 - 2 * margin) / 4


def test_points_have_their_names_and_groups(mount: Mount) -> None:
    opened = mount(grouped())
    assert opened.marked("[data-chart]") == 0, "labels are colours, not bars"
    low, high, half = places(opened)
    assert point_at(opened, low, 0.5 - half).split() == ["first", "text", "cluster", "0"]
    assert point_at(opened, high, 0.5 - half).split() == ["second", "text", "cluster", "1"]
    assert point_at(opened, low, 0.5 + half).split() == ["<b>fourth</b>", "cluster", "0"]
    assert point_at(opened, 0.5, 0.95) == ""


def test_the_map_of_every_layer(mount: Mount) -> None:
    opened = mount(layered())
    low, _, half = places(opened)
    assert "4 cat" in point_at(opened, low, 0.5 - half), "the last layer is shown first"
    assert opened.marked(".token.on") == 1
    slider = opened.tab.locator("input[type=range]")
    slider.fill("1")
    slider.dispatch_event("input")
    assert "1 a cat" in point_at(opened, low, 0.5 - half + 0.001)


def test_groups_have_a_key_in_the_colours_of_the_figure(mount: Mount) -> None:
    data = grouped()
    named = replace(data, arrays=[data.arrays[0], replace(data.arrays[1], names=("a first text", "<b>another</b>"))])
    opened = mount(named)
    entries = opened.tab.locator(".group-key li")
    assert [text.split("\n") for text in entries.all_inner_texts()] == [
        ["0 (2)", "a first text"],
        ["1 (2)", "<b>another</b>"],
    ]
    colours = opened.tab.locator(".group-key .swatch").evaluate_all("all => all.map(e => e.style.backgroundColor)")
    for colour, (expected, _) in zip(colours, LINE_STYLES, strict=False):
        assert tuple(map(int, re.findall(r"\d+", colour))) == tuple(bytes.fromhex(expected[1:]))
