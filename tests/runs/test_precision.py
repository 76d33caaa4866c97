"""Precisions: which are accepted where, what each verb gives in them, and the error of int8 that is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import TinyModels, build_models

from regard.errors import InputError
from regard.models.recurrent.config import StaticEncoderConfig
from regard.models.recurrent.encoder import StaticEncoder
from regard.nn.quantization import is_quantized
from regard.runs import precision
from regard.runs.precision import Precision, check_precision, set_precision

CPU = torch.device("cpu")
SENTENCES = ["the red cat sits on the mat", "a dog runs near tokyo", "the plane lands in tokyo"]
ENCODERS = ("masked", "classifier", "tagger", "answerer")


def reduced(name: str) -> TinyModels:
    """Return the tiny models in a precision, as `regard.load` would."""
    models = build_models()
    for model in vars(models).values():
        model.precision = set_precision(model.network, name)
    return models


@pytest.fixture(scope="module")
def exact() -> TinyModels:
    return build_models()


@pytest.fixture(scope="module")
def int8() -> TinyModels:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "LARGE_ERROR", 1.0)  # these models are 16 wide, with large random weights
        return reduced("int8")


@pytest.fixture(scope="module")
def bfloat16() -> TinyModels:
    return reduced("bfloat16")


@pytest.fixture(params=["int8", "bfloat16"])
def low(request: pytest.FixtureRequest) -> TinyModels:
    models: TinyModels = request.getfixturevalue(request.param)
    return models


def test_auto_is_float32_everywhere() -> None:
    for device in ("cpu", "cuda", "mps"):
        assert check_precision("auto", torch.device(device)) == "float32"
        assert check_precision("float32", torch.device(device)) == "float32"


def test_float32_leaves_a_model_as_it_is(exact: TinyModels) -> None:
    weights = [weight.data_ptr() for weight in exact.translator.network.parameters()]
    assert set_precision(exact.translator.network, "float32") == Precision()
    assert [weight.data_ptr() for weight in exact.translator.network.parameters()] == weights
    assert not is_quantized(exact.translator.network)


@pytest.mark.parametrize("name", ["int4", "fp16", "", "INT8"])
def test_unknown_precision(name: str) -> None:
    with pytest.raises(InputError, match=rf"^precision '{name}' is unknown; accepted: auto, float32, bfloat16, int8$"):
        check_precision(name, CPU)


def test_a_device_without_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("cuda:1", "mps"):
        with pytest.raises(InputError, match=rf"^precision 'int8' is for CPUs, not for {device}: "):
            check_precision("int8", torch.device(device))
    monkeypatch.setattr(precision, "_cpu_has_bfloat16", lambda: False)
    with pytest.raises(InputError, match=r"^precision 'bfloat16': this processor does not support it; accepted here: "):
        check_precision("bfloat16", CPU)
    assert check_precision("bfloat16", torch.device("cuda")) == "bfloat16"
    assert check_precision("int8", CPU) == "int8"


def test_a_model_without_matrices(exact: TinyModels) -> None:
    static = StaticEncoder(StaticEncoderConfig(preset="tiny", d_model=16, dropout=0.0), 40, {})
    with pytest.raises(InputError, match=r"^precision 'int8': this model has no linear layers"):
        set_precision(static.eval(), "int8")


def test_the_error_of_int8_is_reported(int8: TinyModels, exact: TinyModels) -> None:
    for name, model in vars(int8).items():
        assert 0.001 < model.precision.relative_error < 0.3, name
        described = model.precision.describe()
        assert described == {
            "precision": "int8",
            "relative_error": pytest.approx(model.precision.relative_error, abs=1e-4),
        }
        assert model.n_parameters == getattr(exact, name).n_parameters
        assert ", int8)" in repr(model)
    assert exact.translator.precision.describe() == {"precision": "float32"}


def test_a_large_error_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(precision, "warn", warnings.append)
    monkeypatch.setattr(precision, "LARGE_ERROR", 1e-4)
    monkeypatch.setattr(precision, "int8_kernels", list)
    set_precision(build_models().classifier.network, "int8")
    assert [each.split(":")[0] for each in warnings] == [
        "torch has no int8 matrix multiplication for this machine",
        warnings[1],
    ]
    assert "int8 changes the outputs by" in warnings[1]


Use = Callable[[Any], Any]

USES: dict[str, Use] = {
    "translator": lambda model: [
        token for text in SENTENCES for token in model.force_decode(text, SENTENCES[0]).hypothesis.token_scores
    ],
    "recurrent": lambda model: model.force_decode(SENTENCES[0], SENTENCES[1]).hypothesis.token_scores,
    "masked": lambda model: [each.probability for each in model.fill("the [MASK] lands in tokyo", k=9)[0]],
    "classifier": lambda model: [each.probabilities["yes"] for each in model.classify(SENTENCES)],
    "tagger": lambda model: [tag.probability for text in SENTENCES for tag in model.tag(text)],
}


@pytest.mark.parametrize("name", USES)
def test_results_are_close_to_those_of_float32(name: str, low: TinyModels, exact: TinyModels) -> None:
    got, expected = (np.array(USES[name](getattr(models, name))) for models in (low, exact))
    assert got.shape == expected.shape
    assert not np.array_equal(got, expected)
    np.testing.assert_allclose(got, expected, atol=0.35, rtol=0.1)


@pytest.mark.parametrize("name", ENCODERS)
def test_embeddings_point_the_same_way(name: str, low: TinyModels, exact: TinyModels) -> None:
    got, expected = (getattr(models, name).embed(SENTENCES, normalised=True) for models in (low, exact))
    assert got.dtype == np.float32
    assert ((got * expected).sum(-1) > 0.99).all()


def test_every_verb_runs(low: TinyModels) -> None:
    for translator in (low.translator, low.recurrent):
        assert len(translator.translate(SENTENCES)) == len(translator.translate(SENTENCES, beam=1)) == len(SENTENCES)
    assert low.language_model.generate("the red", max_tokens=4, seed=1)[0].tokens
    assert 0 <= low.masked.next_sentence(SENTENCES[0], SENTENCES[1]).probability <= 1
    assert low.answerer.answer("where is the cat", "the cat sits on the mat")
    assert -1.01 < low.classifier.match(SENTENCES[0], SENTENCES[1]) < 1.01
    assert len(low.masked.cluster(SENTENCES, 2).labels) == len(SENTENCES)


def test_evaluation_is_of_the_int8_model(
    int8: TinyModels, exact: TinyModels, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("test.src", "test.tgt", "test.txt"):
        (tmp_path / name).write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    for name, data in (("translator", ["test.src", "test.tgt"]), ("language_model", ["test.txt"])):
        got, expected = (getattr(models, name).evaluate(data)["perplexity"] for models in (int8, exact))
        assert got != expected
        assert got == pytest.approx(expected, rel=0.3)


def test_inside_only_float32_is_looked_at(low: TinyModels) -> None:
    for model in (low.translator, low.language_model, low.masked, low.classifier, low.tagger):
        with pytest.raises(InputError, match=r"^regard looks inside models in float32 only; load"):
            model.look(SENTENCES[0])
