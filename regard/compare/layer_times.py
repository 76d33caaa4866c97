"""The times of layers in numbers to judge by: medians, exponents, ratios to recurrence; for cost.py and its claims."""

from __future__ import annotations

from statistics import median, quantiles

from regard.compare.experiment import Measurements
from regard.compare.layers import LAYERS, count_operations
from regard.compare.power_law import PowerLawFit, fit_power_law, fit_power_law_above_offset, larger_half
from regard.compare.timing import TimingCase

ATTENTION_ONLY, SELF_ATTENTION, ENCODER_LAYER, LSTM_LAYER = LAYERS

MAX_NOISE = 1.5
"""Times the fastest round that the median may take in three of four cases; beyond that, something else ran too."""


class LayerTimes:
    """The medians of all times, and what follows from them."""

    def __init__(self, measurements: Measurements) -> None:
        self.widths: list[int] = measurements["widths"]
        self.lengths: list[int] = measurements["lengths"]
        self.n_rounds = min(len(each["seconds"]) for each in measurements["times"])
        self.medians = {
            TimingCase(each["layer"], each["passes"], each["width"], each["length"]): median(each["seconds"])
            for each in measurements["times"]
        }
        slower = [median(each["seconds"]) / max(min(each["seconds"]), 1e-12) for each in measurements["times"]]
        self.noise = float(quantiles(slower, n=4)[2])

    @property
    def is_noisy(self) -> bool:
        """Whether these times are not to be trusted."""
        return self.noise > MAX_NOISE

    @property
    def fitted_lengths(self) -> list[int]:
        """The lengths over which growth is measured."""
        return [int(length) for length in larger_half(self.lengths)]

    def median_times(self, layer: str, passes: str, width: int) -> list[float]:
        """Seconds at every length."""
        return [self.medians[TimingCase(layer, passes, width, length)] for length in self.lengths]

    def fit_length_exponent(self, layer: str, passes: str, width: int) -> PowerLawFit:
        """The exponent of n over the longer half of the lengths."""
        return fit_power_law(self.fitted_lengths, larger_half(self.median_times(layer, passes, width)))

    def fit_length_exponent_above_offset(self, layer: str, passes: str, width: int) -> PowerLawFit:
        """The same of the time that length adds to what short texts take, which is mostly that of the call."""
        return fit_power_law_above_offset(self.lengths, self.median_times(layer, passes, width))

    def expected_exponent(self, layer: str, width: int) -> float:
        """What `added` would be if operations alone took time."""
        return fit_power_law_above_offset(
            self.lengths, [count_operations(layer, length, width) for length in self.lengths]
        ).exponent

    def fit_width_exponent(self, layer: str, passes: str) -> PowerLawFit:
        """The exponent of d, at the longest length."""
        longest = self.lengths[-1]
        return fit_power_law(
            self.widths, [self.medians[TimingCase(layer, passes, width, longest)] for width in self.widths]
        )

    def time_ratios_to_lstm(self, layer: str, passes: str, width: int) -> dict[int, float]:
        """By length, the time of a layer over that of recurrence."""
        both = zip(self.median_times(layer, passes, width), self.median_times(LSTM_LAYER, passes, width), strict=True)
        return {length: own / other for length, (own, other) in zip(self.lengths, both, strict=True)}
