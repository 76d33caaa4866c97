"""Faithfulness against removals one at a time, and with models of which it is known what decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_targets import OnlyOne, one_stack, only_one, translator
from torch import Tensor
from torch.testing import assert_close

from regard.look.compute import jvp as tangents
from regard.look.compute.faithfulness import (
    Faithfulness,
    choose_removal_counts,
    last_layer_importance,
    measure_faithfulness,
)
from regard.look.compute.jvp import record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget
from regard.look.inspection import Inspection
from regard.text.subwords import Word

SHALLOW = {"n_layers": 1, "n_decoder_layers": 1}


def n_inputs(subject: LookTarget) -> int:
    return sum(len(side.tokens) for side in subject.sides.values())


def drawn(subject: LookTarget, seed: int = 0) -> Tensor:
    """A view of no meaning."""
    shape = n_inputs(subject), len(subject.predicted_ids)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(subject: LookTarget) -> Tensor:
    """Every input before the last side, and of that side, if it is a decoder, what came."""
    last = list(subject.sides)[-1]
    inputs_mask = torch.ones(n_inputs(subject), len(subject.predicted_ids), dtype=torch.bool)
    if last == "decoder":
        own = len(subject.sides[last].tokens)
        inputs_mask[-own:] = inputs_mask[-own:].triu()
    return inputs_mask


@torch.no_grad()
def log_prob(subject: LookTarget, token: int, gone: Sequence[int]) -> float:
    """Of one predicted token without some inputs, by the model as it runs."""
    inputs = {name: x.clone() for name, x in record_inputs(subject).items()}
    places = [(name, place) for name, x in inputs.items() for place in range(x.shape[1])]
    for number in gone:
        name, place = places[number]
        inputs[name][0, place] = 0.0
    with replace_inputs(subject, inputs):
        return float(subject.run()[0, token].log_softmax(0)[subject.predicted_ids[token]])


def one_at_a_time(
    subject: LookTarget, importance: Tensor, inputs_mask: Tensor, groups: Sequence[Sequence[int]], k: int
) -> float:
    """The mean fall over tokens that see more than k groups, each run by itself."""
    falls = []
    for token in range(len(subject.predicted_ids)):
        seen = [[i for i in group if inputs_mask[i, token]] for group in groups]
        ranked = sorted((group for group in seen if group), key=lambda g: -float(importance[g, token].sum()))
        if len(ranked) > k:
            gone = [i for group in ranked[:k] for i in group]
            falls.append(log_prob(subject, token, []) - log_prob(subject, token, gone))
    return sum(falls) / len(falls)


def check(
    found: Faithfulness, subject: LookTarget, view: Tensor, inputs_mask: Tensor, groups: Sequence[Sequence[int]]
) -> None:
    expected = [one_at_a_time(subject, view, inputs_mask, groups, k) for k in found.removal_counts]
    assert_close(found.drop[0].tolist(), expected, rtol=1e-9, atol=1e-11)
    assert float(found.score[0]) == pytest.approx(sum(expected) / len(expected))


SUBJECTS: dict[str, Callable[[], LookTarget]] = {
    "translator": lambda: translator(4, 3, **SHALLOW),
    "encoder": lambda: one_stack("encoder", 4, norm="pre"),
    "decoder": lambda: one_stack("decoder", 4, positions="rotary"),
    "two tokens": lambda: one_stack("encoder", 2),
    "two tokens, the first of which sees itself alone": lambda: one_stack("decoder", 2),
}


@pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)
def test_drops_equal_removing_inputs_one_set_at_a_time(make: Callable[[], LookTarget]) -> None:
    subject = make()
    view, inputs_mask = drawn(subject), mask(subject)
    found = measure_faithfulness(subject, {"drawn": view}, inputs_mask, n_orders=2)
    assert found.methods == ("drawn", "random")
    assert found.removal_counts == choose_removal_counts(n_inputs(subject))
    check(found, subject, view, inputs_mask, [[i] for i in range(n_inputs(subject))])


@settings(deadline=None, max_examples=4)
@given(source=st.integers(1, 4), target=st.integers(1, 3), seed=st.integers(0, 99), data=st.data())
def test_for_texts_of_any_length_and_words_of_any_length(
    source: int, target: int, seed: int, data: st.DataObject
) -> None:
    subject = translator(source, target, seed, **SHALLOW)
    starts = [0, *sorted(data.draw(st.sets(st.integers(1, source + target - 1)))), source + target]
    words = [list(range(*ends)) for ends in pairwise(starts)]
    view, inputs_mask = drawn(subject, seed), mask(subject)
    found = measure_faithfulness(subject, {"drawn": view}, inputs_mask, groups=words, n_orders=2)
    assert found.removal_counts == choose_removal_counts(
        max(sum(bool(inputs_mask[w, t].any()) for w in words) for t in range(target))
    )
    if found.removal_counts:
        check(found, subject, view, inputs_mask, words)
    else:
        assert found.best is None
        assert (found.score == 0).all()


def test_only_visible_inputs_are_removed() -> None:
    """However important the rest may be called."""
    subject = translator(4, 3, **SHALLOW)
    view, inputs_mask = drawn(subject), mask(subject)
    inputs_mask[1] = False
    loud = view.clone()
    loud[1] = 100.0
    loud[-1, 0] = 100.0  # the future of the first
    quiet, shouted = measure_faithfulness(subject, {"quiet": view, "loud": loud}, inputs_mask).drop[:2]
    assert_close(quiet, shouted)


def test_random_orders_have_the_mean_and_the_spread_of_all_orders() -> None:
    subject = one_stack("encoder", 3, n_layers=1)
    single = torch.tensor(
        [[log_prob(subject, token, []) - log_prob(subject, token, [gone]) for token in range(3)] for gone in range(3)]
    )
    found = measure_faithfulness(subject, {"drawn": drawn(subject)}, mask(subject), n_orders=20_000)
    assert found.removal_counts == (1,)
    assert float(found.score[-1]) == pytest.approx(float(single.mean()), abs=0.02)
    assert float(found.std[-1]) == pytest.approx(float(single.var(0, correction=0).sum().sqrt() / 3), rel=0.02)
    assert found.std[0] == 0
    once, again = (measure_faithfulness(subject, {"drawn": drawn(subject)}, mask(subject)) for _ in range(2))
    assert torch.equal(once.drop, again.drop)


def test_runners_up_are_within_one_standard_deviation() -> None:
    def near(*scores: float, spread: float) -> tuple[str, ...]:
        methods, none = ("a", "b", "c", "random"), torch.zeros(4, 0)
        return Faithfulness(methods, (), none, torch.tensor(scores), torch.tensor([0.0, 0.0, 0.0, spread])).runners_up

    assert near(5.0, 4.5, 3.0, 1.0, spread=0.6) == ("b",)
    assert near(4.5, 5.0, 4.6, 1.0, spread=0.6) == ("a", "c")
    assert near(5.0, 4.5, 3.0, 1.0, spread=0.1) == ()


def test_the_view_that_ranks_the_decisive_input_first_is_best() -> None:
    subject = only_one(12, decisive=7)
    truth = torch.zeros(12, 12, dtype=torch.float64)
    truth[7] = 1.0
    views = {"wrong": -truth, "true": truth}
    found = measure_faithfulness(subject, views, mask(subject))
    assert found.best == "true"
    assert (found.drop[1] > found.drop[2]).all()
    assert (found.drop[0] == 0).all()
    assert_close(found.drop[1], found.drop[1, :1].expand(len(found.removal_counts)))
    assert measure_faithfulness(subject, {"wrong": -truth}, mask(subject)).best is None


def test_removal_counts() -> None:
    assert [choose_removal_counts(n) for n in (0, 1, 2, 3, 4, 7)] == [(), (), (1,), (1,), (1, 2), (1, 2, 3)]
    assert choose_removal_counts(27) == (1, 2, 3, 5, 10)
    assert choose_removal_counts(300) == (1, 2, 3, 5, 10, 20, 50, 100)


def test_chunk_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = translator(4, 3, **SHALLOW)
    whole = measure_faithfulness(subject, {"drawn": drawn(subject)}, mask(subject))
    monkeypatch.setitem(tangents.CHUNK_ELEMENTS, "cpu", 1000)
    assert_close(measure_faithfulness(subject, {"drawn": drawn(subject)}, mask(subject))[2:], whole[2:])


@pytest.mark.parametrize(
    "subject", [translator(3, 2, **SHALLOW), one_stack("encoder", 4, n_layers=1), one_stack("decoder", 4, n_layers=1)]
)
def test_the_views_of_a_look_are_compared(subject: LookTarget) -> None:
    seen, last = Inspection(subject), list(subject.sides)[-1]
    looked = ("attention", "effective", "norms", "rollout", "attribution")
    found = seen.faithfulness()
    assert found.methods == (*looked, "gradient_x_input", "integrated_gradients", "random")
    singles = [[i] for i in range(n_inputs(subject))]
    attention = torch.cat([seen.attention(kind)[-1].mean(0) for kind in ("cross", last) if kind in seen.kinds], 1).T
    check(found, subject, attention, mask(subject), singles)
    local, integrated = (found._replace(drop=found.drop[place:], score=found.score[place:]) for place in (5, 6))
    check(local, subject, seen.gradients().gradient_x_input, mask(subject), singles)
    check(integrated, subject, seen.gradients().integrated_gradients, mask(subject), singles)
    assert seen.gradients() is seen.gradients()
    for estimate in (2, None):
        compared = seen.faithfulness(estimate=estimate)
        attributed = compared._replace(drop=compared.drop[4:], score=compared.score[4:])
        check(attributed, subject, seen.attribution(stack=last, estimate=estimate), mask(subject), singles)


def test_views_of_one_order_score_the_same() -> None:
    """Of a sum of its inputs, gradient x input and integrated gradients are one view; much speaks against it."""
    model, x = OnlyOne(0).double(), torch.randn(1, 6, 8, dtype=torch.float64)
    sides = only_one(6, 0).sides
    scored = LookTarget(
        model,
        sides,
        run_layers=lambda: model.entrance(x),
        head=lambda entered: entered.sum((1, 2)).view(1, 1, 1),
        predicted_ids=torch.tensor([0]),
        output_labels=("score",),
        output_token_weights=lambda: torch.ones(1, 6),
        is_regression=True,
    )
    seen = Inspection(scored)
    assert (seen.gradients().gradient_x_input < 0).any()
    found = seen.faithfulness()
    assert_close(found.drop[-3], found.drop[-2])
    largest = x.sum(-1)[0].sort(descending=True).values.cumsum(0)
    assert_close(found.drop[-2], largest[torch.tensor(found.removal_counts) - 1])


def test_words_are_removed_whole() -> None:
    subject = translator(5, 4, **SHALLOW)
    sides = {name: replace(side, words=_pairs(len(side.tokens))) for name, side in subject.sides.items()}
    seen = Inspection(replace(subject, sides=sides))
    found = seen.faithfulness(words=True)
    attention = torch.cat((seen.attention("cross")[-1].mean(0), seen.attention("decoder")[-1].mean(0)), 1).T
    check(found, subject, attention, mask(subject), [[0, 1], [2, 3], [4], [5, 6], [7, 8]])


def _pairs(n_tokens: int) -> list[Word]:
    return [Word("w", tuple(range(start, min(start + 2, n_tokens)))) for start in range(0, n_tokens, 2)]


def test_concatenated_attention_importances_sum_to_1() -> None:
    cross, own = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 4)
    found = last_layer_importance(cross, own)
    assert found.shape == (9, 4)
    assert_close(found.sum(0), torch.ones(4))
    assert_close(found[1, 2] / found[6, 2], cross[1, :, 2, 1].abs().sum() / own[1, :, 2, 1].abs().sum())
