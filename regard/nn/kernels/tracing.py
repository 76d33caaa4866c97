"""Mark functions whose result torch.compile takes as a constant, without importing the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def constant_in_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """Do what `torch.compiler.assume_constant_result` does: the function is run while tracing, not traced.

    That one imports torch._dynamo, which takes two seconds of every process that imports regard.nn. A test compares
    the two.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
