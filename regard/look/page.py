"""The page of `look`: a sheet as one HTML file that needs no network, no framework and no other file.

`data` is what the page draws, ready for JSON; the files in page/ draw it. The component, which any page mounts with
``regardLook(element, data)``, is apart from the document around it, so that a server can send `style` and `script`.
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
from regard.look.meaning import title
from regard.look.view import Array, Sheet

SCRIPTS = (
    *("data", "dom", "colour", "tokens", "matrix", "lines", "heads", "chart", "map"),
    *("attention", "layers", "views", "page"),
)
"""The files of the component, each after those it builds on; together they are one script."""

PLAIN = 4096
"""Numbers an array may have and still be written out, to `DIGITS` digits."""

DIGITS = 5

HEIGHT = 860
"""Of the frame in a notebook, in pixels."""

Numbers = Shaped[np.ndarray, "..."]


@dataclass(frozen=True)
class Code:
    """How numbers become integers of 8 or 16 bits, the largest of which stands for what is not a number."""

    limit: float
    levels: int
    zero: int
    bits: int = 8

    @staticmethod
    def of(numbers: Iterable[Numbers], bits: int = 8) -> Code:
        """The finest code that holds all these."""
        found = [_finite(some) for some in numbers]
        low = max(0.0, *(-float(some.min(initial=0.0)) for some in found))
        high = max(0.0, *(float(some.max(initial=0.0)) for some in found))
        limit = max(low, high) or 1.0
        below, above = math.sqrt(low / limit), math.sqrt(high / limit)
        levels = int(((1 << bits) - 3) / max(below + above, 1.0))  # one is 0, one is none, rounding may need one more
        return Code(limit, levels, round(below * levels), bits)

    @property
    def none(self) -> int:
        return (1 << self.bits) - 1

    @property
    def error(self) -> float:
        """By how much a number may be off: half the last step, which is the widest, and the rounding of float32."""
        return self.limit / self.levels * (1 - 0.25 / self.levels) + 1e-6 * self.limit

    def encode(self, numbers: Numbers) -> Numbers:
        """Every number as its code."""
        there = np.isfinite(numbers)
        safe = np.where(there, numbers, 0.0)
        codes = np.rint(np.copysign(np.sqrt(np.abs(safe) * (self.levels**2 / self.limit)), safe)) + self.zero
        return np.where(there, codes, self.none).astype(f"<u{self.bits // 8}")

    def decode(self, codes: Numbers) -> Numbers:
        """The numbers as the page reads them."""
        steps = (np.arange(self.none + 1) - self.zero) / self.levels
        table = np.sign(steps) * np.square(steps) * self.limit
        table[self.none] = math.nan
        numbers: np.ndarray = table[codes]
        return numbers


def page(sheet: Sheet) -> str:
    """The whole page as one HTML text: no network, no framework."""
    template, about = _asset("page.html"), str(sheet.about.get("text", ""))
    parts = {
        "title": html.escape(f"look: {about[:80]}" if about else "look"),
        "style": style(),
        "script": script(),
        "data": json_text(data(sheet)).replace("<", "\\u003c"),  # or a token could end the script it stands in
    }
    parts["bytes"] = str(len(template) + sum(len(part.encode()) for part in parts.values()))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def framed(sheet: Sheet) -> str:
    """The page for a notebook, in a frame: its style and its keys do not touch what is around it."""
    look, inside = f"width: 100%; height: {HEIGHT}px; border: 0", html.escape(page(sheet))
    return f'<iframe title="look" sandbox="allow-scripts" style="{look}" srcdoc="{inside}"></iframe>'


def style() -> str:
    """The style sheet of the component."""
    return _asset("page.css")


def script() -> str:
    """The component as one script; it defines `regardLook` and nothing else."""
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'(function () {{\n"use strict";\n{parts}\nwindow.regardLook = regardLook;\n}})();'


def data(sheet: Sheet) -> dict[str, Any]:
    """What the component draws, ready for JSON."""
    return {
        "sides": [{"name": name, "tokens": list(tokens)} for name, tokens in sheet.sides.items()],
        "arrays": [_array(array, sheet) for array in sheet.arrays],
        "notes": {view: list(sentences) for view, sentences in sheet.notes.items()},
        "about": {name: _fact(value) for name, value in sheet.about.items()},
        "digits": DIGITS,
    }


def _array(array: Array, sheet: Sheet) -> dict[str, Any]:
    """An array written out, or packed: counts as they are, anything else rounded."""
    numbers = _numbers(array)
    finite = _finite(numbers)
    record = {
        "view": array.view,
        "kind": array.kind,
        "name": array.name,
        "said": title(array),
        "axes": [asdict(axis) for axis in array.axes],
        "shape": list(numbers.shape),
        "limit": _rounded(float(np.abs(finite).max(initial=0.0))),
        "signed": bool((finite < 0).any()),
        "label": array.nature == "label",
    }
    if numbers.size <= PLAIN:
        return {**record, "values": [_rounded(value) for value in numbers.ravel().tolist()]}
    if _counts(numbers):
        return {**record, "blocks": [_packed(block.astype("<u2")) for block in _blocks(numbers)]}
    matrix = sum(bool(axis.over) for axis in array.axes) > 1
    code = Code.of((_numbers(other) for other in sheet.arrays if _alike(array, other)), bits=8 if matrix else 16)
    return {
        **record,
        "code": {**asdict(code), "none": code.none, "error": _rounded(code.error)},
        "blocks": [_packed(code.encode(block)) for block in _blocks(numbers)],
    }


def _alike(one: Array, other: Array) -> bool:
    """Would the page compare the two? Then equal numbers must stay equal: they share their code."""
    return (one.kind, one.name, one.axes) == (other.kind, other.name, other.axes)


def _numbers(array: Array) -> Numbers:
    numbers: np.ndarray = array.values.detach().cpu().float().numpy()
    return numbers


def _finite(numbers: Numbers) -> Numbers:
    there = np.isfinite(numbers)
    return numbers if there.all() else numbers[there]


def _counts(numbers: Numbers) -> bool:
    whole = np.isfinite(numbers) & (numbers >= 0) & (numbers < 1 << 16) & (numbers == np.rint(numbers))
    return bool(whole.all())


def _blocks(numbers: Numbers) -> Iterable[Numbers]:
    """The pieces that are opened one at a time: of a stack of matrices its first axis, the layer."""
    return numbers if numbers.ndim > 2 else [numbers]


def _packed(block: Numbers) -> str:
    """Compressed, as text. Only runs are looked for: the rest of a matrix is noise, and more would take longer."""
    squeezing = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return base64.b64encode(squeezing.compress(np.ascontiguousarray(block).tobytes()) + squeezing.flush()).decode()


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _fact(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _asset(name: str) -> str:
    return (files("regard.look") / "page" / name).read_text(encoding="utf-8")
