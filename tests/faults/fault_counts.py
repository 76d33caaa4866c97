"""The counts of a fault campaign by outcome, which every campaign returns."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from isolation import Ended

FAULTS = ("lost", "silent", "tracebacks", "hangs", "memory_excess")
"""Outcomes that must not be: work or data lost, damage not noticed, a traceback, no end, too much memory."""

PROGRESS_SECONDS = 20.0
"""Time between two lines of progress."""


@dataclass
class FaultCounts:
    """Counts of cases by outcome; each fault is printed at once, to the stderr of when the campaign began."""

    name: str = "fuzz"
    cases: int = 0
    lost: int = 0
    silent: int = 0
    tracebacks: int = 0
    hangs: int = 0
    memory_excess: int = 0
    details: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    stream: TextIO = field(default_factory=lambda: sys.stderr, repr=False)
    _reported: float = field(default_factory=time.monotonic, repr=False)

    def count_case(self, detail: str = "") -> None:
        """Count a case, and print now and then how many there were."""
        self.cases += 1
        if detail:
            self.add_detail(detail)
        if time.monotonic() - self._reported > PROGRESS_SECONDS:
            self._reported = time.monotonic()
            print(f"{self.name}: {self.cases:,} cases, {len(self.faults)} faults", file=self.stream, flush=True)

    def add_detail(self, name: str) -> None:
        self.details[name] = self.details.get(name, 0) + 1

    def add_fault(self, outcome: str, description: str) -> None:
        """Count a case that went wrong."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.faults.append(f"{outcome}: {description}")
        print(f"{self.name}: {self.faults[-1]}", file=self.stream, flush=True)

    def add(self, name: str, ended: Ended) -> None:
        """Count an isolated call: anything but success, or one line of error and status 2, is a fault."""
        outcome = ended.outcome
        self.count_case("" if outcome in FAULTS else outcome)
        if outcome in FAULTS:
            tail = ended.err.strip()[-600:]
            self.add_fault(outcome, f"{name}: status {ended.status}, {ended.memory_bytes >> 20} MiB: {tail}")
