"""The comparison of another engine's outputs with regard's, which refuses an export that differs beyond rounding.

Values are compared at all positions of tokens, relative to the largest. Text that is generated must be the same, except
where two tokens are so near each other that rounding decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from regard.errors import InputError

ROUNDING = {"": 1e-4, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""The largest difference that is rounding, for values up to 1, by the type of the numbers."""

LARGEST_QUANTIZATION_ERROR = 0.5
"""The root mean square of the error by 8-bit weights, relative to the deviation of the values, that is accepted."""

Array = np.ndarray | Tensor


@dataclass
class Comparison:
    """The differences of one export so far: the largest of each output, or the error of each by quantization."""

    engine: str
    quantization: str = ""
    largest: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def is_rounded(self) -> bool:
        """Return True if the weights are floating-point numbers, so that nothing but rounding may differ."""
        return self.quantization in ROUNDING

    @property
    def tolerance(self) -> float:
        """The difference that is rounding, for values up to 1."""
        return ROUNDING[self.quantization]

    def check_values(self, name: str, ours: Iterable[Array], theirs: Iterable[Array]) -> None:
        """Compare arrays of one output; refuse another shape, values that are not finite, or a large difference."""
        pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(ours, theirs, strict=True)]
        for own, other in pairs:
            if own.shape != other.shape:
                raise self._refusal(f"{name} has the shape {other.shape}, here {own.shape}")
            if not np.isfinite(other).all():
                raise self._refusal(f"{name} has values that are not finite numbers")
        own, other = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
        difference = np.abs(own - other)
        self.largest[name] = max(self.largest.get(name, 0.0), float(difference.max(initial=0.0)))
        if self.is_rounded:
            limit = self.tolerance * max(1.0, float(np.abs(own).max(initial=0.0)))
            if self.largest[name] > limit:
                raise self._refusal(f"{name} differs by {self.largest[name]:.2g}, expected at most {limit:.2g}")
            return
        self.errors[name] = float(np.sqrt(np.mean(difference**2)) / max(own.std(), 1e-12))
        if self.errors[name] > LARGEST_QUANTIZATION_ERROR:
            raise self._refusal(
                f"{name} has an error of {self.errors[name]:.0%} by {self.quantization} weights, "
                f"expected at most {LARGEST_QUANTIZATION_ERROR:.0%}; leave --quantization out"
            )

    def check_tokens(self, name: str, ours: Sequence[int], theirs: Sequence[int], gap: float | None) -> None:
        """Refuse generated tokens that differ where `gap`, the difference of their scores, is not rounding."""
        if gap is not None and self.is_rounded and gap > self.tolerance:
            raise self._refusal(f"{name} gives the tokens {list(theirs)[:8]}..., here {list(ours)[:8]}...")

    def _refusal(self, difference: str) -> InputError:
        return InputError(f"{self.engine}: not the same model: {difference}; nothing was written")

    def summary(self) -> str:
        """Return a one-line summary of the comparison."""
        return ", ".join(f"{name} {value:.1e}" for name, value in self.largest.items())


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the index of the first token that differs, also where one sequence ends; None if all are the same."""
    for index, (own, other) in enumerate(zip(ours, theirs, strict=False)):
        if own != other:
            return index
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
