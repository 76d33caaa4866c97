"""The memory of a run, compared with that of the device before any of it is allocated.

A model is counted on torch's meta device, which has shapes but no values. Called by prepare.py before the model is
built, and by the command line once the plan (plan.py) knows what a batch needs.
"""

from __future__ import annotations

import torch
from torch import nn

from regard.errors import ConfigError
from regard.models.construction import shapes_only
from regard.models.freezing import count_parameters
from regard.runs.device import total_memory
from regard.runs.recipe import RunConfig
from regard.tasks import Task

TRAINED_BYTES, FROZEN_BYTES = 16, 4
"""Bytes of a trained parameter, a float32 with its gradient and Adam's two moments, and of a frozen one."""

SIZE_KEYS = ("d_model", "n_layers", "n_decoder_layers", "d_ff", "n_positions")
"""Keys of ``[model]`` that determine the number of parameters."""


def check_model_fits(task: Task, run_config: RunConfig, device: torch.device) -> None:
    """Refuse a model whose weights, gradients and optimiser state exceed all memory of the device."""
    with shapes_only():
        model: nn.Module = task.build_model(run_config.model)
    counts = count_parameters(model, run_config.train.freeze)
    needed, total = TRAINED_BYTES * counts.trained + FROZEN_BYTES * counts.frozen, total_memory(device)
    if needed > total:
        table = run_config.tables()["model"]
        sizes = ", ".join(f"model.{key} = {table[key]}" for key in SIZE_KEYS if key in table)
        problem = f"{sum(counts):,} parameters take {format_bytes(needed)} to train"
        raise ConfigError(
            f"{sizes}, with a vocabulary of {task.vocabulary_size:,}: {problem}, "
            f"but {device.type} has {format_bytes(total)}; choose a smaller model"
        )


def check_batch_fits(needed: int, run_config: RunConfig, device: torch.device) -> None:
    """Refuse a run that needs more than all memory of a CPU; a compiled one needs less than is counted."""
    total = total_memory(device)
    if needed > total and device.type == "cpu" and not run_config.train.compiled:
        train = run_config.train
        problem = f"takes about {format_bytes(needed)}, but {device.type} has {format_bytes(total)}"
        raise ConfigError(
            f"{train.describe_batch()}: {problem}; "
            "begin another run with a larger train.accumulate, a smaller train.batch_tokens or a smaller model"
        )


def format_bytes(size: int) -> str:
    """Return a size in MiB or GiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
