"""The notebook of the documentation: every cell runs, and results are displayed as HTML."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> object:
    """Execute a cell and return the value of its last expression, which a notebook displays."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_notebook_runs_and_displays_html(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells]
    *_, model, text, inspection, shape = shown
    assert repr(model).startswith("Translator('run', ")
    assert text == "3 2 1"
    html = inspection._repr_html_()  # type: ignore[attr-defined]
    assert html.startswith("<iframe")
    assert tuple(shape) == (1, 2, 6, 6)  # type: ignore[arg-type]
    assert all(cell["outputs"] == [] for cell in cells), "clear the outputs before committing the notebook"
