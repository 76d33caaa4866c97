"""The loop: what it logs, keeps, averages and gives up on; and that a run is a function of its recipe and its data."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Iterator
from itertools import count
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
from regard.training.loop import MAX_CONSECUTIVE_SKIPPED_STEPS, Trainer, TrainingEvent
from regard.training.optimiser import inverse_sqrt
from regard.training.prepare import PreparedRun


def log_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def metrics_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "metrics.json").read_text())


class Scripted(TranslationTask):
    """Translation whose validation scores are known beforehand."""

    def compute_validation_metrics(
        self, model: nn.Module, store: TokenStore, items: np.ndarray, device: torch.device
    ) -> dict[str, float]:
        return {"bleu": float(next(self.compute_metrics))}

    compute_metrics: Iterator[float]


def scripted(folder: Path, scores: Iterable[float], *, resume: bool = False, **train: Any) -> list[TrainingEvent]:
    """Train with a validation after each step that finds these scores."""
    tables = recipe(folder, {"train": {"validate_every": 1, "save_every": 1, "steps": 8, **train}})
    prepared = ready(tables, folder / "run", resume=resume)
    prepared.task = Scripted(prepared.task.config, prepared.task.tokenizers)
    prepared.task.compute_metrics = iter(scores)
    return list(Trainer(prepared).train())


class Spoiled(TranslationTask):
    """Translation whose loss is not a number at some steps, counted from 1."""

    bad: frozenset[int]
    steps = 0

    def compute_loss(self, model: nn.Module, batch: Seq2SeqBatch) -> Loss:
        found = super().compute_loss(model, batch)
        self.steps += model.training
        spoil = torch.nan if model.training and self.steps in self.bad else 1.0
        return Loss(found.total * spoil, found.nll * spoil, found.n_tokens)


def spoiled(folder: Path, bad: Iterable[int], **train: Any) -> Trainer:
    prepared = ready(recipe(folder, {"train": {"steps": 20, **train}}), folder / "run")
    prepared.task = Spoiled(prepared.task.config, prepared.task.tokenizers)
    prepared.task.bad = frozenset(bad)
    return Trainer(prepared)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def test_what_happens_is_told_and_logged(tmp_path: Path) -> None:
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
    told = [event.values for event in events if event.kind in ("log", "valid")]
    assert [line | {"best": None} for line in log] == [
        {"step": event.step, **event.values, "best": None} for event in events if event.kind in ("log", "valid")
    ]
    assert told[0].keys() == {"loss", "learning_rate", "gradient_norm", "epoch", "tokens", "skipped"}
    assert told[1].keys() == {"valid_loss", "valid_perplexity", "bleu", "chrf", "exact", "best"}
    for line in log:
        if "loss" in line:
            assert line["learning_rate"] == pytest.approx(3e-3 * inverse_sqrt(line["step"], 6, 2))
            assert 0 < line["gradient_norm"] < 100
        else:
            assert line["valid_perplexity"] == pytest.approx(math.exp(line["valid_loss"]))
    tokens = [line["tokens"] for line in log if "loss" in line]
    assert tokens == sorted(tokens)
    assert log[-2]["epoch"] >= 1


def test_a_logged_loss_is_the_mean_over_all_tokens_since_the_last(tmp_path: Path) -> None:
    trained(recipe(tmp_path, {"train": {"log_every": 1}}), tmp_path / "each")
    trained(recipe(tmp_path, {"train": {"log_every": 3}}), tmp_path / "three")
    each = [line for line in log_of(tmp_path / "each") if "loss" in line]
    three = [line for line in log_of(tmp_path / "three") if "loss" in line]
    counts = [line["tokens"] - before for line, before in zip(each, [0, *(e["tokens"] for e in each)], strict=False)]
    assert len(set(counts)) > 1  # so that a mean of means would differ
    for first, line in zip((0, 3), three, strict=True):
        nll = sum(e["loss"] * n for e, n in zip(each[first : first + 3], counts[first : first + 3], strict=True))
        assert line["loss"] == pytest.approx(nll / sum(counts[first : first + 3]), rel=1e-6)


def test_the_same_recipe_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    tables = recipe(tmp_path, {"train": {"average": 2}})
    for name in ("one", "two"):
        trained(tables, tmp_path / name)
    trained(merged(tables, {"train": {"seed": 0}}), tmp_path / "other")
    one, two, other = (contents(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one["model"] != other["model"]
    assert one["log"] != other["log"]


def test_a_very_large_seed(tmp_path: Path) -> None:
    trained(recipe(tmp_path, {"train": {"seed": 2**63 - 1, "steps": 3}}), tmp_path / "run")


def test_eight_pairs_are_learned_by_heart_and_the_summary_says_so(tmp_path: Path) -> None:
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


def test_the_best_checkpoint_is_the_one_kept(tmp_path: Path) -> None:
    """All snapshots are kept for the average, which the script makes worse than the best."""
    events = scripted(tmp_path, [1, 5, 3, 9, 2, 4, 8, 7, 0], average=8)
    assert [event.step for event in events if event.kind == "valid" and event.values["best"]] == [1, 2, 4]
    kept = load_file(tmp_path / "run" / "model.safetensors")
    snapshot = load_file(tmp_path / "run" / "snapshots" / "00000004.safetensors")
    assert kept.keys() == snapshot.keys()
    assert all(torch.equal(kept[name], snapshot[name]) for name in kept)
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 9, "step": 4, "averaged": 0}
    assert events[-1] == TrainingEvent("end", 8, {"step": 4, "averaged": 0, "bleu": 9})


@pytest.mark.parametrize(("average", "kept"), [(3, [6, 7, 8]), (20, [1, 2, 3, 4, 5, 6, 7, 8])])
def test_the_average_of_the_last_is_kept_where_it_is_better(tmp_path: Path, average: int, kept: list[int]) -> None:
    events = scripted(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8, 9], average=average)
    run = tmp_path / "run"
    files = sorted(path.name for path in (run / "snapshots").iterdir())
    assert files == [f"{step:08d}.safetensors" for step in kept]
    snapshots = [load_file(run / "snapshots" / name) for name in files]
    for name, weight in load_file(run / "model.safetensors").items():
        mean = sum(snapshot[name].double() for snapshot in snapshots) / len(kept)
        assert_close(weight, mean.float(), rtol=0, atol=1e-7)
    assert metrics_of(run)["best"] == {"bleu": 9, "step": 8, "averaged": len(kept)}
    assert [event.kind for event in events[-2:]] == ["average", "end"]
    last = snapshots[-1]
    trained_on = load_file(run / "train.safetensors")  # going on goes on from the last step, not from the average
    assert all(torch.equal(trained_on[f"model.{name}"], last[name]) for name in last)


def test_without_averaging_there_are_no_snapshots(tmp_path: Path) -> None:
    events = scripted(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8], average=1)
    assert not (tmp_path / "run" / "snapshots").exists()
    assert "average" not in [event.kind for event in events]


def test_averaging_may_begin_when_a_run_is_taken_up_again(tmp_path: Path) -> None:
    scripted(tmp_path, [1, 2, 3], average=1, steps=3)
    events = scripted(tmp_path, [4, 5, 6], average=2, steps=5, resume=True)
    assert events[-1].values == {"step": 5, "averaged": 2, "bleu": 6}


def test_an_average_that_stays_the_best_is_still_said_to_be_one(tmp_path: Path) -> None:
    scripted(tmp_path, [1, 2, 3, 9], average=2, steps=3)
    kept = (tmp_path / "run" / "model.safetensors").read_bytes()
    events = scripted(tmp_path, [4, 5, 6], average=2, steps=5, resume=True)
    assert events[-1].values == {"step": 3, "averaged": 2, "bleu": 9}
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 9, "step": 3, "averaged": 2}
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == kept


def test_training_stops_when_patience_is_lost(tmp_path: Path) -> None:
    events = scripted(tmp_path, [1, 5, 4, 4, 6, 5, 5, 5], patience=3, steps=100)
    assert events[-1].kind == "end"
    assert events[-1].step == 8
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 6, "step": 5, "averaged": 0}


def test_a_run_that_lost_patience_stays_ended_until_it_is_given_more(tmp_path: Path) -> None:
    scripted(tmp_path, [5, 4, 4, 9], patience=2, average=2)
    summary = metrics_of(tmp_path / "run")
    assert summary["best"] == {"bleu": 9, "step": 3, "averaged": 2}
    assert scripted(tmp_path, [], patience=2, average=2, resume=True) == []
    assert metrics_of(tmp_path / "run") == summary
    events = scripted(tmp_path, [10, 11, 0], patience=9, average=2, steps=5, resume=True)
    assert [event.step for event in events if event.kind == "valid"] == [4, 5]


def test_no_patience_is_endless_patience(tmp_path: Path) -> None:
    assert scripted(tmp_path, [5, *range(5, 0, -1), 1, 1], patience=0)[-1].step == 8


def test_where_the_metric_cannot_tell_the_loss_does(tmp_path: Path) -> None:
    """BLEU is 0 wherever no text has four words, however well it is translated."""
    events = scripted(tmp_path, [0.0] * 8, patience=2, learning_rate=1e-2)
    valid = [event for event in events if event.kind == "valid"]
    assert len(valid) == 8
    losses = [event.values["valid_loss"] for event in valid]
    assert losses == sorted(losses, reverse=True)
    assert all(event.values["best"] for event in valid)


def test_a_metric_that_is_no_number_is_never_best(tmp_path: Path) -> None:
    events = scripted(tmp_path, [math.nan, 2, math.nan, 1, *[math.nan] * 4])
    assert metrics_of(tmp_path / "run")["best"] == {"bleu": 2, "step": 2, "averaged": 0}
    assert events[-1].step == 8


def test_every_line_of_the_log_is_json(tmp_path: Path) -> None:
    """JSON has neither NaN nor Infinity."""
    scripted(tmp_path, [math.nan, math.inf, 1], steps=3)
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [line["bleu"] for line in found if "bleu" in line] == [None, None, 1]


def test_steps_that_are_not_finite_are_skipped_and_counted(tmp_path: Path) -> None:
    bad = {2, 3, 9, *range(11, 20)}
    events = list(spoiled(tmp_path, bad, log_every=1).train())
    logged = [event for event in events if event.kind == "log"]
    assert [event.values["skipped"] for event in logged] == [sum(b <= s for b in bad) for s in range(1, 21)]
    assert all(math.isfinite(event.values["loss"]) for event in logged)
    assert events[-1].kind == "end"
    assert metrics_of(tmp_path / "run")["skipped_steps"] == len(bad)


@pytest.mark.parametrize("log_every", [1, 4, 20])
def test_after_ten_in_a_row_training_stops_with_a_good_checkpoint(tmp_path: Path, log_every: int) -> None:
    training = spoiled(tmp_path, range(4, 100), log_every=log_every)
    seen: dict[int, dict[str, Tensor]] = {}

    def watch() -> None:
        for event in training.train():
            seen[event.step] = weights_of(training.model)

    with pytest.raises(TrainingError) as caught:
        watch()
    stopped = training.progress.step
    assert (
        3 + MAX_CONSECUTIVE_SKIPPED_STEPS <= stopped <= 16
    )  # where it was noticed: what a step saw is read now and then
    assert str(caught.value) == (
        f"step {stopped}: the loss was not finite 10 times in a row; the weights from before are saved in "
        f"{tmp_path / 'run'}; lower train.learning_rate (now 0.003), lengthen train.warmup, "
        'or use train.precision = "float32"'
    )
    _, _, model = RunDirectory(tmp_path / "run").load()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, seen[3][name])
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
        "out of memory with train.batch_tokens = 64 in 2 parts; begin another run with train.accumulate = 4, "
        "or a smaller train.batch_tokens or model.d_model"
    )


def test_out_of_memory_at_the_average_is_one_line_too(tmp_path: Path) -> None:
    class Large(TranslationTask):
        def compute_validation_metrics(
            self, model: nn.Module, store: TokenStore, items: np.ndarray, device: torch.device
        ) -> dict[str, float]:
            if next(self.n_validations) == 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return {"bleu": 1.0}

        n_validations = count()

    prepared = ready(recipe(tmp_path, {"train": {"average": 2}}), tmp_path / "run")
    prepared.task = Large(prepared.task.config, prepared.task.tokenizers)
    with pytest.raises(TrainingError, match=r"^out of memory with train.batch_tokens = 64"):
        list(Trainer(prepared).train())
    assert next(Large.n_validations) == 3  # after two validations


def test_stopping_saves_after_the_step_in_progress_and_gives_the_signals_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    training = Trainer(ready(recipe(tmp_path), tmp_path / "run"))
    events = []
    for event in training.train():
        events.append(event)
        if event == TrainingEvent("log", 2, event.values):
            signal.raise_signal(signal.SIGTERM)
    assert events[-1] == TrainingEvent("interrupted", 2, {})
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert json.loads((tmp_path / "run" / "train.json").read_text())["step"] == 2
    trained(recipe(tmp_path), tmp_path / "run", resume=True)
    trained(recipe(tmp_path), tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_second_interruption_ends_it_at_once(tmp_path: Path) -> None:
    training = Trainer(ready(recipe(tmp_path), tmp_path / "run"))

    def interrupt() -> None:
        for _ in training.train():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert trained(recipe(tmp_path), tmp_path / "run", resume=True)[-1].step == 6


def test_a_finished_run_has_nothing_to_do(tmp_path: Path) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    before = contents(tmp_path / "run")
    assert trained(recipe(tmp_path), tmp_path / "run", resume=True) == []
    assert contents(tmp_path / "run") == before


def test_bfloat16_and_accumulation_go_through_the_loop(tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        train = {"precision": precision, "accumulate": 2, "steps": 3}
        trained(recipe(tmp_path, {"train": train}), tmp_path / precision)
    wide, narrow = (log_of(tmp_path / precision)[-1]["valid_loss"] for precision in ("float32", "bfloat16"))
    assert narrow == pytest.approx(wide, rel=0.02)
    assert narrow != wide
    assert all(weight.dtype == torch.float32 for weight in load_file(tmp_path / "bfloat16/model.safetensors").values())


def test_validation_leaves_the_training_as_it_was(tmp_path: Path) -> None:
    """Validating more often changes neither the steps nor what is logged of them."""
    for name, every in (("seldom", 6), ("often", 1)):
        tables = recipe(tmp_path, {"model": {"dropout": 0.3}, "train": {"validate_every": every}})
        trained(tables, tmp_path / name)
    seldom, often = ([line for line in log_of(tmp_path / name) if "loss" in line] for name in ("seldom", "often"))
    assert seldom == often


def test_prepared_is_left_in_its_directory(tmp_path: Path) -> None:
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
