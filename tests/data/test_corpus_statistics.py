"""Statistics of a corpus and its validation split."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data import corpus_statistics
from regard.data.corpus import Example
from regard.data.corpus_statistics import collect_statistics, count_bytes, make_held_out_filter
from regard.errors import ConfigError
from regard.text.fingerprints import hash_text


def examples(n: int) -> list[Example]:
    return [(f"text {i}", f"texte {i} !") for i in range(n)]


def test_statistics_count_examples_and_words() -> None:
    counted = collect_statistics(examples(7))
    assert (counted.n_examples, counted.n_words) == (7, 7 * 5)
    assert counted.n_bytes == sum(len(text) for example in examples(7) for text in example)
    assert len(set(counted.hashes.tolist())) == 7


@pytest.mark.parametrize(("n", "n_held_out"), [(20, 1), (39, 1), (40, 2), (1000, 50)])
def test_one_in_twenty_is_held_out(n: int, n_held_out: int) -> None:
    held = make_held_out_filter(collect_statistics(examples(n)))
    assert sum(map(held, examples(n))) == n_held_out


def test_no_more_than_a_thousand_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_statistics, "MAX_HELD_OUT", 10)
    assert sum(map(make_held_out_filter(collect_statistics(examples(1000))), examples(1000))) == 10


def test_held_out_examples_depend_on_the_texts_only() -> None:
    held, again = (
        make_held_out_filter(collect_statistics(examples(100))),
        make_held_out_filter(collect_statistics(reversed(examples(100)))),
    )
    assert [held(e) for e in examples(100)] == [again(e) for e in examples(100)]


def test_equal_sources_are_in_the_same_split() -> None:
    every = [(f"text {i % 30}", f"texte {i}") for i in range(90)]
    held = make_held_out_filter(collect_statistics(every))
    held_out = {source for source, target in every if held((source, target))}
    learned = {source for source, target in every if not held((source, target))}
    assert held_out
    assert learned
    assert not held_out & learned


@pytest.mark.parametrize("n", [0, 1, 19])
def test_too_few_to_hold_some_out(n: int) -> None:
    with pytest.raises(ConfigError, match=rf"^examples: only {n}, .* pass --valid with files$"):
        make_held_out_filter(collect_statistics(examples(n)))


def test_bytes_are_those_of_utf8() -> None:
    assert [count_bytes((text,)) for text in ("abc", "né", "😀", "\ud800")] == [3, 3, 4, 3]


@pytest.mark.parametrize("n", [9, 10, 11, 640, 1000])
def test_smallest_hashes_are_kept_and_no_others(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_statistics, "MAX_HELD_OUT", 10)
    every = np.sort(np.array([hash_text(source) for source, _ in examples(n)], dtype=np.uint64))
    np.testing.assert_array_equal(collect_statistics(examples(n)).hashes, every[:10])
