"""Rules for the keys that a recipe leaves out, by the amount of data and the device.

Values that the recipe gives are kept. The numbers are rules of thumb; the plan printed before the first step names
each value chosen. Called by recipe_completion.py, which merges them with a task's `training_defaults` and an
architecture's `recipe_defaults`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from regard.models.config import ModelConfig, apply_preset
from regard.runs.recipe import MAX_THREADS
from regard.tasks.task import TrainingScale

ROW_WIDTHS = (64, 128, 256, 512, 1024)
"""Row widths to choose from."""

SCHEDULE_DEFAULTS: dict[str, Callable[[int], int]] = {
    "warmup": lambda steps: min(4000, max(50, steps // 10)),
    "log_every": lambda steps: max(1, min(50, steps // 100)),
    "validate_every": lambda steps: max(100, math.ceil(steps / 40)),
}
"""Keys of ``[train]`` that follow from the number of steps, unless the task has its own defaults."""


def choose_row_width(lengths: Int[np.ndarray, "N sides"]) -> int:
    """Return the smallest row width that fits 99.9% of the examples, and four of mean length; outliers are ignored."""
    fitting = lengths[lengths.max(axis=1) <= ROW_WIDTHS[-1]]
    if len(fitting) == 0:
        return ROW_WIDTHS[-1]
    longest = float(np.quantile(fitting.max(axis=1), 0.999))
    mean = float(fitting.mean(axis=0).max())
    return next((width for width in ROW_WIDTHS if longest <= width and 4 * mean <= width), ROW_WIDTHS[-1])


def choose_preset(n_tokens: int, device: torch.device, largest_on_cpu: str = ModelConfig.largest_cpu_preset) -> str:
    """Return the largest preset that suits the amount of text and the device; every architecture has these five."""
    sizes = [("tiny", 200_000), ("mini", 1_000_000), ("small", 4_000_000), ("medium", 8_000_000), ("base", 10**12)]
    chosen = next(name for name, limit in sizes if n_tokens < limit)
    names = [name for name, _ in sizes]
    largest = names.index(largest_on_cpu) if device.type == "cpu" else len(names)
    return names[min(names.index(chosen), largest)]


def complete_model_table(
    config_class: type[ModelConfig], recipe_table: dict[str, Any], n_tokens: int, row_width: int, device: torch.device
) -> dict[str, Any]:
    """Return the ``[model]`` table with the keys that the recipe leaves out."""
    table = apply_preset(
        {"preset": choose_preset(n_tokens, device, config_class.largest_cpu_preset), **recipe_table}, config_class
    )
    fitted = config_class.fit_to_length(table, row_width)
    # Without this, rows wider than the default number of positions would be truncated silently.
    return {"n_positions": row_width, **fitted} if row_width > config_class.n_positions else fitted


def choose_batch_tokens(n_tokens: int, device: torch.device) -> int:
    """Return the target tokens of a step: few for little data, and enough to utilise a GPU for much data."""
    if device.type == "cpu":
        return 2048
    return 8192 if n_tokens < 4_000_000 else 32768


def choose_steps(n_tokens: int, n_batch_tokens: int, device: torch.device) -> int:
    """Return steps for about 60 (GPU) or 10 (CPU) million target tokens, but for 10 to 100 epochs."""
    total_tokens = 10e6 if device.type == "cpu" else 60e6
    epochs = min(100.0, max(10.0, total_tokens / n_tokens))
    return max(200, round(epochs * n_tokens / n_batch_tokens / 100) * 100)


def complete_train_table(
    recipe_table: dict[str, Any],
    scale: TrainingScale,
    device: torch.device,
    training_defaults: dict[str, Any] | None = None,
    row_width: int = 1,
) -> dict[str, Any]:
    """Return the ``[train]`` table with the keys that the recipe leaves out; `training_defaults` are the task's own."""
    tokens, d_model = scale.n_tokens, scale.d_model
    table = {"batch_tokens": choose_batch_tokens(tokens, device), **(training_defaults or {})}
    one_row_each = row_width * recipe_table.get("accumulate", 1)  # every micro-batch holds at least one row
    table["batch_tokens"] = max(table["batch_tokens"], one_row_each)
    table |= recipe_table
    if table.get("schedule") == "one-cycle" and "warmup" not in recipe_table:
        table["warmup"] = lambda steps: steps // 2
    table.setdefault("steps", lambda batch: choose_steps(tokens, batch, device))
    if callable(table["steps"]):
        table["steps"] = table["steps"](table["batch_tokens"])
    table |= resolve_intervals({**SCHEDULE_DEFAULTS, **table}, table["steps"]) | recipe_table
    # The peak of Vaswani et al. 2017, eq. 3, d^-0.5 warmup^-0.5, capped where a short warm-up would make it diverge.
    table.setdefault("learning_rate", round(min(2e-3, (d_model * max(1, table["warmup"])) ** -0.5), 6))
    table.setdefault("save_every", min(table["steps"], table["validate_every"]))
    table.setdefault("precision", "bfloat16" if device.type == "cuda" else "float32")
    table.setdefault("compiled", device.type == "cuda")
    table.setdefault("threads", min(torch.get_num_threads(), MAX_THREADS) if device.type == "cpu" else 0)
    return table


def resolve_intervals(training_defaults: dict[str, Any], steps: int) -> dict[str, int]:
    """Return warm-up and intervals for a run of that many steps, none longer than the run."""
    limits = {"warmup": steps // 2, "log_every": steps, "validate_every": steps, "save_every": steps}
    values = {key: training_defaults[key] for key in limits if key in training_defaults}
    return {key: min(limits[key], value(steps) if callable(value) else value) for key, value in values.items()}
