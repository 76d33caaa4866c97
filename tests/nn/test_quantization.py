"""Models with int8 weights: what is replaced, what stays, and how little the outputs change."""

from __future__ import annotations

import copy

import pytest
import torch
from sentences import VOCABULARY, packed, tiny_config, tiny_model
from torch import nn
from torch.testing import assert_close

from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import IGNORE, Linear, OutputEmbedding
from regard.nn.quantization import (
    QuantizedLinear,
    QuantizedOutputEmbedding,
    count_weights,
    is_quantized,
    quantize,
)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


def linear_error(width: int) -> float:
    """Return the error of one product of random numbers."""
    layer, x = Linear(width, 64), torch.randn(20, width)
    with torch.inference_mode():
        return relative_error(QuantizedLinear(layer.weight, layer.bias)(x), layer(x))


@pytest.mark.parametrize("width", [8, 64, 512])
def test_a_product_errs_by_a_percent(width: int) -> None:
    assert 1e-4 < linear_error(width) < 0.015


def test_blocks_are_computed_by_themselves() -> None:
    layer, x = Linear(16, 48), torch.randn(3, 5, 16)
    with torch.inference_mode():
        whole, split = QuantizedLinear(layer.weight, layer.bias), QuantizedLinear(layer.weight, layer.bias, (16, 32))
        assert_close(split(x), whole(x), rtol=0, atol=0)
        assert_close(split.forward_outputs(x, 0, 16), whole(x)[..., :16], rtol=0, atol=0)
        assert_close(split.forward_outputs(x, 16, 48), whole(x)[..., 16:], rtol=0, atol=0)
        assert_close(layer.forward_outputs(x, 16, 48), layer(x)[..., 16:])


@pytest.mark.parametrize("biased", [True, False])
def test_the_output_embedding(biased: bool) -> None:
    embedding, hidden = OutputEmbedding(70, 16), torch.randn(2, 90, 16)
    bias = torch.randn(70) if biased else None
    target = torch.randint(70, (2, 90))
    target[0, :7] = IGNORE
    with torch.inference_mode():
        quantized = QuantizedOutputEmbedding(embedding, tied=False)
        assert relative_error(quantized.logits(hidden, bias), embedding.logits(hidden, bias)) < 0.02
        assert_close(quantized.projection(bias)(hidden[0]), quantized.logits(hidden, bias)[0], rtol=0, atol=0)
        rows = torch.tensor([3, 5, 68])
        for each in (quantized, embedding):
            part = each.make_row_projector(bias)(rows)(hidden[0])
            assert_close(part, each.projection(bias)(hidden[0])[:, rows])
        got, expected = (each.cross_entropy(hidden, target, bias) for each in (quantized, embedding))
    assert int(got.n_tokens) == int(expected.n_tokens) == 173
    assert_close(got.nll, expected.nll, rtol=0.02, atol=0)
    assert_close(got.total, got.nll)


@pytest.mark.parametrize("tied", [True, False])
def test_every_matrix_of_a_translator_is_replaced(tied: bool) -> None:
    config = tiny_config(tied=tied)
    model = TransformerSeq2Seq(config, VOCABULARY, VOCABULARY, joint=True)
    n_weights, n_matrices = count_weights(model), sum(isinstance(each, Linear) for each in model.modules())
    assert not is_quantized(model)
    assert quantize(model) == n_matrices + 1
    assert is_quantized(model)
    assert not any(isinstance(each, nn.Linear) for each in model.modules())
    assert count_weights(model) == n_weights
    matrices = {name for name, weight in model.named_parameters() if weight.ndim > 1}
    assert matrices <= {"source_embedding.tokens.weight", "target_embedding.tokens.weight"}


def test_modules_that_are_kept_stay_float32() -> None:
    model = nn.ModuleDict({"body": nn.Sequential(Linear(8, 8)), "heads": nn.ModuleDict({"one": Linear(8, 8)})})
    head = model["heads"]["one"]  # type: ignore[index]
    assert quantize(model, keep=[model["heads"]]) == 1
    assert model["heads"]["one"] is head  # type: ignore[index]


@pytest.mark.parametrize("positions", ["sinusoidal", "relative", "rotary"])
@torch.inference_mode()
def test_a_translation_step_is_the_full_forward_pass(positions: str) -> None:
    model = tiny_model(positions=positions).float()
    exact = copy.deepcopy(model)
    quantize(model)
    source, target = packed([[3, 4, 5, 6]], [[7, 8, 9, 5]]), packed([[1, 5, 6, 7, 8]], [[1, 9, 3, 4, 5]])
    logits = model(source, target)
    assert relative_error(logits, exact(source, target)) < 0.05
    state = model.start(source)
    steps = torch.stack([model.step(tokens, state) for tokens in target.ids.T.long()], 1)
    assert_close(steps, logits, rtol=0, atol=0.1)
    assert relative_error(steps, logits) < 0.01


@torch.inference_mode()
def test_a_sentence_is_the_same_in_any_batch() -> None:
    """The others are of the same length, since a float32 attention may round otherwise between lengths."""
    model = tiny_model().float()
    quantize(model)
    sources, targets = torch.randint(3, VOCABULARY, (2, 6, 9)).tolist()
    batched = model(packed(*([each] for each in sources)), packed(*([each] for each in targets)))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert_close(model(packed([source]), packed([target]))[0], batched[row], rtol=0, atol=0)
