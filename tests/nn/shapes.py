"""Shapes in signatures, checked where beartype is installed, in every test up to a number of calls.

What is trained in a test calls the same functions a hundred thousand times, and to check each would take as long as all
else together.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import wraps
from typing import Any

from jaxtyping import config, install_import_hook

MOST = 1000
"""Shape checks per test: several passes through a small model."""

PARTS = ("data", "nn", "models", "generate", "tasks", "runs", "training", "look", "api", "compare")

_left = MOST


def install() -> None:
    """Check shapes in modules imported from now on."""
    if importlib.util.find_spec("beartype") is not None:
        install_import_hook([f"regard.{part}" for part in PARTS], "shapes.counted")


def begin() -> None:
    """Reset the number of checks at the start of a test."""
    global _left
    _left = MOST
    config.update("jaxtyping_disable", False)


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in a check that disables all checks when the limit of a test is reached.

    The check is generated when it is first needed: most functions are not called by the tests of one file.
    """
    check: Callable[..., Any] | None = None

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        global _left
        nonlocal check
        if check is None:
            from beartype import beartype

            check = beartype(function)
        _left -= 1
        if _left == 0:
            config.update("jaxtyping_disable", True)
        return check(*arguments, **options)

    return run
