"""The plan: its work against a count by hand, its memory, its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import merged, ready, recipe

from regard.training.plan import TrainingPlan, make_plan

D, F, V, ROWS, T = 32, 64, 266, 4, 64


def planned(folder: Path, name: str = "run", **changes: dict[str, Any]) -> TrainingPlan:
    model = {"d_model": D, "d_ff": F, "n_layers": 2, "n_decoder_layers": 1}
    tables = recipe(folder, {"model": model, "data": {"max_length": T}, "train": {"batch_tokens": ROWS * T}}, changes)
    return make_plan(ready(tables, folder / name))


def operations() -> int:
    """Multiplications and additions of one forward pass."""
    square, attention, feed_forward = 2 * D * D, 2 * 2 * T * D, 2 * 2 * D * F
    encoder = 4 * square + attention + feed_forward
    decoder = 4 * square + attention + 4 * square + attention + feed_forward
    return ROWS * T * (2 * encoder + decoder + 2 * D * V)


def test_the_work_is_three_times_a_forward_pass_for_every_step(tmp_path: Path) -> None:
    """Twice the forward pass again for the gradients of inputs and weights."""
    sized = planned(tmp_path)
    assert sized.steps == 6
    assert sized.flops == pytest.approx(6 * 3 * operations(), rel=0.1)


def test_accumulation_divides_the_memory_and_not_the_work(tmp_path: Path) -> None:
    one, two = planned(tmp_path, "one"), planned(tmp_path, "two", train={"accumulate": 2})
    assert two.flops == pytest.approx(one.flops, rel=0.01)
    assert two.memory_bytes < one.memory_bytes
    assert two.epochs == pytest.approx(one.epochs, rel=0.35)  # of so few batches, roundings show


def test_memory_holds_the_weights_four_times_and_grows_with_the_batch(tmp_path: Path) -> None:
    sizes = [planned(tmp_path, str(n), train={"batch_tokens": n * T}).memory_bytes for n in (1, 4, 16)]
    assert 16 * planned(tmp_path, "w").n_parameters < sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[1] == pytest.approx(4 * (sizes[1] - sizes[0]), rel=0.1)
    narrow = planned(tmp_path, "bf16", train={"batch_tokens": 16 * T, "precision": "bfloat16"})
    assert narrow.memory_bytes < sizes[2]


def test_counts(tmp_path: Path) -> None:
    sized = planned(tmp_path, "run", train={"steps": 10})
    square, norm = D * D + D, 2 * D
    feed_forward = D * F + F + F * D + D
    encoder, decoder = 4 * square + feed_forward + 2 * norm, 8 * square + feed_forward + 3 * norm
    assert sized.n_parameters == V * D + 2 * encoder + norm + decoder + norm
    assert sized.n_examples == 24
    assert 0.5 < sized.packing_efficiency <= 1
    assert sized.epochs == pytest.approx(10 / sized.batches_per_epoch)
    assert sized.available_memory_bytes > 0
    prepared = ready(merged(recipe(tmp_path), {"data": {"max_length": T}}), tmp_path / "other")
    assert sized.n_tokens == prepared.task.example_lengths(prepared.train_store)[:, 1].sum()


def test_the_words_name_what_was_chosen(tmp_path: Path) -> None:
    text = "\n".join(planned(tmp_path).lines())
    for word in ("parameters", "24 examples", "% full", "6 steps", "batches an epoch", "floating-point", "free (cpu"):
        assert word in text
    assert "model.norm pre" in text
    assert "train.precision float32" in text
    assert "train.steps" not in text  # that was given


def test_planning_costs_the_model_nothing(tmp_path: Path) -> None:
    prepared = ready(recipe(tmp_path), tmp_path / "run")
    before = {name: weight.clone() for name, weight in prepared.model.state_dict().items()}
    make_plan(prepared)
    assert all(weight.grad is None for weight in prepared.model.parameters())
    assert all(weight.equal(before[name]) for name, weight in prepared.model.state_dict().items())
