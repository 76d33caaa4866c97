"""The field's words: names that version 0.1 had coined stay gone, and docstrings say what is returned or done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

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

COINED_LOCALS = {"share", "shares", "pieces", "piece", "room", "visible", "following", "turned", "allowed", "live"}
"""Names for what the field calls fraction, subwords, capacity, mask, labels, rotated and active."""

COINED_PARTS = {"piece", "pieces", "turned", "parted", "busy"}
"""Words of 0.1 that no name contains, not even one of several words: subwords or blocks, rotated, separated, in use."""

VAGUE = {"found", "made", "said", "shown", "place", "told", "asked", "blank"}
"""Names that do not say what they hold."""

ALLOWED_IN_TESTS = {"found", "shown", "place", "asked"}
"""Tests compare what was found, or is shown, with what was expected or asked for, and go through places."""

QUESTION = re.compile(r"(What|How|Which|Whether|Where|Who|Whose|When|Tell whether|Report whether)\b")


def names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield every name that a file defines, with its line."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def docstrings(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes, functions and constants, with their lines."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((each.lineno, text) for each in node.body if (text := string_statement(each)))


def string_statement(node: ast.stmt) -> str:
    """Return the text of a string that stands alone, such as a docstring."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return node.value.value if is_text else ""  # type: ignore[attr-defined]


def forbidden_names(path: Path) -> set[str]:
    """Return the names that a file may not define: coined ones and vague ones, of which tests may use some."""
    return COINED | COINED_LOCALS | VAGUE - (ALLOWED_IN_TESTS if path.is_relative_to(ROOT / "tests") else set())


def is_forbidden(name: str, forbidden: set[str]) -> bool:
    """Return True for a forbidden name, and for one of several words that contains a coined one."""
    return name in forbidden or not COINED_PARTS.isdisjoint(name.split("_"))


def test_names_and_docstrings() -> None:
    """All files in one test, each parsed once: a test for each of them took longer than many others together."""
    problems = []
    for path in FILES:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        forbidden = forbidden_names(path)
        problems += [
            f"{path}:{line}: coined name {name}" for line, name in names(nodes) if is_forbidden(name, forbidden)
        ]
        if not path.is_relative_to(ROOT / "tests"):
            asked = [(line, text[:60]) for line, text in docstrings(nodes) if QUESTION.match(text)]
            problems += [f"{path}:{line}: say what is returned or done: {text}" for line, text in asked]
    assert len(FILES) > 400
    assert problems == []


def test_coined_names_and_questions_are_noticed() -> None:
    nodes = list(
        ast.walk(ast.parse('def usual(told: int) -> None:\n    """Whether."""\n    self.room, found = 1, 2\n'))
    )
    assert {name for _, name in names(nodes)} == {"usual", "told", "room", "found"}
    assert [text for _, text in docstrings(nodes) if QUESTION.match(text)] == ["Whether."]
    assert {"room", "usual"} <= forbidden_names(ROOT / "tests/test_x.py")
    assert "found" not in forbidden_names(ROOT / "tests/test_x.py")
    assert "found" in forbidden_names(ROOT / "regard/x.py")
    assert is_forbidden("first_piece", set())
    assert is_forbidden("room", {"room"})
    assert not is_forbidden("pierce", set())


def test_papers_are_cited_not_our_specification() -> None:
    cited = [path for path in FILES if re.search(r"\bSPEC \d", path.read_text(encoding="utf-8"))]
    assert cited == []
