"""The shape of the project: imports point one way, and what must not be there is not."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
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
    ("checksums", "ranges"),
    ("config", "disk", "metrics", "progress"),
    ("text",),
    ("data",),
    ("models",),
    ("generate",),
    ("predict",),
    ("tasks",),
    ("runs",),
    ("training", "look", "export"),
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


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Parse a file, once for all tests."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, wherever in it, with the line; ``from regard import x`` as ``regard.x``."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            whole = node.module == "regard"
            yield from ((node.lineno, f"regard.{name.name}" if whole else str(node.module)) for name in node.names)


def test_every_part_has_its_place() -> None:
    assert {part_of_file(path) for path in FILES} - set(ENTRANCES) == RANK.keys()


def points_backward(part: str, module: str) -> bool:
    """Return True if a part of regard may not import a module."""
    other = part_of(module)
    if module == "regard" or (other in ("load", "train") and part == "cli"):
        return part != "cli"
    return module != "regard.__version__" and other not in (None, part) and RANK[str(other)] >= RANK[part]


def test_imports_point_one_way() -> None:
    parts = {path: part_of_file(path) for path in FILES if part_of_file(path) not in ENTRANCES}
    assert [
        f"{path}:{line}: {part} imports {module}"
        for path, part in parts.items()
        for line, module in imports(path)
        if points_backward(part, module)
    ] == []


def test_backward_imports_are_noticed() -> None:
    assert not points_backward("tasks", "regard.models.config")
    assert not points_backward("nn", "torch.nn")
    assert not points_backward("cli", "regard.load")
    assert not points_backward("look", "regard.__version__")
    for part, module in (("models", "regard.tasks"), ("look", "regard.training.loop"), ("api", "regard")):
        assert points_backward(part, module)


LOOK_RANK = {"compute": 0, "views": 1, "render": 2, "corpus": 3, "inspection": 3}
"""Inside look: analyses, view data of them, rendering of view data; corpus-level work and the API object come last."""


def test_imports_inside_look_point_one_way() -> None:
    backward = []
    for path in (path for path in FILES if path.is_relative_to(PACKAGE / "look")):
        package = path.relative_to(PACKAGE / "look").parts[0].removesuffix(".py")
        for line, module in imports(path):
            names = module.split(".")
            if names[:2] != ["regard", "look"] or len(names) < 3 or package not in LOOK_RANK or names[2] == package:
                continue
            if LOOK_RANK[names[2]] >= LOOK_RANK[package]:
                backward.append(f"{path}:{line}: look/{package} imports look/{names[2]}")
    assert backward == []


def test_text_knows_no_tensors() -> None:
    files = [path for path in FILES if path.is_relative_to(PACKAGE / "text")]
    imported = {module.split(".")[0] for path in files for _, module in imports(path)}
    assert len(files) > 10
    assert not imported & {"torch", "safetensors", "numpy"}


def unpickles(node: ast.AST) -> bool:
    """Return True for a call or an attribute by which a file could execute what it loads."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return (name, attribute) in {("torch", "load"), ("torch", "save"), ("np", "load")}
        case ast.Call(func=ast.Name(id=name)):
            return name in {"eval", "exec"}
        case ast.keyword(arg=name):
            return name == "allow_pickle"
    return False


def test_nothing_is_ever_unpickled() -> None:
    imported = {module.split(".")[0] for path in FILES for _, module in imports(path)}
    assert not imported & {"pickle", "dill", "joblib", "shelve", "marshal"}
    unsafe = [(path, node) for path in FILES for node in nodes_of(path) if unpickles(node)]
    assert [f"{path}:{getattr(node, 'lineno', 0)}" for path, node in unsafe] == []


def test_unpickling_is_noticed() -> None:
    for source in ("torch.load(x)", "torch.save", "np.load(f)", "eval(x)", "exec(x)", "read(allow_pickle=True)"):
        assert any(map(unpickles, ast.walk(ast.parse(source)))), source
    assert not any(map(unpickles, ast.walk(ast.parse("json.load(f); model.eval()"))))


CONNECTING = {
    "socket",
    "urllib",
    "http",
    "ftplib",
    "ssl",
    "requests",
    "httpx",
    "aiohttp",
    "huggingface_hub",
    "datasets",
}
"""Libraries that open connections, or download."""


def test_nothing_connects() -> None:
    imported = {module.split(".")[0] for path in FILES for _, module in imports(path)}
    assert not imported & CONNECTING
    hubs = [path for path in FILES for node in nodes_of(path) if isinstance(node, ast.Attribute) and node.attr == "hub"]
    assert hubs == []


def test_no_drawers() -> None:
    names = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in FILES if {path.stem, *path.relative_to(PACKAGE).parts[:-1]} & names]


def test_every_file_says_what_it_is() -> None:
    modules = {path: nodes_of(path)[0] for path in FILES if len(nodes_of(path)) > 1}
    assert [path for path, module in modules.items() if not ast.get_docstring(module)] == []


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
    lines = [line.replace("│", " ").split() for line in (module.__doc__ or "").splitlines()]
    drawn = [words[1] for words in lines if words and words[0] in ("├──", "└──")]
    assert ["RegardError", *drawn] == names
