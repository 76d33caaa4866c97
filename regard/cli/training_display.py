"""Display of a training run: the plan, the time left, live progress, validations, and the commands that come next."""

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
from regard.errors import MissingExtra, escape_unprintable
from regard.progress import LOG_INTERVAL_SECONDS, console, live_display, print_message, warn
from regard.training.guards import raise_interruption
from regard.training.learning_curve import draw_learning_curve
from regard.training.loop import EARLY_COMPILED_PROGRESS_STEPS, EARLY_PROGRESS_STEPS, TrainingEvent
from regard.training.memory import check_batch_fits
from regard.training.plan import make_plan
from regard.training.schedule import sum_micro_batches

N_RECENT_INTERVALS = 10
"""Intervals between events over which the speed on the live line is averaged."""


def train_and_display(run: TrainingRun, device: str = "auto") -> None:
    """Train to the end and display it; the commands that are printed repeat the `device` option."""
    plan = make_plan(run.prepared, run.trainer.progress.step)
    for line in plan.lines():
        print_message(line)
    check_batch_fits(plan.memory_bytes, run.prepared.config, run.prepared.device)
    if plan.memory_bytes > plan.available_memory_bytes:
        warn("that may not fit; begin again with a larger train.accumulate or a smaller train.batch_tokens")
    with run.prepared.directory.lock:
        _train_and_display(run, device)


def _train_and_display(run: TrainingRun, device: str) -> None:
    with TrainingDisplay(run) as display:
        for event in run:
            display.show_event(event)
    if display.last_event.kind == "interrupted":
        command = resume_command(run.prepared.directory.path, device)
        print_message(f"saved at step {display.last_event.step:,}; to continue: {command}")
        raise_interruption(display.last_event.values["signal"])  # nothing that was to follow the training may run
    _print_summary(run, display.last_event, device)


class ProgressPoint(NamedTuple):
    """Progress at an event; `seconds` counts training steps only, not validation or saving."""

    step: int
    micro_batches: int
    tokens: int
    seconds: float


class TrainingDisplay:
    """A live line under the validations: a bar in a terminal, a plain line every few seconds in a log."""

    def __init__(self, run: TrainingRun) -> None:
        compiled = run.prepared.config.train.compiled
        self.train = run.prepared.config.train
        self.progress, self.n_steps = run.trainer.progress, self.train.steps
        self._n_micro_batches = sum_micro_batches(self.train, self.n_steps)
        self.last_event = TrainingEvent("end", self.progress.step, {})
        self._start_time, self._first_point, self._last_print_time = time.monotonic(), self._current_point(), 0.0
        # The first interval of a compiled run is mostly compilation, so it is left out of the speed.
        self._recent_points = deque([] if compiled else [self._first_point], maxlen=N_RECENT_INTERVALS + 1)
        self._early_steps = EARLY_COMPILED_PROGRESS_STEPS if compiled else EARLY_PROGRESS_STEPS
        self._warm_point: ProgressPoint | None = None
        self._is_time_estimated = False
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
        if event.kind in ("log", "progress"):
            self._show_progress(event)
            self._estimate_time()
        elif event.kind in ("valid", "average"):
            name = "average" if event.kind == "average" else f"step {event.step:,}"
            scores = "  ".join(f"{key} {value:.4g}" for key, value in event.values.items() if isinstance(value, float))
            print_message(f"{name:<14}{scores}" + ("  best" if event.values["best"] else ""))

    def _show_progress(self, event: TrainingEvent) -> None:
        line = self._format_line(event.values)
        self._live_display.update(self._live_task, completed=event.step, line=line)
        if not console.is_terminal and time.monotonic() - self._last_print_time > LOG_INTERVAL_SECONDS:
            self._last_print_time = time.monotonic()
            print_message(line)

    def _estimate_time(self) -> None:
        """Print once, from the first few steps, the time of a step and of all that are left."""
        warm_up, last = self._early_steps
        now, n_done = self._current_point(), self.progress.step - self._first_point.step
        if self._is_time_estimated or n_done < warm_up or now.step == self.n_steps:
            return
        if self._warm_point is None:
            self._warm_point = now
        elif now.step - self._warm_point.step >= last - warm_up:
            n_timed = now.micro_batches - self._warm_point.micro_batches
            seconds = (now.seconds - self._warm_point.seconds) / n_timed
            left = _describe_duration(seconds * (self._n_micro_batches - now.micro_batches))
            per_step = _format_step_time(seconds * self.train.accumulate)
            print_message(f"about {left} to go ({per_step} a step, without validation)")
            self._is_time_estimated = True

    def _format_line(self, values: dict[str, Any]) -> str:
        skipped = f"  {values['skipped']} steps skipped" if values["skipped"] else ""
        return f"step {self.progress.step:,}/{self.n_steps:,}  loss {values['loss']:.3f}{self._format_speed()}{skipped}"

    def _format_speed(self) -> str:
        """Return the tokens a second of recent steps, and the time left, validation and saving included."""
        now = self._current_point()
        self._recent_points.append(now)
        start = self._recent_points[0]
        if start is now:
            return ""
        seconds = max(now.seconds - start.seconds, 1e-9)
        overhead = time.monotonic() - self._start_time - (now.seconds - self._first_point.seconds)
        done, n_timed = now.micro_batches - self._first_point.micro_batches, now.micro_batches - start.micro_batches
        per_micro_batch = seconds / n_timed + overhead / done
        left = _format_duration(per_micro_batch * (self._n_micro_batches - now.micro_batches))
        return f"  {(now.tokens - start.tokens) / seconds:,.0f} tokens/s  {left} left"

    def _current_point(self) -> ProgressPoint:
        progress = self.progress
        n_micro_batches = sum_micro_batches(self.train, progress.step)
        return ProgressPoint(progress.step, n_micro_batches, progress.tokens, progress.seconds)


def resume_command(path: Path, device: str = "auto") -> str:
    """Return the command that resumes the run in a directory."""
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


def _describe_result(run: TrainingRun, last_event: TrainingEvent) -> str:
    """Return one line with the score of the weights that were kept."""
    metric, values = run.prepared.task.validation_metric, last_event.values
    if metric.key not in values:
        ended = f"nothing to do: this run ended at step {last_event.step:,}"
        return f"{ended}; raise train.steps (or train.patience) to continue"
    if values[metric.key] is None:
        return f"done: no validation gave a score; the weights are those of step {last_event.step:,}"
    weights = f"the average of {values['averaged']} snapshots" if values["averaged"] else "one checkpoint"
    return f"done: {_format_final_score(run, values)}, {weights} at step {values['step']:,}"


def _print_summary(run: TrainingRun, last_event: TrainingEvent, device: str) -> None:
    """Print the score, where the learning curve is, and the commands to use and to score the model."""
    path, task = run.prepared.directory.path, run.prepared.task
    print_message(_describe_result(run, last_event))
    if raw_text := last_event.values.get("raw_text"):
        scores = ", ".join(f"{key.removeprefix('raw_')} {value:.4g}" for key, value in raw_text.items())
        print_message(f"on running text, segmented by the model: {scores}")
    if before := last_event.values.get("before"):
        print_message(f"adapted: {_describe_change(before, last_event.values['after'])}")
    try:
        print_message(f"learning curve: {draw_learning_curve(run.prepared.directory, task.validation_metric)}")
    except (MissingExtra, OSError) as error:
        print_message(f"no learning curve: {error}")
    use, score = (f"{program_name()} {verb} {shlex.quote(str(path))}" for verb in (task.verb, "evaluate"))
    option = _device_option(device)
    usage = "" if use == score else f"use it: {use} {task.verb_arguments}{option}        "
    scoring = f"score it: {score} TEST{option}" if task.has_evaluation else ""
    print_message(f"{usage}{scoring}".rstrip())
    print(escape_unprintable(str(path)), file=sys.stdout)


def _describe_change(before: dict[str, float], after: dict[str, float]) -> str:
    """Return BLEU before and after, of each set that has one of its own."""
    keys = [key for key in before if key in ("bleu_own", "bleu_kept")] or ["bleu"]
    changes = (f"{key.removeprefix('bleu_')} {before[key]:.4g} -> {after[key]:.4g}" for key in keys)
    return f"BLEU {', '.join(changes)}".replace("BLEU bleu ", "BLEU ")


def _describe_duration(seconds: float) -> str:
    """Return a duration to two digits: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _format_step_time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds * 1000:.2g} ms"


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
