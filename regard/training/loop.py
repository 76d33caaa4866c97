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

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.order import Cursor
from regard.data.prefetch import Prefetcher
from regard.disk import fsync_path, json_text, write_json
from regard.errors import TrainingError
from regard.metrics import perplexity
from regard.models.weights import collect_weights, load_weights, write_tensors
from regard.runs.recipe import TrainConfig
from regard.tasks.task import TrainingBatch
from regard.training.checkpoint import CheckpointManager
from regard.training.optimiser import SCHEDULES, build_adamw, set_learning_rate
from regard.training.prepare import PreparedRun
from regard.training.step import TrainingStep, read_step_results

MAX_CONSECUTIVE_SKIPPED_STEPS = 10
"""Steps with a gradient that is not finite, in a row, after which training stops."""


@dataclass(frozen=True)
class TrainingEvent:
    """Something that happened at a step: "log", "valid", "save", "interrupted", "average" or "end"."""

    kind: str
    step: int
    values: dict[str, Any]


class Trainer:
    """A prepared run being trained."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.config = prepared.config.train
        self.model = prepared.model
        self.checkpoints = CheckpointManager(prepared.directory)
        self.optimiser = build_adamw(self.model, self.config.weight_decay, self.config.layer_decay)
        self.progress = self.checkpoints.restore(self.model, self.optimiser)
        self.progress.data = {store.path.name: store.digest for store in (prepared.train_store, prepared.valid_store)}
        self.checkpoints.truncate_log(self.progress)
        self.training_step = TrainingStep(
            self.model,
            prepared.task.compute_loss,
            self.optimiser,
            dtype=getattr(torch, self.config.precision),
            clip=self.config.clip,
            compiled=self.config.compiled,
        )
        self._pending_results: list[Tensor] = []
        self._stop_requested = False

    def train(self) -> Iterator[TrainingEvent]:
        """Train to the end, or to an interruption."""
        if self.progress.finished and (self.progress.step >= self.config.steps or self._should_stop_early()):
            return
        self.progress.finished, self.progress.skipped_in_a_row, self._stop_requested = False, 0, False
        with _convert_write_errors(self.prepared.directory.path), _stop_on_signals(self):
            with Prefetcher(self._iterate_batches(), self.prepared.device) as batches:
                steps = iter(batches)
                while (
                    self.progress.step < self.config.steps
                    and not self._stop_requested
                    and not self._should_stop_early()
                ):
                    yield from self._run_step(steps)
            if self._stop_requested:
                self._save_checkpoint()
                yield TrainingEvent("interrupted", self.progress.step, {})
            else:
                yield from self._finish()

    def request_stop(self) -> None:
        """Save after the step in progress, and end."""
        self._stop_requested = True

    def _iterate_batches(self) -> Iterator[tuple[TrainingBatch, Cursor]]:
        for placement, cursor in self.prepared.train_order.iterate(self.progress.cursor):
            yield self.prepared.task.make_batch(self.prepared.train_store, placement), cursor

    def _run_step(self, batches: Iterator[tuple[TrainingBatch, Cursor]]) -> Iterator[TrainingEvent]:
        began = time.perf_counter()
        progress, config = self.progress, self.config
        micro = list(islice(batches, config.accumulate))
        step = progress.step + 1
        torch.manual_seed(_step_seed(config.seed, step))
        rate = config.learning_rate * SCHEDULES[config.schedule](step, config.steps, config.warmup)
        set_learning_rate(self.optimiser, rate)
        n_tokens = sum(batch.n_tokens for batch, _ in micro)
        self.model.train()
        with _convert_out_of_memory_errors(config):
            self._pending_results.append(self.training_step([batch for batch, _ in micro], n_tokens))
        progress.step, progress.cursor = step, micro[-1][1]
        progress.tokens += sum(batch.n_input_tokens for batch, _ in micro)
        last = step == config.steps
        logging = step % config.log_every == 0
        validating = last or step % config.validate_every == 0
        saving = validating or step % config.save_every == 0
        if logging or saving:
            self._collect_results()
        progress.seconds += time.perf_counter() - began
        if logging:
            yield self._log(rate)
        if validating:
            yield self._validate()
        if saving:
            self._save_checkpoint()
            yield TrainingEvent("save", step, {})

    def _collect_results(self) -> None:
        """Bring what the last steps saw from the device."""
        progress = self.progress
        seen = read_step_results(self._pending_results)
        self._pending_results.clear()
        for _, nll, n_tokens, norm, skipped in seen:
            progress.nll_since_log += nll
            progress.tokens_since_log += int(n_tokens)
            progress.norm = norm
            progress.skipped += int(skipped)
            progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if skipped else 0
            if progress.skipped_in_a_row >= MAX_CONSECUTIVE_SKIPPED_STEPS:
                self._raise_diverged()

    def _raise_diverged(self) -> None:
        self._save_checkpoint()
        raise TrainingError(
            f"step {self.progress.step}: the loss was not finite {MAX_CONSECUTIVE_SKIPPED_STEPS} times in a row; the weights from before "
            f"are saved in {self.prepared.directory.path}; lower train.learning_rate (now {self.config.learning_rate:g}), "
            'lengthen train.warmup, or use train.precision = "float32"'
        )

    def _log(self, rate: float) -> TrainingEvent:
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
        return TrainingEvent("log", progress.step, values)

    def _validate(self) -> TrainingEvent:
        progress = self.progress
        with _convert_out_of_memory_errors(self.config):
            values = validate(self.prepared, self.prepared.scored_examples)
        if self.config.average > 1:
            progress.snapshots = [*progress.snapshots, progress.step][-self.config.average :]
            self.checkpoints.save_snapshot(progress.step, self.model)
        progress.stale += 1
        if self._update_best(values):
            progress.best_step, progress.averaged, progress.stale = progress.step, 0, 0
            write_tensors(self.prepared.directory.weights_path, collect_weights(self.model))
        self._write_log(values)
        return TrainingEvent("valid", progress.step, values | {"best": progress.best_step == progress.step})

    def _update_best(self, values: dict[str, float]) -> bool:
        """Keep what is better by the task's metric or, where that cannot tell, by the loss.

        BLEU cannot tell where no text has four words: then it is 0 from the first validation to the last.
        """
        progress, goal = self.progress, self.prepared.task.validation_metric
        value, loss = values[goal.key], values["valid_loss"]
        equal = value == progress.best and progress.best_loss is not None and loss < progress.best_loss
        better = equal or goal.is_improvement(value, progress.best)
        if better:
            progress.best, progress.best_loss = value, loss
        return better

    def _should_stop_early(self) -> bool:
        return bool(self.config.patience) and self.progress.stale >= self.config.patience

    def _finish(self) -> Iterator[TrainingEvent]:
        """Average, keep the better weights, and write down how it went."""
        progress, goal, run = self.progress, self.prepared.task.validation_metric, self.prepared.directory
        if self.config.average > 1 and len(progress.snapshots) > 1:
            self.checkpoints.load_averaged_snapshots(progress.snapshots, self.model)
            with _convert_out_of_memory_errors(self.config):
                values = validate(self.prepared, self.prepared.scored_examples)
            better = self._update_best(values)
            if better:
                progress.best_step, progress.averaged = progress.step, len(progress.snapshots)
                write_tensors(run.weights_path, collect_weights(self.model))
            yield TrainingEvent("average", progress.step, values | {"of": len(progress.snapshots), "best": better})
            self.checkpoints.restore(self.model, self.optimiser)
        final = {"step": progress.best_step, "averaged": progress.averaged}
        on_all = self._score_all_examples()
        progress.finished = True
        write_json(run.metrics_path, self._summary(final) | on_all)
        self._save_checkpoint()
        yield TrainingEvent("end", progress.step, final | {goal.key: progress.best} | on_all)

    def _score_all_examples(self) -> dict[str, dict[str, float]]:
        """Return the metrics of the best weights on all validation examples, where validations scored a sample."""
        items = self.prepared.all_scored_examples
        if self.progress.best is None or len(items) == len(self.prepared.scored_examples):
            return {}
        load_weights(self.model, self.prepared.directory.weights_path)
        with _convert_out_of_memory_errors(self.config):
            values = validate(self.prepared, items)
        self.checkpoints.restore(self.model, self.optimiser)
        return {"final": {"examples": len(items), **values}}

    def _summary(self, final: dict[str, int]) -> dict[str, Any]:
        progress = self.progress
        return {
            "best": {self.prepared.task.validation_metric.key: progress.best, **final},
            "steps": progress.step,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 1),
            "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9)),
            "skipped_steps": progress.skipped,
        }

    def _write_log(self, values: dict[str, Any]) -> None:
        with self.prepared.directory.log_path.open("a", encoding="utf-8") as log:
            log.write(json_text({"step": self.progress.step, **values}) + "\n")
            self.progress.log_bytes = log.tell()

    def _save_checkpoint(self) -> None:
        self._collect_results()
        fsync_path(self.prepared.directory.log_path)  # the checkpoint says how long it is
        if self.progress.best is None:
            write_tensors(self.prepared.directory.weights_path, collect_weights(self.model))
        self.checkpoints.save(self.progress, self.model, self.optimiser)


@torch.inference_mode()
def validate(prepared: PreparedRun, items: Int[np.ndarray, " items"]) -> dict[str, float]:
    """Return loss and perplexity on all validation examples, and the task's metrics on these; every call draws alike."""
    torch.manual_seed(0)
    prepared.model.eval()
    nll, n_tokens = 0.0, 0
    placements = prepared.valid_order.iterate_epoch()
    batches = ((prepared.task.make_batch(prepared.valid_store, placement), None) for placement in placements)
    with Prefetcher(batches, prepared.device) as ahead:
        for batch, _ in ahead:
            loss = prepared.task.compute_loss(prepared.model, batch)
            nll, n_tokens = nll + float(loss.nll), n_tokens + int(loss.n_tokens)
    scores = prepared.task.compute_validation_metrics(prepared.model, prepared.valid_store, items, prepared.device)
    likely = {"valid_perplexity": perplexity(nll, n_tokens)} if prepared.task.has_perplexity else {}
    return {"valid_loss": nll / n_tokens, **likely, **scores}


def _step_seed(seed: int, step: int) -> int:
    """Every step draws its dropout from a generator of its own, so there is no generator to save."""
    return (seed * 1_000_000_007 + step) % 2**63


@contextmanager
def _convert_out_of_memory_errors(config: TrainConfig) -> Iterator[None]:
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
def _convert_write_errors(path: Path) -> Iterator[None]:
    """Say that what was saved before is whole when a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"{path}: cannot be written ({error.strerror or error}); the checkpoint before is whole: "
            "make room, then go on with --resume"
        ) from None


@contextmanager
def _stop_on_signals(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C and a polite kill end the run after the step in progress; a second Ctrl-C ends it at once."""

    def ask(number: int, _frame: object) -> None:
        trainer.request_stop()
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
