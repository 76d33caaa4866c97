"""The training plan: work against a count by hand, memory, steps of a resumed run, and what cannot be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import merged, ready, recipe

from regard.nn import kernels
from regard.training.plan import TrainingPlan, make_plan
from regard.training.thread_count import use_threads

D, F, V, ROWS, T = 32, 64, 266, 4, 64


def plan_tiny_run(folder: Path, name: str = "run", **changes: dict[str, Any]) -> TrainingPlan:
    model = {"d_model": D, "d_ff": F, "n_layers": 2, "n_decoder_layers": 1}
    tables = recipe(folder, {"model": model, "data": {"max_length": T}, "train": {"batch_tokens": ROWS * T}}, changes)
    return make_plan(ready(tables, folder / name))


def forward_flops() -> int:
    """Return the floating-point operations of one forward pass."""
    square, attention, feed_forward = 2 * D * D, 2 * 2 * T * D, 2 * 2 * D * F
    encoder = 4 * square + attention + feed_forward
    decoder = 4 * square + attention + 4 * square + attention + feed_forward
    return ROWS * T * (2 * encoder + decoder + 2 * D * V)


def test_each_step_costs_three_forward_passes(tmp_path: Path) -> None:
    """The backward pass costs two: gradients of inputs and of weights."""
    plan = plan_tiny_run(tmp_path)
    assert plan.steps == 6
    assert plan.flops == pytest.approx(6 * 3 * forward_flops(), rel=0.1)


def test_accumulation_divides_the_memory_and_not_the_work(tmp_path: Path) -> None:
    one, two = plan_tiny_run(tmp_path, "one"), plan_tiny_run(tmp_path, "two", train={"accumulate": 2})
    assert two.flops == pytest.approx(one.flops, rel=0.01)
    assert two.memory_bytes < one.memory_bytes
    assert two.epochs == pytest.approx(one.epochs, rel=0.35)  # rounding shows with so few batches


def test_memory_holds_adam_state_and_grows_with_the_batch(tmp_path: Path) -> None:
    sizes = [plan_tiny_run(tmp_path, str(n), train={"batch_tokens": n * T}).memory_bytes for n in (1, 4, 16)]
    assert 16 * plan_tiny_run(tmp_path, "w").n_parameters < sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[1] == pytest.approx(4 * (sizes[1] - sizes[0]), rel=0.1)
    narrow = plan_tiny_run(tmp_path, "bf16", train={"batch_tokens": 16 * T, "precision": "bfloat16"})
    assert narrow.memory_bytes < sizes[2]


def test_threads_are_those_of_the_run(tmp_path: Path) -> None:
    """Whatever the process would take; a run of 0.1 has 0, which is what it takes."""
    assert [plan_tiny_run(tmp_path, str(n), train={"threads": n}).device for n in (1, 3)] == [
        "cpu, 1 thread",
        "cpu, 3 threads",
    ]
    with use_threads(2):
        assert plan_tiny_run(tmp_path, "older", train={"threads": 0}).device == "cpu, 2 threads"


def test_counts(tmp_path: Path) -> None:
    plan = plan_tiny_run(tmp_path, "run", train={"steps": 10})
    square, norm = D * D + D, 2 * D
    feed_forward = D * F + F + F * D + D
    encoder, decoder = 4 * square + feed_forward + 2 * norm, 8 * square + feed_forward + 3 * norm
    assert plan.n_parameters == V * D + 2 * encoder + norm + decoder + norm
    assert plan.n_examples == 24
    assert 0.5 < plan.packing_efficiency <= 1
    assert plan.epochs == pytest.approx(10 / plan.batches_per_epoch)
    assert plan.available_memory_bytes > 0
    prepared = ready(merged(recipe(tmp_path), {"data": {"max_length": T}}), tmp_path / "other")
    assert plan.n_tokens == prepared.task.example_lengths(prepared.train_store)[:, 1].sum()


def test_lines_name_chosen_settings(tmp_path: Path) -> None:
    text = "\n".join(plan_tiny_run(tmp_path).lines())
    for word in ("parameters", "24 examples", "% full", "6 steps", "batches an epoch", "floating-point", "free (cpu"):
        assert word in text
    assert "model.norm pre" in text
    assert "train.precision float32" in text
    assert "train.steps" not in text  # given by the recipe


def test_lines_name_the_kernels_in_use(tmp_path: Path) -> None:
    prepared = ready(recipe(tmp_path), tmp_path / "run")
    names = kernels.names_in_use("cpu")
    assert f"kernels    {', '.join(names) or 'none'}; plain PyTorch elsewhere" in make_plan(prepared).lines()
    with kernels.disabled():
        assert "kernels    none; plain PyTorch elsewhere" in make_plan(prepared).lines()


def test_planning_leaves_the_model_unchanged(tmp_path: Path) -> None:
    prepared = ready(recipe(tmp_path), tmp_path / "run")
    before = {name: weight.clone() for name, weight in prepared.model.state_dict().items()}
    make_plan(prepared)
    assert all(weight.grad is None for weight in prepared.model.parameters())
    assert all(weight.equal(before[name]) for name, weight in prepared.model.state_dict().items())


def test_resumed_run_is_planned_from_its_step(tmp_path: Path) -> None:
    prepared = ready(recipe(tmp_path), tmp_path / "run")
    whole, rest = make_plan(prepared), make_plan(prepared, first_step=2)
    assert "training   6 steps, " in "\n".join(whole.lines())
    assert "training   from step 2 to 6, " in "\n".join(rest.lines())
    assert rest.flops == pytest.approx(whole.flops * 4 / 6)
    assert rest.epochs == pytest.approx(whole.epochs * 4 / 6)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (
            {"positions": "rotary"},
            'export     not as Hugging Face Pegasus: model.positions = "rotary": Pegasus has only "sinusoidal-halves"',
        ),
        ({"norm": "pre"}, None),
        ({"norm": "post", "positions": "sinusoidal-halves"}, None),
    ],
)
def test_plan_says_what_cannot_be_exported(tmp_path: Path, model: dict[str, Any], line: str | None) -> None:
    lines = [each for each in plan_tiny_run(tmp_path, model=model).lines() if each.startswith("export")]
    assert lines == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("text", "lowercase", "warns"), [("the cat", False, True), ("the cat", True, False), ("The cat", False, False)]
)
def test_plan_says_that_upper_case_is_unknown(text: str, lowercase: bool, warns: bool, tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_text("text\tlabel\n" + "".join(f"{text} {n}\t{n % 2}\n" for n in range(60)))
    tables = {
        "task": {"name": "classify"},
        "data": {"train": [str(file)], "max_length": 32},
        "tokenizer": {"lowercase": lowercase},
        "model": {"preset": "tiny", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32},
        "train": {"batch_tokens": 64, "steps": 2},
    }
    lines = [each for each in make_plan(ready(tables, tmp_path / "run")).lines() if each.startswith("case ")]
    expected = (
        "case       the vocabulary has no upper-case letters, and words with one are unknown to it; "
        "with tokenizer.lowercase = true they are read in lower case"
    )
    assert lines == ([expected] if warns else [])


def test_plan_of_an_architecture_without_counterpart(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    tables["model"] = {"architecture": "rnn", "preset": "tiny"}
    lines = make_plan(ready(tables, tmp_path / "run")).lines()
    assert "export     not as a Hugging Face model: this architecture has no counterpart" in lines
