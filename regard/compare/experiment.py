"""The interface of an experiment: settings, measurements, and the tables and findings computed from them.

An experiment measures once and stores numbers alone (`Measurements`, ready for JSON); tables, findings and figures are
computed from those, so they can be computed again without measuring. A finding follows from the numbers: if a claim did
not hold, it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Measurements = dict[str, Any]
"""All numbers of an experiment, as stored in JSON."""

Pace = Literal["quick", "full"]


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of a comparison; together with the machine they determine every measurement."""

    out: Path
    pace: Pace = "full"
    seed: int = 0
    device: str = "auto"
    data: tuple[str, ...] = ()
    tagged: str = ""
    labelled: str = ""
    questions: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the settings that must be equal for finished experiments to be reused."""
        return {
            "pace": self.pace,
            "seed": self.seed,
            "device": self.device,
            "data": list(self.data),
            "tagged": self.tagged,
            **{name: path for name, path in (("labelled", self.labelled), ("questions", self.questions)) if path},
        }

    @property
    def report_path(self) -> Path:
        """Path of the report."""
        return self.out / "report.html"


@dataclass(frozen=True)
class Finding:
    """A claim, its verdict here (None: the measurements cannot decide), and the numbers behind it."""

    claim: str
    held: bool | None
    evidence: str

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "held", False: "did not hold", None: "cannot tell"}[self.held]

    @property
    def evidence_sentence(self) -> str:
        """The evidence with a capital letter."""
        return self.evidence[:1].upper() + self.evidence[1:]


@dataclass(frozen=True)
class ResultTable:
    """A table: column names, and rows of cells as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class ExperimentSummary:
    """Findings and tables of an experiment, and the method of measurement in words."""

    method: str
    findings: Sequence[Finding]
    tables: Sequence[ResultTable]


class Experiment(NamedTuple):
    """One experiment: `measure` takes minutes; `summarise` and `plot` need its measurements alone.

    `measure` also gets the measurements of earlier experiments, those in `depends_on` among them.
    """

    title: str
    claim: str
    source: str
    measure: Callable[[ComparisonSettings, Mapping[str, Measurements]], Measurements]
    summarise: Callable[[Measurements], ExperimentSummary]
    plot: Callable[[Measurements, Path], Path]
    depends_on: tuple[str, ...] = ()


def weigh_evidence(supports: bool, refutes: bool) -> bool | None:
    """Return True if the evidence only supports a claim, False if it only refutes it, otherwise None."""
    return True if supports and not refutes else False if refutes and not supports else None


def combine_verdicts(verdicts: Iterable[bool | None]) -> bool | None:
    """Return False if any verdict is False, True if all are True, otherwise None."""
    distinct = set(verdicts)
    return False if False in distinct else None if None in distinct else True
