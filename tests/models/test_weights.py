"""Weights files of version 0.1 load under today's names, in every model and every file of a run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import contents, ready, recipe
from torch import nn

from regard import config
from regard.errors import CheckpointError
from regard.models import weights
from regard.models.architectures import CAUSAL_LMS, ENCODER_MODELS, SEQ2SEQ_MODELS, Architecture
from regard.models.config import apply_preset
from regard.models.heads import MaskedLMHead, Pooler, TokenClassificationHead
from regard.models.recurrent.bilm import BiLMEncoder
from regard.models.weights import (
    LEGACY_NAMES,
    collect_weights,
    load_weights,
    modernise_name,
    read_tensors,
    write_tensors,
)
from regard.training.loop import Trainer

NAMES_0_1: dict[str, list[str]] = json.loads((Path(__file__).parent / "weight_names_0.1.json").read_text())
"""The parameters of a few models in order, as version 0.1 itself named them."""

SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 8}


def build_config(architecture: Architecture, **table: object) -> object:
    values = apply_preset({"preset": "tiny", "n_layers": 1, **table}, architecture.Config)
    return architecture.Config(**values)


def build_seq2seq(name: str, **table: object) -> nn.Module:
    architecture = SEQ2SEQ_MODELS[name]
    return architecture.Model(build_config(architecture, n_decoder_layers=1, **table), 9, 9, joint=name == "rnn")


def build_encoder() -> nn.Module:
    encoder = build_config(ENCODER_MODELS["transformer"], tied=False, **SMALL)
    heads = {
        "masked": MaskedLMHead(encoder, 9),
        "pooler": Pooler(encoder, "attention"),
        "tags": TokenClassificationHead(encoder, 3),
    }
    return ENCODER_MODELS["transformer"].Model(encoder, 9, heads)


def build_language_model() -> nn.Module:
    architecture = CAUSAL_LMS["transformer"]
    return architecture.Model(build_config(architecture, positions="relative-values", **SMALL), 9)


def build_recurrent_encoder() -> nn.Module:
    architecture = ENCODER_MODELS["rnn"]
    return architecture.Model(build_config(architecture, d_model=8), 9, {})


def build_static_encoder() -> nn.Module:
    architecture = ENCODER_MODELS["static"]
    static = architecture.Config(**apply_preset({"preset": "tiny", "d_model": 8}, architecture.Config))
    return architecture.Model(static, 9, {})


def build_recurrent_language_model() -> nn.Module:
    architecture = CAUSAL_LMS["rnn"]
    return architecture.Model(build_config(architecture, d_model=8), 9)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "seq2seq": lambda: build_seq2seq("transformer", positions="learned", **SMALL),
    "encoder": build_encoder,
    "language_model": build_language_model,
    "recurrent_seq2seq": lambda: build_seq2seq("rnn", d_model=8, attention="general", input_feeding=True),
    "recurrent_encoder": build_recurrent_encoder,
    "recurrent_language_model": build_recurrent_language_model,
    "static_encoder": build_static_encoder,
}


def test_there_are_names_of_every_architecture() -> None:
    built = {type(build()) for build in MODELS.values()}
    models = {each.Model for models in (SEQ2SEQ_MODELS, ENCODER_MODELS, CAUSAL_LMS) for each in models.values()}
    assert built == models - {BiLMEncoder}, "which came after 0.1"


@pytest.mark.parametrize("name", MODELS)
def test_a_weights_file_of_0_1_loads(name: str, tmp_path: Path) -> None:
    saved, loaded, path = MODELS[name](), MODELS[name](), tmp_path / "model.safetensors"
    with torch.no_grad():
        for weight in saved.parameters():
            weight.normal_()
    write_tensors(path, dict(zip(NAMES_0_1[name], collect_weights(saved).values(), strict=True)))
    load_weights(loaded, path)
    for weight, expected in zip(loaded.parameters(), saved.parameters(), strict=True):
        assert torch.equal(weight, expected)


def test_every_legacy_name_occurs_in_0_1_and_none_today() -> None:
    old = {name for names in NAMES_0_1.values() for name in names}
    for legacy in LEGACY_NAMES:
        assert any(f".{legacy}." in f".{name}" for name in old), legacy
    for build in MODELS.values():
        for name, _ in build().named_parameters():
            assert modernise_name(name) == name


def rename_as_in_0_1(path: Path) -> None:
    """Rewrite a file of a run with the names of 0.1."""
    tensors, metadata = read_tensors(path)
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in LEGACY_NAMES.items():
            name = f".{name}".replace(f".{new}.", f".{old}.").removeprefix(".")
        renamed[name] = tensor
    assert renamed.keys() != tensors.keys()
    write_tensors(path, renamed, metadata or None)


@pytest.mark.parametrize("architecture", ["transformer", "rnn"])
def test_a_run_of_0_1_resumes_bit_identically(architecture: str, tmp_path: Path) -> None:
    """Weights, Adam's moments and the snapshots to be averaged are all found under their old names."""
    tables: config.Tables = {
        "model": {"dropout": 0.2},
        "train": {"steps": 6, "validate_every": 2, "save_every": 2, "average": 3},
    }
    tables = recipe(tmp_path, tables)
    if architecture == "rnn":
        tables["model"] = {"preset": "tiny", "architecture": "rnn", "d_model": 16, "n_positions": 32}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    for event in Trainer(ready(tables, whole)).train():
        if event.step == 5:
            break
    shutil.copytree(whole, resumed)
    for path in resumed.rglob("*.safetensors"):
        rename_as_in_0_1(path)
    for out in (whole, resumed):
        list(Trainer(ready(tables, out, resume=True)).train())
    one, other = contents(resumed), contents(whole)
    assert one.pop("snapshots").keys() == other.pop("snapshots").keys()
    assert one == other


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"weight": torch.ones(2, 3, dtype=torch.int32), "bias": torch.ones(2)})
    model = nn.Linear(3, 2)
    with pytest.raises(CheckpointError, match=r"'weight' holds torch\.int32, expected floating-point numbers"):
        load_weights(model, path)


def test_weights_that_are_no_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    os.mkfifo(path)
    for each in (path, tmp_path):
        with pytest.raises(CheckpointError, match=f"^{each}: not a file; restore it from a copy$"):
            read_tensors(each)


def test_weights_that_do_not_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    path = tmp_path / "model.safetensors"
    path.write_bytes(b"x" * 5000)
    monkeypatch.setattr(weights, "safe_open", fail)
    with pytest.raises(CheckpointError, match=r"5,000 bytes do not fit into memory$"):
        read_tensors(path)
