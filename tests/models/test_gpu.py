"""Decoding steps of a language model replayed as a CUDA graph, against eager ones."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.models import decoder_state as context
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerLMConfig, apply_preset
from regard.models.decoder_state import DecoderState, GraphedDecoderState
from regard.models.language_model import TransformerLM
from regard.nn import record

pytestmark = pytest.mark.gpu

VOCABULARY = 101
PROMPTS = [[3, 4, 5], [9], [5, 1, 5, 2, 1, 1, 7, 1, 4, 1, 1, 7, 8], [2, 2, 3, 4, 1, 5, 6, 7, 8]]


def model_of(positions: str, dtype: torch.dtype = torch.float64, device: str = "cuda") -> TransformerLM:
    shape = {"preset": "tiny", "d_model": 64, "n_heads": 4, "n_positions": 40, "dropout": 0.0, "positions": positions}
    model = TransformerLM(TransformerLMConfig(**apply_preset(shape, TransformerLMConfig)), VOCABULARY)
    initialise_weights(model, torch.Generator().manual_seed(3), 0.2)
    return model.eval().to(device, dtype)


def begun(model: TransformerLM, device: str) -> tuple[DecoderState | GraphedDecoderState, torch.Tensor]:
    rows = sentences_to_rows([prompt[:-1] for prompt in PROMPTS], pad_id=0).to(device)
    return model.start(rows), torch.tensor([prompt[-1] for prompt in PROMPTS], device=device)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative"])
def test_graphed_decoding_equals_eager(
    positions: str, dtype: torch.dtype, atol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the capacity and the positions, and while rows are dropped."""
    monkeypatch.setattr(context, "MIN_CAPACITY", 16)
    model, plain = model_of(positions, dtype), model_of(positions, dtype, "cpu")
    with torch.inference_mode():
        (graphed, _), (eager, tokens) = begun(model, "cuda"), begun(plain, "cpu")
    assert isinstance(graphed, GraphedDecoderState)
    assert isinstance(eager, DecoderState)
    for step in range(90):
        with torch.inference_mode():
            result, expected = model.step(tokens.cuda(), graphed), plain.step(tokens, eager)
        assert_close(result.cpu(), expected, rtol=0, atol=atol)
        tokens = expected.argmax(-1)
        if step in (20, 50):
            remaining = torch.arange(1, len(tokens))[:, None]
            graphed.select(remaining.cuda())
            eager.select(remaining)
            tokens = tokens[1:]


@torch.inference_mode()
def test_active_taps_record_every_step() -> None:
    model = model_of("learned")
    with record(model, "decoder.0.out") as recorded:
        state, tokens = begun(model, "cuda")
        assert isinstance(state, DecoderState)
        outs = []
        for _ in range(3):
            tokens = model.step(tokens, state).argmax(-1)
            outs.append(recorded["decoder.0.out"])
    assert not torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[1], outs[2])
