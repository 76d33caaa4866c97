"""An experiment in the terminal: its tables and findings as plain text."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from regard.compare.experiment import Experiment, ExperimentSummary, ResultTable


def format_experiment(experiment: Experiment, summary: ExperimentSummary, width: int | None = None) -> Iterator[str]:
    """Yield the lines of an experiment: claim, tables, findings."""
    columns = width or min(120, shutil.get_terminal_size().columns)
    yield experiment.title
    yield from textwrap.wrap(f"{experiment.claim} ({experiment.source})", columns)
    for table in summary.tables:
        yield from ("", *format_table(table))
        yield from textwrap.wrap(table.note, columns)
    yield ""
    for finding in summary.findings:
        text = f"{finding.verdict:<13} {finding.claim} {finding.evidence_sentence}"
        yield from textwrap.wrap(text, columns, subsequent_indent=" " * 14)
    yield ""


def format_table(table: ResultTable) -> Iterator[str]:
    """Yield the lines of a table: words aligned left, numbers right."""
    rows = [list(table.columns), *map(list, table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
    numeric = [is_numeric([row[column] for row in table.rows]) for column in range(len(table.columns))]
    yield table.title
    for row in rows:
        cells = zip(row, widths, numeric, strict=True)
        yield "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells).rstrip()


def is_numeric(cells: Sequence[str]) -> bool:
    """Return True if a column holds numbers: every cell that is not empty begins with a digit or a sign."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(cell[0].isdigit() or cell[0] in "-+" for cell in filled)
