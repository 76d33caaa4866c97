"""Workers of one core each: results in order, errors, and translations equal to those of one decoder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny_models import build_models

from regard.generate import DecodingConfig
from regard.predict import translation
from regard.predict.worker_threads import map_batches_in_threads
from regard.runs.precision import set_precision

CPU = torch.device("cpu")
BATCHES = [[number, number + 1] for number in range(0, 20, 2)]


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_the_order_of_the_batches() -> None:
    names = set()

    def add(batch: list[int]) -> int:
        names.add(threading.current_thread().name)
        assert torch.get_num_threads() == 1
        return sum(batch)

    assert list(map_batches_in_threads(add, BATCHES, CPU)) == [(batch, sum(batch)) for batch in BATCHES]
    assert threading.current_thread().name not in names
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_one_batch_is_computed_by_the_caller_with_all_threads() -> None:
    def name(_: list[int]) -> tuple[str, int]:
        return threading.current_thread().name, torch.get_num_threads()

    assert [each for _, each in map_batches_in_threads(name, [[1]], CPU)] == [(threading.current_thread().name, 2)]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_leaves_the_other_batches(error: type[BaseException]) -> None:
    begun: list[int] = []

    def fail(batch: list[int]) -> None:
        begun.append(batch[0])
        if batch[0] == 0:
            raise error
        time.sleep(0.002)

    with pytest.raises(error):
        list(map_batches_in_threads(fail, [[number] for number in range(500)], CPU))
    assert len(begun) < 500
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_who_stops_reading_leaves_the_other_batches() -> None:
    begun: list[int] = []
    go = threading.Event()

    def wait(batch: list[int]) -> None:
        begun.append(batch[0])
        if batch[0]:
            go.wait(10)

    results = map_batches_in_threads(wait, [[number] for number in range(50)], CPU)
    next(results)
    threading.Timer(0.05, go.set).start()
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 10


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("kind", ["translator", "recurrent"])
def test_translations_equal_those_of_one_decoder(kind: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = getattr(build_models(), kind)
    sources = torch.randint(4, 40, (14, 9), generator=torch.Generator().manual_seed(0)).tolist()
    config = DecodingConfig(beam=beam, batch=3)
    parallel = model.predictor.generate([source[: 3 + i % 6] for i, source in enumerate(sources)], config)
    torch.set_num_threads(1)
    monkeypatch.setattr(
        translation, "map_batches_in_threads", lambda run, batches, _: ((each, run(each)) for each in batches)
    )
    assert parallel == model.predictor.generate([source[: 3 + i % 6] for i, source in enumerate(sources)], config)


@pytest.mark.usefixtures("two_threads")
def test_only_a_batch_of_int8_is_divided_among_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def record_sizes(_: Any, batches: Iterator[list[int]], __: torch.device) -> list[Any]:
        sizes.extend(map(len, batches))
        raise InterruptedError

    monkeypatch.setattr(translation, "map_batches_in_threads", record_sizes)
    predictor = build_models().translator.predictor

    def batch_sizes(n_sources: int) -> list[int]:
        sizes.clear()
        with pytest.raises(InterruptedError):
            predictor.generate([[5, 6, 7]] * n_sources, DecodingConfig(beam=1, batch=32))
        return list(sizes)

    assert [batch_sizes(n) for n in (1, 20, 40)] == [[1], [20], [20, 20]]
    assert [batch_sizes(n) for n in (0, 70, 2000)] == [[], [18, 18, 17, 17], [125] * 16]
    set_precision(predictor.model, "int8")
    assert [batch_sizes(n) for n in (1, 6, 20, 40, 70)] == [[1], [6], [10, 10], [20, 20], [35, 35]]
