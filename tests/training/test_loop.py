"""The training loop: logging, best checkpoint, averaging, early stopping, skipped steps and interruptions."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import contents, learned, merged, ready, recipe, trained
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.batches import Seq2SeqBatch
from regard.data.store import TokenStore
from regard.errors import TrainingError
from regard.nn import Loss
from regard.runs.run_directory import RunDirectory
from regard.tasks.translate import TranslationTask
from regard.training import loop
from regard.training.loop import MAX_CONSECUTIVE_SKIPPED_STEPS, Trainer, TrainingEvent
from regard.training.prepare import PreparedRun
from regard.training.schedule import inverse_sqrt


def log_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def metrics_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "metrics.json").read_text())


class ScriptedTask(TranslationTask):
    """A translation task with given validation scores."""

    def compute_validation_metrics(
        self, model: nn.Module, store: TokenStore, items: np.ndarray, device: torch.device
    ) -> dict[str, float]:
        return {"bleu": float(next(self.scores_iterator))}

    scores_iterator: Iterator[float]


def train_with_scores(
    folder: Path, scores: Iterable[float], *, resume: bool = False, **train: Any
) -> list[TrainingEvent]:
    """Train with a validation after each step, with these scores."""
    tables = recipe(folder, {"train": {"validate_every": 1, "save_every": 1, "steps": 8, **train}})
    prepared = ready(tables, folder / "run", resume=resume)
    prepared.task = ScriptedTask(prepared.task.config, prepared.task.tokenizers)
    prepared.task.scores_iterator = iter(scores)
    return list(Trainer(prepared).train())


class NanLossTask(TranslationTask):
    """A translation task with a loss of NaN at some steps, counted from 1."""

    bad: frozenset[int]
    steps = 0

    def compute_loss(self, model: nn.Module, batch: Seq2SeqBatch) -> Loss:
        loss = super().compute_loss(model, batch)
        self.steps += model.training
        factor = torch.nan if model.training and self.steps in self.bad else 1.0
        return Loss(loss.total * factor, loss.nll * factor, loss.n_tokens)


def make_nan_trainer(folder: Path, bad: Iterable[int], **train: Any) -> Trainer:
    prepared = ready(recipe(folder, {"train": {"steps": 20, **train}}), folder / "run")
    prepared.task = NanLossTask(prepared.task.config, prepared.task.tokenizers)
    prepared.task.bad = frozenset(bad)
    return Trainer(prepared)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def test_events_and_log(tmp_path: Path) -> None:
    tables = recipe(tmp_path, {"train": {"log_every": 2, "save_every": 4}})
    events = trained(tables, tmp_path / "run")
    assert [(event.kind, event.step) for event in events] == [
        ("log", 2),
        ("valid", 3),
        ("save", 3),
        ("log", 4),
        ("save", 4),
        ("log", 6),
        ("valid", 6),
        ("save", 6),
        ("end", 6),
    ]
    log = log_of(tmp_path / "run")
    assert [line["step"] for line in log] == [2, 3, 4, 6, 6]
    values = [event.values for event in events if event.kind in ("log", "valid")]
    assert [line | {"best": None} for line in log] == [
        {"step": event.step, **event.values, "best": None} for event in events if event.kind in ("log", "valid")
    ]
    assert values[0].keys() == {"loss", "learning_rate", "gradient_norm", "epoch", "tokens", "skipped"}
    assert values[1].keys() == {"valid_loss", "valid_perplexity", "bleu", "chrf", "exact", "best"}
    for line in log:
        if "loss" in line:
            assert line["learning_rate"] == pytest.approx(3e-3 * inverse_sqrt(line["step"], 6, 2))
            assert 0 < line["gradient_norm"] < 100
        else:
            assert line["valid_perplexity"] == pytest.approx(math.exp(line["valid_loss"]))
    tokens = [line["tokens"] for line in log if "loss" in line]
    assert tokens == sorted(tokens)
    assert log[-2]["epoch"] >= 1


def test_logged_loss_is_the_mean_over_all_tokens_since_the_last_log(tmp_path: Path) -> None:
    trained(recipe(tmp_path, {"train": {"log_every": 1}}), tmp_path / "each")
    trained(recipe(tmp_path, {"train": {"log_every": 3}}), tmp_path / "three")
    each = [line for line in log_of(tmp_path / "each") if "loss" in line]
    three = [line for line in log_of(tmp_path / "three") if "loss" in line]
    counts = [line["tokens"] - before for line, before in zip(each, [0, *(e["tokens"] for e in each)], strict=False)]
    assert len(set(counts)) > 1  # so that a mean of means would differ
    for first, line in zip((0, 3), three, strict=True):
        nll = sum(e["loss"] * n for e, n in zip(each[first : first + 3], counts[first : first + 3], strict=True))
        assert line["loss"] == pytest.approx(nll / sum(counts[first : first + 3]), rel=1e-6)


def test_first_logged_loss_is_that_of_the_first_batch(tmp_path: Path) -> None:
    """Of the weights before the first step, computed here without the loop."""
    tables = recipe(tmp_path, {"model": {"dropout": 0.0}, "train": {"log_every": 1}})
    run = ready(tables, tmp_path / "other")
    placement, _ = next(iter(run.train_order.iterate()))
    batch = run.task.make_batch(run.train_store, placement)
    with torch.no_grad():
        loss = run.task.compute_loss(run.model, batch)
    trained(tables, tmp_path / "run")
    first = log_of(tmp_path / "run")[0]
    assert first["loss"] == pytest.approx(float(loss.nll) / batch.n_tokens, rel=1e-5)
    assert first["tokens"] == batch.n_input_tokens
    assert (first["step"], first["skipped"]) == (1, 0)


def test_same_recipe_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    tables = recipe(tmp_path, {"train": {"average": 2}})
    for name in ("one", "two"):
        trained(tables, tmp_path / name)
    trained(merged(tables, {"train": {"seed": 0}}), tmp_path / "other")
    one, two, other = (contents(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one["model"] != other["model"]
    assert one["log"] != other["log"]


def test_very_large_seed(tmp_path: Path) -> None:
    trained(recipe(tmp_path, {"train": {"seed": 2**63 - 1, "steps": 3}}), tmp_path / "run")
    assert log_of(tmp_path / "run")[-1]["step"] == 3


def test_eight_pairs_are_overfitted_and_summarised(tmp_path: Path) -> None:
    out = learned(tmp_path)
    metrics = metrics_of(out)
    assert metrics["best"]["bleu"] == pytest.approx(100)
    assert metrics["best"]["averaged"] == 0
    assert metrics["steps"] == 60
    assert metrics["skipped_steps"] == 0
    assert metrics["seconds"] > 0
    assert metrics["tokens_per_second"] > 0
    valid = [line for line in log_of(out) if "bleu" in line]
    assert valid[-1]["exact"] == 1.0
    assert valid[0]["valid_loss"] > valid[-1]["valid_loss"]


def test_best_checkpoint_is_kept(tmp_path: Path) -> None:
    """The average of all snapshots is scripted to be worse than the best."""
    events = train_with_scores(tmp_path, [1, 5, 3, 9, 2, 4, 8, 7, 0], average=8)
    assert [event.step for event in events if event.kind == "valid" and event.values["best"]] == [1, 2, 4]
    best_weights = load_file(tmp_path / "run" / "model.safetensors")
    snapshot = load_file(tmp_path / "run" / "snapshots" / "00000004.safetensors")
    assert best_weights.keys() == snapshot.keys()
    assert all(torch.equal(best_weights[name], snapshot[name]) for name in best_weights)
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 9, "step": 4, "averaged": 0}
    assert events[-1] == TrainingEvent("end", 8, {"step": 4, "averaged": 0, "bleu": 9})


@pytest.mark.parametrize(("average", "snapshot_steps"), [(3, [6, 7, 8]), (20, [1, 2, 3, 4, 5, 6, 7, 8])])
def test_average_of_the_last_snapshots_is_kept_if_better(
    tmp_path: Path, average: int, snapshot_steps: list[int]
) -> None:
    events = train_with_scores(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8, 9], average=average)
    run = tmp_path / "run"
    files = sorted(path.name for path in (run / "snapshots").iterdir())
    assert files == [f"{step:08d}.safetensors" for step in snapshot_steps]
    snapshots = [load_file(run / "snapshots" / name) for name in files]
    for name, weight in load_file(run / "model.safetensors").items():
        mean = sum(snapshot[name].double() for snapshot in snapshots) / len(snapshot_steps)
        assert_close(weight, mean.float(), rtol=0, atol=1e-7)
    assert metrics_of(run)["best"] == {"bleu": 9, "step": 8, "averaged": len(snapshot_steps)}
    assert [event.kind for event in events[-2:]] == ["average", "end"]
    last = snapshots[-1]
    trained_on = load_file(run / "train.safetensors")  # resuming continues from the last step, not from the average
    assert all(torch.equal(trained_on[f"model.{name}"], last[name]) for name in last)


def test_no_snapshots_without_averaging(tmp_path: Path) -> None:
    events = train_with_scores(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8], average=1)
    assert not (tmp_path / "run" / "snapshots").exists()
    assert "average" not in [event.kind for event in events]


def test_averaging_may_begin_when_resuming(tmp_path: Path) -> None:
    train_with_scores(tmp_path, [1, 2, 3], average=1, steps=3)
    events = train_with_scores(tmp_path, [4, 5, 6], average=2, steps=5, resume=True)
    assert events[-1].values == {"step": 5, "averaged": 2, "bleu": 6}


def test_average_that_stays_best_is_reported_as_average(tmp_path: Path) -> None:
    train_with_scores(tmp_path, [1, 2, 3, 9], average=2, steps=3)
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    events = train_with_scores(tmp_path, [4, 5, 6], average=2, steps=5, resume=True)
    assert events[-1].values == {"step": 3, "averaged": 2, "bleu": 9}
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 9, "step": 3, "averaged": 2}
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights


def test_early_stopping(tmp_path: Path) -> None:
    events = train_with_scores(tmp_path, [1, 5, 4, 4, 6, 5, 5, 5], patience=3, steps=100)
    assert events[-1].kind == "end"
    assert events[-1].step == 8
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 6, "step": 5, "averaged": 0}


def test_stopped_run_goes_on_only_with_more_patience(tmp_path: Path) -> None:
    train_with_scores(tmp_path, [5, 4, 4, 9], patience=2, average=2)
    summary = metrics_of(tmp_path / "run")
    assert summary["best"] == {"bleu": 9, "step": 3, "averaged": 2}
    assert train_with_scores(tmp_path, [], patience=2, average=2, resume=True) == []
    assert metrics_of(tmp_path / "run") == summary
    events = train_with_scores(tmp_path, [10, 11, 0], patience=9, average=2, steps=5, resume=True)
    assert [event.step for event in events if event.kind == "valid"] == [4, 5]


def test_patience_0_disables_early_stopping(tmp_path: Path) -> None:
    assert train_with_scores(tmp_path, [5, *range(5, 0, -1), 1, 1], patience=0)[-1].step == 8


def test_loss_breaks_ties_of_the_metric(tmp_path: Path) -> None:
    """BLEU is 0 if no text has four words, however good the translation."""
    events = train_with_scores(tmp_path, [0.0] * 8, patience=2, learning_rate=1e-2)
    valid = [event for event in events if event.kind == "valid"]
    assert len(valid) == 8
    losses = [event.values["valid_loss"] for event in valid]
    assert losses == sorted(losses, reverse=True)
    assert all(event.values["best"] for event in valid)


def test_nan_metric_is_never_best(tmp_path: Path) -> None:
    events = train_with_scores(tmp_path, [math.nan, 2, math.nan, 1, *[math.nan] * 4])
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 2, "step": 2, "averaged": 0}
    assert events[-1].step == 8


def test_every_line_of_the_log_is_json(tmp_path: Path) -> None:
    """JSON has neither NaN nor Infinity."""
    train_with_scores(tmp_path, [math.nan, math.inf, 1], steps=3)
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [line["bleu"] for line in records if "bleu" in line] == [None, None, 1]


def test_non_finite_steps_are_skipped_and_counted(tmp_path: Path) -> None:
    bad = {2, 3, 9, *range(11, 20)}
    events = list(make_nan_trainer(tmp_path, bad, log_every=1).train())
    logged = [event for event in events if event.kind == "log"]
    assert [event.values["skipped"] for event in logged] == [sum(b <= s for b in bad) for s in range(1, 21)]
    assert all(math.isfinite(event.values["loss"]) for event in logged)
    assert events[-1].kind == "end"
    assert metrics_of(tmp_path / "run")["skipped_steps"] == len(bad)


@pytest.mark.parametrize("log_every", [1, 4, 20])
def test_ten_consecutive_non_finite_steps_stop_training_with_a_finite_checkpoint(
    tmp_path: Path, log_every: int
) -> None:
    training = make_nan_trainer(tmp_path, range(4, 100), log_every=log_every)
    weights_by_step: dict[int, dict[str, Tensor]] = {}

    def watch() -> None:
        for event in training.train():
            weights_by_step[event.step] = weights_of(training.model)

    with pytest.raises(TrainingError) as caught:
        watch()
    stopped = training.progress.step
    assert 3 + MAX_CONSECUTIVE_SKIPPED_STEPS <= stopped <= 16  # results are read from the device at intervals
    assert str(caught.value) == (
        f"step {stopped}: the loss was not finite 10 times in a row; the weights from before are saved in "
        f"{tmp_path / 'run'}; lower train.learning_rate (now 0.003), lengthen train.warmup, "
        'or use train.precision = "float32"'
    )
    _, _, model = RunDirectory(tmp_path / "run").load()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, weights_by_step[3][name])
        assert weight.isfinite().all()
    tables = recipe(tmp_path, {"train": {"steps": 20, "log_every": log_every, "learning_rate": 1e-4}})
    assert trained(tables, tmp_path / "run", resume=True)[-1].step == 20


def test_out_of_memory_is_one_line(tmp_path: Path) -> None:
    class Large(TranslationTask):
        def compute_loss(self, model: nn.Module, batch: Seq2SeqBatch) -> Loss:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")

    prepared = ready(recipe(tmp_path, {"train": {"accumulate": 2}}), tmp_path / "run")
    prepared.task = Large(prepared.task.config, prepared.task.tokenizers)
    with pytest.raises(TrainingError) as caught:
        list(Trainer(prepared).train())
    assert str(caught.value) == (
        "out of memory with train.batch_tokens = 64 in 2 micro-batches; begin another run with train.accumulate = 4, "
        "or a smaller train.batch_tokens or model.d_model"
    )


def test_out_of_memory_while_averaging_is_one_line(tmp_path: Path) -> None:
    class Large(TranslationTask):
        def compute_validation_metrics(
            self, model: nn.Module, store: TokenStore, items: np.ndarray, device: torch.device
        ) -> dict[str, float]:
            if next(self.calls) == 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return {"bleu": 1.0}

        calls = count()

    prepared = ready(recipe(tmp_path, {"train": {"average": 2}}), tmp_path / "run")
    prepared.task = Large(prepared.task.config, prepared.task.tokenizers)
    with pytest.raises(TrainingError, match=r"^out of memory with train.batch_tokens = 64"):
        list(Trainer(prepared).train())
    assert next(Large.calls) == 3  # after two validations


def test_signal_saves_after_the_current_step_and_restores_handlers(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    training = Trainer(ready(recipe(tmp_path), tmp_path / "run"))
    events = []
    for event in training.train():
        events.append(event)
        if event == TrainingEvent("log", 2, event.values):
            signal.raise_signal(signal.SIGTERM)
    assert events[-1] == TrainingEvent("interrupted", 2, {"signal": signal.SIGTERM})
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert json.loads((tmp_path / "run" / "train.json").read_text())["step"] == 2
    trained(recipe(tmp_path), tmp_path / "run", resume=True)
    trained(recipe(tmp_path), tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.parametrize(("number", "ends_by"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_second_interruption_ends_at_once(tmp_path: Path, number: int, ends_by: type[BaseException]) -> None:
    training = Trainer(ready(recipe(tmp_path), tmp_path / "run"))

    def interrupt() -> None:
        for _ in training.train():
            signal.raise_signal(number)
            signal.raise_signal(number)

    with pytest.raises(ends_by, match=r"^$|^143$"):
        interrupt()
    assert trained(recipe(tmp_path), tmp_path / "run", resume=True)[-1].step == 6


def test_finished_run_has_nothing_to_do(tmp_path: Path) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    before = contents(tmp_path / "run")
    assert trained(recipe(tmp_path), tmp_path / "run", resume=True) == []
    assert contents(tmp_path / "run") == before


def test_bfloat16_with_gradient_accumulation(tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        train = {"precision": precision, "accumulate": 2, "steps": 3}
        trained(recipe(tmp_path, {"train": train}), tmp_path / precision)
    wide, narrow = (log_of(tmp_path / precision)[-1]["valid_loss"] for precision in ("float32", "bfloat16"))
    assert narrow == pytest.approx(wide, rel=0.02)
    assert narrow != wide
    assert all(weight.dtype == torch.float32 for weight in load_file(tmp_path / "bfloat16/model.safetensors").values())


def test_validation_does_not_change_training(tmp_path: Path) -> None:
    """Validating more often changes neither the steps nor their log lines."""
    for name, every in (("seldom", 6), ("often", 1)):
        tables = recipe(tmp_path, {"model": {"dropout": 0.3}, "train": {"validate_every": every}})
        trained(tables, tmp_path / name)
    seldom, often = ([line for line in log_of(tmp_path / name) if "loss" in line] for name in ("seldom", "often"))
    assert seldom == often


def test_progress_is_reported_after_the_first_steps_and_then_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated clock advances three seconds whenever it is read; the log has no line for progress."""
    clock = count(0, 3)
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    tables = recipe(tmp_path, {"train": {"steps": 20, "log_every": 20, "validate_every": 20, "save_every": 20}})
    trainer = Trainer(ready(tables, tmp_path / "run"))
    steps = [event.step for event in trainer.train() if event.kind == "progress"]
    assert {1, 4} < set(steps)
    assert max(later - earlier for earlier, later in pairwise([*steps, 20])) <= 4
    assert [line["step"] for line in log_of(tmp_path / "run")] == [20, 20]


def test_reports_of_progress_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = recipe(tmp_path, {"train": {"log_every": 3, "average": 2}})
    trained(tables, tmp_path / "seldom")
    monkeypatch.setattr(loop, "PROGRESS_INTERVAL_SECONDS", 0.0)
    events = list(Trainer(ready(tables, tmp_path / "often")).train())
    assert [event.step for event in events if event.kind == "progress"] == [1, 2, 4, 5]
    assert contents(tmp_path / "often") == contents(tmp_path / "seldom")


def test_files_of_the_run_directory(tmp_path: Path) -> None:
    prepared: PreparedRun = ready(recipe(tmp_path), tmp_path / "run")
    list(Trainer(prepared).train())
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.toml",
        "tokenizer.json",
        "store",
        "model.safetensors",
        "train.safetensors",
        "train.json",
        "log.jsonl",
        "metrics.json",
    }
