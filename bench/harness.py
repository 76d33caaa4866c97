"""Shared harness of the benchmarks: options with ``--smoke``, warm-up, interleaved rounds, the table of speeds.

A contender is a function that runs one round of work and returns the number of tokens it processed. Contenders are
warmed up until nothing is recompiled and their speed is stable, then timed in interleaved rounds, so that a change of
the machine's load meets all of them. Scripts import it by name: ``python bench/X.py`` puts bench/ on the path.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

Arm = TypeVar("Arm")

Contender = Callable[[], int]
"""Runs one round and returns the number of tokens, or other units, it processed."""

Notes = Mapping[str, str]
NO_NOTES: Notes = {}

INTERRUPTED_STATUS = 130
"""128 + SIGINT, as shells report it."""

SPEED_TOLERANCE = 0.1
"""Relative change of speed between two rounds of warm-up below which the speed counts as stable."""


class Parser(argparse.ArgumentParser):
    """An argument parser with ``--smoke``, which every benchmark takes.

    `smoke` holds the defaults that ``--smoke`` sets; an option that is given explicitly overrides them.
    """

    def __init__(self, description: str | None, *, smoke: Mapping[str, Any]) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.smoke = dict(smoke)
        self.add_argument("--smoke", action="store_true", help="run everything once at tiny sizes, within seconds")

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the options; `arguments` defaults to the command line."""
        options = self.parse_args(arguments)
        if options.smoke:
            self.set_defaults(**self.smoke)
            options = self.parse_args(arguments)
        return options


class ArmsParser(Parser):
    """The parser of benchmarks that train arms with several seeds: ``--arms``, ``--seeds``, ``--device``, ``--set``."""

    def __init__(self, description: str | None, *, smoke: Mapping[str, Any]) -> None:
        super().__init__(description, smoke={"seeds": 1, **smoke})
        self.add_argument("--arms", nargs="+", metavar="ARM", help="arms, by number or by the beginning of their names")
        self.add_argument("--seeds", type=int, default=3)
        self.add_argument("--device", default="cpu")
        self.add_argument("--set", action="append", default=[], help="settings for every arm, as train.steps=1000")

    def select_arms(self, arms: Mapping[str, Arm], selectors: Sequence[str] | None) -> dict[int, tuple[str, Arm]]:
        """Return number, name and value of the arms that ``--arms`` selects, in their order; of all without it."""
        numbered = dict(enumerate(arms.items(), 1))
        selected: set[int] = set(numbered if selectors is None else ())
        for selector in selectors or ():
            matches = {n for n, (name, _) in numbered.items() if selector == str(n) or name.startswith(selector)}
            if not matches:
                self.error(
                    f"--arms: no arm {selector!r}; arms: {'; '.join(f'{n} {name}' for n, name in enumerate(arms, 1))}"
                )
            selected |= matches
        return {n: arm for n, arm in numbered.items() if n in selected}


class SpeedParser(Parser):
    """The parser of benchmarks that time rounds: ``--device`` and ``--rounds`` too."""

    def __init__(self, description: str | None, *, rounds: int, smoke: Mapping[str, Any]) -> None:
        super().__init__(description, smoke={"rounds": 1, **smoke})
        self.add_argument("--device", default="cpu")
        self.add_argument("--rounds", type=int, default=rounds, help="measured rounds, interleaved")

    def add_training_options(self, *, steps: int) -> None:
        """Add the options of benchmarks that train."""
        self.add_argument("--steps", type=int, default=steps, help="optimiser steps per round")
        self.add_argument("--warm", type=int, default=1, help="warm-up rounds at least")
        self.add_argument("--max-warm", type=int, default=20, help="warm-up rounds at most")
        self.add_argument("--layers", type=int, help="layers, instead of those of the preset")
        self.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="compiled peers too")
        self.add_argument("--compile-backend", default="inductor", help="backend of torch.compile for the peers")
        self.smoke = {"steps": 1, "max_warm": 1, "layers": 1, "compile_backend": "eager", **self.smoke}


def format_scores(scores: Sequence[float], digits: int) -> str:
    """Return the columns mean, and lowest to highest, of the scores of several seeds in percent."""
    percents = [100 * score for score in scores]
    spread = f"{min(percents):.{digits}f} to {max(percents):.{digits}f}" if len(percents) > 1 else ""
    return f"{statistics.fmean(percents):>9.{digits}f}  {spread:<16}"


def run_script(main: Callable[[], None]) -> None:
    """Run the main function of a script; Ctrl-C ends it with one line and the exit status of an interrupted command."""
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED_STATUS)


def is_installed(package: str) -> bool:
    """Return True if an optional package is installed, and print that its contender is skipped if not."""
    installed = importlib.util.find_spec(package) is not None
    if not installed:
        print(f"{package}: skipped, not installed")
    return installed


def layer_settings(options: argparse.Namespace, *keys: str) -> dict[str, int]:
    """Return the keys of a ``[model]`` table that ``--layers`` sets, if it is given."""
    return dict.fromkeys(keys, options.layers) if options.layers else {}


def compile_modes(options: argparse.Namespace) -> list[str]:
    """Return "eager", and "compiled" where it was not switched off and a compiler is available."""
    if not options.compile:
        return ["eager"]
    compiler = os.environ.get("CXX", "g++")
    if options.device == "cpu" and options.compile_backend == "inductor" and shutil.which(compiler) is None:
        print(f"compiled peers: skipped, no C++ compiler ({compiler})")
        return ["eager"]
    return ["eager", "compiled"]


def synchronize(device: str) -> None:
    """Wait for the work queued on a GPU."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure_seconds(function: Callable[[], Any], device: str) -> float:
    """Return the wall-clock seconds of one call."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


class Round(NamedTuple):
    """One timed round of a contender."""

    n_tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.n_tokens / self.seconds


def time_round(contender: Contender, device: str) -> Round:
    """Run and time one round."""
    counts: list[int] = []
    seconds = measure_seconds(lambda: counts.append(contender()), device)
    return Round(counts[0], seconds)


def count_compiled_graphs() -> int:
    """Return the number of graphs torch.compile has built in this process; every recompilation adds one."""
    dynamo = sys.modules.get("torch._dynamo")  # importing it takes a second
    return int(dynamo.utils.counters["stats"]["unique_graphs"]) if dynamo is not None else 0


def warm_up(contender: Contender, device: str, *, at_least: int = 1, at_most: int = 20) -> int:
    """Run rounds until one recompiles nothing and is about as fast as the round before; return their number."""
    previous = 0.0
    for n_rounds in range(1, at_most + 1):
        n_graphs = count_compiled_graphs()
        speed = time_round(contender, device).speed
        is_stable = count_compiled_graphs() == n_graphs and abs(speed - previous) <= SPEED_TOLERANCE * speed
        if is_stable and n_rounds >= at_least:
            return n_rounds
        previous = speed
    return at_most


def time_rounds(contenders: Mapping[str, Contender], device: str, n_rounds: int) -> dict[str, list[Round]]:
    """Time `n_rounds` interleaved rounds of each contender."""
    rounds: dict[str, list[Round]] = {name: [] for name in contenders}
    for _ in range(n_rounds):
        for name, contender in contenders.items():
            rounds[name].append(time_round(contender, device))
    return rounds


def time_warm_rounds(contenders: Mapping[str, Contender], options: argparse.Namespace) -> dict[str, list[Round]]:
    """Warm every contender up, then time its rounds."""
    for contender in contenders.values():
        warm_up(contender, options.device, at_least=options.warm, at_most=options.max_warm)
    return time_rounds(contenders, options.device, options.rounds)


def median_speed(rounds: Sequence[Round]) -> float:
    """Return the median tokens per second."""
    return statistics.median(each.speed for each in rounds)


def print_speeds(
    title: str,
    rounds: Mapping[str, Sequence[Round]],
    *,
    steps: int,
    step: str = "step",
    unit: str = "tokens/s",
    notes: Notes = NO_NOTES,
) -> None:
    """Print the medians of every contender and their ratio to the first: speed, time per step, a note.

    `steps` is the number of optimiser or decoding steps in a round; `step` is their name.
    """
    first = next(iter(rounds))
    print(title)
    print(f"    {'':<30}{unit:>18}{'ms per ' + step:>18}{first + ' / this':>16}")
    for name, each in rounds.items():
        milliseconds = 1e3 * statistics.median(one.seconds for one in each) / steps
        speed, ratio = median_speed(each), median_speed(rounds[first]) / median_speed(each)
        print(f"    {name:<30}{speed:>18,.0f}{milliseconds:>18.2f}{ratio:>15.2f}x   {notes.get(name, '')}".rstrip())


def utilisation(
    rounds: Mapping[str, Sequence[Round]], flops_per_token: float, options: argparse.Namespace
) -> dict[str, str]:
    """Return the model FLOPs utilisation of each contender on a GPU whose peak is `options.peak` FLOP/s."""
    if not options.device.startswith("cuda"):
        return {}
    return {
        name: f"utilisation {flops_per_token * median_speed(each) / options.peak:.1%}" for name, each in rounds.items()
    }
