"""Context managers around training: errors of memory and disk become one line, signals stop after the current step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch

from regard.errors import TrainingError
from regard.runs.recipe import TrainConfig


@contextmanager
def convert_out_of_memory_errors(config: TrainConfig) -> Iterator[None]:
    """Name the settings to lower when a step does not fit in memory."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise TrainingError(
            f"out of memory with {config.describe_batch()}; "
            f"begin another run with train.accumulate = {2 * config.accumulate}, or a smaller train.batch_tokens "
            "or model.d_model"
        ) from None


@contextmanager
def stop_on_signals(request_stop: Callable[[int], None]) -> Iterator[None]:
    """Call `request_stop` with the number of the signal on Ctrl-C and SIGTERM; a second one interrupts immediately."""

    def handle(number: int, _frame: object) -> None:
        request_stop(number)
        signal.signal(number, interrupt)

    def interrupt(number: int, _frame: object) -> None:
        raise_interruption(number)

    try:
        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which alone receives signals
        previous = {}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def raise_interruption(signal_number: int) -> NoReturn:
    """End what runs now as the signal would: KeyboardInterrupt on Ctrl-C, else the exit status that shells report."""
    raise KeyboardInterrupt if signal_number == signal.SIGINT else SystemExit(128 + signal_number)
