"""Figures of every view and model: as many maps as heads, the names of the tokens, and nothing lost in the file."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from figure_contents import maps, texts, within
from sample_targets import one_stack, translator
from sample_view_data import make_view_data
from torch.testing import assert_close

from regard.errors import InputError
from regard.look.compute.look_target import LookTarget
from regard.look.inspection import Inspection
from regard.look.render.plots import plot_view
from regard.look.render.plots.panel import balanced_grid
from regard.look.views.registry import VIEWS
from regard.look.views.titles import ARRAY_DESCRIPTIONS
from regard.look.views.view_data import Axis, ViewArray, ViewData

SUBJECTS: dict[str, Callable[[], LookTarget]] = {
    "translator": lambda: translator(3, 2, n_layers=1, n_decoder_layers=1),
    "encoder": lambda: one_stack("encoder", 3),
    "decoder": lambda: one_stack("decoder", 1),
}

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module", params=SUBJECTS)
def seen(request: pytest.FixtureRequest) -> Inspection:
    return Inspection(SUBJECTS[request.param]())


@pytest.mark.parametrize("view", [view for view in VIEWS if view != "pooling"])
def test_every_view_of_every_model_can_be_drawn(seen: Inspection, view: str, drawn: Callable[[ViewData], Any]) -> None:
    figure = drawn(seen.view_data(view))
    assert figure.axes
    assert within(figure)
    assert any(view in text for text in texts(figure))


def test_a_small_map_for_every_layer_and_head(drawn: Callable[[ViewData], Any]) -> None:
    seen = Inspection(translator(5, 4, n_layers=3))
    figure = drawn(seen.view_data("attention", kind="encoder"))
    assert len(maps(figure)) == 3 * 2
    for axes, weights in zip(maps(figure), seen.attention("encoder").flatten(0, 1), strict=True):
        assert_close(torch.tensor(axes.images[0].get_array().data), weights)
        assert axes.images[0].get_clim() == (0.0, float(seen.attention("encoder").max()))
    assert {"head 0", "head 1", "layer 0", "layer 2", "query (encoder)", "key (encoder)", "weights"} <= {*texts(figure)}
    figure = drawn(seen.view_data("attention", kind="encoder", layer=-1))
    assert len(maps(figure)) == 2
    assert "layer 2" in texts(figure)
    assert "layer 0" not in texts(figure)


def test_attribution_is_a_map_for_every_layer_and_curves(drawn: Callable[[ViewData], Any]) -> None:
    seen = Inspection(translator(5, 4))
    figure = drawn(seen.view_data("attribution", kind="decoder"))
    heatmaps, curves = maps(figure), [axes for axes in figure.axes if axes.get_xlabel() == "layer"]
    assert len(heatmaps) == 2
    for layer, axes in enumerate(heatmaps):
        assert axes.get_title() == f"layer {layer}"
        assert_close(torch.tensor(axes.images[0].get_array().data), seen.attribution(layer, "decoder").T)
        assert axes.lines[0].get_xdata()[0] == 4.5  # where the source ends and the target begins
    own, dominated_fraction = curves
    *tokens, mean = own.lines
    assert len(tokens) == 4
    np.testing.assert_allclose([line.get_ydata() for line in tokens], seen.self_contribution("decoder").T)
    np.testing.assert_allclose(mean.get_ydata(), seen.self_contribution("decoder").mean(-1))
    np.testing.assert_allclose(dominated_fraction.lines[0].get_ydata(), seen.dominated_fraction("decoder"))


@pytest.mark.parametrize(
    ("view", "name", "is_fraction"),
    [("attribution", "dominated_fraction", True), ("shared", "dominated_fraction", False)],
)
def test_the_axis_of_a_fraction_ends_at_1(
    view: str, name: str, is_fraction: bool, drawn: Callable[[ViewData], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ARRAY_DESCRIPTIONS, "attribution.dominated_fraction", "tokens of which another input has more")
    array = ViewArray(view, "encoder", name, (Axis("layer"),), torch.tensor([0.2, 0.4]))
    (axes,) = drawn(ViewData({}, [array])).axes
    assert axes.get_ylabel() == ("fraction" if is_fraction else "")
    assert (axes.get_ylim() == (-0.02, 1.02)) == is_fraction


def test_one_large_map_has_the_names_of_its_tokens(drawn: Callable[[ViewData], Any]) -> None:
    data = make_view_data(("cross",), source=60, target=3, n_layers=1, n_heads=1)
    (axes,) = maps(drawn(ViewData(data.sides, list(data.arrays_of("attention")))))
    assert [label.get_text() for label in axes.get_xticklabels()] == data.sides["encoder"]
    assert [label.get_text() for label in axes.get_yticklabels()] == data.sides["decoder"]


@pytest.mark.parametrize(("source", "target"), [(3, 3), (4, 24), (24, 4), (24, 24), (25, 4)])
def test_small_maps_of_few_tokens_have_their_names_at_the_edge(
    source: int, target: int, drawn: Callable[[ViewData], Any]
) -> None:
    data = make_view_data(("cross",), source=source, target=target, n_layers=2, n_heads=3)
    figure = drawn(ViewData(data.sides, list(data.arrays_of("attention"))))
    named = source <= 24
    for place, axes in enumerate(maps(figure)):
        down, across = (
            [label.get_text() for label in each] for each in (axes.get_yticklabels(), axes.get_xticklabels())
        )
        assert down == (data.sides["decoder"] if named and place % 3 == 0 else [])
        assert across == (data.sides["encoder"] if named and place >= 3 else [])
        boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
        assert all(abs(a.y0 - b.y0) >= 0.8 * a.height for a, b in pairwise(boxes))
    assert within(figure)


@pytest.mark.parametrize(("source", "target"), [(3, 3), (3, 60), (60, 3), (60, 60), (130, 9)])
def test_names_do_not_overlap_and_nothing_is_cut_off(
    source: int, target: int, drawn: Callable[[ViewData], Any]
) -> None:
    data = make_view_data(("cross",), source=source, target=target, n_layers=1, n_heads=1)
    figure = drawn(ViewData(data.sides, list(data.arrays_of("attention"))))
    (axes,) = maps(figure)
    assert within(figure)
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    # The edges of letters' boxes may touch: a line of text has room above and below its letters.
    assert all(abs(a.y0 - b.y0) >= 0.8 * a.height for a, b in pairwise(boxes))
    assert figure.get_figwidth() < 20
    assert figure.get_figheight() < 20


def test_signed_numbers_have_the_two_colours_of_a_page_and_zero_is_white(drawn: Callable[[ViewData], Any]) -> None:
    figure = drawn(Inspection(translator(5, 4)).view_data("gradients"))
    for axes in maps(figure):
        low, high = axes.images[0].get_clim()
        assert low == -high
        assert [colour(axes.images[0].to_rgba(value)) for value in (low, low / 2, high / 2, high)] == [
            *("orange", "orange", "blue", "blue")
        ]
        assert min(axes.images[0].to_rgba(0.0)[:3]) > 0.95
    assert texts(figure).count("integrated gradients\nblue raises the log-probability,\norange lowers it") == 1


def colour(rgba: tuple[float, ...]) -> str:
    red, green, blue, _ = rgba
    return "orange" if red > green > blue else "blue" if blue > green > red else "neither"


@pytest.mark.parametrize(
    ("view", "name", "output", "meant"),
    [
        ("gradients", "integrated_gradients", "positive", "blue raises the log-probability,\norange lowers it"),
        ("gradients", "gradient_x_input", "score", "blue raises the score,\norange lowers it"),
        ("match", "of_text", "", "blue adds to the cosine,\norange takes from it"),
        ("x", "y", "", "blue above zero,\norange below"),
    ],
)
def test_bars_explain_sign_and_colour(
    view: str, name: str, output: str, meant: str, drawn: Callable[[ViewData], Any]
) -> None:
    axes = (Axis("input", ("encoder",)), *([Axis("output", labels=(output,))] if output else []))
    values = torch.tensor([0.5, -0.25, 0.1]).reshape(3, *[1] * (len(axes) - 1))
    figure = drawn(ViewData({"encoder": ["good", "w" * 40, "film"]}, [ViewArray(view, "", name, axes, values)]))
    (bars,) = figure.axes
    assert [colour(bar.get_facecolor()) for bar in bars.patches] == ["blue", "orange", "blue"]
    assert bars.get_xlabel() == meant
    assert within(figure)


@pytest.mark.parametrize(
    ("view", "name", "meant"), [("pooling", "weights", ""), ("match", "of_text", "blue adds to the cosine")]
)
def test_where_nothing_is_below_zero_there_is_one_colour(
    view: str, name: str, meant: str, drawn: Callable[[ViewData], Any]
) -> None:
    array = ViewArray(view, "", name, (Axis("input", ("encoder",)),), torch.tensor([0.5, 0.25, 0.25]))
    (bars,) = drawn(ViewData({"encoder": ["good", "bad", "film"]}, [array])).axes
    assert {colour(bar.get_facecolor()) for bar in bars.patches} == {"blue"}
    assert bars.get_xlabel() == meant


def test_bars_of_methods_have_their_own_colours_also_below_zero(drawn: Callable[[ViewData], Any]) -> None:
    found = make_view_data(("encoder",))
    score = next(array for array in found.arrays_of("faithfulness") if array.name == "score")
    drop = next(array for array in found.arrays_of("faithfulness") if array.name == "drop")
    lines, bars = drawn(replace(found, arrays=[drop, replace(score, values=-score.values)])).axes
    to_rgba = pytest.importorskip("matplotlib.colors").to_rgba
    assert [bar.get_facecolor() for bar in bars.patches] == [to_rgba(line.get_color()) for line in lines.lines]
    assert bars.get_xlabel() == ""


def test_positions_are_the_classical_picture(drawn: Callable[[ViewData], Any]) -> None:
    seen = Inspection(translator(5, 4))
    figure = drawn(seen.view_data("positions", kind="encoder"))
    (axes,) = maps(figure)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dimension", "position")
    assert_close(torch.tensor(axes.images[0].get_array().data), seen.position_vectors("encoder"))
    assert "value\nblue above zero,\norange below" in texts(figure)


def test_faithfulness_is_a_line_for_every_method_and_a_legend_beside(drawn: Callable[[ViewData], Any]) -> None:
    found = Inspection(translator(5, 4)).view_data("faithfulness")
    lines, bars = drawn(found).axes
    drop, score = (next(array for array in found.arrays if array.name == name) for name in ("drop", "score"))
    for line, values, name in zip(lines.lines, drop.values, drop.axes[0].labels, strict=True):
        np.testing.assert_allclose(line.get_ydata(), values)
        assert line.get_label() == name.replace("_", " ")
    assert lines.get_legend().get_window_extent().x0 >= lines.get_window_extent().x1
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], score.values)


def test_one_output_is_bars_and_several_are_a_map(drawn: Callable[[ViewData], Any]) -> None:
    inputs, tokens = Axis("input", ("encoder",)), {"encoder": ["a", "great", "film"]}
    one = ViewArray("x", "", "y", (inputs, Axis("output", labels=("1",))), torch.ones(3, 1))
    (axes,) = drawn(ViewData(tokens, [one])).axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 1.0, 1.0]
    two = ViewArray("x", "", "y", (inputs, Axis("hop", labels=("0", "1"))), torch.rand(3, 2))
    (axes,) = maps(drawn(ViewData(tokens, [two])))
    assert axes.get_xlabel() == "hop"


def test_tokens_that_are_the_same_have_a_bar_each(drawn: Callable[[ViewData], Any]) -> None:
    array = ViewArray(
        "gradients", "", "convergence_delta", (Axis("output", ("decoder",)),), torch.tensor([1.0, 2.0, 3.0])
    )
    (axes,) = drawn(ViewData({"decoder": ["the", "a", "the"]}, [array])).axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.0, 3.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["the", "a", "the"]


def test_bars_of_both_signs_have_two_colours(drawn: Callable[[ViewData], Any]) -> None:
    array = ViewArray(
        "gradients", "", "convergence_delta", (Axis("output", ("decoder",)),), torch.tensor([1.0, -2.0, 3.0] * 20)
    )
    (axes,) = drawn(ViewData({"decoder": ["a", "b", "c"] * 20}, [array])).axes
    above, below, *_ = (bar.get_facecolor() for bar in axes.patches)
    assert [bar.get_facecolor() for bar in axes.patches] == [above, below, above] * 20
    assert above != below
    low, high = sorted(axes.get_ylim())
    assert (low, high) == (-0.6, 59.6), "many bars leave no empty room over and under them"


def test_headings_of_panels_beside_each_other_begin_them_at_one_height(drawn: Callable[[ViewData], Any]) -> None:
    figure = drawn(Inspection(translator(5, 4)).view_data("similarity", kind="encoder"))
    headings = [panel._suptitle.get_text() for panel in figure.subfigs[0].subfigs if panel._suptitle]
    assert len({heading.count("\n") for heading in headings}) == 1
    _, mutual, positive = (panel.axes[0].get_position().y1 for panel in figure.subfigs[0].subfigs if panel.axes)
    assert mutual == pytest.approx(positive)


AWKWARD = ["$x$", "\\frac", "_", "a,b", "<&>", "<0xE2>", "--", "日本", "e\u0301", "w" * 70]


def awkward() -> ViewData:
    axes = (Axis("input", ("encoder",)), Axis("output", ("encoder",)))
    return ViewData({"encoder": AWKWARD}, [ViewArray("gradients", "", "gradient_x_input", axes, torch.randn(10, 10))])


def test_a_png_can_be_opened_and_is_not_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib.image import imread

    pixels = imread(plot_view(awkward(), tmp_path / "figure.png"))
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 300
    assert len(np.unique(pixels[::9, ::9, 0])) > 20
    # Where no font has Chinese letters, that is said once, in our words.
    assert capsys.readouterr().err.count("boxes in their place") <= 1


def test_an_svg_is_xml_and_holds_the_tokens(tmp_path: Path) -> None:
    text = plot_view(awkward(), tmp_path / "figure.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    for token in ("$x$", "\\frac", "a,b", "e\u0301", "w" * 23 + "…"):
        assert token in text
    assert plot_view(awkward(), tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_shows_one_view(tmp_path: Path) -> None:
    data = make_view_data(("cross",))
    with pytest.raises(InputError) as caught:
        plot_view(data, tmp_path / "figure.png")
    assert "a figure shows one view; choose one of: attention, effective, " in str(caught.value)
    assert str(caught.value).endswith("or write figure.html")
    assert not list(tmp_path.iterdir())


def test_numbered_labels_stay_whole_and_columns_have_their_numbers(drawn: Callable[[ViewData], Any]) -> None:
    names = ["1 she never drinks tea before breakfast", "2 iced tea"]
    axes = (Axis("layer"), Axis("occurrence", ("occurrence",)), Axis("other", ("occurrence",)))
    distance = ViewArray("senses", "", "distance", axes, torch.rand(3, 2, 2))
    figure = drawn(ViewData({"occurrence": names}, [distance]))
    assert set(names) <= set(texts(figure))
    assert {"1", "2"} <= set(texts(figure))


def test_small_panels_leave_few_cells_empty() -> None:
    assert [balanced_grid(count, 4) for count in (1, 4, 5, 6, 8, 9)] == [(1, 1), (1, 4), (2, 3), (2, 3), (2, 4), (3, 3)]


def test_a_bar_of_a_small_convergence_delta_is_short(drawn: Callable[[ViewData], Any]) -> None:
    delta = ViewArray(
        "gradients", "", "convergence_delta", (Axis("output", labels=("positive",)),), torch.tensor([0.0032])
    )
    (axes,) = (axes for axes in drawn(ViewData({}, [delta])).axes if axes.patches)
    assert axes.get_xlim()[1] >= 1.0
