"""Tagging: every word in one window, alone as in company, and back as words of the text."""

from __future__ import annotations

from itertools import accumulate

import pytest
from encoders import CPU, DISTINCT, distinct_words, sentences, small, vocabulary

from regard.data.labels import Labels
from regard.predict.tagging import encode_word_windows
from regard.tasks.tag import TagConfig, TaggingTask
from regard.text.words import split_at_whitespace

VOCABULARY = vocabulary(size=40)  # so small that words have several pieces
NAMES = Labels(("B-LOC", "B-PER", "I-PER", "O"))


def task(labels: Labels = NAMES, **settings: object) -> TaggingTask:
    return TaggingTask(TagConfig(**settings), VOCABULARY, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [16, 20, 40])
def test_every_word_of_a_long_sentence_is_tagged_in_one_window(most: int) -> None:
    one, words = TaggingTask(TagConfig(), distinct_words(60), NAMES), DISTINCT[:60]
    subwords = one.tokenizer.encode_words(words)
    assert len({tuple(ids) for ids in subwords}) == 60
    starts, flat = [0, *accumulate(map(len, subwords))], [index for ids in subwords for index in ids]
    assert len(flat) > 80
    found = [placed for _, placed in encode_word_windows(one.tokenizer, one.template, [words], most)]
    assert sorted(word for placed in found for word, _ in placed.word_positions) == list(range(len(words)))
    for placed in found:
        assert len(placed.encoded.ids) <= most
        (begin,) = {starts[word] - place + 1 for word, place in placed.word_positions}
        assert placed.encoded.ids[1:-1] == flat[begin : begin + len(placed.encoded.ids) - 2]
    labels = one.make_predictor(small(one, n_positions=most), CPU).tag([words])[0]
    assert len(labels) == len(words)
    assert all(0.25 <= probability <= 1 for _, probability in labels)


def test_several_sentences_are_tagged_like_each_alone() -> None:
    one = task()
    model, texts = small(one), [text.split() for text in sentences(5)]
    batched = one.make_predictor(model, CPU).tag([*texts, []])
    assert batched[-1] == []
    for words, tagged in zip(texts, batched, strict=False):
        alone = one.make_predictor(model, CPU).tag([words])[0]
        assert [label for label, _ in alone] == [label for label, _ in tagged]


def test_words_of_a_text_and_where_they_stand() -> None:
    one = task()
    text = "Dr. O'Neil's U.S. plane (7,5 m) lands—well!"
    found = one.make_predictor(small(one), CPU).tag_texts([text])[0]
    assert [each.word for each in found] == [
        *("Dr", ".", "O'Neil's", "U.S", ".", "plane", "(", "7,5", "m", ")", "lands", "—", "well", "!"),
    ]
    assert all(text[each.start : each.end] == each.word for each in found)
    assert [
        each.word for each in one.make_predictor(small(one), CPU).tag_texts([text], split_at_whitespace)[0]
    ] == text.split()
    given = one.make_predictor(small(one), CPU).tag_words([["a", "cat"]])[0]
    assert [(each.start, each.end) for each in given] == [(0, 1), (2, 5)]
