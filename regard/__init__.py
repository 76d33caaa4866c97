"""regard: train Transformers on your own text, use them, and look inside them.

Importing this package is cheap: torch comes in with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api import load as load
    from regard.api import train as train

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    if name in ("load", "train"):
        return getattr(importlib.import_module("regard.api"), name)
    raise AttributeError(f"module 'regard' has no attribute '{name}'")
