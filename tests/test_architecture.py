"""The shape of the project: imports point one way, and what must not be there is not."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import regard.nn
from regard import config
from regard.errors import RegardError
from regard.models.config import apply_preset
from regard.runs.recipe import get_task_class, recipe_schema
from regard.tasks.task import TrainingScale
from regard.training import defaults as choose

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "regard"
FILES = sorted(PACKAGE.rglob("*.py"))
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))

ORDER = [
    ("errors", "nn"),
    ("config", "disk", "metrics", "progress"),
    ("text",),
    ("data",),
    ("models",),
    ("generate",),
    ("predict",),
    ("tasks",),
    ("runs",),
    ("training", "look"),
    ("api",),
    ("demo",),
    ("compare",),
    ("cli",),
]
"""As in CONTRIBUTING.md: a part may import what stands above it, and itself; of those on one line, none the other."""

RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
ENTRANCES = ("__init__", "__main__")
"""`regard` itself, which hands out names of the API, and ``python -m regard``: they may import anything, lazily."""


def part_of(module: str) -> str | None:
    """The part of regard a module belongs to; None for what is not regard's."""
    names = module.split(".")
    return None if names[0] != "regard" or len(names) < 2 else names[1]


def part_of_file(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, wherever in it, with the line; ``from regard import x`` as ``regard.x``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            whole = node.module == "regard"
            yield from ((node.lineno, f"regard.{name.name}" if whole else str(node.module)) for name in node.names)


def test_every_part_has_its_place() -> None:
    assert {part_of_file(path) for path in FILES} - set(ENTRANCES) == RANK.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of_file(path)
    if part in ENTRANCES:
        return
    for line, module in imports(path):
        other = part_of(module)
        if module == "regard.__version__":
            continue
        if module == "regard" or (other in ("load", "train") and part == "cli"):
            assert part == "cli", f"{path}:{line}: the whole of regard"
        elif other is not None and other != part:
            assert RANK[other] < RANK[part], f"{path}:{line}: {part} imports {other}"


LOOK_RANK = {"compute": 0, "views": 1, "render": 2, "corpus": 3, "inspection": 3}
"""Inside look: analyses, view data of them, rendering of view data; corpus-level work and the API object come last."""


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "look").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_inside_look_point_one_way(path: Path) -> None:
    package = path.relative_to(PACKAGE / "look").parts[0].removesuffix(".py")
    for line, module in imports(path):
        names = module.split(".")
        if names[:2] != ["regard", "look"] or len(names) < 3 or package not in LOOK_RANK or names[2] == package:
            continue
        assert LOOK_RANK[names[2]] < LOOK_RANK[package], f"{path}:{line}: look/{package} imports look/{names[2]}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "text").rglob("*.py")), ids=lambda path: path.name)
def test_text_knows_no_tensors(path: Path) -> None:
    assert not [module for _, module in imports(path) if module.split(".")[0] in ("torch", "safetensors", "numpy")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_ever_unpickled(path: Path) -> None:
    forbidden = {"pickle", "dill", "joblib", "shelve", "marshal"}
    assert not {module.split(".")[0] for _, module in imports(path)} & forbidden
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save"), ("np", "load")}, path
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec"}, f"{path}:{node.lineno}"
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle", path


def test_no_drawers() -> None:
    names = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in FILES if {path.stem, *path.relative_to(PACKAGE).parts[:-1]} & names]


@pytest.mark.parametrize("path", [p for p in FILES if p.read_text().strip()], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path}: no docstring"


def test_the_names_of_regard_nn_exist_and_occur_once() -> None:
    assert len(set(regard.nn.__all__)) == len(regard.nn.__all__)
    for name in regard.nn.__all__:
        assert getattr(regard.nn, name) is not None
    for wanted in ("MultiHeadAttention", "AdditiveAttention", "SinusoidalPositions"):
        assert wanted in regard.nn.__all__


def test_there_are_recipes() -> None:
    assert RECIPES, "recipes/ is empty: README and docs tell users to begin with a recipe; add one that a test can load"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_recipe_is_valid(path: Path) -> None:
    tables = config.read(path)
    kinds = recipe_schema(get_task_class(tables, str(path)), tables, str(path))
    checked = config.check(tables, kinds, str(path))
    checked["model"] = apply_preset({"preset": "tiny", **checked.get("model", {})}, kinds["model"])
    amount = TrainingScale(10**4, 10**6, checked["model"]["d_model"], is_finetuning=False)
    checked["train"] = choose.complete_train_table(checked.get("train", {}), amount, torch.device("cpu"))
    for name, table in checked.items():
        if not config.missing_keys(kinds[name], table):
            config.build(kinds[name], table)  # which judges the values


def test_every_error_is_a_users() -> None:
    """One tree, so that the command line catches all of it, and drawn whole."""
    tree = ast.parse((PACKAGE / "errors.py").read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    module = sys.modules["regard.errors"]
    assert all(issubclass(getattr(module, name), RegardError) for name in names)
    drawn = [line.split()[1] for line in (module.__doc__ or "").splitlines() if line.strip().startswith(("├", "└"))]
    assert ["RegardError", *drawn] == names
