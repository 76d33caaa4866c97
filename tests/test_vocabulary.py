"""The field's words: names that version 0.1 had coined stay gone, and docstrings say what is returned or done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for folder in ("regard", "bench", "tests") for path in (ROOT / folder).rglob("*.py"))

# fmt: off
COINED = {
    "Sight", "Place", "Within", "Memory", "Cache", "Slots", "Recording", "Recorded", "FixedProduct", "Marks",
    "Signs", "Manner", "Way", "Change", "Pen", "Writing", "Writer", "Reading", "Labelling", "Single",
    "PairModel", "NextModel", "TextModel", "PAIRS", "NEXT", "TEXTS", "PartedRows", "NextBatch", "RHYTHM",
    "Frame", "Subject", "Seen", "Sheet", "Shown", "Need", "How", "Asked", "Found", "Part", "sight", "remember",
    "memories", "become", "one_query", "short_rows", "long_rows", "within_rows", "few_rows", "loss_rows",
    "heard", "signs", "habits", "usual", "how", "told", "there", "apart", "around", "at_once", "together",
    "of_itself",
}
# fmt: on
"""Names of 0.1 that are renamed or forbidden; "memory" and "turn" are words of the field too."""

COINED_LOCALS = {"share", "pieces", "piece", "room", "visible", "following", "turned", "allowed", "live"}
"""Names for what the field calls fraction, subwords, capacity, mask, labels, rotated and active."""

VAGUE = {"found", "made", "said", "shown", "place", "told", "asked", "blank"}
"""Names that do not say what they hold; tests compare what was found with what was expected."""

QUESTION = re.compile(r"(What|How|Which|Whether|Where|Who|Whose|When|Tell whether|Report whether)\b")


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every name that a file defines, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_coined_name_is_left(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [(line, name) for line, name in names(tree) if name in COINED] == []


@pytest.mark.parametrize("path", [p for p in FILES if "tasks" not in p.parts], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_coined_name_of_a_local_is_left(path: Path) -> None:
    forbidden = COINED_LOCALS if path.is_relative_to(ROOT / "tests") else COINED_LOCALS | VAGUE
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [(line, name) for line, name in names(tree) if name in forbidden] == []


@pytest.mark.parametrize("path", [p for p in FILES if "tests" not in p.parts], ids=lambda p: str(p.relative_to(ROOT)))
def test_docstrings_say_what_is_returned_or_done(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [(line, text[:60]) for line, text in docstrings(tree) if QUESTION.match(text)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_papers_are_cited_not_our_specification(path: Path) -> None:
    assert path == Path(__file__) or not re.search(r"\bSPEC \d", path.read_text(encoding="utf-8"))
