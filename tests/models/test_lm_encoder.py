"""A language model as an encoder: the hidden states of the encoder are those of the language model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import Rows, SegmentedRows, sentences_to_rows
from regard.errors import ConfigError
from regard.models.architectures import CAUSAL_LMS, ENCODER_MODELS
from regard.models.blocks import initialise_weights
from regard.models.config import Directions
from regard.models.heads import Pooling, check_pooled_token
from regard.models.interfaces import CausalLM, EncoderModel
from regard.models.lm_encoder import (
    describe_difference,
    is_language_model,
    make_bilm_config,
    make_encoder_config,
    merge_weights,
    rename_weights,
)
from regard.models.recurrent.config import RecurrentLMConfig
from regard.models.weights import collect_weights

N_TOKENS = 20
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": {"n_heads": 2, "d_ff": 32, "n_positions": 16},
    "transformer-rotary": {"n_heads": 2, "d_ff": 32, "positions": "rotary", "tied": False},
    "rnn": {},
    "rnn-gru": {"cell": "gru"},
}
DIRECTIONS: tuple[Directions, Directions] = ("forward", "backward")
TOKEN_IDS = [[3, 5, 7, 9, 11], [4, 6], [8, 2, 1, 10, 12, 13, 14]]


def language_model(kind: str, seed: int = 1) -> CausalLM:
    entry = CAUSAL_LMS[kind.partition("-")[0]]
    shape = {"preset": "tiny", "d_model": 16, "n_layers": 2, "dropout": 0.0, **SHAPES[kind]}
    model: CausalLM = entry.Model(entry.Config(**shape), N_TOKENS)
    initialise_weights(model, torch.Generator().manual_seed(seed), 0.4)
    return model.double().eval()


def encoder_of(model: CausalLM, direction: Directions) -> EncoderModel:
    config = make_encoder_config(model.config, direction)
    encoder: EncoderModel = ENCODER_MODELS[config.architecture].Model(config, N_TOKENS, {})
    renamed = rename_weights(collect_weights(model), direction)
    encoder.double().load_state_dict({name: renamed[name] for name in encoder.state_dict()})
    return encoder.eval()


def segmented(rows: Rows) -> SegmentedRows:
    return SegmentedRows(rows.ids, rows.segment, rows.position, torch.zeros_like(rows.ids))


def packed(texts: list[list[int]]) -> SegmentedRows:
    """All texts in one row, with two empty positions at its end."""
    ids = torch.tensor([[token for text in texts for token in text] + [0, 0]])
    segment = torch.tensor([[number for number, text in enumerate(texts, 1) for _ in text] + [0, 0]])
    position = torch.tensor([[place for text in texts for place in range(len(text))] + [0, 0]])
    return SegmentedRows(ids, segment, position, torch.zeros_like(ids))


def lm_states(model: CausalLM, text: list[int], direction: str) -> Float[Tensor, "T D"]:
    """The hidden states of one text alone, in its own order, of a model that reads it in this direction."""
    if direction == "forward":
        return model.hidden_states(sentences_to_rows([text], pad_id=0))[0]
    return model.hidden_states(sentences_to_rows([text[::-1]], pad_id=0))[0].flip(0)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", SHAPES)
@torch.no_grad()
def test_hidden_states_are_those_of_the_language_model(kind: str, direction: Directions) -> None:
    model = language_model(kind)
    encoder = encoder_of(model, direction)
    assert is_language_model(model.config)
    assert not is_language_model(encoder.config)
    padded = encoder(segmented(sentences_to_rows(TOKEN_IDS, pad_id=0)))
    row = packed(TOKEN_IDS)
    full = SegmentedRows(*(part[:, :-2] for part in (row.ids, row.segment, row.position, row.token_type_ids)))
    unpadded = encoder(full, [len(text) for text in TOKEN_IDS])[0].split([len(text) for text in TOKEN_IDS])
    for number, text in enumerate(TOKEN_IDS):
        expected = lm_states(model, text, direction)
        torch.testing.assert_close(padded[number, : len(text)], expected)
        torch.testing.assert_close(unpadded[number], expected)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@torch.no_grad()
def test_packed_texts_are_read_one_by_one(direction: Directions) -> None:
    model = language_model("transformer")
    *_, last = encoder_of(model, direction).iter_hidden_states(packed(TOKEN_IDS))
    found = last[0].split([*map(len, TOKEN_IDS), 2])
    for text, states in zip(TOKEN_IDS, found, strict=False):
        torch.testing.assert_close(states, lm_states(model, text, direction))


@pytest.mark.parametrize("kind", ["rnn", "rnn-gru"])
@torch.no_grad()
def test_two_language_models_side_by_side(kind: str) -> None:
    """All layers of ELMo: the embeddings and states of each model, concatenated at the same token."""
    models = [language_model(kind, seed) for seed in (1, 2)]
    assert isinstance(models[0].config, RecurrentLMConfig)
    config = make_bilm_config(models[0].config, "backward")
    encoder: EncoderModel = ENCODER_MODELS["bilm"].Model(config, N_TOKENS, {})
    merged = merge_weights(*(collect_weights(model) for model in models))
    encoder.double().eval().load_state_dict({name: merged[name] for name in encoder.state_dict()})
    found = list(encoder.iter_hidden_states(segmented(sentences_to_rows(TOKEN_IDS, pad_id=0))))
    for number, text in enumerate(TOKEN_IDS):
        sides = [
            list(encoder_of(model, direction).iter_hidden_states(segmented(sentences_to_rows([text], pad_id=0))))
            for model, direction in zip(models, DIRECTIONS, strict=True)
        ]
        for layer, (forward, backward) in enumerate(zip(*sides, strict=True)):
            torch.testing.assert_close(found[layer][number, : len(text)], torch.cat((forward, backward), -1)[0])
    assert len(found) == 3
    assert encoder.embedding.tokens(torch.tensor([[3]])).shape == (1, 1, 32)


def test_language_models_of_different_shapes_are_not_read_side_by_side() -> None:
    lstm, gru, attending = (language_model(kind).config for kind in ("rnn", "rnn-gru", "transformer"))
    assert describe_difference(lstm, lstm) == ""
    assert describe_difference(lstm, gru) == "model.cell is 'lstm' in the forward one and 'gru' in the backward one"
    assert describe_difference(lstm, attending) == "both must be recurrent language models (--architecture rnn)"


@pytest.mark.parametrize(("direction", "final"), [("forward", -1), ("backward", 0)])
def test_concat_pooling_is_final_max_and_mean(direction: str, final: int) -> None:
    rows, hidden = packed(TOKEN_IDS), torch.randn(1, 16, 4, generator=torch.Generator().manual_seed(0))
    pooling = Pooling("concat", 4, reads_backward=direction == "backward")
    found = pooling(hidden, rows, 4)[0]
    for states, vector in zip(hidden[0].split([*map(len, TOKEN_IDS), 2]), found[:3], strict=False):
        torch.testing.assert_close(vector, torch.cat((states[final], states.amax(0), states.mean(0))))
    assert pooling.width == 12
    assert not found[3].any()


def test_weights_of_concat_pooling_are_those_of_its_three_vectors() -> None:
    rows, hidden = packed(TOKEN_IDS), torch.randn(1, 16, 4, generator=torch.Generator().manual_seed(0))
    mask = rows.segment[:, None] == torch.arange(1, 4)[:, None]
    found = Pooling("concat", 4).hop_weights(hidden, rows, mask)[0, 1, :, 5:7]
    largest = (hidden[0, 6] > hidden[0, 5]).float().mean()
    torch.testing.assert_close(
        found, torch.stack((torch.tensor([0.0, 1.0]), torch.stack((1 - largest, largest)), torch.tensor([0.5, 0.5])))
    )


@pytest.mark.parametrize(("direction", "pooling"), [("forward", "cls"), ("backward", "last")])
def test_the_token_that_has_read_no_other_is_not_pooled(direction: Directions, pooling: str) -> None:
    config = make_encoder_config(language_model("transformer").config, direction)
    problem = f'task.pooling = "{pooling}": that token has read no other, since model.directions = "{direction}"'
    with pytest.raises(ConfigError, match=problem):
        check_pooled_token(pooling, config)
    for other in {"cls", "last", "concat", "mean"} - {pooling}:
        check_pooled_token(other, config)
