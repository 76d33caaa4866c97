"""Mutations and what becomes of them, on a toy project: with tests, without, and one that never ends."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutations import Mutation, draw_mutations, list_mutations
from tested_by import TESTED_BY, find_tests

PROJECT = Path(__file__).parents[2]

SOURCE = b'''"""A toy, with 3 words."""
from typing import Literal

LIMIT = 3


def count_down(n: Literal[1, 2, 3], step: int = 1) -> int:
    """Count from 9 down."""
    assert n > 0
    total = 0
    while n > 0:
        n -= step
        total = max(total, 0) + 1
    return total


def check(values: list[int], *, empty: bool = False) -> bool:
    if not values and not empty:
        raise ValueError(f"no values; expected {LIMIT + 1}")
    return sorted(values[: len(values)], key=lambda each: -each) == values


def untested(a: float, b: float) -> None:
    print(divmod(a, b), [x for x in range(LIMIT) if x])
'''
TESTS = """
from regard.toy import check, count_down

def test_count_down():
    assert [count_down(3), count_down(2, 2)] == [3, 1]

def test_check():
    assert check([3, 2, 1])
    assert not check([1, 2])
    assert check([], empty=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("regard", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "regard/__init__.py").touch()
    (tmp_path / "regard/toy.py").write_bytes(SOURCE)
    (tmp_path / "tests/test_toy.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    return tmp_path


def changes(mutations: list[Mutation]) -> set[tuple[int, str, str, str]]:
    return {(each.line, each.kind, SOURCE[each.start : each.end].decode(), each.after) for each in mutations}


def test_every_kind_of_mutation_is_listed() -> None:
    listed = changes(list(list_mutations("regard/toy.py", SOURCE)))
    assert listed >= {
        (4, "number", "3", "4"),
        (7, "default", "1", "0"),
        (11, "comparison", "n > 0", "(n >= 0)"),
        (12, "statement", "n -= step", "pass"),
        (13, "arithmetic", "max(total, 0) + 1", "(max(total, 0) - 1)"),
        (17, "default", "False", "True"),
        (18, "boolean", "not values and not empty", "(not values or not empty)"),
        (18, "negation", "not empty", "(empty)"),
        (18, "condition", "not values and not empty", "(not (not values and (not empty)))"),
        (20, "bound", "len(values)", "(len(values) - 1)"),
        (24, "arguments", "divmod(a, b)", "(divmod(b, a))"),
        (24, "condition", "x", "True"),
        (24, "return", "print(divmod(a, b), [x for x in range(LIMIT) if x])", "return"),
    }
    assert {line for line, *_ in listed} <= {4, 7, *range(10, 15), *range(17, 21), 24}, "no text, type or assertion"
    assert not any(before.startswith("max(total, 0)") and kind == "arguments" for _, kind, before, _ in listed)


def test_mutations_are_other_programs() -> None:
    programs = {mutation.apply(SOURCE) for mutation in list_mutations("regard/toy.py", SOURCE)}
    trees = {ast.dump(ast.parse(program)) for program in programs}
    assert len(trees) == len(programs) == len(list(list_mutations("regard/toy.py", SOURCE)))
    assert ast.dump(ast.parse(SOURCE)) not in trees


def test_the_seed_determines_what_is_drawn(project: Path) -> None:
    first, again, other = (draw_mutations(project, [project / "regard/toy.py"], 10, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 10
    assert {mutation.path for mutation in first} == {"regard/toy.py"}
    everything = draw_mutations(project, [project / "regard/toy.py"], 10**6, 0)
    assert set(everything) == set(list_mutations("regard/toy.py", SOURCE))


RUN = """
import sys
from pathlib import Path
import mutants
from mutations import list_mutations

project = Path(sys.argv[1])
mutants.PROJECT, mutants.OPTIONS, mutants.TIMEOUT = project, ("-x",), float(sys.argv[2])
wanted = {(7, "2"), (12, "pass"), (24, "return")}
listed = list_mutations("regard/toy.py", (project / "regard/toy.py").read_bytes())
chosen = [mutation for mutation in listed if (mutation.line, mutation.after) in wanted]
mutants.report(chosen, 2)
"""


def run_toy(project: Path, timeout: float = 5.0) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", RUN, str(project), str(timeout)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # which take longer than all else together
    return subprocess.run(run, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False)


def test_outcomes(project: Path) -> None:
    """A change that tests notice is caught, one they do not notice survives, and one that never ends is stopped."""
    ended = run_toy(project)
    lines = sorted(line.split(maxsplit=1)[1] for line in ended.stdout.splitlines()[:-1])
    assert [(line.split("  ")[0], line.split("toy.py:")[1].split(":")[0]) for line in lines] == [
        ("caught", "7"),
        ("survived", "24"),
        ("timed out", "12"),
    ], ended.stderr
    assert ended.stdout.splitlines()[-1] == "3 mutants: 1 caught, 1 timed out, 1 survived; 67% noticed"
    assert "(tests/test_toy.py::test_count_down)" in lines[0]
    assert (project / "regard/toy.py").read_bytes() == SOURCE


def test_tests_that_fail_anyway_catch_nothing(project: Path) -> None:
    (project / "tests/test_toy.py").write_text("def test_wrong():\n    assert 0\n")
    ended = run_toy(project)
    assert ended.returncode == 1
    assert ended.stderr == "error: tests/test_toy.py::test_wrong: fails without any change; mend it first\n"


def test_tests_that_are_slow_anyway_time_out_no_mutant(project: Path) -> None:
    (project / "tests/test_toy.py").write_text("import time\n\ndef test_slow():\n    time.sleep(60)\n")
    ended = run_toy(project, timeout=0.5)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: tests/test_toy.py: not done after 0.5 s without any change; raise TIMEOUT")


def test_tests_of_a_file() -> None:
    assert find_tests(PROJECT, "regard/nn/tap.py") == ("tests/test_defaults.py", "tests/nn/test_tap.py")
    tests = ("tests/training/test_schedule.py", "tests/training/test_optimiser.py")
    assert find_tests(PROJECT, "regard/training/schedule.py")[1:] == tests
    assert find_tests(PROJECT, "regard/nn/new.py")[1:] == ("tests/nn",)
    for path, tests in TESTED_BY.items():
        assert (PROJECT / "regard" / path).exists(), path
        assert [test for test in tests if not (PROJECT / "tests" / test).exists()] == [], path
