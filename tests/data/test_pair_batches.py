"""Which texts of a batch are no negatives of each other."""

from __future__ import annotations

import itertools
import random

from regard.data.pair_batches import group_texts


def test_equal_texts_and_pairs_make_groups() -> None:
    anchors, positives, negatives = (text.encode().split() for text in ("a b x a p", "b c y d q", "n c x y m"))
    first, second, third = (each.tolist() for each in group_texts([anchors, positives, negatives]))
    assert first == second
    assert first[0] == first[1] == first[3], "a-b, b-c and a-d are one group"
    assert len({first[0], first[2], first[4]}) == 3
    assert third[1] == first[0], "c belongs to a"
    assert third[2] == third[3] == first[2], "a hard negative that is its own positive, or another's"
    assert third[0] not in first
    assert third[4] not in first
    assert min(first + third) > 0


def test_sentences_by_themselves_are_grouped_if_equal() -> None:
    (groups,) = group_texts([[b"a", b"b", b"a"]])
    assert groups[0] == groups[2] != groups[1]


def test_long_chains_are_one_group() -> None:
    order = list(range(60))
    random.Random(0).shuffle(order)
    chain = [str(number).encode() for number in order]
    pairs = list(itertools.pairwise(chain))
    random.Random(1).shuffle(pairs)
    groups, _ = group_texts([[a for a, _ in pairs], [b for _, b in pairs]])
    assert len(set(groups.tolist())) == 1
