"""Word alignment from attention between pieces, by hand."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from regard.predict.word_alignment import aggregate_word_attention, align_words
from regard.text.subwords import Word

SOURCE = [Word("good", (0,)), Word("morning", (1, 2))]
TARGET = [Word("bon", (0, 1)), Word("jour", (2,)), Word("!", (3,))]
WEIGHTS = torch.tensor(
    [  # good  mor  ning <eos>
        [0.5, 0.2, 0.2, 0.1],  # b
        [0.7, 0.0, 0.2, 0.1],  # on
        [0.4, 0.3, 0.2, 0.1],  # jour
        [0.1, 0.1, 0.1, 0.7],  # !
        [0.0, 0.0, 0.0, 1.0],  # <eos>
    ]
)


def test_subwords_add_up_on_the_source_side_and_are_averaged_on_the_target_side() -> None:
    assert_close(aggregate_word_attention(WEIGHTS, TARGET, SOURCE), torch.tensor([[0.6, 0.3], [0.4, 0.5], [0.1, 0.2]]))


def test_each_target_word_is_aligned_to_the_source_word_it_looked_at_most() -> None:
    assert align_words(WEIGHTS[None, None], TARGET, SOURCE) == [(0, 0), (1, 1), (1, 2)]


def test_a_word_that_everybody_looks_at_says_nothing() -> None:
    """The first source word has most of every row; what tells the rows apart is the second."""
    source, target = [Word("a", (0,)), Word("b", (1,))], [Word("x", (0,)), Word("y", (1,))]
    assert align_words(torch.tensor([[[[0.9, 0.1], [0.6, 0.4]]]]), target, source) == [(0, 0), (1, 1)]


def test_the_upper_half_of_the_layers_and_all_heads_are_averaged() -> None:
    scaled = WEIGHTS.clone()
    scaled[:, [0, 1]] = scaled[:, [1, 0]]
    heads = torch.stack([WEIGHTS, 0.2 * scaled])
    one = align_words(heads.mean(0)[None, None], TARGET, SOURCE)
    assert one != align_words(scaled[None, None], TARGET, SOURCE)
    assert align_words(torch.stack([scaled.expand(2, -1, -1), heads]), TARGET, SOURCE) == one
    assert align_words(torch.stack([scaled.expand(2, -1, -1), heads, heads]), TARGET, SOURCE) == one


def test_an_empty_side_is_aligned_to_nothing() -> None:
    assert align_words(WEIGHTS[None, None], [], SOURCE) == []
    assert align_words(WEIGHTS[None, None], TARGET, []) == []
    assert aggregate_word_attention(WEIGHTS, [], SOURCE).shape == (0, 2)
