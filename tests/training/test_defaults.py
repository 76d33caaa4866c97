"""Defaults of keys that a recipe leaves out: valid, and never smaller for more data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.models.config import (
    ModelConfig,
    TransformerEncoderConfig,
    TransformerSeq2SeqConfig,
    apply_preset,
)
from regard.models.recurrent.config import RecurrentEncoderConfig, RecurrentLMConfig
from regard.runs.recipe import TrainConfig
from regard.tasks import TASKS, Task
from regard.tasks.shared.encoder_task import LabelledTask
from regard.tasks.task import TrainingScale
from regard.tasks.vectors import WordVectorTask
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
        values = [function(amount) for amount in AMOUNTS]
        assert values == sorted(values)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("tokens", AMOUNTS)
def test_complete_train_table_is_valid(tokens: int, device: torch.device) -> None:
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


def test_cpu_preset_is_limited() -> None:
    assert choose.choose_preset(10**9, CPU) == "small"
    assert choose.choose_preset(10**9, GPU) == "base"


def test_given_values_are_kept() -> None:
    given = {"steps": 7, "batch_tokens": 64, "learning_rate": 0.5, "precision": "float32", "seed": 9}
    table = choose.complete_train_table(given, TrainingScale(10**4, 10**6, 128, False), GPU)
    assert {key: table[key] for key in given} == given
    assert TrainConfig(**table).validate_every == 7


INTERVAL_KEYS = ("warmup", "log_every", "validate_every", "save_every")


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("started", [False, True], ids=["from nothing", "from a model"])
@pytest.mark.parametrize("steps", [1, 2, 10, 100, 5000])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_intervals_follow_the_given_steps(task: type[Task], steps: int, started: bool, device: torch.device) -> None:
    """Independent of the amount of text and of the defaults of the task."""
    values = []
    for tokens in (100_000, 8_000_000):
        amount = TrainingScale(tokens // 40, tokens, 256, started)
        config = TrainConfig(
            **choose.complete_train_table({"steps": steps}, amount, device, task.training_defaults(amount, device))
        )
        assert config.steps == steps
        assert config.warmup <= steps // 2
        assert config.warmup >= (0 if task is WordVectorTask else min(50, steps // 10)), "word2vec has no warm-up"
        assert 1 <= config.log_every <= config.validate_every <= steps
        assert config.save_every == config.validate_every <= max(100, steps // 5)
        values.append([getattr(config, key) for key in INTERVAL_KEYS])
    kept = slice(2 if started and issubclass(task, LabelledTask) else None)
    assert values[0][kept] == values[1][kept]


@pytest.mark.parametrize("task", [task for task in TASKS.values() if issubclass(task, LabelledTask)])
@pytest.mark.parametrize(("examples", "epochs"), [(9_999, 10), (10_000, 4)])
def test_fine_tuning_validates_twice_an_epoch(task: type[Task], examples: int, epochs: int) -> None:
    amount = TrainingScale(examples, 40 * examples, 256, is_finetuning=True)
    given = choose.complete_train_table({"steps": 5000}, amount, CPU, task.training_defaults(amount, CPU))
    assert given["validate_every"] == 5000 // (2 * epochs)
    chosen = choose.complete_train_table({}, amount, CPU, task.training_defaults(amount, CPU))
    assert chosen["steps"] * chosen["batch_tokens"] == pytest.approx(epochs * amount.n_tokens, rel=0.01)


@pytest.mark.parametrize("key", INTERVAL_KEYS)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_given_intervals_are_kept(task: type[Task], key: str) -> None:
    amount = TrainingScale(1000, 40_000, 256, False)
    assert (
        choose.complete_train_table({"steps": 10, key: 77}, amount, CPU, task.training_defaults(amount, CPU))[key] == 77
    )


@pytest.mark.parametrize("started", [False, True], ids=["from nothing", "from a model"])
@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_given_batch_size_keeps_the_number_of_epochs(task: type[Task], device: torch.device, started: bool) -> None:
    amount = TrainingScale(1_000_000, 40_000_000, 256, started)
    task_defaults = task.training_defaults(amount, device)
    chosen = choose.complete_train_table({}, amount, device, task_defaults)
    given = choose.complete_train_table({"batch_tokens": 4 * chosen["batch_tokens"]}, amount, device, task_defaults)
    assert given["steps"] == pytest.approx(chosen["steps"] / 4, rel=0.1)


def test_chosen_batch_holds_at_least_one_row() -> None:
    amount = TrainingScale(1000, 40_000, 256, False)
    assert choose.complete_train_table({}, amount, CPU, {"batch_tokens": 512}, 2000)["batch_tokens"] == 2000
    assert choose.complete_train_table({"accumulate": 3}, amount, CPU, None, 2000)["batch_tokens"] == 6000
    assert choose.complete_train_table({"batch_tokens": 700}, amount, CPU, None, 2000)["batch_tokens"] == 700


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_intervals_follow_the_steps_of_the_task(task: type[Task]) -> None:
    amount = TrainingScale(1000, 40_000, 256, False)
    chosen = choose.complete_train_table({}, amount, CPU, task.training_defaults(amount, CPU))
    given = choose.complete_train_table({"steps": chosen["steps"]}, amount, CPU, task.training_defaults(amount, CPU))
    assert given == chosen


@pytest.mark.parametrize(
    ("lengths", "width"),
    [([[3, 4]] * 50, 64), ([[30, 10]] * 50, 128), ([[3, 4]] * 9 + [[200, 4]], 256), ([[5000, 5000]], 1024)],
)
def test_row_width_is_the_smallest_that_fits(lengths: list[list[int]], width: int) -> None:
    assert choose.choose_row_width(np.array(lengths, dtype=np.int32)) == width


def test_outliers_do_not_widen_the_rows() -> None:
    lengths = np.full((5000, 2), 5, dtype=np.int32)
    lengths[:3] = 900
    assert choose.choose_row_width(lengths) == 64


def test_learned_positions_match_the_row_width() -> None:
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
    ("family", "given"),
    [
        (TransformerSeq2SeqConfig, {}),
        (TransformerSeq2SeqConfig, {"positions": "rotary"}),
        (TransformerEncoderConfig, {}),
        (TransformerEncoderConfig, {"positions": "rotary"}),
        (RecurrentEncoderConfig, {}),
        (RecurrentLMConfig, {}),
    ],
    ids=str,
)
def test_rows_are_no_wider_than_the_positions(family: type[ModelConfig], given: dict[str, str]) -> None:
    default = family.n_positions
    for width in (64, default, default + 1, 4096):
        table = choose.complete_model_table(family, given, 1000, width, CPU)
        assert table.get("n_positions", default) >= width
        assert choose.complete_model_table(family, {**given, "n_positions": 70}, 1000, width, CPU)["n_positions"] == 70
