"""The language model: causality, packed rows, and cached against uncached decoding."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from sentences import POSITIONS, packed
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.models import decoder_state as context
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerLMConfig, apply_preset
from regard.models.decoder_state import DecoderState, GraphedDecoderState
from regard.models.language_model import TransformerLM
from regard.nn import IGNORE, cross_entropy, record

StartDecoding = Callable[[TransformerLM, list[list[int]]], DecoderState | GraphedDecoderState]

VOCABULARY = 13
SAMPLE_IDS = [[3, 4, 5, 6, 2], [9, 2], [5, 5, 5, 2]]


def tiny(**shape: object) -> TransformerLM:
    small = {"preset": "tiny", "d_model": 16, "d_ff": 20, "n_heads": 2, "n_positions": 9, "dropout": 0.0}
    model = TransformerLM(TransformerLMConfig(**apply_preset({**small, **shape}, TransformerLMConfig)), VOCABULARY)
    initialise_weights(model, torch.Generator().manual_seed(0))
    return model.eval()


@torch.no_grad()
def test_packed_rows_equal_single_texts() -> None:
    model = tiny()
    packed_logits = model(packed(SAMPLE_IDS))[0].split([len(text) for text in SAMPLE_IDS])
    for text, logits in zip(SAMPLE_IDS, packed_logits, strict=True):
        assert_close(model(packed([text]))[0], logits)


@torch.no_grad()
def test_future_cannot_change_the_past() -> None:
    model = tiny()
    with record(model, "decoder.*.attention.weights") as recorded:
        one, other = (model(packed([[3, 4, 5, last]]))[0] for last in (6, 7))
    assert_close(one[:3], other[:3], rtol=0, atol=0)
    assert not torch.equal(one[3], other[3])
    assert all(weights.triu(1).abs().max() == 0 for weights in recorded.values())


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_embeddings(tied: bool) -> None:
    model = tiny(tied=tied)
    assert (model.softmax_embedding.weight is model.embedding.tokens.weight) == tied
    rows = packed(SAMPLE_IDS)
    assert_close(model(rows), model.hidden_states(rows) @ model.softmax_embedding.weight.T)


@pytest.mark.parametrize("name", TransformerLMConfig.presets)
def test_presets(name: str) -> None:
    config = TransformerLMConfig(**apply_preset({"preset": name}, TransformerLMConfig))
    assert (config.norm, config.positions, config.activation) == ("pre", "learned", "gelu-tanh")


def test_gpt2_small_has_its_size() -> None:
    """124 million weights, with 1,024 positions and tied embeddings."""
    config = TransformerLMConfig(**apply_preset({"preset": "gpt2-small"}, TransformerLMConfig))
    with torch.device("meta"):
        model = TransformerLM(config, 50257)
    assert sum(weight.numel() for weight in model.parameters()) == 124_439_808


def test_loss_equals_cross_entropy_of_the_logits() -> None:
    model = tiny().double()
    rows = packed(SAMPLE_IDS)
    labels = torch.randint(0, VOCABULARY, rows.ids.shape).masked_fill(rows.segment == 0, IGNORE)
    results, plain = model.loss(rows, labels), cross_entropy(model(rows), labels)
    assert_close(results.total, plain.total)
    assert int(results.n_tokens) == sum(map(len, SAMPLE_IDS))


PROMPTS = [[3, 4, 5, 6, 2], [9], [5, 1, 5, 2, 1, 1, 7, 1, 4, 1, 1, 7, 8], [2, 2, 3, 4, 1, 5, 6, 7, 8]]
"""One prompt is longer than the nine positions of the model, one just as long."""


def sharp(positions: str, **shape: object) -> TransformerLM:
    """Return a float64 model with weights so large that its output depends on the whole context."""
    model = tiny(positions=positions, **shape)
    initialise_weights(model, torch.Generator().manual_seed(3), 0.4)
    return model.double()


def slid(text: list[int], token: int, full: int = 9) -> list[int]:
    """Return the context after one more token, as the sliding window of the model defines it."""
    return [*(text if len(text) < full else text[full - full // 2 :]), token]


@pytest.fixture(params=["grows", "recorded"])
def start_decoding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StartDecoding:
    """Return a function that starts decoding, with a growing state or with a graphed one of small capacity."""
    monkeypatch.setattr(context, "MIN_CAPACITY", 4)

    def start(model: TransformerLM, prompts: list[list[int]]) -> DecoderState | GraphedDecoderState:
        state = model.start(sentences_to_rows([prompt[:-1] for prompt in prompts], pad_id=0))
        assert isinstance(state, DecoderState)
        return state if request.param == "grows" else GraphedDecoderState(state)

    return start


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_cached_decoding_equals_uncached(positions: str, norm: str, start_decoding: StartDecoding) -> None:
    """Stepwise, with prompts of different lengths, far beyond the number of positions."""
    model = sharp(positions, norm=norm)
    state = start_decoding(model, PROMPTS)
    contexts, tokens = [prompt[-9:] for prompt in PROMPTS], torch.tensor([prompt[-1] for prompt in PROMPTS])
    for _ in range(11):
        logits = model.step(tokens, state)
        full = torch.stack([model(sentences_to_rows([text], pad_id=0))[0, -1] for text in contexts])
        assert_close(logits, full, rtol=0, atol=1e-10)
        tokens = logits.argmax(-1)
        contexts = [slid(text, token) for text, token in zip(contexts, tokens.tolist(), strict=True)]


@torch.inference_mode()
def test_generation_does_not_depend_on_other_rows(start_decoding: StartDecoding) -> None:
    model = sharp("learned")

    def generate(prompts: list[list[int]]) -> list[list[int]]:
        state = start_decoding(model, prompts)
        tokens, results = torch.tensor([prompt[-1] for prompt in prompts]), []
        for _ in range(25):
            tokens = model.step(tokens, state).argmax(-1)
            results.append(tokens.tolist())
        return [list(row) for row in zip(*results, strict=True)]

    assert generate(PROMPTS) == [generate([prompt])[0] for prompt in PROMPTS]


@pytest.mark.parametrize("rows", [[[3, 3], [0, 1]], [[3], [0], [2]], [[1]]])
@torch.inference_mode()
def test_rows_may_be_dropped_repeated_and_reordered(rows: list[list[int]], start_decoding: StartDecoding) -> None:
    model = sharp("rotary")
    state = start_decoding(model, PROMPTS)
    model.step(torch.tensor([prompt[-1] for prompt in PROMPTS]), state)
    state.select(torch.tensor(rows))
    contexts = [[*PROMPTS[row][-9:]] for each in rows for row in each]
    for first in (1, 5, 2, 7):
        tokens = list(range(first, first + len(contexts)))
        logits = model.step(torch.tensor(tokens), state)
        contexts = [slid(text, token) for text, token in zip(contexts, tokens, strict=True)]
        full = torch.stack([model(sentences_to_rows([text], pad_id=0))[0, -1] for text in contexts])
        assert_close(logits, full, rtol=0, atol=1e-10)


def test_longer_prompts_are_cut_to_the_context_silently(capfd: pytest.CaptureFixture[str]) -> None:
    model = tiny()
    model.start(sentences_to_rows([PROMPTS[2][:-1]], pad_id=0))
    assert capfd.readouterr().err == ""
    assert model.context_length == 9


@torch.inference_mode()
def test_rows_may_be_dropped_before_the_first_step(start_decoding: StartDecoding) -> None:
    model = sharp("learned")
    state = start_decoding(model, [[3], [4], [5]])
    state.select(torch.tensor([[2]]))
    assert_close(model.step(torch.tensor([5]), state), model(sentences_to_rows([[5]], pad_id=0))[:, 0])


@torch.inference_mode()
def test_decoder_state_is_independent_of_the_model(start_decoding: StartDecoding) -> None:
    """The cache is freed with the state, without waiting for garbage collection: on a GPU it is large."""
    model = sharp("learned")
    state = start_decoding(model, PROMPTS)
    model.step(torch.tensor([1, 2, 3, 4]), state)
    watched = weakref.ref(state.caches[0])
    gc.disable()
    try:
        del state
        assert watched() is None
    finally:
        gc.enable()


@torch.inference_mode()
def test_single_token_prompts_have_an_empty_cache(start_decoding: StartDecoding) -> None:
    model = sharp("learned")
    state = start_decoding(model, [[3], [4]])
    assert_close(model.step(torch.tensor([3, 4]), state), model(sentences_to_rows([[3], [4]], pad_id=0))[:, 0])
