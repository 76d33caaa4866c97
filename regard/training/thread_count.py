"""The number of threads that compute a training step on a CPU, which is part of a run: `train.threads`.

Threads share the sums of a step (gradients of layer norms, losses), so another number of them gives other bits.
loop.py trains with the recorded number, whatever the process that resumes a run would take.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.progress import print_message


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with that many threads; 0 is the default of the process."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def report_kept_threads(count: int) -> None:
    """Print that a resumed run keeps its number of threads, where the process would take another."""
    available = torch.get_num_threads()
    if count not in (0, available):
        print_message(f"threads    {count}, as before, for the same bits; train.threads={available} would give others")
