"""Figures: the numbers in their colours, in every form; without matplotlib, the command that installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.errors import MissingExtra
from regard.look.render.figures import Curve, CurvePanel, draw_curves, draw_heat_map, draw_panels, draw_position_map
from regard.nn import SinusoidalPositions

Draw = Callable[[Path], Path]

BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF"}
FIGURES: dict[str, Draw] = {
    "heat map": lambda path: draw_heat_map(torch.eye(2), ["je", "vais"], ["I", "am"], title="I am", path=path),
    "position map": lambda path: draw_position_map(torch.eye(2), path),
}


@pytest.mark.parametrize("suffix", BEGINNINGS)
@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_the_suffix_sets_the_format(draw: Draw, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"figure{suffix}"
    assert draw(path) == path
    assert path.read_bytes().startswith(BEGINNINGS[suffix])


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_without_matplotlib_the_install_command_is_given(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'plot'; run: pip install 'regard\[plot\]'$"):
        draw(tmp_path / "figure.png")


def test_the_picture_of_sinusoidal_positions(tmp_path: Path, saved: list[Any]) -> None:
    """At position 0 the sines are white and the cosines darkest; blue is above zero, orange below."""
    table = SinusoidalPositions(128).table(torch.arange(50))
    draw_position_map(table, tmp_path / "positions.png", title="sinusoidal")
    (axes, bar), (image,) = saved[0].axes, saved[0].axes[0].images
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("dimension", "position", "sinusoidal")
    assert bar.get_ylabel() == "value (blue above zero, orange below)"
    assert_close(torch.tensor(image.get_array()), table)
    assert image.get_clim() == (-1.0, 1.0)
    colours = torch.tensor(image.to_rgba(image.get_array()))[..., :3]
    light, (red, _, blue) = colours.mean(-1), colours.unbind(-1)
    assert (light[0, 0::2] > 0.95).all()
    assert (light[0, 1::2] == light.min()).all()
    assert (red < blue)[table > 0.05].all()
    assert (red > blue)[table < -0.05].all()


@pytest.mark.parametrize(
    ("table", "limit"),
    [
        (nn.Embedding.from_pretrained(torch.tensor([[0.5, -2.0]]), freeze=False).weight, 2.0),
        (torch.zeros(4, 6), 1.0),
        (torch.full((1, 1), 3.0, dtype=torch.bfloat16), 3.0),
        (np.linspace(-9, 3, 10).reshape(5, 2), 9.0),
    ],
    ids=["learned", "nothing but zero", "one number", "an array"],
)
def test_zero_is_white_in_any_table(table: Tensor | np.ndarray, limit: float, tmp_path: Path, saved: list[Any]) -> None:
    assert draw_position_map(table, str(tmp_path / "table.png")) == tmp_path / "table.png"
    assert saved[0].axes[0].images[0].get_clim() == (-limit, limit)


def test_panels_share_their_axes_and_one_legend_in_the_order_of_the_names(tmp_path: Path, saved: list[Any]) -> None:
    draws = [
        lambda axes: (axes.plot([0, 1], [5, 6], label="b"), axes.axhline(3.0, label="level")),
        lambda axes: axes.plot([0, 1], [1, 2], label="a"),
        lambda axes: axes.plot([0, 1], [1, 2], label="_hidden"),
    ]
    labels = {"xlabel": "steps", "ylabel": "loss", "title": "$5 and $6"}
    path = tmp_path / "panels.svg"
    options = {"size": (3.0, 2.0), "names": ["a", "b", "_hidden"]}
    assert draw_panels(draws, path, columns=2, limits=(0.0, 9.0), **options, **labels) == path
    first, second, third, none = saved[0].axes
    assert first.get_ylim() == second.get_ylim() == third.get_ylim() == (0.0, 9.0)
    assert [axes.axison for axes in (first, second, third, none)] == [True, True, True, False]
    assert (first.get_ylabel(), third.get_xlabel(), second.get_ylabel()) == ("loss", "steps", "")
    (legend,) = saved[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "level"]
    assert "$5 and $6" in path.read_text(encoding="utf-8").replace("\\", "")
    draw_panels(draws[:2], path, columns=2, shared=False, **options, **labels)
    first, second = saved[1].axes
    assert first.get_ylim()[0] > second.get_ylim()[1], "each has its own"


@pytest.mark.parametrize("shared", [True, False])
def test_an_upper_limit_that_is_left_open_is_that_of_the_numbers(
    shared: bool, tmp_path: Path, saved: list[Any]
) -> None:
    draws = [lambda axes, high=high: axes.plot([0, 1], [high - 1, high]) for high in (3, 30)]
    options = {"columns": 2, "size": (3.0, 2.0), "names": [], "xlabel": "x", "ylabel": "y", "shared": shared}
    draw_panels(draws, tmp_path / "panels.png", limits=(0.0, None), **options)
    (low, high), (other_low, other_high) = (axes.get_ylim() for axes in saved[0].axes)
    assert low == other_low == 0.0
    assert 30 < other_high < 33
    assert high == other_high if shared else 3 < high < 4


@pytest.mark.parametrize("name", ["a$\\frac$", "$5 and $6"])
def test_names_in_a_legend_are_not_read_as_mathematics(name: str, tmp_path: Path, saved: list[Any]) -> None:
    from matplotlib.cbook import is_math_text

    draw_curves([CurvePanel("t", {name: Curve([0, 1], [1, 2])})], tmp_path / "curves.png", xlabel="x", ylabel="y")
    (entry,) = saved[0].legends[0].get_texts()
    assert not is_math_text(entry.get_text())
    assert entry.get_text().replace("\\$", "$") == name
