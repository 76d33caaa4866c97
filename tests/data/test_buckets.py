"""Buffers of texts: nothing lost, nothing reordered, no waiting for a full buffer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from regard.data import buckets
from regard.data.buckets import batch_by_length, batch_by_tokens, buffered_read, buffered_read_stream


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUFFER_SIZE", 4)


def test_buffers_hold_all_texts_in_order() -> None:
    texts = [str(i) for i in range(10)]
    assert list(buffered_read(texts)) == [texts[:4], texts[4:8], texts[8:]]
    assert list(buffered_read([])) == []


def test_buffers_are_read_lazily() -> None:
    source = iter(str(i) for i in range(10))
    next(buffered_read(source))
    assert next(source) == "4"


def test_stream_yields_all_texts_in_order() -> None:
    texts = [str(i) for i in range(10)]
    buffers = list(buffered_read_stream(iter(texts)))
    assert [text for buffer in buffers for text in buffer] == texts
    assert all(1 <= len(buffer) <= 4 for buffer in buffers)
    assert list(buffered_read_stream([])) == []


def test_stream_does_not_wait_for_a_full_buffer() -> None:
    pipe: SimpleQueue[str | None] = SimpleQueue()

    def slow() -> Iterator[str]:
        while (text := pipe.get()) is not None:
            yield text

    came = buffered_read_stream(slow())
    for text in ("a", "b"):
        pipe.put(text)
        assert next(came) == [text]
    pipe.put(None)
    assert list(came) == []


def test_fast_source_is_read_one_buffer_ahead() -> None:
    read_so_far = []

    def fast() -> Iterator[str]:
        for i in range(10_000):
            read_so_far.append(i)
            yield str(i)

    came = buffered_read_stream(fast())
    given = 0
    for _ in range(5):
        given += len(next(came))
        time.sleep(0.02)  # time enough to read thousands
        assert len(read_so_far) <= given + 4 + 1  # the full queue, and one text that does not fit it


def test_error_of_the_source_is_raised_after_the_texts_before_it() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise ValueError("line 2")

    came = buffered_read_stream(broken())
    assert next(came) == ["a"]
    with pytest.raises(ValueError, match="line 2"):
        next(came)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_by_length_are_longest_first_and_complete(size: int) -> None:
    lengths = [3, 9, 1, 9, 4, 0]
    batches = list(batch_by_length(lengths, size))
    order = [i for batch in batches for i in batch]
    assert sorted(order) == list(range(6))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    assert all(len(batch) <= size for batch in batches)
    assert list(batch_by_length([], size)) == []


@pytest.mark.parametrize("most", [1, 9, 12, 1000])
def test_batches_by_tokens_are_limited(most: int) -> None:
    lengths = [3, 9, 1, 9, 4, 0]
    batches = list(batch_by_tokens(lengths, most))
    order = [i for batch in batches for i in batch]
    assert sorted(order) == list(range(6))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    for batch, after in zip(batches, [*batches[1:], None], strict=True):
        longest = lengths[batch[0]]
        assert len(batch) == 1 or len(batch) * longest <= most
        assert after is None or (len(batch) + 1) * longest > most
    assert list(batch_by_tokens([], most)) == []


def test_buffers_are_bounded_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MAX_BUFFER_CHARACTERS", 5)
    texts = ["abc", "def", "g", "a long one", "h", "i", "j", "k", "l"]
    expected = [["abc", "def"], ["g", "a long one"], ["h", "i", "j", "k"], ["l"]]
    assert list(buffered_read(texts)) == expected
    assert [[text for _, text in buffer] for buffer in buffered_read(enumerate(texts))] == expected
    buffers = list(buffered_read_stream(iter(texts)))
    assert [text for buffer in buffers for text in buffer] == texts
    assert all(len("".join(buffer[:-1])) < 5 for buffer in buffers)


def test_source_of_long_texts_is_read_a_few_characters_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MAX_BUFFER_CHARACTERS", 10)
    monkeypatch.setattr(buckets, "BUFFER_SIZE", 1000)
    read_so_far: list[int] = []

    def fast() -> Iterator[str]:
        for i in range(1000):
            read_so_far.append(i)
            yield "a" * 10

    came = buffered_read_stream(fast())
    for given in range(1, 6):
        assert len(next(came)) == 1
        time.sleep(0.02)  # time enough to read all of them
        assert len(read_so_far) <= given + 2
