"""The training loop, one for all tasks.

    until the last step:
        batch -> loss -> gradient -> optimiser           (step.py)
        now and then: log, validate, keep the best, save (checkpoint.py)
    average the last snapshots, keep the better

`train` yields what happens as it happens; the command line draws it, the API hands it on. What `log.jsonl` says is
a function of the recipe and the data alone, so it is the same after any interruption; times are only in events.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.order import Cursor
from regard.data.prefetch import Prefetch
from regard.disk import flush, json_text, write_json
from regard.errors import TrainingError
from regard.metrics import perplexity
from regard.models.weights import weights_of, write_tensors
from regard.tasks.task import Batch
from regard.train.checkpoint import Checkpoints
from regard.train.optimiser import SCHEDULES, adamw, set_learning_rate
from regard.train.prepare import Prepared
from regard.train.run import TrainConfig
from regard.train.step import Stepper, read

BAD_STEPS = 10
"""Steps with a gradient that is not finite, in a row, after which training stops."""


@dataclass(frozen=True)
class Event:
    """Something that happened at a step: "log", "valid", "save", "interrupted", "average" or "end"."""

    kind: str
    step: int
    values: dict[str, Any]


class Training:
    """A prepared run being trained."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.config = prepared.config.train
        self.model = prepared.model
        self.checkpoints = Checkpoints(prepared.run)
        self.optimiser = adamw(self.model, self.config.weight_decay, self.config.layer_decay)
        self.progress = self.checkpoints.restore(self.model, self.optimiser)
        self.progress.data = {store.path.name: store.digest for store in (prepared.train, prepared.valid)}
        self.checkpoints.cut_log(self.progress)
        self.stepper = Stepper(
            self.model,
            prepared.task.loss,
            self.optimiser,
            dtype=getattr(torch, self.config.precision),
            clip=self.config.clip,
            compiled=self.config.compiled,
        )
        self._pending: list[Tensor] = []
        self._stop = False

    def run(self) -> Iterator[Event]:
        """Train to the end, or to an interruption."""
        if self.progress.finished and (self.progress.step >= self.config.steps or self._patience_lost()):
            return
        self.progress.finished, self.progress.skipped_in_a_row, self._stop = False, 0, False
        with _disk_named(self.prepared.run.path), _interruptible(self):
            with Prefetch(self._batches(), self.prepared.device) as batches:
                steps = iter(batches)
                while self.progress.step < self.config.steps and not self._stop and not self._patience_lost():
                    yield from self._one_step(steps)
            if self._stop:
                self._save()
                yield Event("interrupted", self.progress.step, {})
            else:
                yield from self._end()

    def stop(self) -> None:
        """Save after the step in progress, and end."""
        self._stop = True

    def _batches(self) -> Iterator[tuple[Batch, Cursor]]:
        for placement, cursor in self.prepared.order.iterate(self.progress.cursor):
            yield self.prepared.task.batch(self.prepared.train, placement), cursor

    def _one_step(self, batches: Iterator[tuple[Batch, Cursor]]) -> Iterator[Event]:
        began = time.perf_counter()
        progress, config = self.progress, self.config
        micro = list(islice(batches, config.accumulate))
        step = progress.step + 1
        torch.manual_seed(_step_seed(config.seed, step))
        rate = config.learning_rate * SCHEDULES[config.schedule](step, config.steps, config.warmup)
        set_learning_rate(self.optimiser, rate)
        n_tokens = sum(batch.n_tokens for batch, _ in micro)
        self.model.train()
        with _memory_named(config):
            self._pending.append(self.stepper([batch for batch, _ in micro], n_tokens))
        progress.step, progress.cursor = step, micro[-1][1]
        progress.tokens += sum(batch.n_read for batch, _ in micro)
        last = step == config.steps
        logging = step % config.log_every == 0
        validating = last or step % config.validate_every == 0
        saving = validating or step % config.save_every == 0
        if logging or saving:
            self._read_pending()
        progress.seconds += time.perf_counter() - began
        if logging:
            yield self._log(rate)
        if validating:
            yield self._validate()
        if saving:
            self._save()
            yield Event("save", step, {})

    def _read_pending(self) -> None:
        """Bring what the last steps saw from the device."""
        progress = self.progress
        seen = read(self._pending)
        self._pending.clear()
        for _, nll, n_tokens, norm, skipped in seen:
            progress.nll_since_log += nll
            progress.tokens_since_log += int(n_tokens)
            progress.norm = norm
            progress.skipped += int(skipped)
            progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if skipped else 0
            if progress.skipped_in_a_row >= BAD_STEPS:
                self._give_up()

    def _give_up(self) -> None:
        self._save()
        raise TrainingError(
            f"step {self.progress.step}: the loss was not finite {BAD_STEPS} times in a row; the weights from before "
            f"are saved in {self.prepared.run.path}; lower train.learning_rate (now {self.config.learning_rate:g}), "
            'lengthen train.warmup, or use train.precision = "float32"'
        )

    def _log(self, rate: float) -> Event:
        progress = self.progress
        n_tokens = max(1, progress.tokens_since_log)
        values = {
            "loss": progress.nll_since_log / n_tokens,
            "learning_rate": rate,
            "gradient_norm": progress.norm,
            "epoch": progress.cursor.epoch,
            "tokens": progress.tokens,
            "skipped": progress.skipped,
        }
        progress.nll_since_log, progress.tokens_since_log = 0.0, 0
        self._write_log(values)
        return Event("log", progress.step, values)

    def _validate(self) -> Event:
        progress = self.progress
        with _memory_named(self.config):
            values = validate(self.prepared)
        if self.config.average > 1:
            progress.snapshots = [*progress.snapshots, progress.step][-self.config.average :]
            self.checkpoints.snapshot(progress.step, self.model)
        progress.stale += 1
        if self._improves(values):
            progress.best_step, progress.averaged, progress.stale = progress.step, 0, 0
            write_tensors(self.prepared.run.weights, weights_of(self.model))
        self._write_log(values)
        return Event("valid", progress.step, values | {"best": progress.best_step == progress.step})

    def _improves(self, values: dict[str, float]) -> bool:
        """Keep what is better by the task's metric or, where that cannot tell, by the loss.

        BLEU cannot tell where no text has four words: then it is 0 from the first validation to the last.
        """
        progress, goal = self.progress, self.prepared.task.goal
        value, loss = values[goal.metric], values["valid_loss"]
        equal = value == progress.best and progress.best_loss is not None and loss < progress.best_loss
        better = equal or goal.improves(value, progress.best)
        if better:
            progress.best, progress.best_loss = value, loss
        return better

    def _patience_lost(self) -> bool:
        return bool(self.config.patience) and self.progress.stale >= self.config.patience

    def _end(self) -> Iterator[Event]:
        """Average, keep the better weights, and write down how it went."""
        progress, goal, run = self.progress, self.prepared.task.goal, self.prepared.run
        if self.config.average > 1 and len(progress.snapshots) > 1:
            self.checkpoints.average(progress.snapshots, self.model)
            with _memory_named(self.config):
                values = validate(self.prepared)
            better = self._improves(values)
            if better:
                progress.best_step, progress.averaged = progress.step, len(progress.snapshots)
                write_tensors(run.weights, weights_of(self.model))
            yield Event("average", progress.step, values | {"of": len(progress.snapshots), "best": better})
            self.checkpoints.restore(self.model, self.optimiser)
        progress.finished = True
        final = {"step": progress.best_step, "averaged": progress.averaged}
        write_json(run.metrics, self._summary(final))
        self._save()
        yield Event("end", progress.step, final | {goal.metric: progress.best})

    def _summary(self, final: dict[str, int]) -> dict[str, Any]:
        progress = self.progress
        return {
            "best": {self.prepared.task.goal.metric: progress.best, **final},
            "steps": progress.step,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 1),
            "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9)),
            "skipped_steps": progress.skipped,
        }

    def _write_log(self, values: dict[str, Any]) -> None:
        with self.prepared.run.log.open("a", encoding="utf-8") as log:
            log.write(json_text({"step": self.progress.step, **values}) + "\n")
            self.progress.log_bytes = log.tell()

    def _save(self) -> None:
        self._read_pending()
        flush(self.prepared.run.log)  # the checkpoint says how long it is
        if self.progress.best is None:
            write_tensors(self.prepared.run.weights, weights_of(self.model))
        self.checkpoints.save(self.progress, self.model, self.optimiser)


@torch.inference_mode()
def validate(prepared: Prepared) -> dict[str, float]:
    """Loss and perplexity on all validation examples, and the task's own metrics; what is drawn is always the same."""
    torch.manual_seed(0)
    prepared.model.eval()
    nll, n_tokens = 0.0, 0
    placements = prepared.valid_order.one_epoch()
    batches = ((prepared.task.batch(prepared.valid, placement), None) for placement in placements)
    with Prefetch(batches, prepared.device) as ahead:
        for batch, _ in ahead:
            loss = prepared.task.loss(prepared.model, batch)
            nll, n_tokens = nll + float(loss.nll), n_tokens + int(loss.n_tokens)
    scores = prepared.task.score(prepared.model, prepared.valid, prepared.device)
    likely = {"valid_perplexity": perplexity(nll, n_tokens)} if prepared.task.has_perplexity else {}
    return {"valid_loss": nll / n_tokens, **likely, **scores}


def _step_seed(seed: int, step: int) -> int:
    """Every step draws its dropout from a generator of its own, so there is no generator to save."""
    return (seed * 1_000_000_007 + step) % 2**63


@contextmanager
def _memory_named(config: TrainConfig) -> Iterator[None]:
    """Say which setting to lower when a step does not fit in memory."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise TrainingError(
            f"out of memory with train.batch_tokens = {config.batch_tokens} in {config.accumulate} parts; "
            f"begin another run with train.accumulate = {2 * config.accumulate}, or a smaller train.batch_tokens "
            "or model.d_model"
        ) from None


@contextmanager
def _disk_named(path: Path) -> Iterator[None]:
    """Say that what was saved before is whole when a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"{path}: cannot be written ({error.strerror or error}); the checkpoint before is whole: "
            "make room, then go on with --resume"
        ) from None


@contextmanager
def _interruptible(training: Training) -> Iterator[None]:
    """Ctrl-C and a polite kill end the run after the step in progress; a second Ctrl-C ends it at once."""

    def ask(number: int, _frame: object) -> None:
        training.stop()
        signal.signal(number, signal.default_int_handler)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: nobody can press Ctrl-C there
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
