"""The times of layers in numbers to judge by: medians, exponents, ratios to recurrence; for cost.py and its claims."""

from __future__ import annotations

from statistics import median, quantiles

from regard.compare.fits import Slope, added, larger_half, slope
from regard.compare.layers import LAYERS, operations
from regard.compare.part import Found
from regard.compare.timing import Case

ATTENTION, LAYER, WHOLE, LSTM = LAYERS

BUSY = 1.5
"""Times the fastest round that the median may take in three of four cases; beyond that, something else ran too."""


class Measured:
    """The medians of all times, and what follows from them."""

    def __init__(self, found: Found) -> None:
        self.widths: list[int] = found["widths"]
        self.lengths: list[int] = found["lengths"]
        self.rounds = min(len(each["seconds"]) for each in found["times"])
        self.medians = {
            Case(each["layer"], each["passes"], each["width"], each["length"]): median(each["seconds"])
            for each in found["times"]
        }
        slower = [median(each["seconds"]) / max(min(each["seconds"]), 1e-12) for each in found["times"]]
        self.noise = float(quantiles(slower, n=4)[2])

    @property
    def busy(self) -> bool:
        """Whether these times are not to be trusted."""
        return self.noise > BUSY

    @property
    def longer(self) -> list[int]:
        """The lengths over which growth is measured."""
        return [int(length) for length in larger_half(self.lengths)]

    def curve(self, layer: str, passes: str, width: int) -> list[float]:
        """Seconds at every length."""
        return [self.medians[Case(layer, passes, width, length)] for length in self.lengths]

    def growth(self, layer: str, passes: str, width: int) -> Slope:
        """The exponent of n over the longer half of the lengths."""
        return slope(self.longer, larger_half(self.curve(layer, passes, width)))

    def added(self, layer: str, passes: str, width: int) -> Slope:
        """The same of the time that length adds to what short texts take, which is mostly that of the call."""
        return added(self.lengths, self.curve(layer, passes, width))

    def counted(self, layer: str, width: int) -> float:
        """What `added` would be if operations alone took time."""
        return added(self.lengths, [operations(layer, length, width) for length in self.lengths]).exponent

    def across(self, layer: str, passes: str) -> Slope:
        """The exponent of d, at the longest length."""
        longest = self.lengths[-1]
        return slope(self.widths, [self.medians[Case(layer, passes, width, longest)] for width in self.widths])

    def ratios(self, layer: str, passes: str, width: int) -> dict[int, float]:
        """By length, the time of a layer over that of recurrence."""
        both = zip(self.curve(layer, passes, width), self.curve(LSTM, passes, width), strict=True)
        return {length: own / other for length, (own, other) in zip(self.lengths, both, strict=True)}
