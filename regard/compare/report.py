"""The report of a comparison: one HTML page that needs no network and no other file, figures included."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from regard.compare.folder import Kept
from regard.compare.part import Finding, Part, Shown, Table
from regard.compare.plain import is_numeric

Parts = Mapping[str, tuple[Part, Kept, Path]]
"""Parts that have ended, with the places of their figures."""


def report(parts: Parts) -> str:
    """The whole page."""
    shown = {name: (part, part.show(kept.found)) for name, (part, kept, _) in parts.items()}
    filled = {
        "style": _asset("report.css"),
        "summary": "\n".join(_summary(name, *each) for name, each in shown.items()),
        "parts": "\n".join(
            _part(name, part, shown[name][1], kept, figure) for name, (part, kept, figure) in parts.items()
        ),
        "machine": _machine([kept for _, kept, _ in parts.values()]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], _asset("report.html"))


def _summary(name: str, part: Part, shown: Shown) -> str:
    """A line of the table of contents: the part, and how many of its claims held."""
    counts = {verdict: sum(each.verdict == verdict for each in shown.findings) for verdict in KINDS}
    marks = "".join(_badge(verdict, f"{n} {verdict}") for verdict, n in counts.items() if n)
    return f'<a class="card" href="#{name}"><b>{escape(part.title)}</b><span class="marks">{marks}</span></a>'


KINDS = {"held": "yes", "did not hold": "no", "cannot tell": "open"}
"""The class of each verdict in the style sheet."""


def _badge(verdict: str, text: str) -> str:
    return f'<span class="badge {KINDS[verdict]}">{escape(text)}</span>'


def _part(name: str, part: Part, shown: Shown, kept: Kept, figure: Path) -> str:
    """A section: what is claimed, what came of it, the figure, the tables, how it was measured."""
    rows = "\n".join(map(_finding, shown.findings))
    tables = "\n".join(map(_table, shown.tables))
    return f"""<section id="{name}">
<h2>{escape(part.title)}</h2>
<blockquote><p>{_text(part.claim)}</p><cite>{escape(part.source)}</cite></blockquote>
<ul class="findings">{rows}</ul>
{_figure(part, figure)}
{tables}
<h3>How it was measured</h3>
<p class="method">{escape(shown.method)}</p>
<p class="method">{kept.seconds:,.0f} seconds. All numbers are in {escape(name)}.json.</p>
</section>"""


def _text(words: str) -> str:
    """Words as HTML; a formula is not broken at the end of a line."""
    return re.sub(r"O\([^)]*\)|[nd] [=<] \d+", lambda found: found[0].replace(" ", "\u00a0"), escape(words))


def _finding(finding: Finding) -> str:
    said = f"<b>{_text(finding.claim)}</b><br>{_text(finding.reason)}"
    return f"<li>{_badge(finding.verdict, finding.verdict)}<div>{said}</div></li>"


def _figure(part: Part, figure: Path) -> str:
    """The figure inside the page; nothing where it could not be drawn."""
    if not figure.exists():
        return ""
    inside = base64.b64encode(figure.read_bytes()).decode()
    return f'<figure><img alt="{escape(part.title)}" src="data:image/png;base64,{inside}"></figure>'


def _table(table: Table) -> str:
    numeric = [is_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    head = _cells("th", table.columns, numeric)
    body = "\n".join(f"<tr>{_cells('td', row, numeric)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"""<h3>{escape(table.title)}</h3>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"""


def _cells(tag: str, texts: Sequence[str], numeric: Sequence[bool]) -> str:
    kinds = (' class="number"' if number else "" for number in numeric)
    return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(texts, kinds, strict=True))


def _machine(kept: Sequence[Kept]) -> str:
    """The facts of all parts; those that differ between parts, each."""
    names = dict.fromkeys(name for each in kept for name in each.machine)
    facts = {name: _distinct(each.machine.get(name, "") for each in kept) for name in names}
    facts["command"] = _distinct(each.command for each in kept)
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())


def _distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _asset(name: str) -> str:
    return (files("regard.compare") / "page" / name).read_text(encoding="utf-8")
