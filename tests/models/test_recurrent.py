"""Recurrent models: stepwise against one pass, batched against single texts, sizes of presets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from recurrent import SHAPES, SMALL, language_model, one_per_row, randomise_weights, translator
from sentences import VOCABULARY
from torch import nn
from torch.testing import assert_close

from regard import config
from regard.data.batches import Rows, SegmentedRows
from regard.errors import ConfigError
from regard.models.architectures import CAUSAL_LMS, ENCODER_MODELS, SEQ2SEQ_MODELS, Architecture, architecture_of
from regard.models.blocks import initialise_weights
from regard.models.config import apply_preset
from regard.models.recurrent.config import RecurrentEncoderConfig, RecurrentSeq2SeqConfig, StaticEncoderConfig
from regard.models.recurrent.encoder import RecurrentEncoder, StaticEncoder, unpack_row
from regard.models.recurrent.seq2seq import RecurrentSeq2Seq
from regard.nn import LSTM, record

SOURCES = [[3, 4, 5, 2], [6, 2], [7, 8, 2]]
TARGETS = [[1, 3, 4], [1, 5, 6, 7, 8], [1]]


def named(shape: dict[str, Any]) -> str:
    return "-".join(str(value) for value in shape.values())


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_stepwise_decoding_equals_one_pass(shape: dict[str, Any]) -> None:
    model = translator(**shape)
    whole = model(one_per_row(*SOURCES), one_per_row(*TARGETS))
    state = model.start(one_per_row(*SOURCES))
    for index in range(5):
        tokens = torch.tensor([target[index] if index < len(target) else 0 for target in TARGETS])
        logits = model.step(tokens, state)
        for row, target in enumerate(TARGETS):
            if index < len(target):
                assert_close(logits[row], whole[row, index])


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_batched_rows_equal_single_rows(shape: dict[str, Any]) -> None:
    model = translator(**shape)
    whole = model(one_per_row(*SOURCES), one_per_row(*TARGETS))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        assert_close(model(one_per_row(source), one_per_row(target))[0], whole[row, : len(target)])


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_decoder_is_causal_and_depends_on_every_source_token(shape: dict[str, Any]) -> None:
    model = translator(**shape)
    one, other = (model(one_per_row([3, 4, 5, 2]), one_per_row([1, 3, last])) for last in (4, 9))
    assert_close(one[:, :2], other[:, :2], rtol=0, atol=0)
    for index in range(3):
        source = [3, 4, 5, 2]
        source[index] = 10
        assert (model(one_per_row(source), one_per_row([1, 3, 4])) - one).abs().min(-1).values.max() > 1e-9


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("attention", ["none", "dot"])
def test_hypotheses_branch_and_sentences_are_dropped(attention: str, feeding: bool) -> None:
    model = translator(attention=attention, input_feeding=feeding)
    state = model.start(one_per_row(*SOURCES))
    model.step(torch.tensor([1, 1, 1]), state)
    state.select(torch.tensor([[2, 2, 2], [0, 0, 0]]))
    model.step(torch.tensor([3, 4, 5, 6, 7, 8]), state)
    state.select(torch.tensor([[5, 3], [1, 1]]))
    logits = model.step(torch.tensor([9, 9, 10, 11]), state)
    hypotheses = [(0, [1, 8, 9]), (0, [1, 6, 9]), (2, [1, 4, 10]), (2, [1, 4, 11])]
    for row, (source, target) in enumerate(hypotheses):
        assert_close(logits[row], model(one_per_row(SOURCES[source]), one_per_row(target))[0, -1])


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_every_weight_has_a_gradient(shape: dict[str, Any]) -> None:
    model = translator(**shape)
    model(one_per_row(*SOURCES), one_per_row(*TARGETS)).sin().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())


def test_empty_source_has_zero_attention_weights() -> None:
    model = translator(attention="additive")
    source = one_per_row([3, 4, 2], [5, 2])
    nothing = Rows(source.ids, source.segment * torch.tensor([[1], [0]], dtype=torch.int32), source.position)
    with record(model, "*.weights") as recorded:
        logits = model(nothing, one_per_row([1, 3], [1, 3]))
    assert logits.isfinite().all()
    assert not recorded["decoder.1.cross_attention.weights"][1].any()


@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_are_shared(tied: bool) -> None:
    model = translator(tied=tied)
    vectors = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    assert len(vectors) == (1 if tied else 3)
    config = RecurrentSeq2SeqConfig(**{**SMALL, "n_decoder_layers": 1})
    separate = RecurrentSeq2Seq(config, 7, 9, joint=False)
    assert separate.softmax_embedding.weight is separate.target_embedding.tokens.weight
    assert separate.source_embedding.tokens.weight.shape == (7, 8)


def test_initialisation_is_seeded_and_forget_gate_bias_is_one() -> None:
    models = [RecurrentSeq2Seq(RecurrentSeq2SeqConfig(**SMALL, n_decoder_layers=2), 9, 9, joint=True) for _ in range(2)]
    for model in models:
        initialise_weights(model, torch.Generator().manual_seed(3))
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
    lstms = [module for module in models[0].modules() if isinstance(module, LSTM)]
    assert len(lstms) == 6
    for module in lstms:
        of_input, of_state, bias, other = module.cell.all_weights[0]
        width = module.cell.hidden_size
        assert max(of_input.abs().max(), of_state.abs().max()) <= width**-0.5
        assert of_input.std() > 0.4 * width**-0.5
        assert bias.tolist() == [0.0] * width + [1.0] * width + [0.0] * 2 * width
        assert not other.any()


def text_rows(*texts: Sequence[int]) -> SegmentedRows:
    rows = one_per_row(*texts)
    return SegmentedRows(rows.ids, rows.segment, rows.position, (rows.position >= 2).int())


def end_to_end(*texts: Sequence[int]) -> SegmentedRows:
    ids = [token for text in texts for token in text]
    segment = [number for number, text in enumerate(texts, 1) for _ in text]
    position = [index for text in texts for index in range(len(text))]
    parts = (torch.tensor([each], dtype=torch.int32) for each in (ids, segment, position))
    rows = Rows(*parts)
    return SegmentedRows(rows.ids, rows.segment, rows.position, (rows.position >= 2).int())


@pytest.mark.parametrize("directions", ["both", "forward", "backward"])
def test_unpacked_texts_equal_single_texts(directions: str) -> None:
    config = RecurrentEncoderConfig(**SMALL, directions=directions)
    model = randomise_weights(RecurrentEncoder(config, VOCABULARY, {}), 0)
    hidden, states = model(text_rows(*SOURCES)), list(model.iter_hidden_states(text_rows(*SOURCES)))
    assert len(states) == 3
    assert_close(states[-1], hidden)
    lengths = [len(text) for text in SOURCES]
    encoded, layers = (
        model(end_to_end(*SOURCES), lengths),
        list(model.iter_hidden_states(end_to_end(*SOURCES), lengths)),
    )
    token_mask = one_per_row(*SOURCES).segment > 0
    assert_close(encoded[0], hidden[token_mask])
    assert all(torch.allclose(one[0], other[token_mask]) for one, other in zip(layers, states, strict=True))
    assert unpack_row(end_to_end(*SOURCES), lengths).ids[token_mask].tolist() == [
        token for text in SOURCES for token in text
    ]
    model(text_rows(*SOURCES)).sin().sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_static_embeddings_do_not_depend_on_context() -> None:
    model = randomise_weights(
        StaticEncoder(StaticEncoderConfig(preset="tiny", d_model=8, dropout=0.0), VOCABULARY, {}), 0
    )
    one, other = model(text_rows([3, 4, 5])), model(text_rows([9, 4, 8]))
    assert_close(one[:, 1], other[:, 1], rtol=0, atol=0)
    assert len(list(model.iter_hidden_states(text_rows([3, 4])))) == 1
    assert len(model.encoder) == 0


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_language_model_continues_prompts_of_any_length(cell: str) -> None:
    model = language_model(cell=cell)
    texts = [[3, 4, 5, 6, 7, 8], [9, 10, 4], [5, 6, 7]]
    n_prompt_tokens = [5, 0, 1]
    state = model.start(one_per_row(*(text[:n] for text, n in zip(texts, n_prompt_tokens, strict=True))))
    logits = model.step(torch.tensor([text[n] for text, n in zip(texts, n_prompt_tokens, strict=True)]), state)
    for row, (text, n) in enumerate(zip(texts, n_prompt_tokens, strict=True)):
        assert_close(logits[row], model(one_per_row(text))[0, n])
    state.select(torch.tensor([[2], [1]]))
    logits = model.step(torch.tensor([7, 10]), state)
    assert_close(logits[0], model(one_per_row([5, 6, 7]))[0, 2])
    assert_close(logits[1], model(one_per_row([9, 10]))[0, 1])


def test_language_model_loss_counts_every_label() -> None:
    model = language_model()
    rows = one_per_row([3, 4, 5], [6, 7])
    labels = torch.tensor([[4, 5, 2], [7, 2, -100]])
    loss = model.loss(rows, labels)
    log_probs = model(rows).log_softmax(-1)
    chosen = [(0, 0, 4), (0, 1, 5), (0, 2, 2), (1, 0, 7), (1, 1, 2)]
    assert_close(loss.nll, -sum(log_probs[each] for each in chosen))
    assert int(loss.n_tokens) == 5


def parameters(family: Architecture, preset: str, *rest: Any, **more: Any) -> int:
    with torch.device("meta"):
        model = family.Model(family.Config(**apply_preset({"preset": preset}, family.Config)), *rest, **more)
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("preset", ["tiny", "mini", "small", "medium", "base"])
def test_presets_match_the_size_of_the_transformers(preset: str) -> None:
    works: list[tuple[dict[str, Architecture], tuple[Any, ...], dict[str, Any]]] = [
        (SEQ2SEQ_MODELS, (8000, 8000), {"joint": True}),
        (ENCODER_MODELS, (8000, {}), {}),
        (CAUSAL_LMS, (8000,), {}),
    ]
    for families, rest, more in works:
        transformer, recurrent = (parameters(families[name], preset, *rest, **more) for name in ("transformer", "rnn"))
        assert recurrent == pytest.approx(transformer, rel=0.15)
        assert preset in families["rnn"].Config.presets


def test_compared_recipes_have_equal_sizes() -> None:
    sizes = []
    for path in sorted(Path(__file__).parents[2].glob("recipes/multi30k-en-de-*.toml")):
        table = config.read(path)["model"]
        family = architecture_of(SEQ2SEQ_MODELS, table, str(path))
        with torch.device("meta"):
            model = family.Model(family.Config(**apply_preset(table, family.Config)), 8000, 8000, joint=True)
        sizes.append(sum(weight.numel() for weight in model.parameters()))
    assert len(sizes) == 4
    assert max(sizes) < 1.05 * min(sizes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 9}, r"model\.d_model = 9 is odd; each of two directions has half of it"),
        ({"n_layers": 0}, r"model\.n_layers = 0; expected at least 1 and at most 1,000"),
        ({"n_decoder_layers": 0}, r"model\.n_decoder_layers = 0; expected at least 1 and at most 1,000"),
        ({"dropout": 1.0}, r"model\.dropout = 1\.0; expected 0 or more and less than 1"),
    ],
)
def test_invalid_configs_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        translator(**changes)
    assert translator(d_model=9, directions="forward").config.d_model == 9
