"""What a recipe leaves open, chosen from the amount of data and the device.

Each function gives the keys of one table; what the recipe says stands. The numbers are rules of thumb, and the plan
printed before step 1 names each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from regard.models.presets import ModelConfig, with_preset
from regard.tasks.task import Amount

WIDTHS = (64, 128, 256, 512, 1024)
"""Row widths to choose from."""

RHYTHM: dict[str, Callable[[int], int]] = {
    "warmup": lambda steps: min(4000, max(50, steps // 10)),
    "log_every": lambda steps: max(1, min(50, steps // 100)),
    "validate_every": lambda steps: max(100, math.ceil(steps / 40)),
}
"""Keys of ``[train]`` that follow from the number of steps, where a task has no habit of its own."""


def row_width(lengths: Int[np.ndarray, "N sides"]) -> int:
    """The narrowest row that holds 999 in 1000 examples and, on average, four at least; giants do not count."""
    usual = lengths[lengths.max(axis=1) <= WIDTHS[-1]]
    if len(usual) == 0:
        return WIDTHS[-1]
    longest = float(np.quantile(usual.max(axis=1), 0.999))
    mean = float(usual.mean(axis=0).max())
    return next((width for width in WIDTHS if longest <= width and 4 * mean <= width), WIDTHS[-1])


def preset(tokens: int, device: torch.device, largest_on_cpu: str = ModelConfig.largest_on_cpu) -> str:
    """The largest shape that this much text can teach, and this device can train; every family has these five."""
    sizes = [("tiny", 200_000), ("mini", 1_000_000), ("small", 4_000_000), ("medium", 8_000_000), ("base", 10**12)]
    chosen = next(name for name, limit in sizes if tokens < limit)
    names = [name for name, _ in sizes]
    most = names.index(largest_on_cpu) if device.type == "cpu" else len(names)
    return names[min(names.index(chosen), most)]


def model_table(
    family: type[ModelConfig], given: dict[str, Any], tokens: int, width: int, device: torch.device
) -> dict[str, Any]:
    """The ``[model]`` keys a recipe leaves out."""
    table = with_preset({"preset": preset(tokens, device, family.largest_on_cpu), **given}, family)
    fitted = family.fitted(table, width)
    # Rows wider than the positions that a family usually has would be cut to these without a word.
    return {"n_positions": width, **fitted} if width > family.n_positions else fitted


def batch_tokens(tokens: int, device: torch.device) -> int:
    """Target tokens a step: small for small data, as large as pays on a GPU for large."""
    if device.type == "cpu":
        return 2048
    return 8192 if tokens < 4_000_000 else 32768


def steps(tokens: int, batch: int, device: torch.device) -> int:
    """Steps for about 60 (GPU) or 10 (CPU) million target tokens, but 10 to 100 times the data."""
    wanted = 10e6 if device.type == "cpu" else 60e6
    epochs = min(100.0, max(10.0, wanted / tokens))
    return max(200, round(epochs * tokens / batch / 100) * 100)


def train_table(
    given: dict[str, Any], amount: Amount, device: torch.device, habits: dict[str, Any] | None = None, width: int = 1
) -> dict[str, Any]:
    """The ``[train]`` keys a recipe leaves out; a task may have habits of its own. Rows are so wide."""
    tokens, d_model = amount.n_tokens, amount.d_model
    table = {"batch_tokens": batch_tokens(tokens, device), **(habits or {})}
    table["batch_tokens"] = max(table["batch_tokens"], width * given.get("accumulate", 1))  # one row at least
    table |= given
    table.setdefault("steps", lambda batch: steps(tokens, batch, device))
    if callable(table["steps"]):
        table["steps"] = table["steps"](table["batch_tokens"])
    table |= rhythm({**RHYTHM, **table}, table["steps"]) | given
    # SPEC 7.2's highest rate, d^-0.5 warmup^-0.5, capped where a short warm-up would make it diverge.
    table.setdefault("learning_rate", round(min(2e-3, (d_model * max(1, table["warmup"])) ** -0.5), 6))
    table.setdefault("save_every", min(table["steps"], table["validate_every"]))
    table.setdefault("precision", "bfloat16" if device.type == "cuda" else "float32")
    table.setdefault("compiled", device.type == "cuda")
    return table


def rhythm(habits: dict[str, Any], steps: int) -> dict[str, int]:
    """When a run of so many steps does what: as the habits say, but nothing only after its end."""
    most = {"warmup": steps // 2, "log_every": steps, "validate_every": steps, "save_every": steps}
    asked = {key: habits[key] for key in most if key in habits}
    return {key: min(most[key], value(steps) if callable(value) else value) for key, value in asked.items()}
