"""Widths of keys and values that are not ``d_model / n_heads``, and the base of sinusoids, in whole models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sample_targets import translator as look_target
from sentences import VOCABULARY, packed, tiny_config, tiny_model
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from regard.data.batches import SegmentedRows, sentences_to_rows
from regard.errors import ConfigError, InputError
from regard.look.compute.jvp import autodiff_pushforward, linearised_pushforward, record_inputs
from regard.look.inspection import Inspection
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerEncoderConfig, TransformerLMConfig, apply_preset
from regard.models.decoder_state import DecoderState, GraphedDecoderState
from regard.models.encoder import TransformerEncoder
from regard.models.exchange.hf_config import values_to_hf
from regard.models.language_model import TransformerLM
from regard.nn import RotaryPositions, SinusoidalPositions, record
from regard.nn.kernels import dispatch

WIDTHS = [{"d_key": 6, "d_value": 3}, {"d_key": 2, "d_value": 10}, {"d_key": 4, "d_value": 4}, {"d_value": 5}]
SCHEMES = ["sinusoidal", "relative", "relative-values", "rotary"]
SOURCES, TARGETS = [[3, 4, 5, 6, 2], [9, 2], [5, 5, 2]], [[1, 7, 8], [1, 3, 3, 10], [1]]

by_widths = pytest.mark.parametrize("widths", WIDTHS, ids=str)


@by_widths
@pytest.mark.parametrize("positions", SCHEMES)
def test_packed_rows_equal_single_texts(widths: dict[str, int], positions: str) -> None:
    model, target = tiny_model(positions=positions, **widths), packed(TARGETS)
    logits = model(packed(SOURCES), target)
    for number, (source, alone) in enumerate(zip(SOURCES, TARGETS, strict=True), 1):
        separate = model(packed([source]), packed([alone]))[0]
        assert_close(logits[0, target.segment[0] == number], separate, rtol=1e-10, atol=1e-11)


@by_widths
@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_cached_decoding_equals_one_pass(widths: dict[str, int], positions: str) -> None:
    model, source = tiny_model(positions=positions, **widths), packed(*([each] for each in SOURCES))
    target = torch.randint(VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(0))
    state = model.start(source)
    stepwise = torch.stack([model.step(tokens, state) for tokens in target.T], 1)
    assert_close(stepwise, model(source, packed(*([row] for row in target.tolist()))), rtol=1e-10, atol=1e-11)


@by_widths
@pytest.mark.parametrize("graphed", [False, True])
@torch.inference_mode()
def test_language_model_decoding_equals_one_pass(widths: dict[str, int], graphed: bool) -> None:
    table = {"preset": "tiny", "d_model": 16, "d_ff": 20, "n_heads": 2, "n_positions": 16, "dropout": 0.0, **widths}
    config = TransformerLMConfig(**apply_preset(table, TransformerLMConfig))
    model = TransformerLM(config, VOCABULARY)
    initialise_weights(model, torch.Generator().manual_seed(3), 0.4)
    model.double().eval()
    prompts = [[3, 4, 5], [9]]
    state: Any = model.start(sentences_to_rows([prompt[:-1] for prompt in prompts], pad_id=0))
    assert isinstance(state, DecoderState)
    state = GraphedDecoderState(state) if graphed else state
    for _ in range(5):
        logits = model.step(torch.tensor([prompt[-1] for prompt in prompts]), state)
        full = torch.stack([model(sentences_to_rows([prompt], pad_id=0))[0, -1] for prompt in prompts])
        assert_close(logits, full, rtol=0, atol=1e-10)
        prompts = [[*prompt, int(best)] for prompt, best in zip(prompts, logits.argmax(-1), strict=True)]


@by_widths
@pytest.mark.parametrize("train", [True, False])
def test_fused_equals_recorded(widths: dict[str, int], train: bool) -> None:
    model = tiny_model(dropout=0.2, **widths).train(train)

    def run() -> tuple[Tensor, tuple[Tensor, ...]]:
        torch.manual_seed(3)
        logits = model(packed(SOURCES), packed(TARGETS))
        return logits, torch.autograd.grad(logits.sin().sum(), list(model.parameters()))

    fused = run()
    with record(model, "*") as recorded:
        explicit = run()
    assert_close(explicit, fused, rtol=1e-9, atol=1e-9)
    d_key, d_value = widths.get("d_key", 8), widths.get("d_value", 8)
    assert recorded["encoder.0.attention.key"].shape[-1] == d_key
    assert recorded["decoder.1.cross_attention.value"].shape[-1] == d_value
    assert recorded["decoder.1.cross_attention.mixed"].shape[-1] == 2 * d_value


@by_widths
def test_lengths_of_an_encoder_equal_rows(widths: dict[str, int]) -> None:
    table = {"preset": "tiny", "d_model": 16, "d_ff": 20, "n_heads": 2, "n_layers": 2, "dropout": 0.0, **widths}
    model = TransformerEncoder(TransformerEncoderConfig(**table), VOCABULARY, {})
    initialise_weights(model, torch.Generator().manual_seed(0))
    rows = packed(SOURCES)
    rows = SegmentedRows(rows.ids, rows.segment, rows.position, torch.zeros_like(rows.ids))
    model.double()
    assert_close(model(rows, [len(each) for each in SOURCES]), model(rows), rtol=1e-10, atol=1e-11)


def test_packed_kernels_are_not_asked_for_unequal_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take q, k and v side by side, three parts of one width."""
    asked: list[int] = []
    plain = dispatch.packed_self_attention
    monkeypatch.setattr(dispatch, "packed_self_attention", lambda *given: asked.append(given[2]) or plain(*given))
    for widths, is_asked in (({"d_key": 6, "d_value": 3}, False), ({"d_key": 4, "d_value": 4}, True)):
        asked.clear()
        tiny_model(positions="learned", **widths)(packed(SOURCES), packed(TARGETS))
        assert bool(asked) == is_asked


def test_parameters_and_operations_follow_the_widths() -> None:
    model = tiny_model(d_key=6, d_value=3)
    assert model.encoder[0].attention.projection.weight.shape == (2 * (6 + 6 + 3), 16)
    assert model.encoder[0].attention.output.weight.shape == (16, 2 * 3)
    flops = []
    for widths in ({}, {"d_key": 4, "d_value": 4}):
        counted = tiny_model(positions="learned", n_layers=1, **widths)
        with FlopCounterMode(display=False) as counter:
            counted.encode(packed([[3] * 8]))
        flops.append(counter.get_total_flops())
    n_saved = 2 * 8 * 16 * (4 * 2 * 4)  # W_Q, W_K, W_V and W_O lose four columns in each of two heads
    n_saved_scores = 2 * 2 * 8 * 8 * (4 + 4)  # q k^T and p v in each of two heads
    assert flops[0] - flops[1] in (n_saved, n_saved + n_saved_scores)  # fused attention is not always counted


@by_widths
def test_the_width_of_values_is_where_identifiability_ends(widths: dict[str, int]) -> None:
    seen = Inspection(look_target(14, 13, d_model=16, **widths))
    d_value = widths.get("d_value", 8)
    for kind in ("encoder", "cross"):
        found = seen.identifiability(kind)
        assert int(found.rank.max()) == d_value
        assert int(found.null.max()) == 14 - d_value
    by_query = seen.identifiability("decoder")
    assert (by_query.null[..., :d_value] == 0).all()
    if d_value < 13:
        assert (by_query.null[..., d_value:] > 0).all()


@by_widths
@pytest.mark.parametrize("positions", ["sinusoidal", "relative-values"])
def test_both_pushforwards_agree(widths: dict[str, int], positions: str) -> None:
    target = look_target(5, 4, positions=positions, **widths)
    generator = torch.Generator().manual_seed(5)
    sent = {
        side: torch.randn(2, *inputs.shape[1:], generator=generator, dtype=torch.float64)
        for side, inputs in record_inputs(target).items()
    }
    found = linearised_pushforward(target, "decoder", torch.float64)(sent)
    assert_close(found, autodiff_pushforward(target, "decoder")(sent), rtol=1e-8, atol=1e-10)


def test_defaults_are_the_width_of_the_model_by_heads() -> None:
    config = tiny_config()
    assert (config.d_key, config.d_value, config.key_width, config.value_width) == (0, 0, 8, 8)
    assert tiny_config(n_heads=3, d_key=4, d_value=5).key_width == 4
    one, other = tiny_model(), tiny_model(d_key=8, d_value=8)
    assert_close(dict(one.named_parameters()), dict(other.named_parameters()), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 3, "d_key": 4}, "model.n_heads = 3 does not divide model.d_model = 16; choose a number of heads "
         "that does, or set model.d_key and model.d_value"),
        ({"d_key": -1}, "model.d_key = -1; expected 0 (d_model / n_heads) or more and at most 65,536"),
        ({"positions": "rotary", "d_key": 3}, "model.positions = 'rotary' needs an even width per head; change "
         "d_model, n_heads or d_key"),
        ({"sinusoid_base": 1.0}, "model.sinusoid_base = 1.0; expected more than 1 and at most 1,000,000,000,000"),
        ({"sinusoid_base": 500.0, "positions": "learned"}, "model.sinusoid_base goes with sinusoidal or rotary "
         "positions, not model.positions = 'learned'"),
    ],
)  # fmt: skip
def test_invalid_widths_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tiny_config(**changes)
    assert str(refused.value) == message


def test_the_base_of_sinusoids_is_a_setting() -> None:
    model, position = tiny_model(sinusoid_base=100.0), np.arange(6)
    scheme = model.source_embedding.positions
    assert isinstance(scheme, SinusoidalPositions)
    angle = position[:, None] / 100.0 ** (np.arange(0, 16, 2) / 16)
    expected = np.stack((np.sin(angle), np.cos(angle)), -1).reshape(6, 16)
    assert_close(scheme.table(torch.arange(6), torch.float64).numpy(), expected, rtol=0, atol=1e-12)
    rotary = tiny_model(positions="rotary", sinusoid_base=100.0).encoder[0].attention.positions
    assert isinstance(rotary, RotaryPositions)
    assert (rotary.base, rotary.d_key) == (100.0, 8)


@pytest.mark.parametrize(
    ("changes", "key", "only"),
    [
        ({"d_key": 4}, "d_key", "d_model / n_heads = 16 / 2"),
        ({"d_value": 3}, "d_value", "d_model / n_heads = 16 / 2"),
        ({"sinusoid_base": 500.0}, "sinusoid_base", "10000.0"),
    ],
)
def test_export_refuses_what_no_format_has(changes: dict[str, Any], key: str, only: str) -> None:
    config = tiny_config(**changes)
    with pytest.raises(InputError) as refused:
        values_to_hf(config, (), {}, "Marian")
    value = json.dumps(changes[key])
    message = f"model.{key} = {value}: Marian has only {only}, so this model cannot be exported as one"
    assert str(refused.value) == message
    assert values_to_hf(replace(tiny_config(), d_key=8, d_value=8), (), {}, "Marian") == {}
