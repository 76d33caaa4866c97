"""Where the names of points go: near them, inside the frame, and upon nothing else; a name without room is left out.

All lengths are in points, 72 to an inch, from the lower left corner of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from unicodedata import east_asian_width

import numpy as np
from jaxtyping import Float

CHARACTER_WIDTH, LABEL_HEIGHT = 3.5, 8.0
"""How wide a letter is, and how high a line."""

MARKER_RADIUS = 3.0
"""From the middle of a marker to its edge."""

MIN_POINT_DISTANCE = 4.0
"""Between points that are hardly told apart."""

Offset = tuple[float, float]


class LabelLayout:
    """A frame with points in it, and the names that have been put there."""

    def __init__(self, size: Offset, points: Float[np.ndarray, "N 2"]) -> None:
        self.size = size
        self._marker_boxes = np.concatenate((points - MARKER_RADIUS, points + MARKER_RADIUS), 1)
        self._label_boxes = np.empty((0, 4))

    def place_label(
        self, anchor: Offset, size: Offset, offsets: Iterable[Offset], *, may_cover_points: bool = False
    ) -> Offset | None:
        """The first offset at which a name of this size has room, which it then takes; None where it has none."""
        half = np.array(size) / 2
        for offset in offsets:
            middle = np.add(anchor, offset)
            box = np.concatenate((middle - half, middle + half))
            taken = self._label_boxes if may_cover_points else np.concatenate((self._label_boxes, self._marker_boxes))
            if self._contains(box) and not _overlaps_any(box, taken):
                self._label_boxes = np.vstack((self._label_boxes, box))
                return offset
        return None

    def _contains(self, box: Float[np.ndarray, " 4"]) -> bool:
        return bool((box[:2] >= 0).all() and (box[2:] <= self.size).all())


def _overlaps_any(box: Float[np.ndarray, " 4"], others: Float[np.ndarray, "N 4"]) -> bool:
    return bool(((box[:2] < others[:, 2:]) & (others[:, :2] < box[2:])).all(1).any())


def label_size(name: str) -> Offset:
    """The width and height of a name on one line."""
    return CHARACTER_WIDTH * sum(2 if east_asian_width(letter) in "WF" else 1 for letter in name), LABEL_HEIGHT


def adjacent_offsets(size: Offset) -> Iterator[Offset]:
    """The middle of a name as seen from its point: right, left, then over and under it."""
    across, up = size[0] / 2 + MARKER_RADIUS + 1, size[1] / 2 + MARKER_RADIUS
    yield from ((across, 0.0), (-across, 0.0))
    yield from ((x, y) for y in (up, -up) for x in (size[0] / 2, -size[0] / 2, 0.0))


def ring_offsets() -> Iterator[Offset]:
    """In the middle, and in growing rings around it."""
    yield 0.0, 0.0
    for radius in (12.0, 18.0, 26.0, 36.0, 48.0):
        for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
            yield float(radius * np.cos(angle)), float(radius * np.sin(angle))


def group_close_points(points: Float[np.ndarray, "N 2"]) -> list[list[int]]:
    """Points that are hardly told apart, which share a name."""
    groups: list[list[int]] = []
    for number, point in enumerate(points):
        near = (group for group in groups if np.hypot(*(points[group[0]] - point)) < MIN_POINT_DISTANCE)
        if (group := next(near, None)) is not None:
            group.append(number)
        else:
            groups.append([number])
    return groups


def farthest_point_order(points: Float[np.ndarray, "N 2"], max_points: int) -> Iterator[int]:
    """So many points from all over: first the one in the middle, then always the one farthest from those before it."""
    number = int(np.hypot(*(points - points.mean(0)).T).argmin())
    away = np.full(len(points), np.inf)
    for _ in range(min(max_points, len(points))):
        yield number
        away = np.minimum(away, np.hypot(*(points - points[number]).T))
        away[number] = -1.0
        number = int(away.argmax())
