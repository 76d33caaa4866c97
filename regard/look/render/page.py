"""The page of `look`: view data as one HTML file that needs no network, framework or other file.

`build_page_data` returns what the page draws, ready for JSON; the files in page/ draw it. Any other page can mount the
component with ``regardLook(element, data)``, given the texts of `read_stylesheet` and `bundle_script`.
Large arrays are kept on a square-root scale, matrices over tokens to 8 bits and others to 16, in one compressed block
a layer, opened when it is first drawn:

    code = zero + round(sign(v) sqrt(|v| / limit) levels)       small weights keep their digits, and 0 is 0
"""

from __future__ import annotations

import base64
import html
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from jaxtyping import Shaped

from regard.disk import json_text
from regard.look.render.figures import LINE_STYLES
from regard.look.views.titles import array_title
from regard.look.views.view_data import ViewArray, ViewData

SCRIPT_FILES = (
    *("data", "dom", "colour", "tokens", "matrix", "lines", "heads", "chart", "map"),
    *("attention", "layers", "alternative", "views", "page"),
)
"""The files of the component in order of dependence; concatenated they are one script."""

MAX_PLAIN_VALUES = 4096
"""The most values of an array that is written as plain numbers, to `SIGNIFICANT_DIGITS` digits."""

SIGNIFICANT_DIGITS = 5

IFRAME_HEIGHT = 860
"""Height of the frame in a notebook, in pixels."""

NumberArray = Shaped[np.ndarray, "..."]


@dataclass(frozen=True)
class Quantizer:
    """Quantisation of numbers to 8 or 16 bits on a square-root scale; the largest code is NaN."""

    limit: float
    levels: int
    zero: int
    bits: int = 8

    @staticmethod
    def fit(numbers: Iterable[NumberArray], bits: int = 8) -> Quantizer:
        """Return the finest quantiser whose range covers all these values."""
        finite_values = [_finite_values(some) for some in numbers]
        low = max(0.0, *(-float(some.min(initial=0.0)) for some in finite_values))
        high = max(0.0, *(float(some.max(initial=0.0)) for some in finite_values))
        limit = max(low, high) or 1.0
        below, above = math.sqrt(low / limit), math.sqrt(high / limit)
        # One code is 0, one is NaN, and rounding may need one more.
        levels = int(((1 << bits) - 3) / max(below + above, 1.0))
        return Quantizer(limit, levels, round(below * levels), bits)

    @property
    def nan_code(self) -> int:
        return (1 << self.bits) - 1

    @property
    def max_error(self) -> float:
        """Return the largest quantisation error: half the last step, which is the widest, and float32 rounding."""
        return self.limit / self.levels * (1 - 0.25 / self.levels) + 1e-6 * self.limit

    def encode(self, numbers: NumberArray) -> NumberArray:
        """Return the codes of numbers."""
        existing = np.isfinite(numbers)
        safe = np.where(existing, numbers, 0.0)
        codes = np.rint(np.copysign(np.sqrt(np.abs(safe) * (self.levels**2 / self.limit)), safe)) + self.zero
        return np.where(existing, codes, self.nan_code).astype(f"<u{self.bits // 8}")

    def decode(self, codes: NumberArray) -> NumberArray:
        """Return the numbers of codes, as the page decodes them."""
        steps = (np.arange(self.nan_code + 1) - self.zero) / self.levels
        table = np.sign(steps) * np.square(steps) * self.limit
        table[self.nan_code] = math.nan
        numbers: np.ndarray = table[codes]
        return numbers


def render_page(view_data: ViewData) -> str:
    """Render the page as one HTML text."""
    template, about = _read_asset("page.html"), str(view_data.about.get("text", ""))
    data = json_text(build_page_data(view_data))
    parts = {
        "title": html.escape(f"look: {about[:80]}" if about else "look"),
        "style": read_stylesheet(),
        "script": bundle_script(),
        # Unescaped, a token could close the script element.
        "data": data.replace("<", "\\u003c"),
    }
    parts["bytes"] = str(len(template) + sum(len(part.encode()) for part in parts.values()))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def render_iframe(view_data: ViewData) -> str:
    """Render the page in a frame for a notebook, so that its style and keys stay inside."""
    look, inside = f"width: 100%; height: {IFRAME_HEIGHT}px; border: 0", html.escape(render_page(view_data))
    return f'<iframe title="look" sandbox="allow-scripts" style="{look}" srcdoc="{inside}"></iframe>'


def read_stylesheet() -> str:
    """Return the style sheet of the component."""
    return _read_asset("page.css")


def bundle_script() -> str:
    """Return the component as one script, which defines `regardLook` and nothing else."""
    parts = "\n".join(_read_asset(f"{name}.js") for name in SCRIPT_FILES)
    return f'(function () {{\n"use strict";\n{parts}\nwindow.regardLook = regardLook;\n}})();'


def build_page_data(view_data: ViewData) -> dict[str, Any]:
    """Return the page payload, ready for JSON."""
    return {
        "sides": [
            {"name": name, "tokens": list(tokens), "next_tokens": list(view_data.next_tokens.get(name, ()))}
            for name, tokens in view_data.sides.items()
        ],
        "focus": asdict(view_data.focus),
        "identifiable_kinds": _identifiable_kinds(view_data),
        "palette": [colour for colour, _ in LINE_STYLES],
        "arrays": [_pack_array(array, view_data) for array in view_data.arrays],
        "notes": {view: list(sentences) for view, sentences in view_data.notes.items()},
        "about": {name: _to_json_value(value) for name, value in view_data.about.items()},
        "digits": SIGNIFICANT_DIGITS,
    }


def _identifiable_kinds(view_data: ViewData) -> list[str]:
    """Return the kinds of attention whose weights are all identifiable: raw and effective are the same."""
    arrays = [array for array in view_data.arrays_of("identifiability") if array.name == "null"]
    return [array.kind for array in arrays if not bool(array.values.any())]


def _pack_array(array: ViewArray, view_data: ViewData) -> dict[str, Any]:
    """Pack an array: plain numbers if it is small, else compressed counts or quantised values."""
    numbers = _to_numpy(array)
    finite = _finite_values(numbers)
    record = {
        "view": array.view,
        "kind": array.kind,
        "name": array.name,
        "description": array_title(array),
        "axes": [asdict(axis) for axis in array.axes],
        "shape": list(numbers.shape),
        "limit": _round_significant(float(np.abs(finite).max(initial=0.0))),
        "signed": bool((finite < 0).any()),
        "label": array.value_kind == "label",
        "names": list(array.names),
    }
    if numbers.size <= MAX_PLAIN_VALUES:
        return {**record, "values": [_round_significant(value) for value in numbers.ravel().tolist()]}
    if _are_counts(numbers):
        return {**record, "blocks": [_compress_block(block.astype("<u2")) for block in _split_blocks(numbers)]}
    matrix = sum(bool(axis.over) for axis in array.axes) > 1
    code = Quantizer.fit(
        (_to_numpy(other) for other in view_data.arrays if _are_comparable(array, other)), bits=8 if matrix else 16
    )
    return {
        **record,
        "code": {**asdict(code), "nan": code.nan_code, "error": _round_significant(code.max_error)},
        "blocks": [_compress_block(code.encode(block)) for block in _split_blocks(numbers)],
    }


def _are_comparable(array: ViewArray, other: ViewArray) -> bool:
    """Return True if the page compares the two arrays: they share a quantiser, so that equal numbers stay equal."""
    return (array.kind, array.name, array.axes) == (other.kind, other.name, other.axes)


def _to_numpy(array: ViewArray) -> NumberArray:
    numbers: np.ndarray = array.values.detach().cpu().float().numpy()
    return numbers


def _finite_values(numbers: NumberArray) -> NumberArray:
    existing = np.isfinite(numbers)
    return numbers if existing.all() else numbers[existing]


def _are_counts(numbers: NumberArray) -> bool:
    whole = np.isfinite(numbers) & (numbers >= 0) & (numbers < 1 << 16) & (numbers == np.rint(numbers))
    return bool(whole.all())


def _split_blocks(numbers: NumberArray) -> Iterable[NumberArray]:
    """Return the blocks that the page decompresses one at a time: of stacked matrices one per layer."""
    return numbers if numbers.ndim > 2 else [numbers]


def _compress_block(block: NumberArray) -> str:
    """Compress a block to base64, by run lengths only: the rest of a matrix is noise and not worth the time."""
    squeezing = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return base64.b64encode(squeezing.compress(np.ascontiguousarray(block).tobytes()) + squeezing.flush()).decode()


def _round_significant(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _to_json_value(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _read_asset(name: str) -> str:
    return (files("regard.look.render") / "page" / name).read_text(encoding="utf-8")
