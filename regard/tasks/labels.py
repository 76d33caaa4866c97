"""The labels of a task, each with its number, and how often it was there in training: what ``labels.json`` holds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.disk import write_json
from regard.errors import CheckpointError, InputError

FILE = "labels.json"


@dataclass(frozen=True)
class Labels:
    """Labels in order of their numbers; counts where they are known."""

    names: tuple[str, ...]
    counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, found: Iterable[str]) -> Labels:
        """All different ones, sorted: numbers as numbers, others as text."""
        counted = Counter(found)
        names = tuple(sorted(counted, key=_as_number))
        return cls(names, tuple(counted[name] for name in names))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def number(self, name: str) -> int:
        """The number of a label."""
        if name not in self._numbers:
            raise InputError(f"the label '{name[:40]}' was not there in training; known: {self.shown()}")
        return self._numbers[name]

    def shown(self, most: int = 12) -> str:
        """The labels in a line; of many, the first."""
        return ", ".join(self.names[:most]) + (f", ... ({len(self)} in all)" if len(self) > most else "")

    def save(self, directory: Path) -> None:
        write_json(directory / FILE, {"labels": list(self.names), "counts": list(self.counts)})

    @classmethod
    def load(cls, directory: Path) -> Labels:
        """Those that `save` wrote."""
        path = directory / FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            names, counts = found["labels"], tuple(found.get("counts", ()))
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no such file; restore it from a copy") from None
        except (ValueError, KeyError, TypeError):
            names, counts = None, ()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CheckpointError(f"{path}: damaged; restore it from a copy")
        return cls(tuple(names), counts)


def _as_number(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        return 1, 0.0, name
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)
