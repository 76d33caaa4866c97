"""Export for regard itself: what the directory holds, what it computes, and that nothing of the training is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sources import WORDPIECE, encoder, language_model, save, translator, usage_of
from tiny_runs import merged, recipe, trained

import regard
from regard.data.labels import Labels
from regard.disk import read_json_with_checksum
from regard.errors import CheckpointError, DataError, InputError
from regard.export import export_model
from regard.export.source_model import SourceModel
from regard.models.weights import collect_weights
from regard.runs.run_directory import RunDirectory
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.embed import EmbedConfig, EmbeddingTask
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.tag import TagConfig, TaggingTask

WIDE = {"d_model": 64, "d_ff": 128}
LABELS = Labels(("no", "yes"))

SOURCES: dict[str, Callable[[], SourceModel]] = {
    "translate": lambda: translator(**WIDE),
    "two vocabularies": lambda: translator(joint=False, **WIDE),
    "lm": lambda: language_model(**WIDE),
    "pretrain": lambda: encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE), **WIDE),
    "encoder alone": lambda: encoder(PretrainingTask(PretrainConfig(length=32, objective="none"), WORDPIECE), **WIDE),
    "classify": lambda: encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, LABELS), **WIDE),
    "tag": lambda: encoder(TaggingTask(TagConfig(), WORDPIECE, LABELS), **WIDE),
    "embed": lambda: encoder(EmbeddingTask(EmbedConfig(), WORDPIECE), **WIDE),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_script_of_the_card_runs(name: str, tmp_path: Path) -> None:
    out = export_model(save(SOURCES[name](), tmp_path / "run"), tmp_path / "model", "regard", quantization="int8")
    types = {tensor.dtype for tensor in load_file(out / "model.safetensors").values()}
    assert types >= {torch.int8, torch.float16}
    code = usage_of(out / "README.md").replace('"model"', repr(str(out)))
    exec(compile(code, "usage", "exec"), {})


@pytest.mark.parametrize("quantization", ["", "float16"])
def test_weights_in_more_bits(quantization: str, tmp_path: Path) -> None:
    source = save(translator(**WIDE), tmp_path / "run")
    out = export_model(source, tmp_path / "model", "regard", quantization=quantization)
    before, after = (collect_weights(RunDirectory(path).load()[2]) for path in (source, out))
    assert all(torch.equal(before[name], after[name]) for name in before) is (quantization == "")
    assert all(torch.allclose(before[name], after[name], rtol=1e-3, atol=1e-4) for name in before)
    kind = torch.float16 if quantization else torch.float32
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {kind}


def test_int8_weights_are_loaded_as_stored(tmp_path: Path) -> None:
    source = save(translator(**WIDE), tmp_path / "run")
    out = export_model(source, tmp_path / "model", "regard", quantization="int8")
    stored = load_file(out / "model.safetensors")
    loaded = collect_weights(RunDirectory(out).load()[2])
    matrices = [name for name, tensor in stored.items() if tensor.dtype == torch.int8]
    assert matrices
    for name in matrices:
        assert torch.equal(loaded[name], stored[name] * stored[f"{name}.scale"][:, None])


def test_nothing_of_the_training_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(merged(recipe(tmp_path), {"task": {"source_lang": "en", "target_lang": "xx"}}), tmp_path / "run")
    notes = tmp_path / "notes.md"
    notes.write_text("## Data\n\nDigits, public domain.\n", encoding="utf-8")
    options = {"quantization": "int8", "licence": "cc0-1.0"}
    out = export_model(tmp_path / "run", tmp_path / "model", "regard", notes=notes, **options)  # type: ignore[arg-type]
    assert "error of weights by int8 weights: " in capsys.readouterr().err
    names = {"README.md", "config.toml", "metrics.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in out.iterdir()} == names
    assert "started in" not in (out / "config.toml").read_text(encoding="utf-8")
    assert read_json_with_checksum(out / "metrics.json") == RunDirectory(tmp_path / "run").read_metrics()
    card = (out / "README.md").read_text(encoding="utf-8")
    assert 'license: "cc0-1.0"' in card
    assert card.endswith("## Data\n\nDigits, public domain.\n")
    model = regard.Translator.load(out, device="cpu")
    assert model.info()["training"]["best"]
    assert model.config == regard.load(tmp_path / "run", device="cpu").config


def test_damage_is_found(tmp_path: Path) -> None:
    out = export_model(save(translator(), tmp_path / "run"), tmp_path / "model", "regard", quantization="int8")
    path = out / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged \(its checksum does not match\)"):
        regard.load(out, device="cpu")


def test_notes_that_do_not_exist(tmp_path: Path) -> None:
    source = save(translator(), tmp_path / "run")
    with pytest.raises(DataError, match=r"notes\.md"):
        export_model(source, tmp_path / "model", "regard", notes=tmp_path / "notes.md")
    assert not (tmp_path / "model").exists()


def test_frozen_layers_are_those_of_the_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE), **WIDE)
    tuned = encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, LABELS), **WIDE)
    tuned.network.encoder[0].load_state_dict(body.network.encoder[0].state_dict())
    runs = {name: save(source, tmp_path / "runs" / name) for name, source in (("body", body), ("tuned", tuned))}
    for name in runs:
        export_model(
            runs[name],
            tmp_path / name,
            "regard",
            quantization="int8",
            **({"base": tmp_path / "body"} if name == "tuned" else {}),
        )  # type: ignore[arg-type]
    assert "tensors are those of" in capsys.readouterr().err
    stored = load_file(tmp_path / "tuned" / "model.safetensors")
    assert stored
    assert not any(name.startswith("encoder.0.") for name in stored)
    texts = ["the red cat", "a slow dog runs"]
    model = regard.Classifier.load(tmp_path / "tuned", device="cpu")
    assert [each.label for each in model.classify(texts)] == [
        each.label for each in regard.Classifier.load(runs["tuned"], device="cpu").classify(texts)
    ]
    with pytest.raises(InputError, match="--base: not for --to onnx; leave it out"):
        export_model(runs["tuned"], tmp_path / "x", "onnx", base=tmp_path / "body")


def test_a_base_without_common_weights_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save(translator(**WIDE), tmp_path / "run")
    base = export_model(run, tmp_path / "base", "regard")
    export_model(run, tmp_path / "model", "regard", quantization="int8", base=base)
    assert "shares no weights with" in capsys.readouterr().err
