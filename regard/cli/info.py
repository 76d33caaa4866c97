"""Describe a model: its task, parameters, vocabulary, recipe and training, finished or not.

With --precision int8 also the relative error of int8: the change of the outputs for random tokens, divided by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from regard.cli.options import JsonOption, ModelArgument, PrecisionOption, print_json
from regard.config import format_setting
from regard.ranges import declared_ranges

if TYPE_CHECKING:
    from regard.runs.recipe import RunConfig

SPARKLINE_LEVELS = "▁▂▃▄▅▆▇█"
MAX_SPARKLINE_POINTS = 40
"""Validations on a line; of more, every second, third, ... is shown, the last always."""


def info(model: ModelArgument, precision: PrecisionOption = "auto", as_json: JsonOption = False) -> None:
    import regard
    from regard.nn import kernels
    from regard.runs.device import select_device

    device = select_device("auto")
    loaded = regard.load(model, device="cpu", precision=precision)
    about = loaded.info() | {"kernels": {"device": str(device), **kernels.in_use(device)}}
    if as_json:
        print_json(about)
        return
    training = _describe_training(about.pop("training"))
    lines = [*_flatten(about), *_flatten(training, "training.")]
    width = max(len(name) for name, _ in lines)
    zeros = _explain_zeros(loaded.config) if loaded.config else {}
    for name, value in lines:
        print(f"{name:<{width}}  {value}" + (f" ({zeros[name]})" if value == "0" and name in zeros else ""))


def _explain_zeros(config: RunConfig) -> dict[str, str]:
    """Return what 0 stands for in each setting that gives it a meaning."""
    ranges = {
        f"config.{table}.{key}": accepted
        for table, settings in vars(config).items()
        for key, accepted in declared_ranges(settings.__class__).items()
    }
    return {name: accepted.zero for name, accepted in ranges.items() if accepted.zero}


def _describe_training(training: dict[str, Any]) -> dict[str, Any]:
    """Return the summary with the step of all steps, and the learning curve as one line."""
    if "curve" not in training:
        return training
    curve, n_steps = training["curve"], training["planned_steps"]
    state = "" if training["finished"] else ", not finished"
    lines = {"steps": f"{training['steps']:,} of {n_steps:,}{state}", "curve": _format_curve(curve)}
    return {key: value for key, value in {**training, **lines}.items() if key not in ("finished", "planned_steps")}


def _format_curve(curve: dict[str, Any]) -> str:
    values = curve["values"]
    if not values:
        return ""
    ends = f"{values[0]:.4g} at step {curve['steps'][0]:,}, {values[-1]:.4g} at step {curve['steps'][-1]:,}"
    return f"{curve['metric']} {draw_sparkline(values)} ({ends})"


def draw_sparkline(values: Sequence[float]) -> str:
    """Return the values as a row of bars, from the lowest to the highest."""
    stride = -(-len(values) // MAX_SPARKLINE_POINTS)
    sampled = values[::-1][::stride][::-1]
    low, high = min(sampled), max(sampled)
    scale = (len(SPARKLINE_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKLINE_LEVELS[round((value - low) * scale)] for value in sampled)


def _flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value with its full key; empty values are left out."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif value not in ("", (), []):
            yield f"{prefix}{key}", format_setting(value)
