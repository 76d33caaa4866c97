"""Beam search against brute force, against itself one sentence at a time, and against forced decoding."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from table import EOS, MARKS, SOS, Table, TableState, at_most, score
from torch import Tensor
from torch.testing import assert_close

from regard.data.batches import Rows, sentences_to_rows
from regard.generate import Hypothesis, SpecialTokens, beam_search, generate, length_penalty, select_greedy_tokens
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig
from regard.models.seq2seq import TransformerSeq2Seq


def search(table: Table, limits: dict[str, int], width: int, alpha: float) -> list[list[Hypothesis]]:
    state = TableState(list(limits))
    return beam_search(table.step, state, at_most(limits), MARKS, beam_width=width, alpha=alpha)


def plain_beam(
    table: Table, sentence: str, limit: int, width: int, alpha: float
) -> list[tuple[float, tuple[int, ...]]]:
    """The search as its docstring tells it, for one sentence, in lists."""
    active: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        extensions = []
        for total, ids in active:
            log_probs = table.logits(sentence, (SOS, *ids)).double().log_softmax(-1).tolist()
            tokens = [EOS] if length == limit else range(table.vocabulary)
            extensions += [(total + log_probs[token], (*ids, token)) for token in tokens]
        best = sorted(extensions, reverse=True)[: 2 * width]
        finished += [(total / length_penalty(length, alpha), ids) for total, ids in best if ids[-1] == EOS]
        finished = sorted(finished, reverse=True)[:width]
        active = [(total, ids) for total, ids in best if ids[-1] != EOS][:width]
        full = len(finished) == width
        if not active or (full and active[0][0] / length_penalty(length, alpha) <= finished[-1][0]):
            break
    return finished


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize(("vocabulary", "limit"), [(4, 4), (3, 5), (2, 6), (7, 2), (5, 1)])
def test_full_width_is_brute_force(vocabulary: int, limit: int, alpha: float) -> None:
    table = Table(vocabulary)
    texts = list(table.texts(limit))
    expected = sorted(((score(table.token_scores("a", ids), alpha), ids) for ids in texts), reverse=True)
    (found,) = search(table, {"a": limit}, width=len(texts), alpha=alpha)
    assert [h.ids for h in found] == [ids for _, ids in expected]
    assert_close([h.score for h in found], [s for s, _ in expected], rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("eos_bonus", [-2.0, 0.0, 2.0])
def test_any_width_is_the_plain_search(width: int, alpha: float, eos_bonus: float) -> None:
    table, limits = Table(6, eos_bonus=eos_bonus), {f"sentence {i}": 3 + i for i in range(8)}
    for (sentence, limit), found in zip(limits.items(), search(table, limits, width, alpha), strict=True):
        expected = plain_beam(table, sentence, limit, width, alpha)
        assert [h.ids for h in found] == [ids for _, ids in expected]
        assert_close([h.score for h in found], [s for s, _ in expected], rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [3, 4, 9])
def test_what_has_ended_never_goes_on(width: int) -> None:
    """Also when the vocabulary is too small to fill the beams in the first steps."""
    table = Table(3, eos_bonus=3.0)
    for found in search(table, {str(i): 6 for i in range(6)}, width, 0.6):
        assert all(EOS not in h.ids[:-1] for h in found)


@pytest.mark.parametrize("width", [1, 4])
def test_scores_are_those_of_forced_decoding(width: int) -> None:
    table, limits = Table(8), {"a": 5, "b": 9, "c": 7}
    for sentence, found in zip(limits, search(table, limits, width, 0.6), strict=True):
        for h in found:
            assert_close(list(h.token_scores), table.token_scores(sentence, h.ids), rtol=0, atol=1e-5)
            assert h.score == pytest.approx(score(list(h.token_scores), 0.6), abs=1e-6)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_n_best_is_sorted_distinct_and_ends(width: int, alpha: float) -> None:
    for found in search(Table(8), {str(i): 4 + i for i in range(6)}, width, alpha):
        assert len(found) == width
        assert len({h.ids for h in found}) == width
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert all(h.ids[-1] == EOS and EOS not in h.ids[:-1] and SOS not in h.ids[-1:] for h in found)
        assert all(len(h.ids) == len(h.token_scores) for h in found)


def test_eos_is_forced_at_the_limit() -> None:
    table, limits = Table(8, eos_bonus=-30.0), {"a": 1, "b": 3, "c": 6}
    for (sentence, limit), found in zip(limits.items(), search(table, limits, 2, 0.6), strict=True):
        assert {len(h.ids) for h in found} == {limit}
        for h in found:
            assert h.ids[-1] == EOS
            assert_close(list(h.token_scores), table.token_scores(sentence, h.ids), rtol=1e-6, atol=1e-5)
            assert h.token_scores[-1] < -20


def test_done_sentences_leave_the_batch() -> None:
    table = Table(8, eos_bonus=-30.0)
    search(table, {"a": 1, "b": 3, "c": 3, "d": 6}, 2, 0.6)
    assert table.rows_of_steps == [4, 6, 6, 2, 2, 2]


def test_a_sentence_that_has_its_hypotheses_stops_early() -> None:
    table = Table(8, eos_bonus=10.0)
    search(table, {"a": 50, "b": 50}, 2, 0.0)
    assert len(table.rows_of_steps) <= 4


@pytest.mark.parametrize("width", [1, 3])
def test_batched_is_one_by_one(width: int) -> None:
    table, limits = Table(9), {"a": 2, "b": 11, "c": 6, "d": 1, "e": 8}
    batched = search(table, limits, width, 0.6)
    for (sentence, limit), found in zip(limits.items(), batched, strict=True):
        assert search(table, {sentence: limit}, width, 0.6) == [found]


def greedy(table: Table, limits: dict[str, int]) -> list[Hypothesis]:
    state = TableState(list(limits))
    return generate(table.step, state, select_greedy_tokens, at_most(limits), MARKS, alpha=0.0)


def test_one_beam_is_never_worse_than_greedy() -> None:
    """Without a length penalty: it follows the same tokens and keeps the best place to end among those it passed."""
    table, limits = Table(6), {str(i): 2 + i % 7 for i in range(40)}
    better = 0
    for sentence, (found,), plain in zip(limits, search(table, limits, 1, 0.0), greedy(table, limits), strict=True):
        assert found.score >= plain.score - 1e-6
        assert found.ids[:-1] == plain.ids[: len(found.ids) - 1], sentence
        better += found.ids != plain.ids
    assert 0 < better < 40


def test_one_beam_is_greedy_where_the_end_comes_only_when_likeliest() -> None:
    table, limits = Table(6, eos_bonus=-30.0), {str(i): 2 + i % 7 for i in range(10)}
    for (found,), plain in zip(search(table, limits, 1, 0.0), greedy(table, limits), strict=True):
        assert found.ids == plain.ids
        assert found.token_scores == pytest.approx(plain.token_scores, abs=1e-6)


def test_a_wider_full_search_never_scores_less() -> None:
    table, limits = Table(4), {str(i): 4 for i in range(6)}
    for narrow, full in zip(search(table, limits, 2, 0.6), search(table, limits, 40, 0.6), strict=True):
        assert full[0].score >= narrow[0].score - 1e-6


class Forbidding(Table):
    """Token 2 can never be written, and nothing can follow token 3."""

    def logits(self, sentence: str, prefix: tuple[int, ...]) -> Tensor:
        logits = super().logits(sentence, prefix)
        logits[2] = -torch.inf
        if prefix[-1] == 3:
            logits[1:] = -torch.inf
        return logits


@pytest.mark.parametrize("width", [1, 3, 8])
def test_impossible_tokens_are_never_written(width: int) -> None:
    for found in search(Forbidding(5), {str(i): 5 for i in range(10)}, width, 0.6):
        assert found
        for h in found:
            assert 2 not in h.ids
            assert 3 not in h.ids[:-2]
            assert h.score > -torch.inf


class Silent(Table):
    """Can only end."""

    def logits(self, sentence: str, prefix: tuple[int, ...]) -> Tensor:
        logits = super().logits(sentence, prefix)
        logits[1:] = -torch.inf
        return logits


def test_a_sentence_that_cannot_go_on_is_done() -> None:
    table = Silent(5)
    found = search(table, {"a": 50, "b": 50}, 3, 0.6)
    assert [[h.ids for h in hypotheses] for hypotheses in found] == [[(EOS,)], [(EOS,)]]
    assert table.rows_of_steps == [2]


def test_no_sentences_give_no_hypotheses() -> None:
    assert search(Table(4), {}, 3, 0.6) == []


@pytest.mark.parametrize(("length", "alpha", "expected"), [(1, 0.6, 1.0), (7, 1.0, 2.0), (7, 0.0, 1.0), (19, 0.5, 2.0)])
def test_length_penalty_is_the_formula(length: int, alpha: float, expected: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(expected, rel=1e-12)


# With a real model.

VOCABULARY, PAD, BEGIN, END = 12, 0, 1, 2
SOURCES = [[3, 4, 5, 6], [7], [8, 9, 10, 11, 3, 4, 5], [6, 6]]
LIMITS = [9, 4, 12, 7]


def model(positions: str = "sinusoidal") -> TransformerSeq2Seq:
    shape = {"d_model": 16, "n_layers": 1, "n_decoder_layers": 2, "n_heads": 2, "d_ff": 32, "tied": False}
    config = TransformerSeq2SeqConfig(preset="tiny", **shape, dropout=0.0, norm="pre", positions=positions)
    built = TransformerSeq2Seq(config, VOCABULARY, VOCABULARY, joint=False)
    initialise_weights(built, torch.Generator().manual_seed(5))
    with torch.no_grad():
        built.softmax_embedding.weight *= 3  # sure enough of itself for texts of many lengths
    return built.double().eval()


def read(sources: list[list[int]]) -> Rows:
    return sentences_to_rows(sources, suffix_id=END, pad_id=PAD)


class Uncached:
    """The same model without a cache: every step runs the decoder over all that was written."""

    def __init__(self, model: TransformerSeq2Seq, sources: list[list[int]]) -> None:
        self.model, self.sources, self.prefixes = model, sources, [[] for _ in sources]

    def select(self, rows: Tensor) -> None:
        flat = rows.flatten().tolist()
        self.sources = [self.sources[row] for row in flat]
        self.prefixes = [self.prefixes[row] for row in flat]

    def step(self, tokens: Tensor, state: Uncached) -> Tensor:
        self.prefixes = [[*prefix, token] for prefix, token in zip(self.prefixes, tokens.tolist(), strict=True)]
        return self.model(read(self.sources), sentences_to_rows(self.prefixes, pad_id=PAD))[:, -1]


def translate(
    model: TransformerSeq2Seq, sources: list[list[int]], limits: list[int], width: int, *, cached: bool = True
) -> list[list[Hypothesis]]:
    with torch.inference_mode():
        state = model.start(read(sources)) if cached else Uncached(model, sources)
        step = model.step if cached else state.step
        return beam_search(step, state, torch.tensor(limits), SpecialTokens(BEGIN, END), beam_width=width, alpha=0.6)


def assert_same(one: list[list[Hypothesis]], other: list[list[Hypothesis]], atol: float = 1e-5) -> None:
    assert [[h.ids for h in found] for found in one] == [[h.ids for h in found] for found in other]
    for a, b in zip(chain(*one), chain(*other), strict=True):
        assert_close(a.token_scores, b.token_scores, rtol=0, atol=atol)
        assert a.score == pytest.approx(b.score, abs=atol)
        assert a.is_truncated == b.is_truncated


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative-values", "rotary"])
@pytest.mark.parametrize("width", [1, 4])
def test_cached_is_uncached(positions: str, width: int) -> None:
    m = model(positions)
    assert_same(translate(m, SOURCES, LIMITS, width), translate(m, SOURCES, LIMITS, width, cached=False))


@pytest.mark.parametrize("width", [1, 3])
def test_batched_translation_is_one_by_one(width: int) -> None:
    m = model()
    alone = [translate(m, [s], [n], width)[0] for s, n in zip(SOURCES, LIMITS, strict=True)]
    assert_same(translate(m, SOURCES, LIMITS, width), alone)


def test_forced_decoding_gives_the_score() -> None:
    m = model("rotary")
    for source, found in zip(SOURCES, translate(m, SOURCES, LIMITS, 4), strict=True):
        for h in found:
            target = sentences_to_rows([h.ids[:-1]], prefix_id=BEGIN, pad_id=PAD)
            log_probs = m(read([source]), target).log_softmax(-1)[0]
            forced = [log_probs[t, token].item() for t, token in enumerate(h.ids)]
            assert_close(list(h.token_scores), forced, rtol=0, atol=1e-5)
            assert h.score == pytest.approx(score(forced, 0.6), abs=1e-5)
