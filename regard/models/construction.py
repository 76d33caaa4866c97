"""Construction of models without random weights: to load others into them, or to know their shapes alone.

Modules draw random weights when they are built, which takes longer than all else. `uninitialised` leaves the memory
of weights as it is, and `shapes_only` allocates none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode

RANDOM_INITIALISERS = (init.normal_, init.uniform_, init.kaiming_uniform_, init.xavier_uniform_, init.trunc_normal_)


class _SkipRandomInitialisers(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        return options["tensor"] if func in RANDOM_INITIALISERS else func(*args, **options)


@contextmanager
def uninitialised() -> Iterator[None]:
    """Build models whose weights are not drawn; each must be loaded."""
    with _SkipRandomInitialisers():
        yield


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build models on torch's meta device, without memory for their weights."""
    with torch.device("meta"), _SkipRandomInitialisers():
        yield
