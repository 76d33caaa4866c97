"""The training loop, one for all tasks.

    until the last step:
        batch -> loss -> gradient -> optimiser                   (step.py)
        at intervals: log, validate, keep the best weights, save (validation.py, checkpoint.py)
        early stopping: no better score in `train.patience` validations
    average the last snapshots, keep the better weights

`train` yields events while it runs; the command line displays them, the API passes them on. `log.jsonl` is a function
of the recipe and the data alone, so it is the same after any interruption; times appear only in events.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.data.order import Cursor
from regard.data.prefetch import Prefetcher
from regard.disk import convert_write_errors, fsync_path, write_json_with_checksum
from regard.errors import CheckpointError, DataError, TrainingError
from regard.models.freezing import find_frozen_modules
from regard.models.weights import collect_weights, load_weights, write_tensors
from regard.progress import print_message, warn
from regard.tasks.task import TrainingBatch
from regard.training.checkpoint import CheckpointManager
from regard.training.feature_cache import cache_features, plan_cache
from regard.training.guards import convert_out_of_memory_errors, stop_on_signals
from regard.training.interpolation import StartInterpolation
from regard.training.optimiser import build_optimiser, set_learning_rate
from regard.training.prepare import PreparedRun
from regard.training.schedule import SCHEDULES, count_micro_batches
from regard.training.step import TrainingStep, read_step_results
from regard.training.thread_count import use_threads
from regard.training.time_budget import Pace, choose_steps, measured_seconds, time_micro_batches
from regard.training.unfreezing import GradualUnfreezing
from regard.training.validation import validate

MAX_CONSECUTIVE_SKIPPED_STEPS = 10
"""Consecutive steps with a gradient that is not finite, after which training stops."""

EARLY_PROGRESS_STEPS = (1, 4)
"""Steps of a session after which progress is reported: the time of a step is measured between them."""
EARLY_COMPILED_PROGRESS_STEPS = (3, 8)
"""The same for a compiled run, whose first steps compile the model and capture CUDA graphs."""

PROGRESS_INTERVAL_SECONDS = 10.0
"""Longest time between two reports of progress, in whole steps."""


EventKind = Literal["progress", "log", "valid", "save", "interrupted", "average", "end"]


@dataclass(frozen=True)
class TrainingEvent:
    """An event at a step.

    "progress" carries the training loss since the last log; it comes after the first steps and then by time, and is
    not written to the log.
    """

    kind: EventKind
    step: int
    values: dict[str, Any]


class Trainer:
    """Trains a prepared run; holds the lock of its directory until `train` has ended."""

    def __init__(self, prepared: PreparedRun) -> None:
        prepared.directory.acquire_lock()
        self.prepared = prepared
        self.config = prepared.config.train
        self.model = prepared.model
        self.checkpoints = CheckpointManager(prepared.directory)
        self.optimiser = build_optimiser(self.model, self.config.weight_decay, self.config.layer_decay)
        self.progress = self.checkpoints.restore(self.model, self.optimiser)
        self.progress.data = {store.path.name: store.digest for store in (prepared.train_store, prepared.valid_store)}
        with self._convert_write_errors():
            self.checkpoints.truncate_log(self.progress)
            if self.progress.step and not prepared.directory.weights_path.exists():
                self._replace_missing_weights()
        self._interpolation = StartInterpolation(prepared.directory, prepared.config, prepared.device)
        self._unfreezing = GradualUnfreezing(prepared)
        self._unfreezing.apply(self.progress.step + 1)
        self.training_step = self._build_step(self.model)
        self._frozen_modules = find_frozen_modules(self.model)
        self._training_view = self._validation_view = prepared
        self._pending_results: list[Tensor] = []
        self._stop_signal = 0
        self.fit_into_minutes()
        early_steps = EARLY_COMPILED_PROGRESS_STEPS if self.config.compiled else EARLY_PROGRESS_STEPS
        self._early_steps = {self.progress.step + n for n in early_steps}
        self._last_report_time = time.monotonic()

    def fit_into_minutes(self) -> None:
        """Choose the number of steps by their speed, where the recipe gives minutes instead."""
        run = self.prepared
        if run.complete is None:
            return
        complete, minutes = run.complete, self.config.minutes
        print_message(f"measuring  the time of a step, to choose train.steps for train.minutes = {minutes:g}")
        try:
            pace = self.measure_pace()
            run.set_steps(choose_steps(minutes, pace, lambda steps: complete(steps)[0].train))
        except BaseException:
            run.directory.lock.release()
            raise
        self.config = run.config.train

    def measure_pace(self) -> Pace:
        """Measure the speed of training and of validating, without changing weights or optimiser."""
        warm_up, n_timed = EARLY_COMPILED_PROGRESS_STEPS if self.config.compiled else EARLY_PROGRESS_STEPS
        with use_threads(self.config.threads), convert_out_of_memory_errors(self.config):
            self._cache_frozen_features()
            self._set_training_mode()
            set_learning_rate(self.optimiser, 0.0)
            with Prefetcher(self._iterate_batches(), self.prepared.device) as batches:
                micro_batches = (batch for batch, _ in batches)
                time_micro_batches(self.training_step, micro_batches, warm_up)
                micro_batch = time_micro_batches(
                    self.training_step, micro_batches, n_timed, measured_seconds(self.config.minutes)
                )
            self.optimiser.state.clear()
            start_time = time.perf_counter()
            validate(self._validation_view, self.prepared.scored_examples)
            return Pace(micro_batch, time.perf_counter() - start_time)

    def _replace_missing_weights(self) -> None:
        """Replace missing best weights by those of the last checkpoint, until there are better ones."""
        progress, path = self.progress, self.prepared.directory.weights_path
        warn(f"{path}: missing; the weights of step {progress.step:,} replace it, until there are better ones")
        progress.best = progress.best_loss = None
        progress.best_step = progress.averaged = 0
        progress.finished = False
        write_tensors(path, collect_weights(self.model))
        self.checkpoints.save(progress, self.model, self.optimiser)

    def _build_step(self, model: nn.Module) -> TrainingStep:
        return TrainingStep(
            model,
            self.prepared.task.compute_loss,
            self.optimiser,
            dtype=getattr(torch, self.config.precision),
            clip=self.config.clip,
            compiled=self.config.compiled,
        )

    def _cache_frozen_features(self) -> None:
        """Compute the outputs of a frozen encoder for all texts, if they are read more than once and fit in memory."""
        plan = plan_cache(self.prepared)
        if plan is not None and plan.is_used and self._training_view is self.prepared:
            with convert_out_of_memory_errors(self.config):
                self._training_view, self._validation_view = cache_features(self.prepared)
            self.training_step = self._build_step(self._training_view.model)

    def _rebuild_step(self) -> None:
        """Rebuild the step for other trained weights; a compiled one is compiled again."""
        if self.config.compiled:
            torch.compiler.reset()  # otherwise the compiler would count every stage as one recompilation too many
        self.training_step = self._build_step(self.model)
        self._frozen_modules = find_frozen_modules(self.model)

    def _set_training_mode(self) -> None:
        """Switch the dropout of all that is trained on, and that of frozen modules off."""
        self.model.train()
        for module in self._frozen_modules:
            module.eval()

    def train(self) -> Generator[TrainingEvent, None, None]:
        """Train to the last step or to an interruption, yielding events."""
        with self.prepared.directory.lock:
            self._check_unchanged()
            if self.progress.has_ended(self.config):
                return
            yield from self._train()

    def _check_unchanged(self) -> None:
        """Refuse to continue if another process took the lock between two calls of `train` and trained further."""
        if not self.checkpoints.is_last_checkpoint():
            path = self.prepared.directory.path
            raise CheckpointError(
                f"{path}: was trained further by another process in the meantime; resume the run again"
            )

    def _train(self) -> Iterator[TrainingEvent]:
        self.progress.finished, self.progress.skipped_in_a_row, self._stop_signal = False, 0, 0
        with self._convert_write_errors(), stop_on_signals(self.request_stop), use_threads(self.config.threads):
            self._record_changed_settings()
            self._cache_frozen_features()
            if self._must_score_start():
                yield self._validate()
                self.progress.start_scores = self.progress.best_scores
            with Prefetcher(self._iterate_batches(), self.prepared.device) as batches:
                steps = iter(batches)
                while self.progress.step < self.config.steps and not self._is_stopped():
                    yield from self._run_step(steps)
            if self._stop_signal:
                self._save_checkpoint()
                yield TrainingEvent("interrupted", self.progress.step, {"signal": self._stop_signal})
            else:
                yield from self._finish()

    def _must_score_start(self) -> bool:
        """Return True if the scores of the model that training starts from are wanted, and not yet taken."""
        run, progress = self.prepared, self.progress
        return run.task.scores_start and bool(run.config.model.start) and not (progress.step or progress.best_scores)

    def request_stop(self, signal_number: int = signal.SIGINT) -> None:
        """Save a checkpoint after the current step, and end, as on this signal."""
        self._stop_signal = signal_number

    def _iterate_batches(self) -> Iterator[tuple[TrainingBatch, Cursor]]:
        run = self._training_view
        for placement, cursor in run.train_order.iterate(self.progress.cursor):
            yield run.task.make_batch(run.train_store, placement), cursor

    def _run_step(self, batches: Iterator[tuple[TrainingBatch, Cursor]]) -> Iterator[TrainingEvent]:
        start_time = time.perf_counter()
        progress, config = self.progress, self.config
        step = progress.step + 1
        micro_batches = list(islice(batches, count_micro_batches(config, step)))
        if self._unfreezing.apply(step):
            self._rebuild_step()
        torch.manual_seed(_step_seed(config.seed, step))
        rate = config.learning_rate * SCHEDULES[config.schedule](step, config.steps, config.warmup)
        set_learning_rate(self.optimiser, rate)
        n_tokens = sum(batch.n_tokens for batch, _ in micro_batches)
        self._set_training_mode()
        with convert_out_of_memory_errors(config):
            self._pending_results.append(self.training_step([batch for batch, _ in micro_batches], n_tokens))
        progress.step, progress.cursor = step, micro_batches[-1][1]
        progress.tokens += sum(batch.n_input_tokens for batch, _ in micro_batches)
        last = step == config.steps
        logging = step % config.log_every == 0
        validating = last or step % config.validate_every == 0
        saving = validating or step % config.save_every == 0
        reporting = not logging and self._is_report_due()
        if logging or saving or reporting:
            self._collect_results()
        progress.seconds += time.perf_counter() - start_time
        if logging or reporting:
            self._last_report_time = time.monotonic()
            yield self._log(rate) if logging else TrainingEvent("progress", step, self._training_values(rate))
        if validating:
            yield self._validate()
        if saving:
            self._save_checkpoint()
            yield TrainingEvent("save", step, {})

    def _is_report_due(self) -> bool:
        is_overdue = time.monotonic() - self._last_report_time >= PROGRESS_INTERVAL_SECONDS
        return is_overdue or self.progress.step in self._early_steps

    def _collect_results(self) -> None:
        """Copy the results of the last steps from the device."""
        progress = self.progress
        results = read_step_results(self._pending_results)
        self._pending_results.clear()
        for _, nll, n_tokens, norm, skipped in results:
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
            f"step {self.progress.step}: the loss was not finite {MAX_CONSECUTIVE_SKIPPED_STEPS} times in a row; "
            f"the weights from before are saved in {self.prepared.directory.path}; lower train.learning_rate "
            f'(now {self.config.learning_rate:g}), lengthen train.warmup, or use train.precision = "float32"'
        )

    def _training_values(self, learning_rate: float) -> dict[str, Any]:
        """Return the training loss since the last log, and the state of the optimiser."""
        progress = self.progress
        return {
            "loss": progress.nll_since_log / max(1, progress.tokens_since_log),
            "learning_rate": learning_rate,
            "gradient_norm": progress.norm,
            "epoch": progress.cursor.epoch,
            "tokens": progress.tokens,
            "skipped": progress.skipped,
        }

    def _log(self, learning_rate: float) -> TrainingEvent:
        values = self._training_values(learning_rate)
        self.progress.nll_since_log, self.progress.tokens_since_log = 0.0, 0
        self.checkpoints.append_to_log(self.progress, values)
        return TrainingEvent("log", self.progress.step, values)

    def _validate(self) -> TrainingEvent:
        with self._interpolation.applied_to(self.model):
            return self._score_and_keep()

    def _score_and_keep(self) -> TrainingEvent:
        progress = self.progress
        with convert_out_of_memory_errors(self.config):
            values = validate(self._validation_view, self.prepared.scored_examples)
        if self.config.average > 1 and progress.step:
            progress.snapshots = [*progress.snapshots, progress.step][-self.config.average :]
            self.checkpoints.save_snapshot(progress.step, self.model)
        progress.stale += 1
        if self._update_best(values):
            progress.best_step, progress.averaged, progress.stale = progress.step, 0, 0
            write_tensors(self.prepared.directory.weights_path, collect_weights(self.model))
        self.checkpoints.append_to_log(self.progress, values)
        return TrainingEvent("valid", progress.step, values | {"best": progress.best_step == progress.step})

    def _update_best(self, values: dict[str, float]) -> bool:
        """Keep the values if they are better by the task's metric or, if that is equal, by the loss.

        BLEU is equal if no text has four words: then it is 0 at every validation.
        """
        progress, metric = self.progress, self.prepared.task.validation_metric
        value, loss = values[metric.key], values["valid_loss"]
        breaks_tie = value == progress.best and progress.best_loss is not None and loss < progress.best_loss
        better = breaks_tie or metric.is_improvement(value, progress.best)
        if better:
            progress.best, progress.best_loss, progress.best_scores = value, loss, values
        return better

    def _is_stopped(self) -> bool:
        """Return True if training ends before its last step: by a signal, or by early stopping."""
        return bool(self._stop_signal) or self.progress.should_stop_early(self.config)

    def _finish(self) -> Iterator[TrainingEvent]:
        """Average the last snapshots, keep the better weights, and write metrics.json."""
        progress, metric, run = self.progress, self.prepared.task.validation_metric, self.prepared.directory
        steps = progress.snapshots[-self.config.average :]
        if len(steps) > 1:
            self.checkpoints.load_averaged_snapshots(steps, self.model)
            with convert_out_of_memory_errors(self.config):
                values = validate(self._validation_view, self.prepared.scored_examples)
            better = self._update_best(values)
            if better:
                progress.best_step, progress.averaged = progress.step, len(steps)
                write_tensors(run.weights_path, collect_weights(self.model))
            yield TrainingEvent("average", progress.step, values | {"of": len(steps), "best": better})
            self.checkpoints.restore(self.model, self.optimiser)
        final = {"step": progress.best_step, "averaged": progress.averaged}
        at_end = self._score_best_weights() | self._compare_with_start()
        progress.finished = True
        write_json_with_checksum(run.metrics_path, self._summary(final) | at_end)
        self._save_checkpoint()
        yield TrainingEvent("end", progress.step, final | {metric.key: progress.best} | at_end)

    def _score_best_weights(self) -> dict[str, dict[str, float]]:
        """Return what only the end of training scores, with the best weights.

        "final" has the metrics on all validation examples, where validations scored a sample, and "raw_text" those that
        the task computes on the text itself.
        """
        run, items = self.prepared, self.prepared.all_scored_examples
        is_sampled, scores = len(items) > len(run.scored_examples), {}
        if self.progress.best is None or not (is_sampled or run.task.has_final_metrics):
            return {}
        load_weights(self.model, run.directory.weights_path)
        with convert_out_of_memory_errors(self.config):
            if is_sampled:
                scores["final"] = {"examples": len(items), **validate(self._validation_view, items)}
            if run.task.has_final_metrics:
                scores["raw_text"] = self._score_validation_text()
        self.checkpoints.restore(self.model, self.optimiser)
        return {name: values for name, values in scores.items() if values}

    def _compare_with_start(self) -> dict[str, dict[str, float]]:
        """Return the scores of the start and of the best weights on the same examples, where the start was scored."""
        progress = self.progress
        return {"before": progress.start_scores, "after": progress.best_scores} if progress.start_scores else {}

    @torch.inference_mode()
    def _score_validation_text(self) -> dict[str, float]:
        run = self.prepared
        try:
            return run.task.compute_final_metrics(self.model.eval(), run.corpus, run.device)
        except DataError as error:  # the files changed meanwhile; the model is trained all the same
            warn(f"no scores on running text: {error}")
            return {}

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

    def _record_changed_settings(self) -> None:
        """Record the settings that a resumed run changes: in the log, the checkpoint and, last, config.toml."""
        changes = self.prepared.changed_settings
        if not changes:
            return
        updates = {f"train.{each.key}": [each.old, each.new] for each in changes if each.changes_updates}
        if updates and self.progress.step:
            self.checkpoints.append_to_log(self.progress, {"changed": updates})
            self._save_checkpoint()
        self.prepared.directory.write_config(self.prepared.config)
        self.prepared.changed_settings = []

    def _convert_write_errors(self) -> AbstractContextManager[None]:
        def describe_fix() -> str:
            saved = (
                "the previous checkpoint is intact" if self.checkpoints.exists() else "no checkpoint was written yet"
            )
            return f"{saved}: make room, then continue with --resume"

        return convert_write_errors(self.prepared.directory.path, fix=describe_fix, error_type=TrainingError)

    def _save_checkpoint(self) -> None:
        self._collect_results()
        fsync_path(self.prepared.directory.log_path)  # the checkpoint stores its length
        if self.progress.best is None:
            write_tensors(self.prepared.directory.weights_path, collect_weights(self.model))
        self.checkpoints.save(self.progress, self.model, self.optimiser)


def _step_seed(seed: int, step: int) -> int:
    """Return the seed of a step's dropout: every step has its own, so there is no generator state to save."""
    return (seed * 1_000_000_007 + step) % 2**63
