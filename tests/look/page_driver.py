"""A page that is open in a browser: what is done to it, what it shows, and whether that is what it should show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from regard.look.views.view_data import ViewData

Mount = Callable[[ViewData], "OpenPage"]
OpenFile = Callable[..., "OpenPage"]


class OpenPage:
    """A page that is open, what it asked for and what it complained about."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.asked: list[str] = []
        self.complaints: list[str] = []
        tab.on("request", lambda request: self.asked.append(request.url))
        tab.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))

    def state(self, name: str) -> str | None:
        found: str | None = self.tab.get_attribute("#look", f"data-{name}")
        return found

    def until(self, **state: object) -> None:
        """Wait until the page says so of itself."""
        self.tab.wait_for_selector("#look" + "".join(f'[data-{name}="{value}"]' for name, value in state.items()))

    def unfold(self) -> None:
        """Open all sections."""
        self.tab.evaluate("for (const section of document.querySelectorAll('details.view')) section.open = true")

    def point(self, matrix: str, row: int, column: int, shape: tuple[int, int]) -> dict[str, float]:
        """Move the pointer to a cell; the numbers the page then shows, by name."""
        field = self.tab.locator(f'[data-matrix="{matrix}"]')
        field.scroll_into_view_if_needed()
        box = field.bounding_box()
        x, y = box["x"] + (column + 0.5) * box["width"] / shape[1], box["y"] + (row + 0.5) * box["height"] / shape[0]
        self.tab.mouse.move(x, y)
        lines = self.tab.locator(".tip:visible .tip-line").all_inner_texts()
        pairs = [line.split("\n") for line in lines]
        return {name: float(value.replace("−", "-")) for name, value in pairs if name != "at"}

    def pixels(self, matrix: str) -> np.ndarray:
        """The canvas of a matrix, (rows, columns, red green blue)."""
        return pixels_of(self.tab.locator(f'[data-matrix="{matrix}"]'))

    def marked(self, where: str) -> int:
        count: int = self.tab.locator(where).count()
        return count


def pixels_of(field: Any) -> np.ndarray:
    read = """field => { const { width, height } = field.querySelector("canvas");
        const { data } = field.querySelector("canvas").getContext("2d").getImageData(0, 0, width, height);
        return [height, width, Array.from(data, byte => String.fromCharCode(byte)).join("")]; }"""
    height, width, content = field.evaluate(read)
    return np.frombuffer(content.encode("latin-1"), np.uint8).reshape(height, width, 4)[..., :3].astype(int)


def array(seen: ViewData, view: str, kind: str, name: str = "weights") -> Tensor:
    return next(each.values for each in seen.arrays_of(view) if (each.kind, each.name) == (kind, name))


def close(shown: float, value: float, error: float = 1e-5) -> bool:
    """Is it the number, to the digits a page shows and the error it states?"""
    return abs(shown - value) <= 0.06 * abs(value) + error


def in_order(pixels: np.ndarray, values: np.ndarray) -> bool:
    """Is a larger number never lighter?"""
    light = pixels.sum(-1).ravel()[np.argsort(values.ravel())]
    return bool((np.maximum.accumulate(light[::-1])[::-1] - light <= 6).all())
