"""The views: shapes and names fit for every model, sentences say what the numbers say, and mistakes are named."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from sample_targets import one_stack, translator
from torch.testing import assert_close

from regard.errors import InputError
from regard.look.compute.effective_attention import AttentionIdentifiability
from regard.look.compute.faithfulness import Faithfulness
from regard.look.compute.look_target import LookTarget
from regard.look.inspection import Inspection
from regard.look.views.attention_views import describe_identifiability
from regard.look.views.prediction_views import describe_faithfulness
from regard.look.views.registry import VIEWS, build_view_data, check_request
from regard.look.views.request import ViewRequest
from regard.look.views.titles import FRACTION_ARRAYS, is_fraction
from regard.look.views.view_data import ViewArray, ViewData
from regard.text.subwords import Word

SUBJECTS: dict[str, Callable[[], LookTarget]] = {
    "translator": lambda: translator(5, 4),
    "encoder": lambda: one_stack("encoder", 4),
    "decoder": lambda: one_stack("decoder", 4),
    "one token": lambda: one_stack("decoder", 1),
    "one word": lambda: translator(2, 1, n_layers=1, n_decoder_layers=1),
}


def in_words(subject: LookTarget) -> LookTarget:
    """The same text, its second and third piece one word: as ``<sos>``, the first is one by itself."""

    def merged(tokens: list[str]) -> list[Word]:
        places = [(0,), (1, 2), *((place,) for place in range(3, len(tokens)))]
        if len(tokens) < 3:
            places = [(place,) for place in range(len(tokens))]
        return [Word("".join(tokens[place] for place in token_indices), token_indices) for token_indices in places]

    sides = {name: replace(side, words=merged(side.tokens)) for name, side in subject.sides.items()}
    return replace(subject, sides=sides)


@pytest.fixture(scope="module", params=SUBJECTS)
def seen(request: pytest.FixtureRequest) -> Inspection:
    return Inspection(in_words(SUBJECTS[request.param]()))


def find(found: ViewData, view: str, kind: str, name: str) -> ViewArray:
    (array,) = (array for array in found.arrays_of(view) if (array.kind, array.name) == (kind, name))
    return array


@pytest.mark.parametrize("words", [False, True])
def test_all_views_of_every_model(seen: Inspection, words: bool) -> None:
    found = seen.view_data("all", words=words)
    assert list(dict.fromkeys(array.view for array in found.arrays)) == [view for view in VIEWS if view != "pooling"]
    for array in found.arrays:
        for axis, size in zip(array.axes, array.values.shape, strict=True):
            assert len(found.labels(axis, size)) == size, array.qualified_name
        assert array.values.isfinite().all() or array.name == "masked_scores", array.qualified_name
    sides = seen.look_target.sides
    assert found.sides == {name: [w.text for w in side.words] if words else side.tokens for name, side in sides.items()}
    for array in found.arrays_of("attention"):
        assert_close(array.values.sum(-1), torch.ones_like(array.values[..., 0]))
    for array in found.arrays_of("attribution"):
        if array.name == "contribution":
            assert_close(array.values.sum(1), torch.ones_like(array.values[:, 0]))


def test_fractions_are_between_0_and_1(seen: Inspection) -> None:
    fractions = [array for array in seen.view_data("all").arrays if is_fraction(array)]
    assert {f"{array.view}.{array.name}" for array in fractions} == FRACTION_ARRAYS, "no name that nothing has"
    for array in fractions:
        assert array.values.min() >= -1e-9, array.qualified_name
        assert array.values.max() <= 1 + 1e-6, array.qualified_name


@pytest.mark.parametrize("words", [False, True])
def test_self_contribution_and_dominated_fraction_follow_from_contributions(seen: Inspection, words: bool) -> None:
    found = seen.view_data("attribution", words=words)
    for stack in seen.tokens:
        contributions, own = (
            find(found, "attribution", stack, name).values for name in ("contribution", "self_contribution")
        )
        n_layers, n_inputs, n_outputs = contributions.shape
        before = n_inputs - n_outputs
        dominated_fraction = torch.zeros(n_layers, dtype=torch.float64)
        for layer in range(n_layers):
            for output in range(n_outputs):
                column = contributions[layer, :, output].tolist()
                assert math.isclose(own[layer, output], column[before + output], rel_tol=1e-9)
                dominated_fraction[layer] += any(other > column[before + output] for other in column) / n_outputs
        assert_close(find(found, "attribution", stack, "dominated_fraction").values, dominated_fraction)
        sentence = next(note for note in found.notes["attribution"] if note.startswith(stack))
        token, dominated = "word" if words else "token", float(dominated_fraction[-1])
        others = {0.0: "none", 1.0: "all"}.get(dominated, f"{dominated:.0%}")
        assert sentence == (
            f"{stack}: after the last layer, a {token}'s own input contributes {own[-1].mean():.0%} of its output on "
            f"average; for {others} of them another input contributes more"
        )


def test_an_estimate_comes_with_its_error() -> None:
    found = Inspection(translator(5, 4)).view_data("attribution", estimate=4, kind="encoder")
    contributions, error = (find(found, "attribution", "encoder", name).values for name in ("contribution", "error"))
    relative = (error / contributions)[contributions > 0.01].mean()
    assert found.notes["attribution"][0] == (
        f"encoder: estimated from 4 directions per token; standard error about {relative:.1%}"
    )


def test_one_kind_one_layer_one_head() -> None:
    seen = Inspection(translator(5, 4))
    (array,) = seen.view_data("attention", kind="cross", layer=-1, head=0).arrays
    assert_close(array.values, seen.attention("cross")[1:, :1])
    assert [axis.labels for axis in array.axes[:2]] == [("1",), ("0",)]
    assert {array.kind for array in seen.view_data("rollout", kind="cross").arrays} == {"decoder"}
    assert {array.kind for array in seen.view_data("positions", kind="decoder").arrays} == {"decoder"}
    found = seen.view_data("similarity", kind="encoder", layer=-2, head=1)
    form = find(found, "similarity", "encoder", "form")
    assert [axis.name for axis in form.axes] == ["layer", "head", "row", "column"]
    assert [axis.labels for axis in form.axes[:2]] == [("0",), ("1",)]
    assert_close(form.values[0, 0], seen.similarity(0, 1, "encoder").form)
    parts = [find(found, "similarity", "encoder", name).values for name in ("symmetric", "antisymmetric")]
    assert_close(sum(parts), form.values)


def test_similarity_counts_metrics() -> None:
    seen = Inspection(translator(5, 4))
    for module in seen.look_target.attentions("encoder").values():
        query, key, _ = module.projection.weight.data.split(module.qkv_widths)
        key[: module.d_key] = query[: module.d_key]  # W_Q W_Q^T: head 0 of every layer measures by a metric
    found = seen.view_data("similarity", kind="encoder")
    assert find(found, "similarity", "encoder", "positive").values.tolist() == [[1, 0], [1, 0]]
    assert found.notes["similarity"][0].startswith("encoder: 2 of 4 heads learned a metric")
    assert_close(
        find(found, "similarity", "encoder", "symmetric_fraction").values[:, 0], torch.ones(2, dtype=torch.float64)
    )


def test_identifiability_in_words_counts_heads() -> None:
    keys = torch.tensor([[[3, 5], [3, 5]]])
    rank = torch.tensor([[[3, 4], [3, 5]]])
    null_fraction = torch.tensor([[[0.0, 0.5], [0.0, 0.0]]])
    assert describe_identifiability("cross", AttentionIdentifiability(keys, rank, keys - rank, null_fraction)) == (
        "cross: 1 of 2 heads is not identifiable (5 keys, rank 4 to 5): "
        "on average 25% of the norm of its weights has no effect on its output"
    )
    assert describe_identifiability("cross", AttentionIdentifiability(keys, keys, keys - keys, 0 * null_fraction)) == (
        "cross: all 2 heads are identifiable (5 keys, rank 5): raw and effective weights are equal"
    )


def test_identifiability_in_words_of_one_head() -> None:
    keys, null_fraction = torch.tensor([[[3, 5]]]), torch.tensor([[[0.0, 0.5]]])
    assert describe_identifiability(
        "cross", AttentionIdentifiability(keys, keys - 2, keys - keys + 2, null_fraction)
    ) == (
        "cross: the only head is not identifiable (5 keys, rank 3): "
        "on average 25% of the norm of its weights has no effect on its output"
    )
    one = torch.ones_like(keys)
    assert describe_identifiability("cross", AttentionIdentifiability(one, one, one - one, 0 * null_fraction)) == (
        "cross: the only head is identifiable (1 key, rank 1): raw and effective weights are equal"
    )


def test_the_sentences_of_a_real_model_count_what_is_in_the_arrays() -> None:
    found = Inspection(translator(7, 6)).view_data("identifiability")
    for note, kind in zip(found.notes["identifiability"], ("encoder", "decoder", "cross"), strict=True):
        null = find(found, "identifiability", kind, "null").values
        lost = sum(bool((null[layer, head] > 0).any()) for layer in range(2) for head in range(2))
        assert lost > 0
        assert note.startswith(f"{kind}: {lost} of 4 heads are not identifiable")


def test_faithfulness_names_the_view_to_trust() -> None:
    seen = Inspection(translator(5, 4))
    found, (note,) = seen.faithfulness(), seen.view_data("faithfulness").notes["faithfulness"]
    if found.best is None:
        assert note.startswith("no view is clearly better than chance for this prediction: ")
        assert note.endswith("(clearly better: more than 3 times ± above)")
    else:
        assert found.best.replace("_", " ") in note
    assert "only one input" in Inspection(one_stack("decoder", 1)).view_data("faithfulness").notes["faithfulness"][0]


def test_a_drop_that_rounds_to_zero_has_no_sign() -> None:
    scores, stds = torch.tensor([0.3, -0.001]), torch.tensor([0.0, 0.01])
    note = describe_faithfulness(Faithfulness(("attention", "random"), (1,), scores[:, None], scores, stds))
    assert note.endswith("lowers the log-probability by 0.30, removing random inputs by 0.00 ± 0.01")


def test_positions_that_are_not_added() -> None:
    seen = Inspection(one_stack("encoder", 2, positions="rotary"))
    with pytest.raises(
        InputError, match=r"^this model has nothing to show for --view positions: it adds no position vectors"
    ):
        seen.view_data("positions")
    assert not list(seen.view_data("all").arrays_of("positions"))


@pytest.mark.parametrize(
    ("view", "asked", "message"),
    [
        ("atention", {}, "unknown view 'atention'; did you mean 'attention'?"),
        ("attention", {"layer": 2}, "layer 2: encoder attention has 2, counted from 0"),
        ("all", {"head": -3}, "head -3: encoder attention has 2, counted from 0"),
        ("effective", {"kind": "cross", "head": 9}, "head 9: cross attention has 2, counted from 0"),
        ("rollout", {"kind": "top"}, "unknown kind of attention 'top'; known: encoder, decoder, cross"),
        ("rollout", {"head": 0}, "rollout has no head to choose; leave it out, or look at: attention, scores, "),
        ("gradients", {"layer": 0}, "gradients has no layer to choose; leave it out, or look at: attention, "),
        ("faithfulness", {"kind": "cross"}, "faithfulness has no kind to choose; leave it out, or look at: "),
        (
            "attention",
            {"estimate": 4},
            "attention has no estimate to choose; leave it out, or look at: summary, attribution",
        ),
        ("attribution", {"estimate": 1}, "estimate 1: expected at least 2"),
    ],
)
def test_unavailable_views_and_options_are_refused(view: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Inspection(translator()).view_data(view, **asked)
    assert str(caught.value).startswith(message)


def test_a_model_without_the_kind_that_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"^this model has no cross attention; it has: encoder$"):
        build_view_data(Inspection(one_stack("encoder")), "attention", ViewRequest(kind="cross"))


def test_layers_are_checked_before_any_work() -> None:
    """A subject that cannot be run is asked for its modules alone."""

    def never() -> torch.Tensor:
        raise AssertionError

    with pytest.raises(InputError, match=r"^layer 7: "):
        check_request(Inspection(replace(translator(), run_layers=never)), "attribution", ViewRequest(layer=7))
