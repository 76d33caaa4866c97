"""Merging pieces to words: against the rule written out, for any way of parting texts into words."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings
from torch.testing import assert_close

from regard.look.views.view_data import SUMMED_AXES, Axis, ValueKind, ViewArray, ViewData, merge_subwords
from regard.text.subwords import Word

Sizes = dict[str, list[int]]

AXES = [
    *(Axis("layer"), Axis("method", labels=("one", "two"))),
    *(Axis("query", ("encoder",)), Axis("key", ("decoder",)), Axis("output", ("decoder",))),
    *(Axis("input", ("encoder", "decoder")), Axis("position", ("encoder",))),
]
PARTED = st.fixed_dictionaries(
    {side: st.lists(st.integers(1, 3), min_size=1, max_size=4) for side in ("encoder", "decoder")}
)


def words_of(sizes: list[int]) -> list[Word]:
    """Words of so many pieces each."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [Word(f"w{n}", tuple(range(ends[n], ends[n + 1]))) for n in range(len(sizes))]


def along(axis: Axis, sizes: Sizes) -> list[list[int]]:
    """The places of each word's pieces along an axis; of an axis without words, each place by itself."""
    if not axis.over:
        return [[place] for place in range(2)]
    merged = words_of([size for side in axis.over for size in sizes[side]])
    return [list(word.token_indices) for word in merged]


@settings(max_examples=100, deadline=None)
@given(
    PARTED,
    st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.sampled_from(("amount", "count", "error")),
)
def test_subwords_are_summed_as_inputs_and_averaged_as_outputs(
    sizes: Sizes, axes: list[Axis], whole: bool, nature: ValueKind
) -> None:
    """Of a count the largest stands for all; errors add up by their squares."""
    groups = [along(axis, sizes) for axis in axes]
    shape = [sum(map(len, group)) for group in groups]
    values = torch.rand(shape, dtype=torch.float64)
    values = (values * 10).long() if whole else values
    sides = {side: ["t"] * sum(counts) for side, counts in sizes.items()}
    merged = merge_subwords(
        ViewData(sides, [ViewArray("any", "", "numbers", tuple(axes), values, nature)]),
        {side: words_of(counts) for side, counts in sizes.items()},
    )
    expected = np.zeros([len(group) for group in groups])
    for place in np.ndindex(expected.shape):
        token_groups = [group[index] for group, index in zip(groups, place, strict=True)]
        means = np.prod(
            [len(each) for each, axis in zip(token_groups, axes, strict=True) if axis.name not in SUMMED_AXES]
        )
        numbers = np.array([float(values[index]) for index in product(*token_groups)])
        added = np.sqrt((numbers**2).sum()) if nature == "error" else numbers.sum()
        expected[place] = numbers.max() if nature == "count" else added / means
    assert_close(merged.arrays[0].values.double(), torch.tensor(expected))
    assert merged.sides == {side: [f"w{n}" for n in range(len(counts))] for side, counts in sizes.items()}


@given(PARTED)
def test_merged_rows_still_sum_to_1(sizes: Sizes) -> None:
    n_source, n_target = sum(sizes["encoder"]), sum(sizes["decoder"])
    attention = torch.rand(2, 3, n_target, n_source, dtype=torch.float64).softmax(-1)
    contributions = torch.rand(2, n_source + n_target, n_target, dtype=torch.float64).softmax(1)
    arrays = [
        ViewArray(
            "attention",
            "cross",
            "weights",
            (*AXES[:1], Axis("head"), Axis("query", ("decoder",)), Axis("key", ("encoder",))),
            attention,
        ),
        ViewArray(
            "attribution",
            "decoder",
            "contribution",
            (AXES[0], Axis("input", ("encoder", "decoder")), AXES[4]),
            contributions,
        ),
    ]
    sides = {side: ["t"] * sum(counts) for side, counts in sizes.items()}
    words = {side: words_of(counts) for side, counts in sizes.items()}
    rows, columns = (array.values for array in merge_subwords(ViewData(sides, arrays), words).arrays)
    assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    assert_close(columns.sum(1), torch.ones_like(columns[:, 0]))


def test_outputs_that_predict_next_are_merged_by_the_word_written() -> None:
    """After ``<sos>`` a word of two pieces, one of three, and the end."""
    data = ViewData(
        {"decoder": list("sabcde")},
        [
            ViewArray(
                "gradients",
                "",
                "convergence_delta",
                (Axis("output", ("decoder",), predicts_next=True),),
                torch.arange(6.0),
            )
        ],
    )
    found = merge_subwords(data, {"decoder": words_of([1, 2, 3])})
    assert found.arrays[0].values.tolist() == [(0 + 1) / 2, (2 + 3 + 4) / 3, 5.0]


def test_names_along_an_axis() -> None:
    data = ViewData({"encoder": ["a", "b"], "decoder": ["c"]}, [])
    assert data.labels(Axis("input", ("encoder", "decoder")), 3) == ["a", "b", "c"]
    assert data.labels(Axis("k", labels=("1", "5")), 2) == ["1", "5"]
    assert data.labels(Axis("layer"), 2) == ["0", "1"]
    array = ViewArray("attention", "", "weights", (Axis("layer"), Axis("head")), torch.zeros(1, 1))
    assert (array.qualified_name, array.axis_index("head"), array.axis_index("key")) == ("attention.weights", 1, -1)
