"""Continuous batching: every sentence gets what it gets alone, whoever is decoded beside it and wherever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from test_beam import assert_same, model, read
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.errors import NonFiniteError
from regard.generate import (
    BeamSearchConfig,
    ContinuousBatcher,
    DecodingBatch,
    EagerBatch,
    GraphedBatch,
    Hypothesis,
    SpecialTokens,
    beam_search,
    generate,
    select_greedy_tokens,
)
from regard.models.blocks import initialise_weights
from regard.models.interfaces import Seq2SeqModel
from regard.models.recurrent.config import RecurrentSeq2SeqConfig
from regard.models.recurrent.seq2seq import RecurrentSeq2Seq

MARKS = SpecialTokens(1, 2, suppressed_ids=(0, 1))
CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(7)
SOURCES = [torch.randint(3, 12, (n,), generator=GENERATOR).tolist() for n in (4, 1, 7, 2, 2, 5, 3, 7, 1, 6, 4, 3)]
LIMITS = [9, 4, 12, 1, 6, 14, 7, 2, 13, 10, 3, 8]


def search_of(width: int) -> BeamSearchConfig:
    return BeamSearchConfig.beam(MARKS, width, 0.6) if width else BeamSearchConfig.greedy(MARKS, 0.6)


def batch_maker(
    kind: str, m: Seq2SeqModel, config: BeamSearchConfig, n_slots: int, device: torch.device = CPU
) -> Callable[[int, int], DecodingBatch]:
    """Return what makes batches with just the room for the sentence that asks."""

    def make(n_source: int, max_length: int) -> DecodingBatch:
        if kind == "eager":
            return EagerBatch(m.step, config, device)

        def make_state(state: object) -> object:
            return m.make_static_state(
                state, n_slots=n_slots, width=config.beam_width, n_source=n_source + 1, max_length=max_length
            )

        return GraphedBatch(
            m.step, make_state, config, n_slots=n_slots, n_source=n_source, max_length=max_length, device=device
        )

    return make


def batcher_of(
    kind: str, m: Seq2SeqModel, config: BeamSearchConfig, n_slots: int, device: torch.device = CPU
) -> ContinuousBatcher:
    return ContinuousBatcher(
        lambda sources: m.start(read([list(s) for s in sources]).to(device)),
        batch_maker(kind, m, config, n_slots, device),
        n_slots,
    )


def run(batcher: ContinuousBatcher) -> Iterator[tuple[int, list[Hypothesis]]]:
    while not batcher.is_idle:
        batcher.step()
        yield from batcher.take_finished()


def decode(batcher: ContinuousBatcher, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list:
    handles = batcher.submit(sources, limits)
    found = dict(run(batcher))
    assert sorted(found) == handles
    return [found[handle] for handle in handles]


@torch.inference_mode()
def one_by_one(m: Seq2SeqModel, width: int) -> list[list[Hypothesis]]:
    """Beam search, or greedy decoding by the generation loop, of each sentence alone."""
    found = []
    for source, limit in zip(SOURCES, LIMITS, strict=True):
        state, limits = m.start(read([source])), torch.tensor([limit])
        if width:
            found += beam_search(m.step, state, limits, MARKS, beam_width=width, alpha=0.6)
        else:
            found.append(generate(m.step, state, select_greedy_tokens, limits, MARKS, alpha=0.6))
    return found


def recurrent_model(attention: str) -> RecurrentSeq2Seq:
    config = RecurrentSeq2SeqConfig(
        preset="tiny", d_model=16, n_layers=1, n_decoder_layers=1, dropout=0.0, attention=attention
    )
    built = RecurrentSeq2Seq(config, 12, 12, joint=False)
    initialise_weights(built, torch.Generator().manual_seed(5))
    return built.double().eval()


@pytest.mark.parametrize("n_slots", [1, 3, 5, 16])
@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_slots_change_nothing(kind: str, width: int, n_slots: int) -> None:
    m = model()
    assert_same(decode(batcher_of(kind, m, search_of(width), n_slots), SOURCES, LIMITS), one_by_one(m, width))


@pytest.mark.parametrize("positions", ["learned", "relative", "relative-values", "rotary", "none"])
@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_with_every_position_scheme(kind: str, positions: str) -> None:
    m = model(positions)
    assert_same(decode(batcher_of(kind, m, search_of(3), 4), SOURCES, LIMITS), one_by_one(m, 3))


@pytest.mark.parametrize("attention", ["none", "dot", "additive"])
@pytest.mark.parametrize("width", [0, 3])
def test_a_recurrent_model(attention: str, width: int) -> None:
    m = recurrent_model(attention)
    assert_same(decode(batcher_of("eager", m, search_of(width), 4), SOURCES, LIMITS), one_by_one(m, width))


@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_sentences_may_be_submitted_and_cancelled_at_any_time(kind: str) -> None:
    m = model()
    batcher, expected = batcher_of(kind, m, search_of(2), 4), one_by_one(m, 2)
    (first,) = batcher.submit(SOURCES[2:3], LIMITS[2:3])
    batcher.step()
    handles = [first, *batcher.submit(SOURCES, LIMITS)]
    batcher.step()
    batcher.cancel(first)  # being decoded
    batcher.cancel(handles[5])  # the second longest source: waits, or has begun
    batcher.cancel(handles[4])  # waits
    found = dict(run(batcher))
    kept = [i for i in range(len(SOURCES)) if i not in (3, 4)]
    assert sorted(found) == [handles[1 + i] for i in kept]
    assert_same([found[handles[1 + i]] for i in kept], [expected[i] for i in kept])
    batcher.cancel(handles[1])  # long done
    assert batcher.is_idle


@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_a_batch_is_kept_full(kind: str) -> None:
    """Twelve sentences of eight tokens in four slots take three times eight steps, and not twelve times."""
    m, n_steps = model(), 0
    with torch.no_grad():
        m.softmax_embedding.weight[2] = 0.0
        m.softmax_embedding.weight[3:] += 5.0
    batcher = batcher_of(kind, m, search_of(1), 4)
    batcher.submit(SOURCES, [8] * 12)
    while not batcher.is_idle:
        batcher.step()
        n_steps += 1
        assert batcher.n_active <= 4
    assert len(batcher.take_finished()) == 12
    assert n_steps <= 3 * 8 + 3


@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_a_sentence_that_needs_more_room_waits_for_it(kind: str) -> None:
    m, expected = model(), one_by_one(model(), 2)
    batcher = batcher_of(kind, m, search_of(2), 3)
    handles = batcher.submit([SOURCES[3]], [LIMITS[3]])
    handles += batcher.submit([SOURCES[2]], [LIMITS[2]])
    found = dict(run(batcher))
    assert_same([found[handle] for handle in handles], [expected[3], expected[2]])


@pytest.mark.parametrize("width", [0, 2])
@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_what_is_not_a_number_is_an_error(kind: str, width: int) -> None:
    m = model()
    with torch.no_grad():
        m.softmax_embedding.weight[4] = torch.nan
    with pytest.raises(NonFiniteError):
        decode(batcher_of(kind, m, search_of(width), 4), SOURCES, LIMITS)


def test_only_the_best_are_returned_where_fewer_are_wanted() -> None:
    m = model()
    config = BeamSearchConfig.beam(MARKS, 3, 0.6, n_best=1)
    best = decode(batcher_of("graphed", m, config, 4), SOURCES, LIMITS)
    assert_same(best, [hypotheses[:1] for hypotheses in one_by_one(m, 3)])


PREFIX = [3, 5]
"""Tokens that every text begins with, as the language of the target may be."""


def start_with_prefix(m: Seq2SeqModel, sources: Sequence[Sequence[int]]) -> object:
    state = m.start(read([list(source) for source in sources]))
    for token in (MARKS.start_id, *PREFIX[:-1]):
        m.step(torch.full((len(sources),), token), state)
    return state


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("kind", ["eager", "graphed"])
def test_texts_go_on_from_a_prefix(kind: str, positions: str) -> None:
    m, marks = model(positions), MARKS._replace(start_id=PREFIX[-1])
    config = BeamSearchConfig.beam(marks, 3, 0.6)
    batcher = ContinuousBatcher(lambda sources: start_with_prefix(m, sources), batch_maker(kind, m, config, 4), 4)
    found = decode(batcher, SOURCES, LIMITS)
    for source, limit, hypotheses in zip(SOURCES, LIMITS, found, strict=True):
        with torch.inference_mode():
            state = start_with_prefix(m, [source])
            alone = beam_search(m.step, state, torch.tensor([limit]), marks, beam_width=3, alpha=0.6)
        assert_same([hypotheses], alone)
        for best in hypotheses:
            target = sentences_to_rows([[*PREFIX, *best.ids[:-1]]], prefix_id=1, pad_id=0)
            log_probs = m(read([source]), target).log_softmax(-1)[0, len(PREFIX) :]
            forced = [log_probs[t, token].item() for t, token in enumerate(best.ids)]
            assert_close(list(best.token_scores), forced, rtol=0, atol=1e-5)


GPU = torch.device("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("n_slots", [1, 5, 16])
@pytest.mark.parametrize("width", [0, 1, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_captured_graph_finds_what_a_cpu_finds(dtype: torch.dtype, width: int, n_slots: int) -> None:
    """In float32 by the kernels of decoding, in float64 without them."""
    m = model().to(GPU, dtype)
    found = decode(batcher_of("graphed", m, search_of(width), n_slots, GPU), SOURCES, LIMITS)
    assert_same(found, one_by_one(model(), width), atol=1e-3 if dtype == torch.float32 else 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("positions", ["learned", "relative", "relative-values", "rotary", "none"])
def test_a_captured_graph_with_every_position_scheme(positions: str) -> None:
    m = model(positions).to(GPU)
    found = decode(batcher_of("graphed", m, search_of(3), 4, GPU), SOURCES, LIMITS)
    assert_same(found, one_by_one(model(positions), 3))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [0, 4])
def test_in_bfloat16_scores_are_those_of_forced_decoding(width: int) -> None:
    m = model().to(GPU, torch.bfloat16)
    found = decode(batcher_of("graphed", m, search_of(width), 5, GPU), SOURCES, LIMITS)
    for source, limit, hypotheses in zip(SOURCES, LIMITS, found, strict=True):
        for best in hypotheses:
            assert len(best.ids) <= limit
            target = sentences_to_rows([best.ids[:-1]], prefix_id=1, pad_id=0).to(GPU)
            with torch.inference_mode():
                log_probs = m(read([source]).to(GPU), target).float().log_softmax(-1)[0]
            forced = [log_probs[t, token].item() for t, token in enumerate(best.ids)]
            assert_close(list(best.token_scores), forced, rtol=0, atol=0.15)


@pytest.mark.gpu
def test_a_kept_batch_serves_another_call() -> None:
    """Its graph is captured once; the second call finds the same."""
    m = model().to(GPU, torch.float32)
    config, batches = search_of(3), []
    make = batch_maker("graphed", m, config, 4, GPU)

    def make_once(n_source: int, max_length: int) -> DecodingBatch:
        batches.append(batches[0] if batches else make(7, 14))
        return batches[0]

    expected = one_by_one(model(), 3)
    for _ in range(3):
        batcher = ContinuousBatcher(lambda sources: m.start(read([list(s) for s in sources]).to(GPU)), make_once, 4)
        assert_same(decode(batcher, SOURCES, LIMITS), expected, atol=1e-3)
