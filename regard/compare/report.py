"""The report of a comparison: one HTML page that needs no network and no other file, figures included."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from regard.compare.directory import ExperimentResult
from regard.compare.experiment import Experiment, ExperimentSummary, Finding, ResultTable
from regard.compare.terminal import is_numeric

FinishedExperiments = Mapping[str, tuple[Experiment, ExperimentResult, Path]]
"""Parts that have ended, with the places of their figures."""


def render_report(experiments: FinishedExperiments) -> str:
    """The whole page."""
    shown = {name: (part, part.summarise(kept.found)) for name, (part, kept, _) in experiments.items()}
    filled = {
        "style": _read_asset("report.css"),
        "summary": "\n".join(_render_summary(name, *each) for name, each in shown.items()),
        "parts": "\n".join(
            _render_experiment(name, part, shown[name][1], kept, figure)
            for name, (part, kept, figure) in experiments.items()
        ),
        "machine": _render_environment([kept for _, kept, _ in experiments.values()]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], _read_asset("report.html"))


def _render_summary(name: str, experiment: Experiment, summary: ExperimentSummary) -> str:
    """A line of the table of contents: the part, and how many of its claims held."""
    counts = {verdict: sum(each.verdict == verdict for each in summary.findings) for verdict in VERDICT_CSS_CLASSES}
    marks = "".join(_render_badge(verdict, f"{n} {verdict}") for verdict, n in counts.items() if n)
    return f'<a class="card" href="#{name}"><b>{escape(experiment.title)}</b><span class="marks">{marks}</span></a>'


VERDICT_CSS_CLASSES = {"held": "yes", "did not hold": "no", "cannot tell": "open"}
"""The class of each verdict in the style sheet."""


def _render_badge(verdict: str, text: str) -> str:
    return f'<span class="badge {VERDICT_CSS_CLASSES[verdict]}">{escape(text)}</span>'


def _render_experiment(
    name: str, experiment: Experiment, summary: ExperimentSummary, result: ExperimentResult, figure: Path
) -> str:
    """A section: what is claimed, what came of it, the figure, the tables, how it was measured."""
    rows = "\n".join(map(_render_finding, summary.findings))
    tables = "\n".join(map(_render_table, summary.tables))
    return f"""<section id="{name}">
<h2>{escape(experiment.title)}</h2>
<blockquote><p>{_escape_text(experiment.claim)}</p><cite>{escape(experiment.source)}</cite></blockquote>
<ul class="findings">{rows}</ul>
{_render_figure(experiment, figure)}
{tables}
<h3>How it was measured</h3>
<p class="method">{escape(summary.method)}</p>
<p class="method">{result.seconds:,.0f} seconds. All numbers are in {escape(name)}.json.</p>
</section>"""


def _escape_text(words: str) -> str:
    """Words as HTML; a formula is not broken at the end of a line."""
    return re.sub(r"O\([^)]*\)|[nd] [=<] \d+", lambda found: found[0].replace(" ", "\u00a0"), escape(words))


def _render_finding(finding: Finding) -> str:
    said = f"<b>{_escape_text(finding.claim)}</b><br>{_escape_text(finding.evidence_sentence)}"
    return f"<li>{_render_badge(finding.verdict, finding.verdict)}<div>{said}</div></li>"


def _render_figure(experiment: Experiment, figure: Path) -> str:
    """The figure inside the page; nothing where it could not be drawn."""
    if not figure.exists():
        return ""
    inside = base64.b64encode(figure.read_bytes()).decode()
    return f'<figure><img alt="{escape(experiment.title)}" src="data:image/png;base64,{inside}"></figure>'


def _render_table(table: ResultTable) -> str:
    numeric = [is_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    head = _render_cells("th", table.columns, numeric)
    body = "\n".join(f"<tr>{_render_cells('td', row, numeric)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"""<h3>{escape(table.title)}</h3>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"""


def _render_cells(tag: str, texts: Sequence[str], numeric: Sequence[bool]) -> str:
    kinds = (' class="number"' if number else "" for number in numeric)
    return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(texts, kinds, strict=True))


def _render_environment(results: Sequence[ExperimentResult]) -> str:
    """The facts of all parts; those that differ between parts, each."""
    names = dict.fromkeys(name for each in results for name in each.machine)
    facts = {name: _join_distinct(each.machine.get(name, "") for each in results) for name in names}
    facts["command"] = _join_distinct(each.command for each in results)
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())


def _join_distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _read_asset(name: str) -> str:
    return (files("regard.compare") / "page" / name).read_text(encoding="utf-8")
