"""Recurrent models by the same commands: training, exact resuming, beam search, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import contents, digits, merged, ready, recipe, trained, write_pairs

import regard
from regard import config
from regard.cli import main
from regard.data.order import BucketOrder, PackedOrder
from regard.errors import ConfigError
from regard.training.loop import Trainer
from regard.training.plan import make_plan

RNN: config.Tables = {
    "task": {"name": "translate", "label_smoothing": 0.0},
    "data": {"max_length": 32},
    "tokenizer": {"vocabulary": 266},
    "model": {"preset": "tiny", "architecture": "rnn", "d_model": 32, "n_layers": 1, "n_decoder_layers": 1},
    "train": {"steps": 6, "batch_tokens": 128, "learning_rate": 5e-3, "warmup": 2, "log_every": 1, "average": 1},
}


def digit_recipe(folder: Path, *changes: config.Tables, n_pairs: int = 28) -> config.Tables:
    pairs = digits(n_pairs)
    files = {"train": write_pairs(folder, "train", pairs[4:]), "valid": write_pairs(folder, "valid", pairs[:4])}
    return merged(RNN, {"data": files}, *changes)


@pytest.mark.parametrize(
    "shape",
    [{"attention": "none", "cell": "gru"}, {"attention": "additive", "input_feeding": True}, {"attention": "dot"}],
    ids=lambda shape: shape["attention"],
)
@pytest.mark.parametrize("events", [2, 9])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, shape: dict[str, Any], events: int) -> None:
    every = {"steps": 6, "validate_every": 3, "save_every": 2, "accumulate": 2, "average": 2}
    tables = digit_recipe(tmp_path, {"model": {**shape, "dropout": 0.2, "n_layers": 2}, "train": every})
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(events):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")


@pytest.fixture(scope="module")
def reverser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator trained to reverse digits."""
    folder = tmp_path_factory.mktemp("reverser")
    train = {"steps": 300, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 20, "validate_every": 150}
    shape = {"d_model": 48, "attention": "additive", "dropout": 0.0}
    trained(digit_recipe(folder, {"model": shape, "train": train}, n_pairs=1500), folder / "run")
    return folder / "run"


def test_rnn_with_attention_learns_to_reverse_unseen_digits(reverser: Path) -> None:
    model = regard.load(reverser, device="cpu")
    unseen = digits(40, seed=5)
    translations = [best[0].text for best in model.translate([source for source, _ in unseen], beam=3)]
    assert sum(text == target for text, (_, target) in zip(translations, unseen, strict=True)) >= 36


def test_beam_search_forced_decoding_and_alignment(reverser: Path) -> None:
    model = regard.load(reverser, device="cpu")
    best = model.translate("1 2 3 4 5", n_best=3)
    assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
    assert best[0].text == "5 4 3 2 1"
    assert best[0].alignment == [(4, 0), (3, 1), (2, 2), (1, 3), (0, 4)]
    assert model.force_decode("1 2 3 4 5", best[0].text).hypothesis.score == pytest.approx(best[0].score, abs=1e-4)
    looked = model.translate("1 2 3", attention=True)[0].attention
    assert looked is not None
    assert looked.shape[:2] == (1, 1)
    batched = model.translate(["1 2 3 4 5", "7 8 9 4"], beam=4)
    assert [each[0].score for each in batched] == pytest.approx(
        [model.translate(text, beam=4)[0].score for text in ("1 2 3 4 5", "7 8 9 4")], abs=1e-4
    )
    one, other = (model.translate("1 2 3 4", sample=True, seed=3)[0] for _ in range(2))
    assert one == other


def test_fixed_context_vector_has_no_alignment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(digit_recipe(tmp_path, {"model": {"attention": "none"}}), tmp_path / "run")
    model = regard.load(tmp_path / "run", device="cpu")
    best = model.translate("1 2 3 4", n_best=2)
    assert [each.alignment for each in best] == [[], []]
    assert model.force_decode("1 2 3 4", "4 3").attention.shape[:2] == (0, 0)
    pairs = write_pairs(tmp_path, "test", digits(5, seed=9))
    assert model.evaluate(pairs)["n"] == 5
    message = fails(["look", str(tmp_path / "run"), "1 2 3", "--view", "attention", "--device", "cpu"], capsys)
    assert "this model has nothing to show for --view attention: it has no attention between tokens" in message


def test_rows_are_not_packed_and_nothing_is_compiled(tmp_path: Path) -> None:
    prepared = ready(digit_recipe(tmp_path), tmp_path / "rnn")
    assert isinstance(prepared.train_order, BucketOrder)
    assert isinstance(prepared.valid_order, BucketOrder)
    assert (prepared.config.train.compiled, prepared.config.train.precision) == (False, "float32")
    assert isinstance(ready(recipe(tmp_path), tmp_path / "transformer").train_order, PackedOrder)


def test_plan_counts_the_operations_of_recurrence(tmp_path: Path) -> None:
    prepared = ready(digit_recipe(tmp_path, {"model": {"attention": "dot"}}), tmp_path / "run")
    sized, d, vocabulary = make_plan(prepared), 32, 266

    def forward(source: int, target: int) -> int:
        reading, writing = 2 * 4 * (d // 2) * (d + d // 2), 4 * d * (d + d)
        attention, combined = 2 * source * d, 2 * d * d
        return source * reading + target * (writing + attention + combined + d * vocabulary) + 2 * d * d

    work = [batch.n_rows * forward(*batch.widths) for batch in prepared.train_order.pool_batches(0, 0)]
    assert sized.flops == pytest.approx(6 * 3 * 2 * sum(work) / len(work), rel=0.15)
    assert sized.memory_bytes > 16 * sized.n_parameters


def fails(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    (line,) = [line for line in err.splitlines() if line.startswith("error:")]
    return line


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_pairs(tmp_path, "train", digits(30))
    train = ["train", "translate", *files, "--out", str(tmp_path / "x"), "--device", "cpu"]
    message = fails([*train, "--architecture", "rrn"], capsys)
    assert message == "error: train translate: model.architecture = 'rrn'; accepted here: transformer, rnn"
    message = fails([*train, "--architecture", "rnn", "--set", "model.n_heads=4"], capsys)
    assert "model.n_heads belongs to model.architecture = transformer, not rnn; leave it out" in message
    message = fails([*train, "--set", "model.cell=gru"], capsys)
    assert "model.cell belongs to model.architecture = rnn, not transformer; leave it out" in message
    message = fails([*train, "--architecture", "rnn", "--set", "model.attention=bahdanau"], capsys)
    assert "model.attention = 'bahdanau'; accepted: none, additive, dot, general, scaled" in message
    message = fails([*train, "--architecture", "rnn", "--set", "train.compiled=true"], capsys)
    assert "train.compiled = true, but model.architecture = rnn has batches of many shapes; leave it out" in message
    message = fails(["train", "pretrain", files[0], "--architecture", "rnn", "--out", str(tmp_path / "x")], capsys)
    assert "model.architecture = 'rnn'; accepted here: transformer" in message


def test_architecture_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = digit_recipe(tmp_path)
    del tables["model"]["architecture"]
    settings = [f"{n}.{key}={json.dumps(value)}" for n, table in tables.items() for key, value in table.items()]
    command = ["train", "translate", *tables["data"]["train"], "--architecture", "rnn", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--device", "cpu", *(word for setting in settings for word in ("--set", setting))])
    assert ended.value.code == 0, capsys.readouterr().err
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "run"), "--json"])
    assert json.loads(capsys.readouterr().out)["architecture"] == "rnn"


def test_fine_tuning_requires_the_same_architecture(tmp_path: Path) -> None:
    trained(digit_recipe(tmp_path), tmp_path / "rnn")
    trained(recipe(tmp_path), tmp_path / "transformer")
    files = {"train": write_pairs(tmp_path, "more", digits(30, seed=3))}
    given = {"task": {"name": "translate"}, "data": files, "train": {**RNN["train"], "steps": 2}}
    again = ready({**given, "model": {"start": str(tmp_path / "rnn")}}, tmp_path / "again")
    assert again.config.model.architecture == "rnn"
    assert isinstance(again.train_order, BucketOrder)
    for start, architecture, has in (("transformer", "rnn", "transformer"), ("rnn", "transformer", "rnn")):
        model = {"start": str(tmp_path / start), "architecture": architecture}
        message = rf"model\.architecture = '{architecture}', but .*{start} has '{has}'; leave it out"
        with pytest.raises(ConfigError, match=message):
            ready({**given, "model": model}, tmp_path / f"from-{start}")


def test_resumed_run_keeps_its_architecture(tmp_path: Path) -> None:
    tables = digit_recipe(tmp_path)
    trained(tables, tmp_path / "run")
    other = merged(tables, {"model": {"architecture": "transformer"}})
    with pytest.raises(ConfigError, match=r"model\.architecture = 'transformer', but the run in .* has 'rnn'"):
        ready(other, tmp_path / "run", resume=True)


def test_rnn_language_model_learns_generates_and_resumes_exactly(tmp_path: Path) -> None:
    counted = [" ".join(str((start + i) % 10) for i in range(12 + start)) for start in range(10)]
    (tmp_path / "t.txt").write_text("\n\n".join(counted * 8))
    tables: config.Tables = {
        "task": {"name": "lm", "length": 16},
        "data": {"train": [str(tmp_path / "t.txt")]},
        "tokenizer": {"kind": "characters"},
        "model": {"preset": "tiny", "architecture": "rnn", "d_model": 32, "n_layers": 1, "n_positions": 20},
        "train": {"steps": 60, "batch_tokens": 256, "learning_rate": 2e-2, "validate_every": 20, "save_every": 10},
    }
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(30):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")
    model = regard.load(tmp_path / "whole", device="cpu")
    one, other = model.generate(["3 4 5", "8 9 0 1"], temperature=0.0, max_tokens=6)
    assert (one[0].text, other[0].text) == (" 6 7 8", " 2 3 4")
    assert len(model.generate("1 2", max_tokens=50, seed=1)[0].ids) > 0  # far beyond 20 tokens
    assert model.evaluate([str(tmp_path / "t.txt")])["perplexity"] < 2
    assert model.look("3 4 5").view_data("gradients").arrays
