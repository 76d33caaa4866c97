"""Statistics of layer times for cost.py and cost_claims.py: medians, exponents of growth, ratios to the LSTM."""

from __future__ import annotations

from statistics import median, quantiles

from regard.compare.experiment import Measurements
from regard.compare.layers import LAYERS, count_operations
from regard.compare.power_law import PowerLawFit, fit_power_law, fit_power_law_above_offset, larger_half
from regard.compare.timing import TimingCase

ATTENTION_ONLY, SELF_ATTENTION, ENCODER_LAYER, LSTM_LAYER = LAYERS

MAX_NOISE = 1.5
"""Largest third quartile of median over fastest round; above it, other load disturbed the times."""


class LayerTimes:
    """Medians of all times, and statistics of them."""

    def __init__(self, measurements: Measurements) -> None:
        self.widths: list[int] = measurements["widths"]
        self.lengths: list[int] = measurements["lengths"]
        self.n_rounds = min(len(each["seconds"]) for each in measurements["times"])
        self.medians = {
            TimingCase(each["layer"], each["passes"], each["width"], each["length"]): median(each["seconds"])
            for each in measurements["times"]
        }
        slowdowns = [median(each["seconds"]) / max(min(each["seconds"]), 1e-12) for each in measurements["times"]]
        self.noise = float(quantiles(slowdowns, n=4)[2])

    @property
    def is_noisy(self) -> bool:
        """True if other load disturbed the times."""
        return self.noise > MAX_NOISE

    @property
    def fitted_lengths(self) -> list[int]:
        """Lengths over which exponents are fitted."""
        return [int(length) for length in larger_half(self.lengths)]

    def median_times(self, layer: str, passes: str, width: int) -> list[float]:
        """Return the median seconds at every length."""
        return [self.medians[TimingCase(layer, passes, width, length)] for length in self.lengths]

    def fit_length_exponent(self, layer: str, passes: str, width: int) -> PowerLawFit:
        """Fit the exponent of n over the longer half of the lengths."""
        return fit_power_law(self.fitted_lengths, larger_half(self.median_times(layer, passes, width)))

    def fit_length_exponent_above_offset(self, layer: str, passes: str, width: int) -> PowerLawFit:
        """Fit the exponent of n to the time above that of short sequences, which is mostly call overhead."""
        return fit_power_law_above_offset(self.lengths, self.median_times(layer, passes, width))

    def expected_exponent(self, layer: str, width: int) -> float:
        """Return the exponent above the offset if time were proportional to operations."""
        return fit_power_law_above_offset(
            self.lengths, [count_operations(layer, length, width) for length in self.lengths]
        ).exponent

    def fit_width_exponent(self, layer: str, passes: str) -> PowerLawFit:
        """Fit the exponent of d at the longest length."""
        longest = self.lengths[-1]
        return fit_power_law(
            self.widths, [self.medians[TimingCase(layer, passes, width, longest)] for width in self.widths]
        )

    def time_ratios_to_lstm(self, layer: str, passes: str, width: int) -> dict[int, float]:
        """Return the ratio of a layer's time to the LSTM's, by length."""
        times, lstm_times = (self.median_times(each, passes, width) for each in (layer, LSTM_LAYER))
        return {length: own / lstm for length, own, lstm in zip(self.lengths, times, lstm_times, strict=True)}
