"""Drawing tokens from exactly the stated distribution, and following rows to their end."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from table import EOS, MARKS, SOS, Table, TableState, at_most, score
from torch import Tensor
from torch.testing import assert_close

from regard.errors import InputError
from regard.generate import (
    DecodingConfig,
    DecodingLoopOptions,
    Hypothesis,
    RepetitionPenalty,
    SpecialTokens,
    generate,
    generate_tokens,
    generation_loop,
    make_random_sampler,
    select_greedy_tokens,
)
from regard.generate.sampling import RandomSource, Sampler, make_row_random_source

LOGITS = [0.5, 2.0, -1.0, 1.2, 0.1, -3.0]
DRAWS = 40_000


def drawing(seed: int) -> RandomSource:
    generator = torch.Generator().manual_seed(seed)
    return lambda rows: torch.rand(len(rows), dtype=torch.float64, generator=generator).tolist()


def distribution(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> list[float]:
    """By hand: sharpen, keep the top k, keep the fewest whose mass reaches p, make it sum to 1."""
    order = sorted(range(len(LOGITS)), key=lambda token: -LOGITS[token])
    kept = order[: top_k or None]
    mass = {token: math.exp(LOGITS[token] / temperature) for token in kept}
    total, reached = sum(mass.values()), 0.0
    nucleus = {}
    for token in kept:
        if reached < top_p:
            nucleus[token] = mass[token] / total
        reached += mass[token] / total
    return [nucleus.get(token, 0.0) / sum(nucleus.values()) for token in range(len(LOGITS))]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 3},
        {"top_k": 100},
        {"top_p": 0.8},
        {"top_p": 0.3},
        {"top_k": 4, "top_p": 0.9},
        {"temperature": 2.0, "top_k": 5, "top_p": 0.7},
    ],
)
def test_draws_follow_the_exact_distribution(options: dict[str, float]) -> None:
    pick = make_random_sampler(drawing(11), **options)
    counts = Counter(pick(torch.tensor(LOGITS).expand(DRAWS, -1), list(range(DRAWS))).tolist())
    expected = distribution(**options)
    statistic = 0.0
    for token, probability in enumerate(expected):
        if probability == 0:
            assert counts[token] == 0
        else:
            statistic += (counts[token] - DRAWS * probability) ** 2 / (DRAWS * probability)
    assert statistic < 26  # chi-square with 5 degrees of freedom exceeds this once in 10,000


def test_each_row_is_drawn_from_its_own_logits() -> None:
    logits = torch.full((5, 5), -torch.inf).fill_diagonal_(0.0)
    assert make_random_sampler(drawing(0))(logits, list(range(5))).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_the_narrowest_choices_are_greedy(options: dict[str, float]) -> None:
    logits, rows = torch.randn(50, 9, generator=torch.Generator().manual_seed(0)), list(range(50))
    assert torch.equal(make_random_sampler(drawing(0), **options)(logits, rows), select_greedy_tokens(logits, rows))


def test_picking_leaves_the_logits_alone() -> None:
    logits = torch.randn(3, 9)
    before = logits.clone()
    make_random_sampler(drawing(0), top_k=2, top_p=0.5)(logits, [0, 1, 2])
    assert torch.equal(logits, before)


def test_half_precision_logits_can_be_drawn_from() -> None:
    assert make_random_sampler(drawing(0), top_k=2)(torch.randn(4, 9, dtype=torch.bfloat16), [0, 1, 2, 3]).shape == (4,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, r"temperature 0\.0: expected more than 0; for the most likely token use greedy"),
        ({"temperature": -1.0}, r"temperature -1\.0: expected 0 .* or more and at most 1,000"),
        ({"temperature": math.nan}, "temperature nan: expected 0 .* or more and at most 1,000"),
        ({"top_p": 0.0}, r"top-p 0\.0: expected more than 0 and at most 1"),
        ({"top_p": 1.5}, r"top-p 1\.5: expected more than 0 and at most 1"),
        ({"top_k": -1}, r"top-k -1: expected 0 \(no limit\) or more"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DecodingConfig(sample=True, **options)


def write(
    table: Table, limits: dict[str, int], pick: Sampler, alpha: float = 0.0, never: tuple[int, ...] = ()
) -> list[Hypothesis]:
    state, most = TableState(list(limits)), at_most(limits)
    return generate(table.step, state, pick, most, MARKS._replace(suppressed_ids=never), alpha=alpha)


def draw(table: Table, limits: dict[str, int], seed: int) -> list[Hypothesis]:
    return write(table, limits, make_random_sampler(drawing(seed)))


def test_the_seed_decides() -> None:
    table, limits = Table(20), {"a": 10, "b": 12}
    assert draw(table, limits, 1) == draw(table, limits, 1)
    assert draw(table, limits, 1) != draw(table, limits, 2)


def test_a_row_draws_the_same_whatever_is_beside_it() -> None:
    table, limits = Table(20), {"a": 10, "b": 12, "c": 9}
    batched = write(table, limits, make_random_sampler(make_row_random_source(["x", "y", "z"])))
    alone = [
        write(table, {name: limits[name]}, make_random_sampler(make_row_random_source([seed])))[0]
        for name, seed in zip("abc", "xyz", strict=True)
    ]
    assert batched == alone
    assert batched != write(table, limits, make_random_sampler(make_row_random_source(["x", "y", "w"])))


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0 - 2**-53])
def test_the_ends_of_what_is_drawn_stay_within_what_may_be(drawn: float) -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -torch.inf, 0.5]]).log_softmax(-1)
    for options in ({}, {"top_k": 2}, {"top_p": 0.6}):
        assert make_random_sampler(lambda rows: [drawn], **options)(logits, [0]).item() in (0, 2, 4)


def test_greedy_takes_the_likeliest_token_each_time() -> None:
    table, limits = Table(7), {str(i): 3 + i for i in range(8)}
    for (sentence, limit), found in zip(limits.items(), write(table, limits, select_greedy_tokens), strict=True):
        ids: tuple[int, ...] = ()
        while EOS not in ids:
            best = int(table.logits(sentence, (SOS, *ids)).argmax())
            ids = (*ids, EOS if len(ids) == limit - 1 else best)
        assert found.ids == ids


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_scores_are_those_of_forced_decoding_whatever_was_drawn(alpha: float) -> None:
    """Temperature and cuts choose the tokens; the scores are the model's own."""
    table, limits = Table(9), {"a": 6, "b": 9, "c": 1}
    pick = make_random_sampler(drawing(4), temperature=2.0, top_k=5)
    for sentence, found in zip(limits, write(table, limits, pick, alpha), strict=True):
        forced = table.token_scores(sentence, found.ids)
        assert_close(list(found.token_scores), forced, rtol=0, atol=1e-5)
        assert found.score == pytest.approx(score(forced, alpha), abs=1e-5)


def test_what_is_never_written_is_not_and_the_others_keep_their_scores() -> None:
    table, limits = Table(6), {str(i): 8 for i in range(30)}
    assert any(2 in found.ids for found in draw(table, limits, 1))
    for pick in (select_greedy_tokens, make_random_sampler(drawing(1), temperature=3.0)):
        for sentence, found in zip(limits, write(table, limits, pick, never=(SOS, 2)), strict=True):
            assert not {SOS, 2} & set(found.ids)
            assert_close(list(found.token_scores), table.token_scores(sentence, found.ids), rtol=0, atol=1e-5)


def test_eos_is_forced_at_each_rows_limit() -> None:
    limits = {"a": 1, "b": 4, "c": 2}
    found = write(Table(9, eos_bonus=-30.0), limits, select_greedy_tokens)
    assert [len(h.ids) for h in found] == [1, 4, 2]
    assert all(h.is_truncated for h in found)
    assert not any(h.is_truncated for h in write(Table(9, eos_bonus=30.0), limits | {"a": 3}, select_greedy_tokens))
    assert all(h.ids[-1] == EOS and EOS not in h.ids[:-1] for h in found)


def test_done_rows_leave_the_batch() -> None:
    table = Table(9, eos_bonus=-30.0)
    write(table, {"a": 1, "b": 4, "c": 2, "d": 4}, select_greedy_tokens)
    assert table.rows_of_steps == [4, 3, 2, 2]


def test_batched_greedy_is_one_by_one() -> None:
    table, limits = Table(9), {"a": 2, "b": 11, "c": 6, "d": 1, "e": 8}
    for (sentence, limit), found in zip(limits.items(), write(table, limits, select_greedy_tokens), strict=True):
        assert write(table, {sentence: limit}, select_greedy_tokens) == [found]


def test_a_sampled_text_has_the_probability_of_its_tokens() -> None:
    """Two steps of three tokens: whole texts are drawn as often as the product of their tokens says."""
    table, n = Table(3), 6_000
    cached: dict[tuple[int, ...], Tensor] = {}

    def step(tokens: Tensor, state: TableState) -> Tensor:
        state.rows = [(s, (*prefix, t)) for (s, prefix), t in zip(state.rows, tokens.tolist(), strict=True)]
        return torch.stack([cached.setdefault(p, table.logits(s, p)) for s, p in state.rows])

    pick = make_random_sampler(drawing(8))
    found = generate(step, TableState(["a"] * n), pick, torch.full((n,), 3), MARKS, alpha=0.0)
    counts, statistic = Counter(h.ids for h in found), 0.0
    for ids in table.texts(3):
        free = ids if len(ids) < 3 else ids[:-1]  # at the limit the end is forced, not drawn
        expected = n * math.exp(sum(table.token_scores("a", free)))
        statistic += (counts[ids] - expected) ** 2 / expected
    assert sum(counts.values()) == n
    assert statistic < 28  # chi-square with 6 degrees of freedom, once in 10,000


def test_no_rows_give_no_texts() -> None:
    assert write(Table(4), {}, select_greedy_tokens) == []


def steps(table: Table, limits: dict[str, int], **way: object) -> list[tuple[list[int], list[int], list[float]]]:
    """What `walk` gives, token by token."""
    asked = {"sampler": select_greedy_tokens, "special_tokens": MARKS, "max_lengths": at_most(limits), **way}
    first = torch.full((len(limits),), SOS)
    return [
        tuple(chosen)
        for chosen in generate_tokens(table.step, TableState(list(limits)), first, DecodingLoopOptions(**asked))
    ]  # type: ignore[arg-type]


def test_a_walk_gives_each_token_as_it_is_written() -> None:
    table, limits = Table(9), {"a": 4, "b": 2, "c": 6}
    by_row: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for rows, tokens, _ in steps(table, limits, force_eos=True):
        for row, token in zip(rows, tokens, strict=True):
            by_row[row].append(token)
    assert [tuple(ids) for ids in by_row.values()] == [
        found.ids for found in write(table, limits, select_greedy_tokens)
    ]


def test_without_force_a_row_just_stops_at_its_limit() -> None:
    found = steps(Table(9, eos_bonus=-30.0), {"a": 2, "b": 3})
    assert [rows for rows, _, _ in found] == [[0, 1], [0, 1], [1]]
    assert not any(EOS in tokens for _, tokens, _ in found)


@pytest.mark.parametrize("forced", [True, False])
def test_a_step_ahead_changes_nothing(monkeypatch: pytest.MonkeyPatch, forced: bool) -> None:
    """As on a GPU: rows take one more step than they are found to need, but none behind the limit of all."""
    limits = {"a": 4, "b": 2, "c": 9, "d": 6, "e": 9}
    plain, ahead = Table(9), Table(9)
    expected = steps(plain, limits, force_eos=forced)
    monkeypatch.setattr(generation_loop, "_runs_asynchronously", lambda x: True)
    assert steps(ahead, limits, force_eos=forced) == expected
    before = [len(rows) for rows, _, _ in expected]
    assert plain.rows_of_steps == before
    assert ahead.rows_of_steps == [before[0], *before[: len(ahead.rows_of_steps) - 1]]
    assert len(before) <= len(ahead.rows_of_steps) <= len(before) + 1


def test_a_row_ends_where_it_is_said_to() -> None:
    found = steps(Table(9), {"a": 9, "b": 9}, stopping_criterion=lambda row, token: row == 1)
    assert [rows for rows, _, _ in found] == [[0, 1]] + [[0]] * 8


def test_repetition_is_made_less_likely() -> None:
    """Positive logits are divided, negative ones multiplied; of each row what it has seen itself."""
    seen = torch.zeros(2, 4, dtype=torch.bool)
    seen[0, :2] = True
    change = RepetitionPenalty(2.0, seen)
    logits = torch.tensor([[1.0, -1.0, 3.0, -3.0]])
    assert change(logits, [0]).tolist() == [[0.5, -2.0, 3.0, -3.0]]
    assert change(logits, [1]).tolist() == logits.tolist()
    change.update([1, 0], [2, 3])
    assert change(logits, [1]).tolist() == [[1.0, -1.0, 1.5, -3.0]]
    assert change(logits, [0]).tolist() == [[0.5, -2.0, 3.0, -6.0]]


def test_a_change_chooses_and_scores_stay_the_models_own() -> None:
    table, never = Table(9, eos_bonus=30.0), (SOS, 4)
    found = steps(
        table, {"a": 6}, special_tokens=SpecialTokens(SOS, EOS, never), logits_processor=lambda logits, rows: -logits
    )
    ids = tuple(token for _, tokens, _ in found for token in tokens)
    prefixes = [(SOS, *ids[:i]) for i in range(len(ids))]
    for prefix, token in zip(prefixes, ids, strict=True):
        masked_logits = -table.logits("a", prefix)
        masked_logits[list(never)] = -torch.inf
        assert token == int(masked_logits.argmax())
    assert len(ids) == 6
    assert_close([s for _, _, scores in found for s in scores], table.token_scores("a", ids), rtol=0, atol=1e-5)


def test_scores_that_are_not_numbers_end_in_a_token() -> None:
    """Whoever asks for it sees from its score that it is none."""
    pick = make_random_sampler(make_row_random_source(["a", "b"]), temperature=0.8)
    assert len(pick(torch.full((2, 5), torch.nan), [0, 1])) == 2


class OnApple(Tensor):
    """A tensor of a device that has no float64, as Apple's; what reaches the CPU is a plain one."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function == Tensor.device.__get__:  # type: ignore[attr-defined]
            return torch.device("mps")
        if function is Tensor.double:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        found = super().__torch_function__(function, types, arguments, options or {})
        return found.as_subclass(Tensor) if function is Tensor.cpu else found


def test_a_device_without_float64_can_be_drawn_on() -> None:
    logits, rows = torch.randn(50, 9, generator=torch.Generator().manual_seed(0)), list(range(50))
    options = {"temperature": 0.7, "top_k": 6, "top_p": 0.9}
    found = make_random_sampler(drawing(3), **options)(logits.as_subclass(OnApple), rows)  # type: ignore[arg-type]
    assert isinstance(found, OnApple)
    assert found.tolist() == make_random_sampler(drawing(3), **options)(logits, rows).tolist()  # type: ignore[arg-type]
