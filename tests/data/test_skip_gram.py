"""Batches of skip-gram pairs: against windows found word by word, and word2vec's formulas."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.data.columns import Column
from regard.data.lm_windows import LanguageModelWindows
from regard.data.order import Placement
from regard.data.skip_gram import CENTRES_PER_BLOCK, NEGATIVES_PER_BLOCK, SkipGramSampler

COUNTS = np.array([10, 400, 300, 200, 100, 50])


def sampler(subsample: float = 0.0, window: int = 3, counts: np.ndarray = COUNTS) -> SkipGramSampler:
    return SkipGramSampler.from_counts(counts, subsample=subsample, window=window, excluded_ids=[0])


def texts(n_texts: int = 5, length: int = 90) -> list[list[int]]:
    generator = np.random.default_rng(0)
    return [[*generator.integers(1, len(COUNTS), length).tolist(), 0] for _ in range(n_texts)]


def windows_of(sentences: list[list[int]]) -> LanguageModelWindows:
    return LanguageModelWindows(Column.from_sentences(sentences), 512)


def placement(n_items: int, epoch: int = 0) -> Placement:
    return Placement(np.arange(n_items), np.zeros(n_items, dtype=np.int64), 1, (512,), epoch=epoch)


def test_pairs_are_those_of_windows_within_texts() -> None:
    sentences = texts()
    batch = sampler().make_batch(windows_of(sentences), placement(len(sentences)))
    words = np.concatenate([sentence[:-1] for sentence in sentences])
    starts = np.cumsum([0, *(len(sentence) - 1 for sentence in sentences)])
    n_before, n_after = batch.n_before.flatten().numpy(), batch.n_after.flatten().numpy()
    assert batch.centres.flatten().tolist()[: len(words)] == words.tolist()
    assert not n_before[len(words) :].any()
    assert not n_after[len(words) :].any()
    for start, end in pairwise(starts.tolist()):
        for word in range(start, end):
            assert 0 <= n_before[word] <= min(3, word - start)
            assert 0 <= n_after[word] <= min(3, end - 1 - word)
            assert max(n_before[word], n_after[word]) >= 1
    assert batch.n_tokens == n_before.sum() + n_after.sum()
    assert batch.n_input_tokens == len(words)


def test_columns_of_a_block_are_its_words_with_margins_and_negatives() -> None:
    sentences = texts()
    batch = sampler().make_batch(windows_of(sentences), placement(len(sentences)))
    words = np.concatenate([sentence[:-1] for sentence in sentences])
    padded = np.pad(words, (3, 3 + CENTRES_PER_BLOCK))
    for number, columns in enumerate(batch.columns.numpy()):
        window = padded[number * CENTRES_PER_BLOCK :][: CENTRES_PER_BLOCK + 6]
        assert columns[: len(window)].tolist() == window.tolist()
        assert len(columns) == CENTRES_PER_BLOCK + 6 + NEGATIVES_PER_BLOCK


def test_window_widths_are_drawn_evenly() -> None:
    sentences = texts(20, 500)
    batch = sampler(window=4).make_batch(windows_of(sentences), placement(len(sentences)))
    widths = np.bincount(batch.n_after.flatten().numpy(), minlength=5)[1:]
    assert abs(widths / widths.sum() - 0.25).max() < 0.02


def test_frequent_words_are_left_out_as_in_word2vec() -> None:
    t = 0.05
    frequency = COUNTS[1:] / COUNTS[1:].sum()
    expected = np.minimum(1, (np.sqrt(frequency / t) + 1) * t / frequency)  # word2vec.c
    np.testing.assert_allclose(sampler(t).keep_probability[1:], expected, rtol=1e-6)
    sentences = [[*np.tile(np.arange(1, 6), 2000).tolist(), 0]]
    batch = sampler(t).make_batch(LanguageModelWindows(Column.from_sentences(sentences), 20_000), placement(1))
    n_words = np.count_nonzero((batch.n_before + batch.n_after).numpy())
    assert abs(n_words / 10_000 - expected.mean()) < 0.02


def test_unknown_words_are_left_out() -> None:
    sentences = [[1, 0, 2, 0, 0, 3, 0]]
    batch = sampler().make_batch(windows_of(sentences), placement(1))
    assert batch.centres[0, :3].tolist() == [1, 2, 3]
    assert int((batch.n_before + batch.n_after).count_nonzero()) == 3
    assert 0 not in batch.columns[:, CENTRES_PER_BLOCK + 6 :]


def test_negatives_follow_the_power_of_frequency() -> None:
    sentences = texts(20, 500)
    drawn = [
        sampler().make_batch(windows_of(sentences), placement(len(sentences), epoch)).columns[:, -NEGATIVES_PER_BLOCK:]
        for epoch in range(10)
    ]
    found = np.bincount(np.concatenate([each.flatten() for each in drawn]), minlength=len(COUNTS))
    expected = np.where(np.arange(len(COUNTS)) > 0, COUNTS, 0) ** 0.75
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=0.01)


@pytest.mark.parametrize("same", [True, False])
def test_draws_depend_on_the_placement_alone(same: bool) -> None:
    sentences = texts()
    first, second = (
        sampler(0.1).make_batch(windows_of(sentences), placement(5, epoch)) for epoch in (0, 0 if same else 1)
    )
    assert torch.equal(first.columns, second.columns) == same


def test_text_of_unknown_words_alone_gives_no_pair() -> None:
    batch = sampler().make_batch(windows_of([[0, 0, 0]]), placement(1))
    assert not (batch.n_before + batch.n_after).any()
    assert batch.n_tokens == 1
