"""The report of a comparison: one self-contained HTML page with embedded figures."""

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
"""Finished experiments with their results and the paths of their figures."""


def render_report(experiments: FinishedExperiments) -> str:
    """Return the HTML of the page."""
    summaries = {key: experiment.summarise(result.measurements) for key, (experiment, result, _) in experiments.items()}
    values = {
        "style": _read_asset("report.css"),
        "summary": "\n".join(_render_summary(key, experiments[key][0], each) for key, each in summaries.items()),
        "parts": "\n".join(
            _render_experiment(key, experiment, summaries[key], result, figure)
            for key, (experiment, result, figure) in experiments.items()
        ),
        "machine": _render_environment([result for _, result, _ in experiments.values()]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _read_asset("report.html"))


def _render_summary(name: str, experiment: Experiment, summary: ExperimentSummary) -> str:
    """Render a line of the table of contents: the experiment and the number of claims per verdict."""
    counts = {verdict: sum(each.verdict == verdict for each in summary.findings) for verdict in VERDICT_CSS_CLASSES}
    marks = "".join(_render_badge(verdict, f"{n} {verdict}") for verdict, n in counts.items() if n)
    return f'<a class="card" href="#{name}"><b>{escape(experiment.title)}</b><span class="marks">{marks}</span></a>'


VERDICT_CSS_CLASSES = {"held": "yes", "did not hold": "no", "cannot tell": "open"}
"""CSS class of each verdict."""


def _render_badge(verdict: str, text: str) -> str:
    return f'<span class="badge {VERDICT_CSS_CLASSES[verdict]}">{escape(text)}</span>'


def _render_experiment(
    name: str, experiment: Experiment, summary: ExperimentSummary, result: ExperimentResult, figure: Path
) -> str:
    """Render a section: claim, findings, figure, tables, method."""
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
    """Escape text for HTML; spaces inside formulas do not break lines."""
    return re.sub(r"O\([^)]*\)|[nd] [=<] \d+", lambda match: match[0].replace(" ", "\u00a0"), escape(words))


def _render_finding(finding: Finding) -> str:
    text = f"<b>{_escape_text(finding.claim)}</b><br>{_escape_text(finding.evidence_sentence)}"
    return f"<li>{_render_badge(finding.verdict, finding.verdict)}<div>{text}</div></li>"


def _render_figure(experiment: Experiment, figure: Path) -> str:
    """Embed the figure; return an empty string if there is none."""
    if not figure.exists():
        return ""
    encoded = base64.b64encode(figure.read_bytes()).decode()
    return f'<figure><img alt="{escape(experiment.title)}" src="data:image/png;base64,{encoded}"></figure>'


def _render_table(table: ResultTable) -> str:
    numeric = [is_numeric([row[column] for row in table.rows]) for column in range(len(table.columns))]
    head = _render_cells("th", table.columns, numeric)
    body = "\n".join(f"<tr>{_render_cells('td', row, numeric)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"""<h3>{escape(table.title)}</h3>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"""


def _render_cells(tag: str, texts: Sequence[str], numeric: Sequence[bool]) -> str:
    kinds = (' class="number"' if number else "" for number in numeric)
    return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(texts, kinds, strict=True))


def _render_environment(results: Sequence[ExperimentResult]) -> str:
    """Render the machine and versions of all experiments; values that differ are listed."""
    names = dict.fromkeys(name for each in results for name in each.machine)
    facts = {name: _join_distinct(each.machine.get(name, "") for each in results) for name in names}
    facts["command"] = _join_distinct(each.command for each in results)
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())


def _join_distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _read_asset(name: str) -> str:
    return (files("regard.compare") / "page" / name).read_text(encoding="utf-8")
