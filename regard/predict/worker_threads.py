"""One worker per core of a CPU, each computing batches of its own with the shared weights of one model.

Cores that split every matrix multiplication wait for each other after each of them; workers never do. A worker is a
Python thread with one thread of torch: torch releases the interpreter while it computes. Encoders and translation use
this; results come in the order of the batches, and an error or Ctrl-C ends all workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier
from typing import TypeVar

import torch

ResultT = TypeVar("ResultT")


def map_batches_in_threads(
    function: Callable[[list[int]], ResultT], batches: Iterable[list[int]], device: torch.device
) -> Iterator[tuple[list[int], ResultT]]:
    """Yield each batch with the function's result; on a CPU every core computes a batch of its own.

    Otherwise the cores would split each matrix multiplication and synchronise after it, which is slower.
    """
    listed = list(batches)
    n_workers = min(count_workers(device), len(listed))
    if n_workers <= 1:
        yield from ((batch, function(batch)) for batch in listed)
        return
    pool = _start_workers(n_workers)
    try:
        contexts = [copy_context() for _ in listed]  # who records what the model computes, records it here too
        results = pool.map(lambda context, batch: context.run(function, batch), contexts, listed)
        yield from zip(listed, results, strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # batches that no worker has begun are left, those begun end


def count_workers(device: torch.device) -> int:
    """Return the number of batches that are computed at a time."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _start_workers(n_workers: int) -> ThreadPoolExecutor:
    """Return threads that compute on one core each; the count of the caller, and of threads to come, stays."""
    n_threads, pool, ready = torch.get_num_threads(), ThreadPoolExecutor(n_workers, "regard-read"), Barrier(n_workers)

    def begin(_: int) -> None:
        torch.get_num_threads()  # sets the count of a new thread to that of the process, which must come first
        torch.set_num_threads(1)
        ready.wait()

    list(pool.map(begin, range(n_workers)))
    torch.set_num_threads(n_threads)  # the workers set theirs, but new threads would start with it
    return pool
