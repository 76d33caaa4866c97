"""Word alignment from attention between pieces, by hand."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from regard.tasks.alignment import align, word_weights
from regard.text.tokenizer import Word

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


def test_pieces_add_up_on_the_source_side_and_are_averaged_on_the_target_side() -> None:
    assert_close(word_weights(WEIGHTS, TARGET, SOURCE), torch.tensor([[0.6, 0.3], [0.4, 0.5], [0.1, 0.2]]))


def test_each_target_word_is_aligned_to_the_source_word_it_looked_at_most() -> None:
    assert align(WEIGHTS[None, None], TARGET, SOURCE) == [(0, 0), (1, 1), (1, 2)]


def test_layers_and_heads_are_averaged() -> None:
    turned = WEIGHTS.clone()
    turned[:, [0, 1]] = turned[:, [1, 0]]
    one = align(torch.stack([WEIGHTS, turned])[:, None].repeat(1, 3, 1, 1), TARGET, SOURCE)
    assert one == align(((WEIGHTS + turned) / 2)[None, None], TARGET, SOURCE)


def test_an_empty_side_is_aligned_to_nothing() -> None:
    assert align(WEIGHTS[None, None], [], SOURCE) == []
    assert align(WEIGHTS[None, None], TARGET, []) == []
    assert word_weights(WEIGHTS, [], SOURCE).shape == (0, 2)
