"""Labels of a run, ``labels.json``: names and counts, or the scale of scores, and whether texts come in pairs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.disk import read_bytes, write_json
from regard.errors import CheckpointError, InputError, has_surrogate

LABELS_FILE = "labels.json"


class ScoreScaler(NamedTuple):
    """Mean and standard deviation of the training scores, by which scores are standardised."""

    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def from_counts(cls, counts: Mapping[float, int]) -> ScoreScaler:
        """Return the scaler of scores, given how often each occurs."""
        n = sum(counts.values())
        mean = math.fsum(score * times for score, times in counts.items()) / n
        variance = math.fsum((score - mean) ** 2 * times for score, times in counts.items()) / n
        return cls(mean, math.sqrt(variance))

    def standardise(self, scores: Float[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
        """Return standardised scores."""
        standard: np.ndarray = ((scores.astype(np.float64) - self.mean) / self.deviation).astype(np.float32)
        return standard

    def unstandardise(self, outputs: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return a model's outputs in the units of the training scores."""
        return outputs * self.deviation + self.mean


IDENTITY_SCALER = ScoreScaler()


@dataclass(frozen=True)
class Labels:
    """Labels in order of their numbers, or the scale of scores; counts, and `paired`, where they are known."""

    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    paired: bool | None = None
    scale: ScoreScaler = IDENTITY_SCALER

    @classmethod
    def from_occurrences(cls, labels: Iterable[str], *, paired: bool | None = None) -> Labels:
        """Return the distinct labels, sorted: numbers as numbers, others as text."""
        counted = Counter(labels)
        names = tuple(sorted(counted, key=_sort_key))
        return cls(names, tuple(counted[name] for name in names), paired)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _index_by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """Return the index of a label."""
        if problem := self.describe_unknown(name):
            raise InputError(problem)
        return self._index_by_name[name]

    def describe_unknown(self, name: str) -> str:
        """Return the message about a label absent from training; the empty string for others."""
        if name in self._index_by_name:
            return ""
        unknown = f"the label '{name[:40]}' does not occur in the training data; known: {self.format_names()}"
        return f"{unknown}; correct it, leave it out, or train with examples of it"

    def format_names(self, max_names: int = 12) -> str:
        """Return the labels in one line; of many, the first."""
        return ", ".join(self.names[:max_names]) + (f", ... ({len(self)} in all)" if len(self) > max_names else "")

    def describe_pair_mismatch(self, pair: str) -> str:
        """Return the kind of input that a model was trained on, if `pair` is not of that kind; else ""."""
        if self.paired in (None, bool(pair)):
            return ""
        return "pairs of texts" if self.paired else "single texts"

    def save(self, directory: Path) -> None:
        paired = {} if self.paired is None else {"paired": self.paired}
        scale = {} if self.scale == IDENTITY_SCALER else self.scale._asdict()
        write_json(
            directory / LABELS_FILE, {"labels": list(self.names), "counts": list(self.counts), **paired, **scale}
        )

    @classmethod
    def load(cls, directory: Path) -> Labels:
        """Return the labels that `save` wrote."""
        path = directory / LABELS_FILE
        if not path.exists():
            raise CheckpointError(f"{path}: no such file; restore it from a copy")
        try:
            labels = _parse_labels(read_bytes(path).decode())
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise CheckpointError(f"{path}: damaged; restore it from a copy") from None
        return labels


def _parse_labels(text: str) -> Labels:
    """Parse the content of a file; raise an error that `Labels.load` catches if it is damaged."""
    parsed: Any = json.loads(text)
    names, counts, paired = parsed["labels"], parsed.get("counts", []), parsed.get("paired")
    if not isinstance(names, list) or not all(isinstance(name, str) and not has_surrogate(name) for name in names):
        raise ValueError(text)
    if not isinstance(paired, bool | None):
        raise ValueError(text)
    if not all(type(count) is int and count > 0 for count in counts) or len(counts) not in (0, len(names)):
        raise ValueError(text)
    scale = ScoreScaler(*(float(parsed.get(key, default)) for key, default in IDENTITY_SCALER._asdict().items()))
    if not (math.isfinite(scale.mean) and 0 < scale.deviation < math.inf):
        raise ValueError(text)
    return Labels(tuple(names), tuple(counts), paired, scale)


def _sort_key(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        return 1, 0.0, name
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)
