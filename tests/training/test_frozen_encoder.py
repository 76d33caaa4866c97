"""Training on a frozen encoder: what stays, what is cached, and that the cache changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from encoders import sentences
from safetensors.torch import load_file
from tiny_runs import contents, merged, ready, trained

import regard
from regard import config
from regard.errors import ConfigError
from regard.training import feature_cache
from regard.training.feature_cache import CachedEncoder, compute_store_features, plan_cache
from regard.training.loop import Trainer
from regard.training.plan import make_plan

pytestmark = pytest.mark.filterwarnings("ignore:train.freeze without --from")

LAYERS = ("last", "last4-sum", "last4-concat", "mix")

RECIPE: config.Tables = {
    "task": {"name": "tag"},
    "tokenizer": {"vocabulary": 48},
    "model": {"preset": "tiny", "d_model": 16, "n_layers": 4, "n_heads": 2, "d_ff": 32, "dropout": 0.2},
    "train": {
        "freeze": "encoder",
        "steps": 6,
        "batch_tokens": 256,
        "learning_rate": 1e-2,
        "warmup": 1,
        "log_every": 1,
        "validate_every": 3,
        "save_every": 2,
        "average": 1,
        "patience": 0,
    },
}


def tagged(folder: Path) -> str:
    """Write sentences in which cats and dogs are animals."""
    animals = ("cat", "dog")
    lines = ["\n".join(f"{w} {'ANI' if w in animals else 'O'}" for w in text.split()) for text in sentences(40)]
    (folder / "data.conll").write_text("\n\n".join(lines) + "\n")
    return str(folder / "data.conll")


def labelled(folder: Path) -> str:
    """Write sentences with a class: whether they have a cat."""
    rows = [f"{text}\t{'yes' if 'cat' in text.split() else 'no'}" for text in sentences(40)]
    (folder / "data.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return str(folder / "data.tsv")


def questions(folder: Path) -> str:
    """Write questions that the second word of their context answers."""
    rows = [
        {"question": f"what follows {text.split()[0]}", "context": text, "answers": [text.split()[1]]}
        for text in sentences(40)
    ]
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder / "data.jsonl")


DATA = {"tag": tagged, "classify": labelled, "qa": questions}


def frozen(folder: Path, *changes: config.Tables, task: str = "tag") -> config.Tables:
    file = DATA[task](folder)
    return merged(RECIPE, {"task": {"name": task}, "data": {"train": [file], "valid": [file]}}, *changes)


def logged(out: Path, key: str) -> list[float]:
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        *((task, {"layers": layers}) for task in ("tag", "classify") for layers in LAYERS),
        ("classify", {"pooling": "attention"}),
        ("classify", {"pooling": "hierarchical"}),
        ("qa", {}),
        ("qa", {"pooling": "attention"}),
    ],
)
def test_cached_features_give_the_losses_of_recomputed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, settings: config.Table
) -> None:
    """With dropout: that of the frozen part is off in both, that of the head the same."""
    tables = frozen(tmp_path, {"task": settings, "train": {"batch_tokens": 512}}, task=task)
    trained(tables, tmp_path / "cached")
    monkeypatch.setattr(feature_cache, "MEMORY_FRACTION", 0.0)
    trained(tables, tmp_path / "recomputed")
    for key in ("loss", "gradient_norm", "valid_loss", "f1" if task == "qa" else "accuracy"):
        cached, expected = (logged(tmp_path / name, key) for name in ("cached", "recomputed"))
        assert len(cached) in (2, 6)
        assert cached == pytest.approx(expected, rel=2e-4), key


@pytest.mark.parametrize("layers", ["last", "mix"])
def test_cached_features_in_bfloat16(tmp_path: Path, layers: str) -> None:
    """The features are computed in float32 and rounded; validation reads them in float32."""
    tables = frozen(tmp_path, {"task": {"layers": layers}, "model": {"dropout": 0.0}})
    trained(tables, tmp_path / "float32")
    trained(merged(tables, {"train": {"precision": "bfloat16"}}), tmp_path / "bfloat16")
    for key in ("loss", "valid_loss"):
        found, expected = (logged(tmp_path / name, key) for name in ("bfloat16", "float32"))
        assert found == pytest.approx(expected, rel=0.03), key


def test_features_are_the_hidden_states_of_each_text_alone(tmp_path: Path) -> None:
    prepared = ready(frozen(tmp_path), tmp_path / "run")
    table = compute_store_features(prepared, prepared.train_store, torch.float32)
    store, model = prepared.train_store, prepared.model.eval()
    for item in (0, 7, 39):
        ids = torch.from_numpy(store["text"][item].astype("int32"))[None]
        rows = regard.data.batches.SegmentedRows(
            ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None], torch.zeros_like(ids)
        )
        start, end = store["text"].offsets[item : item + 2]
        torch.testing.assert_close(table[start:end], model(rows)[0].detach())


def test_frozen_weights_stay_and_have_no_optimiser_state(tmp_path: Path) -> None:
    prepared = ready(frozen(tmp_path, {"task": {"layers": "mix"}}), tmp_path / "run")
    before = {name: weight.detach().clone() for name, weight in prepared.model.named_parameters()}
    list(Trainer(prepared).train())
    saved = load_file(tmp_path / "run" / "train.safetensors")
    trained_names = {name for name in before if name.startswith("heads.")}
    assert {f"heads.layers.{name}" for name in ("logits", "scale")} < trained_names
    assert {name.removeprefix("exp_avg.") for name in saved if name.startswith("exp_avg.")} == trained_names
    for name, weight in before.items():
        assert torch.equal(saved[f"model.{name}"], weight) == (name not in trained_names), name


def test_training_looks_features_up_and_validation_too(tmp_path: Path) -> None:
    trainer = Trainer(ready(frozen(tmp_path), tmp_path / "run"))
    next(trainer.train())
    assert isinstance(trainer._training_view.model, CachedEncoder)
    assert isinstance(trainer._validation_view.model, CachedEncoder)
    assert trainer._training_view.model.heads is trainer.model.heads


@pytest.mark.parametrize("layers", ["last", "mix"])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path, layers: str) -> None:
    tables = frozen(tmp_path, {"task": {"layers": layers}})
    trained(tables, tmp_path / "whole")
    interrupted = Trainer(ready(tables, tmp_path / "stopped"))
    for event in interrupted.train():
        if event.step == 4:
            break
    trained(tables, tmp_path / "stopped", resume=True)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_resumed_run_may_freeze_less_and_then_more(tmp_path: Path) -> None:
    """Gradual unfreezing (Howard and Ruder 2018): moments of what was frozen begin at zero."""
    tables, out = frozen(tmp_path), tmp_path / "run"
    trained(tables, out)
    unfrozen = merged(tables, {"train": {"freeze": 2, "steps": 8}})
    trained(unfrozen, out, resume=True)
    state = load_file(out / "train.safetensors")
    assert state["step.heads.tags.out.weight"] == 8
    assert state["step.encoder.3.attention.output.weight"] == 2
    assert "step.encoder.1.attention.output.weight" not in state
    assert any("changed" in json.loads(line) for line in (out / "log.jsonl").read_text().splitlines())
    trained(merged(tables, {"train": {"steps": 10}}), out, resume=True)
    assert "step.encoder.3.attention.output.weight" not in load_file(out / "train.safetensors")


def test_dropout_of_the_frozen_part_is_off(tmp_path: Path) -> None:
    trainer = Trainer(ready(frozen(tmp_path, {"train": {"freeze": 2}}), tmp_path / "run"))
    trainer._set_training_mode()
    layers: Any = trainer.model.encoder
    assert [layer.feed_forward_residual.dropout.training for layer in layers] == [False, False, True, True]
    assert not trainer.model.embedding.dropout.training  # type: ignore[union-attr]
    assert trainer.model.heads["tags"].dropout.training  # type: ignore[index]


def test_plan_names_what_is_trained_and_frozen(tmp_path: Path) -> None:
    prepared = ready(frozen(tmp_path), tmp_path / "run")
    plan, n_head = make_plan(prepared), 16 * 2 + 2
    assert plan.n_parameters - plan.n_frozen_parameters == n_head
    assert f": {n_head} trained, {plan.n_frozen_parameters:,} frozen" in plan.lines()[0]
    (line,) = [line for line in plan.lines() if line.startswith("frozen")]
    assert line.startswith("frozen     no dropout in the frozen part; hidden states are computed once, ")
    cached = plan_cache(prepared)
    assert cached is not None
    n_tokens = sum(len(store["text"].ids) for store in (prepared.train_store, prepared.valid_store))
    assert cached.n_bytes == 4 * 16 * n_tokens
    head = make_plan(ready(frozen(tmp_path, {"train": {"freeze": "embeddings"}}), tmp_path / "tuned"))
    assert plan.flops < 0.01 * head.flops
    assert plan.memory_bytes < head.memory_bytes
    free = make_plan(ready(frozen(tmp_path, {"train": {"freeze": "none"}}), tmp_path / "free"))
    assert "frozen" not in "\n".join(free.lines()).replace("train.freeze", "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"train": {"steps": 1, "freeze": "encoder"}}, "no text is read twice"), ({}, "GiB would not fit")],
)
def test_plan_says_why_features_are_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: config.Tables, reason: str
) -> None:
    if not changes:
        monkeypatch.setattr(feature_cache, "available_memory", lambda device: 1000)
    prepared = ready(frozen(tmp_path, {"train": {"validate_every": 1, "save_every": 1}}, changes), tmp_path / "run")
    (line,) = [line for line in make_plan(prepared).lines() if line.startswith("frozen")]
    assert "hidden states are computed at every step" in line
    assert line.endswith(reason)
    trainer = Trainer(prepared)
    next(trainer.train())
    assert trainer._training_view is prepared


@pytest.mark.parametrize("freeze", ["embeddings", 3])
def test_partly_frozen_encoder_is_not_cached(tmp_path: Path, freeze: str | int) -> None:
    assert plan_cache(ready(frozen(tmp_path, {"train": {"freeze": freeze}}), tmp_path / "run")) is None


@pytest.mark.parametrize("layers", LAYERS)
def test_it_learns_on_a_frozen_encoder(tmp_path: Path, layers: str) -> None:
    """The vectors of a random encoder tell words apart."""
    steps = {"steps": 90, "validate_every": 90, "learning_rate": 3e-2, "log_every": 90}
    trained(frozen(tmp_path, {"task": {"layers": layers}, "model": {"dropout": 0.0}, "train": steps}), tmp_path / "run")
    model = regard.Tagger.load(tmp_path / "run", device="cpu")
    assert model.evaluate(str(tmp_path / "data.conll"))["accuracy"] > 0.95
    assert [each.label for each in model.tag("the red cat")] == ["O", "O", "ANI"]
    about = model.info()
    assert about["trained_parameters"] + about["frozen_parameters"] == about["parameters"]
    if layers == "mix":
        assert model.look("cat").view_data("gradients").arrays
    assert model.embed(["the cat"]).shape == (1, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train": {"freeze": "encodr"}},
            "train.freeze = 'encodr'; expected one of none, embeddings, encoder or a",
        ),
        (
            {"train": {"freeze": 0}},
            "train.freeze = 0; expected at least 1 and at most 1,000, or none, or embeddings, or encoder",
        ),
        ({"train": {"freeze": 5}}, "train.freeze = 5: this model has 4 layers; freeze at most that many"),
        ({"task": {"layers": "first"}}, "task.layers = 'first'; accepted: last, last4-sum, last4-concat, mix"),
        (
            {"task": {"layers": "last4-sum"}, "model": {"n_layers": 2}},
            'task.layers = "last4-sum" needs a model of at least 4 layers, this one has 2; choose "last" or another',
        ),
    ],
)
def test_refusals(tmp_path: Path, changes: config.Tables, message: str) -> None:
    tables = frozen(tmp_path, changes, {"data": {"train": ["missing.conll"]}})  # refused before any text is read
    with pytest.raises(ConfigError) as error:
        ready(tables, tmp_path / "run")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
