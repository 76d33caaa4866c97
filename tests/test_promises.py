"""docs/promises.md: every promise names its tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from regard.cli import main
from regard.errors import CheckpointError, DataError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def list_promises(page: str) -> list[str]:
    """Return the items of all lists of a page, each with the lines that continue it."""
    return re.findall(r"^- .*\n(?:  .*\n)*", page, re.MULTILINE)


def defined_tests(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", list_promises(PAGE), ids=lambda promise: promise[2:40])
def test_every_promise_names_its_tests(promise: str) -> None:
    assert TEST.search(promise), promise


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PAGE))))
def test_every_named_test_exists(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in defined_tests(ROOT / path)


def test_nothing_on_the_page_but_promises_begins_like_one() -> None:
    assert len(list_promises(PAGE)) == PAGE.count("\n- ") > 25
    assert PAGE.count("tests/") == len(TEST.findall(PAGE))


def test_messages_hold_no_commands_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x9b31m\r\nerror: another\u202e"
    for message in (str(CheckpointError(hostile)), str(DataError("x.txt", hostile))):
        assert message.isprintable()
    with pytest.raises(SystemExit):
        main([hostile])
    printed = capsys.readouterr().err
    assert printed.removesuffix("\n").isprintable()
    assert r"'\x1b[2J\x9b31m\r\nerror: another\u202e'" in printed
