"""A part in a terminal: its findings and its tables, as plain text."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from regard.compare.experiment import Experiment, ExperimentSummary, ResultTable


def format_experiment(experiment: Experiment, summary: ExperimentSummary, width: int | None = None) -> Iterator[str]:
    """The claim, what became of it, and the numbers."""
    columns = width or min(120, shutil.get_terminal_size().columns)
    yield experiment.title
    yield from textwrap.wrap(f"{experiment.claim} ({experiment.source})", columns)
    for table in summary.tables:
        yield from ("", *format_table(table))
        yield from textwrap.wrap(table.note, columns)
    yield ""
    for finding in summary.findings:
        said = f"{finding.verdict:<13} {finding.claim} {finding.evidence_sentence}"
        yield from textwrap.wrap(said, columns, subsequent_indent=" " * 14)
    yield ""


def format_table(table: ResultTable) -> Iterator[str]:
    """Columns beside each other: words from the left, numbers from the right."""
    rows = [list(table.columns), *map(list, table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    numbers = [is_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    yield table.title
    for row in rows:
        cells = zip(row, widths, numbers, strict=True)
        yield "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells).rstrip()


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers: all that is there begins with a digit or a sign."""
    there = [cell for cell in cells if cell]
    return bool(there) and all(cell[0].isdigit() or cell[0] in "-+" for cell in there)
