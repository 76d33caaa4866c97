"""A training run on the terminal: the plan, live progress, validations, and what to do next."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import BarColumn, TextColumn

from regard.api import TrainingRun
from regard.cli.program_name import program_name
from regard.errors import MissingExtra
from regard.progress import LOG_INTERVAL_SECONDS, console, live_display, print_message, warn
from regard.training.learning_curve import draw_learning_curve
from regard.training.loop import TrainingEvent
from regard.training.plan import make_plan

N_RECENT_INTERVALS = 10
"""Logged intervals that the speed on the live line is the mean of."""


def train_and_display(run: TrainingRun, device: str = "auto") -> None:
    """Train to the end, showing what happens; the commands it names repeat the `device` that was asked for."""
    sized = make_plan(run.prepared)
    for line in sized.lines():
        print_message(line)
    if sized.memory_bytes > sized.available_memory_bytes:
        warn("that may not fit; begin again with a larger train.accumulate or a smaller train.batch_tokens")
    with TrainingDisplay(run) as board:
        for event in run:
            board.show_event(event)
    if board.last_event.kind == "interrupted":
        print_message(
            f"saved at step {board.last_event.step:,}; to go on: {resume_command(run.prepared.directory.path, device)}"
        )
        raise KeyboardInterrupt  # whatever was to follow the training, here or in a script, must not
    _print_summary(run, board.last_event, device)


class ProgressPoint(NamedTuple):
    """How far training had come when something was logged; seconds are those of its steps alone."""

    step: int
    tokens: int
    seconds: float


class TrainingDisplay:
    """The live line under the validations: a bar in a terminal, a plain line now and then in a log."""

    def __init__(self, run: TrainingRun) -> None:
        self.progress, self.n_steps = run.trainer.progress, run.prepared.config.train.steps
        self.last_event = TrainingEvent("end", self.progress.step, {})
        self._start_time, self._first_point, self._last_print_time = time.monotonic(), self._current_point(), 0.0
        # The first interval of a compiled run is mostly compilation: it says nothing of the speed.
        self._recent_points = deque(
            [] if run.prepared.config.train.compiled else [self._first_point], maxlen=N_RECENT_INTERVALS + 1
        )
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[line]}"))
        self._live_display = live_display(*columns)
        self._live_task = self._live_display.add_task(
            "training", total=self.n_steps, completed=self._first_point.step, line=""
        )

    def __enter__(self) -> TrainingDisplay:
        self._live_display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live_display.stop()

    def show_event(self, event: TrainingEvent) -> None:
        """Show one event."""
        self.last_event = event
        if event.kind == "log":
            self._show_log(event)
        elif event.kind in ("valid", "average"):
            name = "average" if event.kind == "average" else f"step {event.step:,}"
            scores = "  ".join(f"{key} {value:.4g}" for key, value in event.values.items() if isinstance(value, float))
            print_message(f"{name:<14}{scores}" + ("  best" if event.values["best"] else ""))

    def _show_log(self, event: TrainingEvent) -> None:
        line = self._format_line(event.values)
        self._live_display.update(self._live_task, completed=event.step, line=line)
        if not console.is_terminal and time.monotonic() - self._last_print_time > LOG_INTERVAL_SECONDS:
            self._last_print_time = time.monotonic()
            print_message(line)

    def _format_line(self, values: dict[str, Any]) -> str:
        skipped = f"  {values['skipped']} steps skipped" if values["skipped"] else ""
        return f"step {self.progress.step:,}/{self.n_steps:,}  loss {values['loss']:.3f}{self._format_speed()}{skipped}"

    def _format_speed(self) -> str:
        """Tokens a second of recent steps, and the time left at their pace and with as much done between them."""
        now = self._current_point()
        self._recent_points.append(now)
        then = self._recent_points[0]
        if then is now:
            return ""
        seconds = max(now.seconds - then.seconds, 1e-9)
        between = time.monotonic() - self._start_time - (now.seconds - self._first_point.seconds)  # validating, saving
        each = seconds / (now.step - then.step) + between / (now.step - self._first_point.step)
        left = _format_duration(each * (self.n_steps - now.step))
        return f"  {(now.tokens - then.tokens) / seconds:,.0f} tokens/s  {left} left"

    def _current_point(self) -> ProgressPoint:
        return ProgressPoint(self.progress.step, self.progress.tokens, self.progress.seconds)


def resume_command(path: Path, device: str = "auto") -> str:
    """What to type to go on with the run in a directory."""
    recipe, out = shlex.quote(str(path / "config.toml")), shlex.quote(str(path))
    return f"{program_name()} train {recipe} --out {out} --resume{_device_option(device)}"


def _device_option(device: str) -> str:
    return "" if device == "auto" else f" --device {shlex.quote(device)}"


def _format_final_score(run: TrainingRun, values: dict[str, Any]) -> str:
    """Return the score of the best weights: on all validation examples, and on the sample that chose them."""
    prepared, task, metric = run.prepared, run.prepared.task, run.prepared.task.validation_metric
    best = f"{metric.title} {values[metric.key]:.4g}"
    if task.max_scored_examples is None or metric.key.startswith("valid_"):  # of all examples at each validation
        return f"{best} on the validation data"
    on_all = f"on all {len(prepared.all_scored_examples):,} {task.example_unit}"
    if "final" not in values:
        return f"{best} {on_all}"
    sample = f"{values[metric.key]:.4g} on the sample of {len(prepared.scored_examples):,}"
    return f"{metric.title} {values['final'][metric.key]:.4g} {on_all} ({sample})"


def _print_summary(run: TrainingRun, last_event: TrainingEvent, device: str) -> None:
    path, task = run.prepared.directory.path, run.prepared.task
    if task.validation_metric.key in last_event.values and last_event.values[task.validation_metric.key] is None:
        print_message(
            f"done: no score, for no validation gave a number; the weights are those of step {last_event.step:,}"
        )
    elif task.validation_metric.key in last_event.values:
        kind = (
            f"the average of {last_event.values['averaged']} snapshots"
            if last_event.values["averaged"]
            else "one checkpoint"
        )
        score = _format_final_score(run, last_event.values)
        print_message(f"done: {score}, {kind} at step {last_event.values['step']:,}")
    else:
        print_message(
            f"nothing to do: this run ended at step {last_event.step:,}; raise train.steps (or train.patience) to go on"
        )
    try:
        print_message(f"learning curve: {draw_learning_curve(run.prepared.directory, task.validation_metric)}")
    except (MissingExtra, OSError) as error:
        print_message(f"no learning curve: {error}")
    use, score = (f"{program_name()} {verb} {shlex.quote(str(path))}" for verb in (task.verb, "evaluate"))
    print_message(f'use it: {use} "..."{_device_option(device)}        score it: {score} TEST{_device_option(device)}')
    print(path, file=sys.stdout)


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
