"""Prefetching: the same batches in the same order, errors passed on, no thread left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from regard.data.batches import Rows, sentences_to_rows
from regard.data.prefetch import Prefetcher

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def numbered(count: int, built: list[int] | None = None) -> Iterator[tuple[Rows, int]]:
    for number in range(count):
        if built is not None:
            built.append(number)
        yield sentences_to_rows([[number]], pad_id=0), number


def is_settled(built: list[int], count: int) -> bool:
    """Return True if exactly `count` batches are built, waiting up to ten seconds."""
    deadline = time.monotonic() + 10
    while len(built) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    return len(built) == count


@pytest.mark.parametrize("ahead", [1, 3, 50])
def test_all_batches_in_order(ahead: int) -> None:
    with Prefetcher(numbered(20), CPU, n_ahead=ahead) as batches:
        assert [(rows.ids.item(), note) for rows, note in batches] == [(n, n) for n in range(20)]


def test_batches_are_moved_to_the_device() -> None:
    with Prefetcher(numbered(2), torch.device("meta")) as batches:
        assert [rows.ids.device.type for rows, _ in batches] == ["meta", "meta"]


def test_number_of_prefetched_batches_is_limited() -> None:
    built: list[int] = []
    with Prefetcher(numbered(100, built), CPU, n_ahead=4) as batches:
        assert is_settled(built, 4)
        next(iter(batches))
        assert is_settled(built, 5)


def test_batches_are_built_in_another_thread() -> None:
    def where() -> Iterator[tuple[Rows, str]]:
        yield sentences_to_rows([[1]], pad_id=0), threading.current_thread().name

    with Prefetcher(where(), CPU) as batches:
        assert [name for _, name in batches] == ["regard-prefetch"]


def test_error_of_the_thread_is_raised_in_the_consumer_in_order() -> None:
    def failing() -> Iterator[tuple[Rows, int]]:
        yield from numbered(2)
        raise ValueError("a bad batch")

    seen = []
    with Prefetcher(failing(), CPU) as batches:
        stream = iter(batches)
        seen += [next(stream)[1], next(stream)[1]]
        with pytest.raises(ValueError, match="a bad batch"):
            next(stream)
        with pytest.raises(ValueError, match="a bad batch"):
            list(batches)
    assert seen == [0, 1]


def test_leaving_early_stops_the_thread() -> None:
    built: list[int] = []
    with Prefetcher(numbered(10**9, built), CPU, n_ahead=2) as batches:
        for _, note in batches:
            if note == 5:
                break
    assert len(built) <= 9


def test_leaving_without_iterating_stops_the_thread() -> None:
    with Prefetcher(numbered(10**9), CPU):
        pass


def leave_with(error: type[BaseException]) -> None:
    with Prefetcher(numbered(10**9), CPU) as batches:
        for _ in batches:
            raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_error_of_the_consumer_stops_the_thread(error: type[BaseException]) -> None:
    with pytest.raises(error):
        leave_with(error)


def test_exhausted_prefetcher_stays_exhausted() -> None:
    with Prefetcher(numbered(1), CPU) as batches:
        assert [len(list(batches)), len(list(batches))] == [1, 0]


@pytest.mark.gpu
def test_batches_are_moved_to_the_gpu() -> None:
    with Prefetcher(numbered(200), torch.device("cuda")) as batches:
        assert [(rows.ids.device.type, rows.ids.item()) for rows, _ in batches] == [("cuda", n) for n in range(200)]
