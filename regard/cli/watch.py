"""A training run on the terminal: the plan, live progress, validations, and what to do next."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import BarColumn, TextColumn

from regard.api import Run
from regard.cli.program import program
from regard.errors import MissingExtra
from regard.progress import QUIET_SECONDS, console, live, say, warn
from regard.train.curve import draw_curve
from regard.train.loop import Event
from regard.train.plan import plan

RECENT = 10
"""Logged intervals that the speed on the live line is the mean of."""


def watch(run: Run, device: str = "auto") -> None:
    """Train to the end, showing what happens; the commands it names repeat the `device` that was asked for."""
    sized = plan(run.prepared)
    for line in sized.lines():
        say(line)
    if sized.memory > sized.memory_there:
        warn("that may not fit; begin again with a larger train.accumulate or a smaller train.batch_tokens")
    with Board(run) as board:
        for event in run:
            board.show(event)
    if board.last.kind == "interrupted":
        say(f"saved at step {board.last.step:,}; to go on: {resume_command(run.prepared.run.path, device)}")
        raise KeyboardInterrupt  # whatever was to follow the training, here or in a script, must not
    _finish(run, board.last, device)


class Mark(NamedTuple):
    """How far training had come when something was logged; seconds are those of its steps alone."""

    step: int
    tokens: int
    seconds: float


class Board:
    """The live line under the validations: a bar in a terminal, a plain line now and then in a log."""

    def __init__(self, run: Run) -> None:
        self.progress, self.steps = run.training.progress, run.prepared.config.train.steps
        self.last = Event("end", self.progress.step, {})
        self._began, self._first, self._said = time.monotonic(), self._mark(), 0.0
        # The first interval of a compiled run is mostly compilation: it says nothing of the speed.
        self._marks = deque([] if run.prepared.config.train.compiled else [self._first], maxlen=RECENT + 1)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[line]}"))
        self._live = live(*columns)
        self._task = self._live.add_task("training", total=self.steps, completed=self._first.step, line="")

    def __enter__(self) -> Board:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        """Show one event."""
        self.last = event
        if event.kind == "log":
            self._log(event)
        elif event.kind in ("valid", "average"):
            name = "average" if event.kind == "average" else f"step {event.step:,}"
            scores = "  ".join(f"{key} {value:.4g}" for key, value in event.values.items() if isinstance(value, float))
            say(f"{name:<14}{scores}" + ("  best" if event.values["best"] else ""))

    def _log(self, event: Event) -> None:
        line = self._line(event.values)
        self._live.update(self._task, completed=event.step, line=line)
        if not console.is_terminal and time.monotonic() - self._said > QUIET_SECONDS:
            self._said = time.monotonic()
            say(line)

    def _line(self, values: dict[str, Any]) -> str:
        skipped = f"  {values['skipped']} steps skipped" if values["skipped"] else ""
        return f"step {self.progress.step:,}/{self.steps:,}  loss {values['loss']:.3f}{self._speed()}{skipped}"

    def _speed(self) -> str:
        """Tokens a second of recent steps, and the time left at their pace and with as much done between them."""
        now = self._mark()
        self._marks.append(now)
        then = self._marks[0]
        if then is now:
            return ""
        seconds = max(now.seconds - then.seconds, 1e-9)
        between = time.monotonic() - self._began - (now.seconds - self._first.seconds)  # validating, saving
        each = seconds / (now.step - then.step) + between / (now.step - self._first.step)
        left = _clock(each * (self.steps - now.step))
        return f"  {(now.tokens - then.tokens) / seconds:,.0f} tokens/s  {left} left"

    def _mark(self) -> Mark:
        return Mark(self.progress.step, self.progress.tokens, self.progress.seconds)


def resume_command(path: Path, device: str = "auto") -> str:
    """What to type to go on with the run in a directory."""
    recipe, out = shlex.quote(str(path / "config.toml")), shlex.quote(str(path))
    return f"{program()} train {recipe} --out {out} --resume{_on(device)}"


def _on(device: str) -> str:
    return "" if device == "auto" else f" --device {shlex.quote(device)}"


def _scored(run: Run) -> str:
    """What the score is of."""
    task, there = run.prepared.task, len(run.prepared.valid)
    few = task.scored is not None and task.scored < there
    return f"{task.scored:,} of {there:,} {task.unit} for validation" if few else "the validation data"


def _finish(run: Run, last: Event, device: str) -> None:
    path, task = run.prepared.run.path, run.prepared.task
    if task.goal.metric in last.values and last.values[task.goal.metric] is None:
        say(f"done: no score, for no validation gave a number; the weights are those of step {last.step:,}")
    elif task.goal.metric in last.values:
        kind = f"the average of {last.values['averaged']} snapshots" if last.values["averaged"] else "one checkpoint"
        score = f"{task.goal.label} {last.values[task.goal.metric]:.4g}"
        say(f"done: {score} on {_scored(run)}, {kind} at step {last.values['step']:,}")
    else:
        say(f"nothing to do: this run ended at step {last.step:,}; raise train.steps (or train.patience) to go on")
    try:
        say(f"learning curve: {draw_curve(run.prepared.run, task.goal)}")
    except (MissingExtra, OSError) as error:
        say(f"no learning curve: {error}")
    use, score = (f"{program()} {verb} {shlex.quote(str(path))}" for verb in (task.verb, "evaluate"))
    say(f'use it: {use} "..."{_on(device)}        score it: {score} TEST{_on(device)}')
    print(path, file=sys.stdout)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
