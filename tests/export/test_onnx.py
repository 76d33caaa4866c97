"""Exports to ONNX: encoders with every head and language models give the same there, at any batch and length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sources import WORDPIECE, encoder, language_model, save, translator, usage_of
from tokenizers import Tokenizer as HFTokenizer

import regard
from regard.data.labels import Labels, ScoreScaler
from regard.errors import InputError
from regard.export import export_model
from regard.export.comparison import Comparison
from regard.export.exporting import write_and_compare
from regard.export.onnx_format import OnnxFormat
from regard.export.source_model import SourceModel
from regard.models.recurrent.config import RecurrentEncoderConfig
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.tasks.tag import TagConfig, TaggingTask

NAMES = Labels(("no", "maybe", "yes"))


def pretraining(objective: Any = "none", **options: Any) -> PretrainingTask:
    return PretrainingTask(PretrainConfig(length=32, objective=objective, **options), WORDPIECE)


def classification(**options: Any) -> ClassificationTask:
    return ClassificationTask(ClassifyConfig(**options), WORDPIECE, NAMES)


def differences(source: SourceModel, directory: Path, quantization: str = "") -> Comparison:
    """Write a model, run it in ONNX Runtime and return the comparison."""
    return write_and_compare(source, directory / "model", OnnxFormat(), quantization)


def check(source: SourceModel, directory: Path, *outputs: str) -> None:
    comparison = differences(source, directory)
    assert tuple(comparison.largest) == outputs
    assert max(comparison.largest.values()) < 1e-4


OBJECTIVES = {
    "masked+next": ("logits", "seq_relationship_logits", "last_hidden_state", "sentence_embedding"),
    "masked": ("logits", "last_hidden_state", "sentence_embedding"),
    "next": ("logits", "last_hidden_state", "sentence_embedding"),
    "pooled": ("pooler_output", "last_hidden_state", "sentence_embedding"),
    "none": ("last_hidden_state", "sentence_embedding"),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pretrained_encoders(objective: str, tmp_path: Path) -> None:
    task = pretraining(objective, normalised=objective == "none", pooling="cls" if objective == "masked" else "mean")
    check(encoder(task, tied=objective == "masked"), tmp_path, *OBJECTIVES[objective])


def test_the_masked_head_has_the_activation_without_the_gate(tmp_path: Path) -> None:
    check(encoder(pretraining("masked"), activation="gated-gelu"), tmp_path, *OBJECTIVES["masked"])


SHAPES: list[dict[str, Any]] = [
    {"norm": norm, "positions": positions}
    for norm in ("pre", "post")
    for positions in ("sinusoidal", "learned", "relative", "relative-values", "rotary", "none")
]
SHAPES += [{"activation": name} for name in ("relu", "gelu-tanh", "silu", "gated-gelu")]
SHAPES += [{"embedding": "scaled"}, {"d_key": 4, "d_value": 6}, {"first_position": 2}, {"n_parts": 0}, {"n_parts": 3}]
SHAPES += [{"directions": "forward"}, {"directions": "backward", "positions": "rotary"}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: dict[str, Any], tmp_path: Path) -> None:
    check(encoder(classification(pooling="mean"), **shape), tmp_path, "logits")


POOLINGS: list[dict[str, Any]] = [{"pooling": kind} for kind in ("cls", "max", "last", "concat", "attention")]
POOLINGS += [{"pooling": "attention", "score": "additive", "project": True}]
POOLINGS += [{"pooling": "attention", "score": "dot", "query": "ones", "project": True, "hops": 3}]
POOLINGS += [
    {"pooling": kind, "layers": layers}
    for kind in ("mean", "attention")
    for layers in ("last4-sum", "last4-concat", "mix")
]


@pytest.mark.parametrize("options", POOLINGS, ids=str)
def test_classifiers(options: dict[str, Any], tmp_path: Path) -> None:
    n_layers = 5 if "layers" in options else 2
    check(encoder(classification(**options), n_layers=n_layers), tmp_path, "logits")


def test_taggers_and_question_answering(tmp_path: Path) -> None:
    for number, layers in enumerate(("last", "mix")):
        (tmp_path / str(number)).mkdir()
        tagger = TaggingTask(TagConfig(layers=layers), WORDPIECE, NAMES)
        check(encoder(tagger, n_layers=5), tmp_path / str(number), "logits")
    answers = QuestionAnsweringTask(QuestionAnsweringConfig(), WORDPIECE, Labels(("answer",)))
    check(encoder(answers), tmp_path, "start_logits", "end_logits")


@pytest.mark.parametrize("positions", ["learned", "rotary", "relative"])
def test_language_models(positions: str, tmp_path: Path) -> None:
    check(language_model(positions=positions, tied=positions == "rotary"), tmp_path, "logits")


def test_padding_batch_and_length_change_nothing(tmp_path: Path) -> None:
    """One text alone, in a batch, with padding on the left or right, and of one token."""
    differences(encoder(classification(pooling="cls", layers="last"), positions="learned"), tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model/model.onnx"))

    def run(*rows: list[int], left: int = 0, right: int = 0) -> np.ndarray:
        ids = np.array([[9] * left + row + [9] * right for row in rows])
        mask = np.array([[0] * left + [1] * len(row) + [0] * right for row in rows])
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, feeds)[0]

    text = [2, 17, 25, 31, 3]
    alone = run(text)
    assert alone.shape == (1, 3)
    for other in (run(text, [5, 6, 7, 8, 9])[:1], run(text, right=4), run(text, left=3)):
        np.testing.assert_allclose(other, alone, atol=1e-6)
    assert run([7]).shape == (1, 3)
    assert run(*[[7]] * 4).shape == (4, 3)


@pytest.mark.parametrize("kind", ["names", "scores"])
def test_exported_classifier_gives_what_regard_gives(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From text to probabilities or scores, with nothing but the files of the export."""
    labels = NAMES if kind == "names" else Labels((), scale=ScoreScaler(3.0, 2.0))
    options = {} if kind == "names" else {"kind": "score"}
    source = encoder(ClassificationTask(ClassifyConfig(pooling="mean", **options), WORDPIECE, labels))
    run = save(source, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    out = export_model(run, Path("reviews"), "onnx", licence="mit")
    names = {"model.onnx", "config.json", "README.md", "vocab.txt"}
    assert {path.name for path in out.iterdir()} == names | {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }
    text = "the red cat"
    encoded = HFTokenizer.from_file(str(out / "tokenizer.json")).encode(text)
    feeds = {
        "input_ids": [encoded.ids],
        "attention_mask": [encoded.attention_mask],
        "token_type_ids": [encoded.type_ids],
    }
    logits = torch.from_numpy(onnxruntime.InferenceSession(str(out / "model.onnx")).run(None, feeds)[0])
    model: Any = regard.load(run, device="cpu")
    ours = model.classify(text)
    if kind == "names":
        assert logits.softmax(-1)[0].tolist() == pytest.approx(list(ours.probabilities.values()), abs=1e-5)
        assert list(json.loads((out / "config.json").read_text())["id2label"].values()) == list(ours.probabilities)
    else:
        assert float(logits[0, 0]) == pytest.approx(ours.score, abs=1e-4)
    capsys.readouterr()
    exec(usage_of(out / "README.md"), {})
    assert capsys.readouterr().out.strip()


def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    source = encoder(classification(pooling="mean"), d_model=64, d_ff=128)
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    comparison = differences(source, tmp_path / "small", "int8")
    differences(source, tmp_path / "large")
    small, large = ((tmp_path / name / "model/model.onnx").stat().st_size for name in ("small", "large"))
    assert small < 0.6 * large
    assert 1e-5 < comparison.errors["logits"] < 0.5
    assert {path.name for path in (tmp_path / "small/model").iterdir()} >= {"model.onnx", "tokenizer.json"}
    assert not (tmp_path / "small/model/float32.onnx").exists()


def test_what_it_lacks_is_refused() -> None:
    recurrent = RecurrentEncoderConfig(preset="tiny", d_model=16, n_layers=1, dropout=0.0)
    task = classification(pooling="mean")
    network = task.build_model(recurrent)
    attentive = QuestionAnsweringTask(QuestionAnsweringConfig(pooling="attention"), WORDPIECE, Labels(("answer",)))
    only = "the ONNX export has"
    rnn = SourceModel(Path(), translator().run_config, task, network)
    cases = [
        (translator(), f"a translator: {only} encoders and language models (pass --to ctranslate2)"),
        (rnn, f'model.architecture = "rnn": {only} only Transformers'),
        (encoder(classification(pooling="hierarchical")), f'task.pooling = "hierarchical": {only} the other poolings'),
        (encoder(attentive), f'task.pooling = "attention" of a question: {only} only "none"'),
    ]
    for source, message in cases:
        with pytest.raises(InputError) as refused:
            OnnxFormat().check_expressible(source)
        assert str(refused.value).startswith(message)
        assert str(refused.value).endswith(", so this model cannot be exported to it")


def test_a_difference_is_noticed_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = save(encoder(classification(pooling="mean")), tmp_path / "run")
    monkeypatch.setattr("regard.export.onnx_layers.GELU_TANH_CUBIC", 0.05)
    export_model(run, tmp_path / "same", "onnx")
    monkeypatch.setattr("regard.export.onnx_layers.ACTIVATIONS", {"gelu": lambda graph, x: graph.apply("Relu", x)})
    monkeypatch.setattr("regard.export.onnx_encoder.apply_activation", lambda graph, name, x: graph.apply("Tanh", x))
    with pytest.raises(InputError, match="ONNX Runtime: not the same model: logits differs by"):
        export_model(run, tmp_path / "out", "onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "same"}
