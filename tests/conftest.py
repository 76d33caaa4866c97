"""Shapes in signatures are checked in every test, where beartype is installed."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("beartype") is not None:
    from jaxtyping import install_import_hook

    install_import_hook(["regard.nn", "regard.models", "regard.generate", "regard.tasks"], "beartype.beartype")
