"""What every part of a comparison is made of: what was asked for, what was found, and what that shows.

A part measures once and keeps numbers alone (`Found`, ready for JSON); tables, findings and figures are made of those
numbers, so they can be made again without measuring. A finding is worked out from the numbers: where a claim did not
hold, it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Measurements = dict[str, Any]
"""All numbers of a part, as JSON holds them."""

Pace = Literal["quick", "full"]


@dataclass(frozen=True)
class ComparisonSettings:
    """What was asked for; with the machine, it decides every number."""

    out: Path
    pace: Pace = "full"
    seed: int = 0
    device: str = "auto"
    data: tuple[str, ...] = ()
    tagged: str = ""

    def to_json(self) -> dict[str, Any]:
        """What must be the same where finished parts are taken over."""
        return {
            "pace": self.pace,
            "seed": self.seed,
            "device": self.device,
            "data": list(self.data),
            "tagged": self.tagged,
        }

    @property
    def report_path(self) -> Path:
        """The page of all parts."""
        return self.out / "report.html"


@dataclass(frozen=True)
class Finding:
    """A claim, whether it held here (None: these numbers cannot tell), and the numbers that say so."""

    claim: str
    held: bool | None
    evidence: str

    @property
    def verdict(self) -> str:
        """One word or two."""
        return {True: "held", False: "did not hold", None: "cannot tell"}[self.held]

    @property
    def evidence_sentence(self) -> str:
        """The numbers, as a sentence of their own."""
        return self.evidence[:1].upper() + self.evidence[1:]


@dataclass(frozen=True)
class ResultTable:
    """Rows of texts under the names of their columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class ExperimentSummary:
    """What the numbers of a part show; `method` says how they were measured."""

    method: str
    findings: Sequence[Finding]
    tables: Sequence[ResultTable]


class Experiment(NamedTuple):
    """One part: `measure` takes minutes, `show` and `draw` need nothing but what it found.

    `measure` is also given what the parts before it found, those it `needs` among them.
    """

    title: str
    claim: str
    source: str
    measure: Callable[[ComparisonSettings, Mapping[str, Measurements]], Measurements]
    summarise: Callable[[Measurements], ExperimentSummary]
    plot: Callable[[Measurements, Path], Path]
    depends_on: tuple[str, ...] = ()


def weigh_evidence(supports: bool, refutes: bool) -> bool | None:
    """True where only the first is so, False where only the second is, None where neither or both are."""
    return True if supports and not refutes else False if refutes and not supports else None


def combine_verdicts(verdicts: Iterable[bool | None]) -> bool | None:
    """False where one of them is, True where all are, else None."""
    found = set(verdicts)
    return False if False in found else None if None in found else True
