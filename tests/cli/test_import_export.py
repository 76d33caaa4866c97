"""`regard import` and `regard export` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers
from theirs import CASES, save

from regard.cli import main
from regard.runs.model_loading import open_model

Fail = Callable[..., str]

NAMED = {case.name: case for case in CASES}


def run_command(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


def test_import_then_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(NAMED["BERT classes"], folder / "theirs")
    run_command("import", "theirs", "--out", "runs/ours")
    assert capsys.readouterr().out == "runs/ours\n"
    files = {path.name for path in Path("runs/ours").iterdir()}
    assert files == {"config.toml", "tokenizer.json", "labels.json", "model.safetensors"}
    run_command("export", "runs/ours", "--to", "hf", "--out", "back")
    assert capsys.readouterr().out == "back\n"
    files = {path.name for path in Path("back").iterdir()}
    assert files == {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "vocab.txt",
    }
    assert open_model(Path("back"))[0] == open_model(Path("theirs"))[0]
    model = transformers.AutoModelForSequenceClassification.from_pretrained("back")
    assert model.config.id2label == {0: "no", 1: "maybe", 2: "yes"}


def test_export_of_sentence_transformers_files(folder: Path) -> None:
    save(NAMED["BERT body"], folder / "theirs")
    run_command("export", "theirs", "--out", "back")
    assert json.loads(Path("back/1_Pooling/config.json").read_text()) == {
        "word_embedding_dimension": 30,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_lasttoken": False,
    }
    kinds = [each["type"].rpartition(".")[2] for each in json.loads(Path("back/modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling"]


def test_errors(fail: Fail, run: Path) -> None:
    assert fail("import", "nowhere", "--out", "x") == (
        "nowhere: no such directory; name one with config.json and model.safetensors"
    )
    assert fail("import", "run", "--out", "x") == "run: already a run directory; use it as it is"
    Path("empty").mkdir()
    assert fail("import", "empty", "--out", "x") == "empty: not a Hugging Face directory: it has no config.json"
    save(NAMED["BERT body"], Path("theirs"))
    taken = "already exists and is not empty; choose another --out"
    assert fail("import", "theirs", "--out", "run") == f"run: {taken}"
    assert fail("export", "theirs", "--out", "run") == f"run: {taken}"
    assert fail("export", "theirs", "--to", "onxx", "--out", "x") == (
        "--to onxx: accepted: hf, ctranslate2, onnx, regard, word2vec"
    )
    assert fail("export", "theirs", "--to", "onnx", "--quantization", "int4", "--out", "x") == (
        "--quantization int4: not for --to onnx; accepted: int8"
    )
    assert fail("export", "theirs", "--quantization", "int8", "--out", "x") == (
        "--quantization int8: not for --to hf; this format has none; leave it out"
    )
    assert fail("export", "run", "--to", "onnx", "--out", "x") == (
        "a translator: the ONNX export has encoders and language models (pass --to ctranslate2), "
        "so this model cannot be exported to it"
    )
    assert fail("export", "nowhere", "--out", "x").startswith("nowhere: no such run directory")
    Path("file").write_text("")
    assert fail("import", "theirs", "--out", "file") == "file: not a directory; choose another --out"
    assert fail("import", "theirs", "--out", "file/x").startswith("file/x: cannot be written (")
    assert not Path("x").exists()


def test_trained_translator_becomes_a_pegasus(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its norms come first and its sines and cosines alternate, as by default."""
    run_command("export", "run", "--out", "hf", "--licence", "mit")
    err = capsys.readouterr().err
    assert err.startswith("transformers gives the same; largest differences: logits ")
    assert json.loads(Path("hf/config.json").read_text())["architectures"] == ["PegasusForConditionalGeneration"]
    assert open_model(Path("hf"))[0].model.positions == "sinusoidal-halves"
