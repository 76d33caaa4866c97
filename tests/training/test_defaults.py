"""What is chosen where a recipe says nothing: sane, and never less for more data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.models.config import (
    ModelConfig,
    TransformerConfig,
    TransformerEncoderConfig,
    TransformerSeq2SeqConfig,
    apply_preset,
)
from regard.models.recurrent.config import RecurrentEncoderConfig, RecurrentLMConfig
from regard.runs.recipe import TrainConfig
from regard.tasks import TASKS, Task
from regard.tasks.task import TrainingScale
from regard.training import defaults as choose

CPU, GPU = torch.device("cpu"), torch.device("cuda")
AMOUNTS = [100, 5_000, 100_000, 300_000, 2_000_000, 5_000_000, 20_000_000, 10**9, 10**11]


def parameters(preset: str) -> int:
    shape = TransformerSeq2SeqConfig.presets[preset]
    return shape["d_model"] ** 2 * (shape["n_layers"] + shape["n_decoder_layers"])


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_more_text_never_gives_a_smaller_model_batch_or_run(device: torch.device) -> None:
    for function in (
        lambda n: parameters(choose.choose_preset(n, device)),
        lambda n: choose.choose_batch_tokens(n, device),
        lambda n: choose.choose_steps(n, 2048, device),
    ):
        found = [function(amount) for amount in AMOUNTS]
        assert found == sorted(found)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("tokens", AMOUNTS)
def test_a_whole_train_table_is_valid(tokens: int, device: torch.device) -> None:
    model = apply_preset({"preset": choose.choose_preset(tokens, device)})
    config = TrainConfig(
        **choose.complete_train_table({}, TrainingScale(tokens // 20, tokens, model["d_model"], False), device)
    )
    assert 50 <= config.warmup <= config.steps
    assert 0 < config.learning_rate <= 2e-3
    assert 1 <= config.log_every <= config.validate_every <= config.steps
    assert config.save_every <= config.validate_every
    epochs = config.steps * config.batch_tokens / tokens
    assert epochs >= 9
    assert config.steps <= 300 or epochs <= 110
    assert (config.precision, config.compiled) == (("bfloat16", True) if device is GPU else ("float32", False))


def test_a_cpu_is_given_a_model_it_can_train() -> None:
    assert choose.choose_preset(10**9, CPU) == "small"
    assert choose.choose_preset(10**9, GPU) == "base"


def test_what_is_given_stands() -> None:
    given = {"steps": 7, "batch_tokens": 64, "learning_rate": 0.5, "precision": "float32", "seed": 9}
    table = choose.complete_train_table(given, TrainingScale(10**4, 10**6, 128, False), GPU)
    assert {key: table[key] for key in given} == given
    assert TrainConfig(**table).validate_every == 7


RHYTHM = ("warmup", "log_every", "validate_every", "save_every")


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("started", [False, True], ids=["from nothing", "from a model"])
@pytest.mark.parametrize("steps", [1, 2, 10, 100, 5000])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_steps_that_are_given_decide_the_rhythm(
    task: type[Task], steps: int, started: bool, device: torch.device
) -> None:
    """However much text there is, and whatever the task would do of itself."""
    found = []
    for tokens in (100_000, 8_000_000):
        amount = TrainingScale(tokens // 40, tokens, 256, started)
        config = TrainConfig(
            **choose.complete_train_table({"steps": steps}, amount, device, task.training_defaults(amount, device))
        )
        assert config.steps == steps
        assert config.warmup <= steps // 2
        assert config.warmup >= min(50, steps // 10)
        assert 1 <= config.log_every <= config.validate_every <= steps
        assert config.save_every == config.validate_every <= max(100, steps // 7)
        found.append([getattr(config, key) for key in RHYTHM])
    assert started or found[0] == found[1]


@pytest.mark.parametrize("key", RHYTHM)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_rhythm_that_is_given_stands(task: type[Task], key: str) -> None:
    amount = TrainingScale(1000, 40_000, 256, False)
    assert (
        choose.complete_train_table({"steps": 10, key: 77}, amount, CPU, task.training_defaults(amount, CPU))[key] == 77
    )


@pytest.mark.parametrize("started", [False, True], ids=["from nothing", "from a model"])
@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_batch_that_is_given_leaves_the_passes_over_the_text_alone(
    task: type[Task], device: torch.device, started: bool
) -> None:
    amount = TrainingScale(1_000_000, 40_000_000, 256, started)
    habits = task.training_defaults(amount, device)
    chosen = choose.complete_train_table({}, amount, device, habits)
    given = choose.complete_train_table({"batch_tokens": 4 * chosen["batch_tokens"]}, amount, device, habits)
    assert given["steps"] == pytest.approx(chosen["steps"] / 4, rel=0.1)


def test_a_batch_that_is_chosen_holds_a_row() -> None:
    amount = TrainingScale(1000, 40_000, 256, False)
    assert choose.complete_train_table({}, amount, CPU, {"batch_tokens": 512}, 2000)["batch_tokens"] == 2000
    assert choose.complete_train_table({"accumulate": 3}, amount, CPU, None, 2000)["batch_tokens"] == 6000
    assert choose.complete_train_table({"batch_tokens": 700}, amount, CPU, None, 2000)["batch_tokens"] == 700


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_steps_that_a_task_chooses_decide_it_too(task: type[Task]) -> None:
    amount = TrainingScale(1000, 40_000, 256, False)
    chosen = choose.complete_train_table({}, amount, CPU, task.training_defaults(amount, CPU))
    given = choose.complete_train_table({"steps": chosen["steps"]}, amount, CPU, task.training_defaults(amount, CPU))
    assert given == chosen


@pytest.mark.parametrize(
    ("lengths", "width"),
    [([[3, 4]] * 50, 64), ([[30, 10]] * 50, 128), ([[3, 4]] * 9 + [[200, 4]], 256), ([[5000, 5000]], 1024)],
)
def test_the_row_is_as_narrow_as_the_texts_allow(lengths: list[list[int]], width: int) -> None:
    assert choose.choose_row_width(np.array(lengths, dtype=np.int32)) == width


def test_one_text_in_a_thousand_does_not_widen_the_rows() -> None:
    lengths = np.full((5000, 2), 5, dtype=np.int32)
    lengths[:3] = 900
    assert choose.choose_row_width(lengths) == 64


def test_learned_positions_end_where_training_does() -> None:
    cpu = torch.device("cpu")
    assert (
        choose.complete_model_table(TransformerSeq2SeqConfig, {"positions": "learned"}, 1000, 128, cpu)["n_positions"]
        == 128
    )
    assert (
        choose.complete_model_table(
            TransformerSeq2SeqConfig, {"positions": "learned", "n_positions": 300}, 1000, 128, cpu
        )["n_positions"]
        == 300
    )
    assert "n_positions" not in choose.complete_model_table(
        TransformerSeq2SeqConfig, {"positions": "rotary"}, 1000, 128, cpu
    )
    assert (
        choose.complete_model_table(TransformerEncoderConfig, {}, 1000, 128, cpu)["n_positions"] == 128
    )  # BERT's are learned


@pytest.mark.parametrize(
    "family", [TransformerSeq2SeqConfig, TransformerEncoderConfig, RecurrentEncoderConfig, RecurrentLMConfig]
)
@pytest.mark.parametrize("given", [{}, {"positions": "rotary"}], ids=str)
def test_no_row_is_wider_than_the_positions(family: type[ModelConfig], given: dict[str, str]) -> None:
    if "positions" in given and not issubclass(family, TransformerConfig):
        return
    usual = family.n_positions
    for width in (64, usual, usual + 1, 4096):
        table = choose.complete_model_table(family, given, 1000, width, CPU)
        assert table.get("n_positions", usual) >= width
        assert choose.complete_model_table(family, {**given, "n_positions": 70}, 1000, width, CPU)["n_positions"] == 70
