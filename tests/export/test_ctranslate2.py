"""Exports to CTranslate2: every shape gives the same there, what it lacks is refused, and a wrong one is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from sources import JOINT, OTHER, WORDPIECE, encoder, language_model, save, translator, usage_of
from tokenizers import Tokenizer as HFTokenizer

import regard
from regard.data.labels import Labels
from regard.errors import InputError
from regard.export import export_model
from regard.export.comparison import Comparison
from regard.export.ctranslate2_check import N_GREEDY_TOKENS
from regard.export.ctranslate2_format import CTranslate2Format
from regard.export.exporting import write_and_compare
from regard.export.source_model import SourceModel
from regard.generate import DecodingConfig
from regard.models.recurrent.config import RecurrentSeq2SeqConfig
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

SHAPES: list[dict[str, Any]] = [
    {"norm": norm, "positions": positions}
    for norm in ("pre", "post")
    for positions in ("sinusoidal", "sinusoidal-halves", "learned", "relative", "relative-values", "rotary", "none")
]
SHAPES += [{"activation": name} for name in ("gelu", "gelu-tanh", "silu", "gated-gelu", "gated-silu")]
SHAPES += [{"embedding": "normed"}, {"embedding": "plain"}, {"tied": False}, {"output_bias": True}, {"norm_eps": 1e-2}]
SHAPES += [
    {"d_key": 4, "d_value": 4},
    {"n_layers": 3, "n_decoder_layers": 1},
    {"joint": False},
    {"sinusoid_base": 50.0},
]
SHAPES += [{"joint": False, "tied": False}, {"positions": "rotary", "d_key": 12, "d_value": 12}]
SHAPES += [{"task": {"start": "<eos>", "first": "<sos>"}}]  # the special tokens of BART


def differences(source: SourceModel, directory: Path, quantization: str = "") -> Comparison:
    """Write a model, run it in CTranslate2 and return the comparison."""
    return write_and_compare(source, directory / "model", CTranslate2Format(), quantization)


def describe(shape: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in shape.items())


@pytest.mark.parametrize("shape", SHAPES, ids=describe)
def test_translators_give_the_same(shape: dict[str, Any], tmp_path: Path) -> None:
    comparison = differences(translator(**shape), tmp_path)
    assert 0 < comparison.largest["log-probabilities"] < 1e-5


def test_greedy_translations_cut_at_a_limit_are_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where regard stops before the engine does, its forced end is no token that differs."""
    monkeypatch.setattr("regard.predict.translation.MAX_EXTRA_TOKENS", 2)
    source = translator()
    task: Any = source.task
    predictor = task.make_predictor(source.network, torch.device("cpu"))
    written = predictor.generate([ids for ids, _ in source.sample_pairs()], DecodingConfig(beam=1))
    assert any(each[0].is_truncated and len(each[0].ids) < N_GREEDY_TOKENS for each in written)
    differences(source, tmp_path)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "relative-values", "rotary", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_language_models_give_the_same(positions: str, norm: str, tmp_path: Path) -> None:
    tied = norm == "pre"
    assert differences(language_model(positions=positions, norm=norm, tied=tied), tmp_path).largest["logits"] < 5e-5


@pytest.mark.parametrize("shape", [{}, {"norm": "pre", "positions": "rotary"}, {"n_parts": 0}, {"n_parts": 1}], ids=str)
def test_encoders_give_the_same(shape: dict[str, Any], tmp_path: Path) -> None:
    task = PretrainingTask(PretrainConfig(length=32, objective="pooled"), WORDPIECE)
    comparison = differences(encoder(task, **shape), tmp_path)
    assert comparison.largest["hidden states"] < 1e-5
    assert comparison.largest["pooler output"] < 1e-5


@pytest.mark.parametrize("quantization", ["int8", "float16"])
def test_quantized_weights_are_smaller_and_their_error_is_told(quantization: str, tmp_path: Path) -> None:
    source = translator(d_model=64, d_ff=128)
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    comparison = differences(source, tmp_path / "small", quantization)
    differences(source, tmp_path / "large")
    small, large = ((tmp_path / name / "model/model.bin").stat().st_size for name in ("small", "large"))
    assert small < 0.75 * large
    assert comparison.largest["log-probabilities"] > 1e-5
    assert (0 < comparison.errors.get("log-probabilities", 0) < 0.2) == (quantization == "int8")
    weights = translator(d_model=64, d_ff=128).model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in source.model.state_dict().items())


@pytest.mark.parametrize("joint", [True, False])
def test_exported_directory_translates_by_its_own_card(
    joint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save(translator(joint=joint), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    out = export_model(Path("run"), Path("out/en-fr"), "ctranslate2")
    names = {path.name for path in out.iterdir()}
    vocabularies = {"shared_vocabulary.json"} if joint else {"source_vocabulary.json", "target_vocabulary.json"}
    targets = set() if joint else {"tokenizer.target.json"}
    own = {
        "model.bin",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "README.md",
    }
    assert names == own | vocabularies | targets
    source = HFTokenizer.from_file(str(out / "tokenizer.json"))
    target = HFTokenizer.from_file(str(out / ("tokenizer.json" if joint else "tokenizer.target.json")))
    assert target.to_str() == (source if joint else HFTokenizer.from_str(OTHER.to_json())).to_str()
    text = "the red cat sits on a mat"
    written = ctranslate2.Translator(str(out)).translate_batch(
        [source.encode(text).tokens],
        beam_size=1,
        min_decoding_length=0,
        max_decoding_length=40,
        suppress_sequences=[["<pad>"], ["<sos>"]],
    )
    theirs = [target.token_to_id(token) for token in written[0].hypotheses[0]]
    model: Any = regard.load(run, device="cpu")
    ours = model.translate(text, beam=1, aligned=False)[0]
    shortest = min(len(theirs), len(ours.ids) - 1)
    assert shortest > 3
    assert theirs[:shortest] == list(ours.ids)[:shortest]
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "out")
    exec(usage_of(Path("en-fr/README.md")), {})
    assert capsys.readouterr().out.strip()


def test_what_it_lacks_is_refused() -> None:
    classifier = ClassificationTask(ClassifyConfig(), WORDPIECE, Labels(("no", "yes")))
    cases = [
        (encoder(classifier), "a head 'label': CTranslate2 has encoders without heads (pass --to onnx)"),
        (
            encoder(PretrainingTask(PretrainConfig(length=32, objective="none"), WORDPIECE), directions="forward"),
            'model.directions = "forward": CTranslate2 has only encoders of "both"',
        ),
        (translator(d_key=4, d_value=6), "model.d_key = 4: CTranslate2 has one width per head, here d_value = 6"),
    ]
    for source, message in cases:
        with pytest.raises(InputError) as refused:
            CTranslate2Format().check_expressible(source)
        assert str(refused.value) == f"{message}, so this model cannot be exported to it"
    recurrent = RecurrentSeq2SeqConfig(
        preset="tiny", d_model=16, n_layers=1, n_decoder_layers=1, dropout=0.0, n_positions=24
    )
    network = translator().task.build_model(recurrent)
    with pytest.raises(InputError, match=r'model.architecture = "rnn": CTranslate2 has only Transformers'):
        CTranslate2Format().check_expressible(SourceModel(Path(), translator().run_config, translator().task, network))


CHANGES = {
    "weights": lambda model: model.decoder[1].feed_forward.down_projection.weight.data[0].mul_(1.1),
    "norm": lambda model: model.encoder_norm.weight.data.mul_(1.01),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_difference_is_noticed_and_nothing_is_left(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written differs from the model by one percent in one place, as a wrong conversion would."""
    run = save(translator(), tmp_path / "run")
    written = CTranslate2Format.write

    def write_another(self: CTranslate2Format, directory: Path, source: SourceModel, quantization: str) -> None:
        other = translator()
        other.model.load_state_dict(source.model.state_dict())
        CHANGES[change](other.network)
        written(self, directory, other, quantization)

    monkeypatch.setattr(CTranslate2Format, "write", write_another)
    with pytest.raises(
        InputError, match=r"CTranslate2: not the same model: log-probabilities differs by .*, expected at"
    ):
        export_model(run, tmp_path / "out", "ctranslate2")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_tokens_that_differ_are_noticed() -> None:
    comparison = Comparison("Engine")
    comparison.check_tokens("greedy translation", [1, 2], [1, 2], None)
    comparison.check_tokens("greedy translation", [1, 2], [1, 3], 1e-6)
    with pytest.raises(InputError, match="greedy translation gives the tokens"):
        comparison.check_tokens("greedy translation", [1, 2], [1, 3], 0.1)


@pytest.mark.parametrize("values", [np.full(3, np.nan), np.zeros(2), np.array([1.0, 2.0, 3.001])])
def test_values_that_differ_are_noticed(values: np.ndarray) -> None:
    with pytest.raises(InputError, match="Engine: not the same model: x "):
        Comparison("Engine").check_values("x", [torch.tensor([1.0, 2.0, 3.0])], [values])
    Comparison("Engine").check_values("x", [torch.tensor([1.0, 2.0, 3.0])], [np.array([1.0, 2.0, 3.00001])])


def test_samples_are_ordinary_tokens_and_fit() -> None:
    source = translator(n_positions=8)
    for ids, other in source.sample_pairs():
        assert 1 <= len(ids) <= 7
        assert 1 <= len(other) <= 7
        assert not {*ids, *other} & JOINT.special_ids
