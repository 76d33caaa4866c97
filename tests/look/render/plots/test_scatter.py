"""Maps of points: for any number of groups a legend beside them, and names that cover nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from figure_contents import texts, within

from regard.look.render.figures import LINE_STYLES
from regard.look.render.plots.label_placement import (
    LabelLayout,
    adjacent_offsets,
    farthest_point_order,
    group_close_points,
)
from regard.look.render.plots.scatter import MAX_LABELS, MAX_LEGEND_GROUPS
from regard.look.views.view_data import Axis, ViewArray, ViewData

Annotation = pytest.importorskip("matplotlib.text").Annotation
COORDINATE = Axis("coordinate", labels=("x", "y"))


def grouped(n_groups: int, each: int, separate: float = 6.0) -> ViewData:
    """Texts in groups, some of which overlap."""
    random = np.random.default_rng(0)
    centres = separate * random.normal(size=(n_groups, 2))
    points = (centres[:, None] + random.normal(size=(n_groups, each, 2))).reshape(-1, 2)
    text = Axis("text", labels=tuple(f"text {number} of some length" for number in range(n_groups * each)))
    names = tuple(f"a text that stands for group {number}" for number in range(n_groups))
    labels = torch.arange(n_groups).repeat_interleave(each)
    return ViewData(
        {},
        [
            ViewArray("clusters", "", "map", (text, COORDINATE), torch.from_numpy(points)),
            ViewArray("clusters", "", "cluster", (text,), labels, "label", names),
        ],
        {},
        {"texts": n_groups * each, "k": n_groups},
    )


def boxes(axes: Any) -> list[Any]:
    """Where the names on a map are, and the numbers of the groups."""
    return [each.get_window_extent() for each in axes.findobj(Annotation)]


@pytest.mark.parametrize(("n_groups", "each"), [(1, 1), (2, 3), (2, 40), (6, 12), (12, 4), (12, 80)])
def test_a_map_of_any_number_of_groups_can_be_read(n_groups: int, each: int, drawn: Callable[[ViewData], Any]) -> None:
    figure = drawn(grouped(n_groups, each))
    (axes,) = figure.axes
    legend = axes.get_legend()
    entries = [text.get_text() for text in legend.get_texts()]
    assert [entry.split(" ", 1)[0] for entry in entries] == [str(number) for number in range(n_groups)]
    assert all(entry.split("  ")[0].endswith(f"({each})") and "stands for" in entry for entry in entries)
    looks = [(tuple(some.get_facecolor()[0]), some.get_paths()[0].vertices.tobytes()) for some in axes.collections]
    assert len(set(looks)) == n_groups <= len(LINE_STYLES)
    frame = axes.get_window_extent()
    assert frame.x1 <= legend.get_window_extent().x0
    assert within(figure)
    placed = boxes(axes)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in placed)
    assert all(frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in placed)
    pixels = figure.dpi / 72
    for one, other in combinations([box.padded(-1.5 * pixels) for box in placed], 2):
        assert not one.overlaps(other)
    named = sum("text" in each.get_text() for each in axes.findobj(Annotation))
    assert min(n_groups * each, 4) <= named <= MAX_LABELS
    spread_out = axes.transData.transform(np.concatenate([some.get_offsets() for some in axes.collections]))
    longest = max(np.ptp(spread_out, 0) / (frame.width, frame.height))
    assert longest > 0.8 or each == 1, "the points fill their frame"


def test_groups_beyond_the_legend_are_counted(drawn: Callable[[ViewData], Any]) -> None:
    figure = drawn(grouped(MAX_LEGEND_GROUPS + 3, 2))
    assert len(figure.axes[0].get_legend().get_texts()) == MAX_LEGEND_GROUPS
    assert any("3 more are not listed" in text for text in texts(figure))


def occurrences(values: torch.Tensor, names: Sequence[str] = ()) -> ViewData:
    axes = Axis("layer"), Axis("occurrence", ("occurrence",)), COORDINATE
    names = names or [f"{number} a sentence" for number in range(1, values.shape[1] + 1)]
    return ViewData({"occurrence": names}, [ViewArray("senses", "", "map", axes, values)])


def test_points_of_a_plane_keep_away_from_its_frame(drawn: Callable[[ViewData], Any]) -> None:
    corners = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    figure = drawn(occurrences(torch.stack([corners, 3 * corners])))
    figure.canvas.draw()
    for axes, far in zip([each for each in figure.axes if each.axison], (1.0, 3.0), strict=True):
        assert all(low < -1.1 * far and 1.1 * far < high for low, high in (axes.get_xlim(), axes.get_ylim()))


def test_points_at_one_place_share_a_name(drawn: Callable[[ViewData], Any]) -> None:
    separate = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = texts(drawn(occurrences(torch.stack([torch.zeros(3, 2), separate, separate[[0, 1, 0]]]))))
    assert {"1, 2, 3", "1", "2", "3", "1, 3"} <= set(found)


@pytest.mark.parametrize(
    ("names", "below"),
    [
        (["1 on the bank", "2 a bank of sand", "3 bank"], "1 on the bank    2 a bank of sand    3 bank"),
        (["on the bank", "2 banks", "bank"], "1 on the bank    2 2 banks    3 bank"),
        (["", " ", "bank"], "1    2    3 bank"),
    ],
    ids=["numbered", "others", "blank"],
)
def test_points_are_numbered_whatever_they_are_called(
    names: list[str], below: str, drawn: Callable[[ViewData], Any]
) -> None:
    separate = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = texts(drawn(occurrences(torch.stack([separate, separate]), names)))
    assert {"1", "2", "3", below} <= set(found)


def test_a_name_takes_its_room_and_one_without_room_has_no_place() -> None:
    points = np.array([[20.0, 20.0], [80.0, 20.0]])
    frame = LabelLayout((100.0, 40.0), points)
    size = (30.0, 8.0)
    assert frame.place_label((20.0, 20.0), size, adjacent_offsets(size)) == (19.0, 0.0)
    assert frame.place_label((80.0, 20.0), size, adjacent_offsets(size)) == (0.0, 7.0), (
        "right of it the frame ends, left is a name"
    )
    assert frame.place_label((20.0, 20.0), size, [(19.0, 0.0)]) is None, "it is taken"
    assert frame.place_label((20.0, 20.0), size, [(0.0, 0.0)]) is None, "the point is there"
    assert frame.place_label((20.0, 20.0), size, [(-19.0, 0.0)]) is None, "it would leave the frame"


def test_names_are_tried_all_over_the_map() -> None:
    points = np.concatenate((np.zeros((50, 2)), [[100.0, 0.0], [0.0, 100.0]])) + np.arange(52)[:, None] * 1e-3
    assert {50, 51} <= set(farthest_point_order(points, 5))
    assert sorted(farthest_point_order(points, 99)) == list(range(52))
    assert group_close_points(points)[1:] == [[50], [51]]
