"""Figures of a comparison have the layout and colours of those of `look`, with their own axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.compare.charts import Chart, Series, plot_charts
from regard.look.render.figures import Curve, CurvePanel, draw_curves


def test_charts_have_the_layout_of_look_figures(tmp_path: Path, saved: list[Any]) -> None:
    names = [f"line {number}" for number in range(12)]
    draw_curves(
        [CurvePanel("t", {name: Curve([0, 1], [1, 2]) for name in names})], tmp_path / "a.png", xlabel="x", ylabel="y"
    )
    plot_charts([Chart("t", {name: Series([0, 1], [1, 2]) for name in names})], tmp_path / "b.png", "x", "y", columns=1)
    for figure in saved:
        lines = figure.axes[0].lines
        assert [text.get_text() for text in figure.legends[0].get_texts()] == names
        assert len({(line.get_color(), line.get_marker()) for line in lines}) == 12
    assert [line.get_color() for line in saved[0].axes[0].lines] == [
        line.get_color() for line in saved[1].axes[0].lines
    ]


def test_axis_scales_unconnected_points_and_reference_levels(tmp_path: Path, saved: list[Any]) -> None:
    lines = {"RNN": Series([10, 100], [1, 8]), "measured": Series([10, 100], [2, 4], connected=False)}
    charts = [Chart("cost, $", lines, {"chance": 3.0}, ("log", "log2")), Chart("plain", lines)]
    assert plot_charts(charts, tmp_path / "cost.svg", "n", "ms", columns=2, share_axes=False).stat().st_size > 1000
    logarithmic, plain = saved[0].axes
    assert [logarithmic.get_xscale(), logarithmic.get_yscale(), plain.get_xscale()] == ["log", "log", "linear"]
    assert [line.get_linestyle() for line in logarithmic.lines] == ["--", "None", ":"]
    assert [text.get_text() for text in saved[0].legends[0].get_texts()] == ["RNN", "measured", "chance"]
