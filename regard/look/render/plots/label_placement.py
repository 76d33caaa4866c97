"""Label placement: near the points, inside the frame, without overlaps; a label without free space is left out.

All lengths are in points, 72 to an inch, from the lower left corner of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from unicodedata import east_asian_width

import numpy as np
from jaxtyping import Float

CHARACTER_WIDTH, LABEL_HEIGHT = 3.5, 8.0
"""The width of a character and the height of a line."""

MARKER_RADIUS = 3.0
"""The radius of a marker."""

MIN_POINT_DISTANCE = 4.0
"""The distance below which points share a label."""

Offset = tuple[float, float]


class LabelLayout:
    """A frame with points, and the labels placed in it so far."""

    def __init__(self, size: Offset, points: Float[np.ndarray, "N 2"]) -> None:
        self.size = size
        self._marker_boxes = np.concatenate((points - MARKER_RADIUS, points + MARKER_RADIUS), 1)
        self._label_boxes = np.empty((0, 4))

    def place_label(
        self, anchor: Offset, size: Offset, offsets: Iterable[Offset], *, may_cover_points: bool = False
    ) -> Offset | None:
        """Place a label at the first free offset and return the offset; None if no offset is free."""
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
    """Return the width and height of a label."""
    return CHARACTER_WIDTH * sum(2 if east_asian_width(letter) in "WF" else 1 for letter in name), LABEL_HEIGHT


def adjacent_offsets(size: Offset) -> Iterator[Offset]:
    """Yield label centres relative to a point: right, left, above, below."""
    across, up = size[0] / 2 + MARKER_RADIUS + 1, size[1] / 2 + MARKER_RADIUS
    yield from ((across, 0.0), (-across, 0.0))
    yield from ((x, y) for y in (up, -up) for x in (size[0] / 2, -size[0] / 2, 0.0))


def ring_offsets() -> Iterator[Offset]:
    """Yield the centre, then offsets on growing rings around it."""
    yield 0.0, 0.0
    for radius in (12.0, 18.0, 26.0, 36.0, 48.0):
        for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
            yield float(radius * np.cos(angle)), float(radius * np.sin(angle))


def group_close_points(points: Float[np.ndarray, "N 2"]) -> list[list[int]]:
    """Return groups of points that nearly coincide and share a label."""
    groups: list[list[int]] = []
    for number, point in enumerate(points):
        near = (group for group in groups if np.hypot(*(points[group[0]] - point)) < MIN_POINT_DISTANCE)
        if (group := next(near, None)) is not None:
            group.append(number)
        else:
            groups.append([number])
    return groups


def farthest_point_order(points: Float[np.ndarray, "N 2"], max_points: int) -> Iterator[int]:
    """Yield points by farthest-point sampling, beginning with the one nearest to the centre."""
    number = int(np.hypot(*(points - points.mean(0)).T).argmin())
    away = np.full(len(points), np.inf)
    for _ in range(min(max_points, len(points))):
        yield number
        away = np.minimum(away, np.hypot(*(points - points[number]).T))
        away[number] = -1.0
        number = int(away.argmax())
