"""The optimiser step: gradient accumulation, clipping, bfloat16, skipped steps, compilation errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import ready, recipe
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.batches import Rows, Seq2SeqBatch
from regard.errors import TrainingError
from regard.nn import Loss
from regard.training.guards import convert_out_of_memory_errors
from regard.training.optimiser import build_adamw, set_learning_rate
from regard.training.prepare import PreparedRun
from regard.training.step import StepResult, TrainingStep, read_step_results

NO_CLIP = 1e9


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    folder = tmp_path_factory.mktemp("step")
    return ready(recipe(folder, {"train": {"batch_tokens": 128}, "model": {"dropout": 0.0}}), folder / "run")


class StepRunner:
    """A copy of the model with its own optimiser, and batches to take steps on."""

    def __init__(
        self,
        prepared: PreparedRun,
        *,
        loss: Callable[[Any, Any], Loss] | None = None,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        self.model = prepared.task.build_model(replace(prepared.config.model, dropout=dropout)).train()
        self.model.load_state_dict(prepared.model.state_dict())
        self.optimiser = build_adamw(self.model, weight_decay=0.1)
        set_learning_rate(self.optimiser, 1e-2)
        settings = {"dtype": torch.float32, "clip": 1.0, "compiled": False, **options}
        self.stepper = TrainingStep(self.model, loss or prepared.task.compute_loss, self.optimiser, **settings)
        placements = islice(prepared.train_order.iterate(), 3)
        self.batches: list[Seq2SeqBatch] = [
            prepared.task.make_batch(prepared.train_store, where) for where, _ in placements
        ]

    def step(self, *batches: Seq2SeqBatch) -> StepResult:
        return read_step_results([self.stepper(batches, sum(batch.n_tokens for batch in batches))])[0]

    def run_steps(self) -> list[StepResult]:
        return [self.step(batch) for batch in self.batches]

    def state(self) -> dict[str, Tensor]:
        """Weights, moments and step counts."""
        state = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        for name, weight in self.model.named_parameters():
            for key, value in self.optimiser.state[weight].items():
                state[f"{key} of {name}"] = value.clone()
        return state


def rows_of(batch: Seq2SeqBatch, chosen: slice) -> Seq2SeqBatch:
    def part(rows: Rows) -> Rows:
        return Rows(rows.ids[chosen], rows.segment[chosen], rows.position[chosen])

    target_out = batch.target_out[chosen]
    return Seq2SeqBatch(part(batch.source), part(batch.target_in), target_out, int((target_out >= 0).sum()))


def same(one: dict[str, Tensor], other: dict[str, Tensor], **tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert_close(one[name], other[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def test_accumulated_micro_batches_equal_the_batch(prepared: PreparedRun) -> None:
    whole, parts = StepRunner(prepared, clip=NO_CLIP), StepRunner(prepared, clip=NO_CLIP)
    for batch in whole.batches:
        split = [rows_of(batch, rows) for rows in (slice(0, 1), slice(1, 2), slice(2, 4))]
        assert len({part.n_tokens for part in split}) > 1  # a mean of means would differ
        result, summed = whole.step(batch), parts.step(*split)
        for name in ("total", "nll", "n_tokens", "gradient_norm"):
            assert_close(getattr(result, name), getattr(summed, name), rtol=1e-4, atol=1e-5)
        for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
            assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clip", [0.05, NO_CLIP])
def test_step_equals_clip_and_adamw_of_torch(prepared: PreparedRun, clip: float) -> None:
    """Except for the biases of keys: their gradient is 0 up to rounding, which Adam scales to the size of any other."""
    bench = StepRunner(prepared, clip=clip)
    model = copy.deepcopy(bench.model)
    plain = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.98),
        eps=1e-9,
        foreach=False,
    )
    for batch in bench.batches:
        plain.zero_grad()
        loss = prepared.task.compute_loss(model, batch)
        (loss.total / batch.n_tokens).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        plain.step()
        result = bench.step(batch)
        assert (result.gradient_norm > clip) == (clip < 1)
        expected = [norm.item(), loss.total.item(), loss.nll.item()]
        assert [result.gradient_norm, result.total, result.nll] == pytest.approx(expected, rel=1e-4)
        assert result.skipped == 0
    for one, other in zip(bench.model.parameters(), model.parameters(), strict=True):
        moved = plain.state[other]["exp_avg_sq"] > 1e-11
        assert moved.float().mean() > 0.6
        assert_close(one[moved], other[moved], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    "spoil",
    [lambda x: x * torch.nan, lambda x: x * torch.inf, lambda x: x + torch.nan],
    ids=["nan", "inf", "nan with a finite gradient"],
)
def test_non_finite_step_changes_nothing(prepared: PreparedRun, spoil: Callable[[Tensor], Tensor], parts: int) -> None:
    spoiled = iter([True, False, False] if parts == 1 else [False, True, False, False, False, False])

    def loss(model: nn.Module, batch: Seq2SeqBatch) -> Loss:
        loss_value = prepared.task.compute_loss(model, batch)
        return Loss(spoil(loss_value.total), loss_value.nll, loss_value.n_tokens) if next(spoiled) else loss_value

    bench, sane = StepRunner(prepared, loss=loss), StepRunner(prepared)
    before = {name: weight.detach().clone() for name, weight in bench.model.named_parameters()}
    result = bench.step(*bench.batches[:parts])
    assert [float(value) for value in result] == [0.0, 0.0, 0.0, 0.0, 1.0]
    after = bench.state()
    same({name: after[name] for name in before}, before, rtol=0, atol=0)
    assert all(not value.any() for name, value in after.items() if name not in before)  # moments and step counts
    for _ in range(2):  # as if it had not been
        assert bench.step(*bench.batches[:parts]).skipped == 0
        sane.step(*sane.batches[:parts])
    same(bench.state(), sane.state(), rtol=0, atol=0)


def test_skipped_step_keeps_the_moments(prepared: PreparedRun) -> None:
    bench = StepRunner(prepared)
    bench.run_steps()
    before = bench.state()
    weight = next(iter(bench.model.parameters()))
    saved = weight.detach().clone()
    weight.data[:] = torch.inf
    assert bench.step(bench.batches[0]).skipped == 1
    weight.data.copy_(saved)
    same(bench.state(), before, rtol=0, atol=0)


def test_bfloat16_keeps_float32_weights_and_follows_float32(prepared: PreparedRun) -> None:
    narrow, wide = StepRunner(prepared, dtype=torch.bfloat16), StepRunner(prepared)
    losses = [[float(result.nll / result.n_tokens) for result in bench.run_steps()] for bench in (narrow, wide)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0] != losses[1]
    for weight in narrow.model.parameters():
        assert weight.dtype == torch.float32
        assert weight.grad is not None
        assert weight.grad.dtype == torch.float32


def test_failed_compilation_warns_once_and_runs_eagerly(
    prepared: PreparedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(batch: Seq2SeqBatch) -> Loss:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1 ...")

    monkeypatch.setattr(torch, "compile", lambda run, **_: fails)
    assert StepRunner(prepared, compiled=True).run_steps() == StepRunner(prepared).run_steps()
    assert capsys.readouterr().err.splitlines() == [
        "warning: the training step could not be compiled, so training is slower "
        "(InvalidCxxCompiler: No working C++ compiler found)"
    ]


def test_out_of_memory_is_not_a_compilation_error(prepared: PreparedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(batch: Seq2SeqBatch) -> Loss:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", lambda run, **_: full)
    with pytest.raises(torch.OutOfMemoryError):
        StepRunner(prepared, compiled=True).run_steps()


def test_seed_reproduces_dropout(prepared: PreparedRun) -> None:
    def first_loss(seed: int) -> float:
        bench = StepRunner(prepared, dropout=0.5)
        torch.manual_seed(seed)
        return float(bench.step(*bench.batches[:2]).nll)

    assert first_loss(1) == first_loss(1) != first_loss(2)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_out_of_memory_names_the_settings_to_change(prepared: PreparedRun, error: Exception, tmp_path: Path) -> None:
    def loss(model: nn.Module, batch: Seq2SeqBatch) -> Loss:
        raise error

    bench = StepRunner(prepared, loss=loss)
    with pytest.raises(TrainingError) as caught, convert_out_of_memory_errors(prepared.config.train):
        bench.step(bench.batches[0])
    assert str(caught.value) == (
        "out of memory with train.batch_tokens = 128; "
        "begin another run with train.accumulate = 2, or a smaller train.batch_tokens or model.d_model"
    )


def test_other_errors_are_not_converted(prepared: PreparedRun) -> None:
    with pytest.raises(RuntimeError, match=r"^something else$"), convert_out_of_memory_errors(prepared.config.train):
        raise RuntimeError("something else")
