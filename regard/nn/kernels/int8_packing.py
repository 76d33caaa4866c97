"""Bring int8 weights into the layout of the kernel that is the fastest on this machine, found by measuring.

All kernels give the same numbers (int8_weight.py), so what is found changes nothing but time. A layer is computed after
all others, so its weight comes from memory: the caches are emptied before every timing. With weights still in a cache
the other kernel was often the faster one (docs/LOG.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import thread_time

import torch

from regard.nn.kernels.dispatch import Kernel, int8_kernels
from regard.nn.kernels.int8_weight import Int8Weight

TIMED_ROWS, N_TIMINGS = (1, 32), 4
"""Rows of the products by which kernels are compared, and how often each is timed."""

MARGIN = 1.3
"""A kernel must be so many times as fast as one above it in the table: what is less may be noise."""

EVICTION_BYTES = 1 << 24
"""Bytes that are written to empty the caches of a core."""

_fastest: dict[tuple[int, int], str] = {}
"""The name of the fastest kernel for each shape of a weight, measured once in a process."""


def pack_int8_weight(weight: Int8Weight, whole: tuple[int, int] | None = None) -> Int8Weight:
    """Return the weight in the layout of the kernel that is the fastest for its shape; as it is where none runs.

    For some rows of a matrix, that of the `whole` decides, so that nothing is measured for every number of rows.
    """
    candidates = int8_kernels()
    kernels = {each.name: each for each in [k for k in candidates if k.is_fastest] or candidates}
    if not kernels:
        return weight
    shape = whole or weight.shape
    if _fastest.get(shape) not in kernels:
        _fastest[shape] = _find_fastest(list(kernels.values()), weight)
    pack = kernels[_fastest[shape]].pack
    assert pack is not None, "a kernel for int8 needs `pack`"
    return pack(weight)


def _find_fastest(kernels: Sequence[Kernel], weight: Int8Weight) -> str:
    """Return the name of the fastest kernel, the earlier one if they are alike."""
    if len(kernels) == 1:
        return kernels[0].name
    seconds = [MARGIN**rank * _measure(kernel, weight) for rank, kernel in enumerate(kernels)]
    return kernels[seconds.index(min(seconds))].name


@torch.inference_mode()
def _measure(kernel: Kernel, weight: Int8Weight) -> float:
    """Return the geometric mean of the seconds that a kernel takes for one row and for a batch."""
    assert kernel.pack is not None, "a kernel for int8 needs `pack`"
    packed, product = kernel.pack(weight), 1.0
    for n_rows in TIMED_ROWS:
        run = partial(kernel.run, torch.ones(n_rows, weight.shape[1]), packed, None)
        product *= min(_time_cold(run) for _ in range(N_TIMINGS))
    return float(product ** (1 / len(TIMED_ROWS)))


def _time_cold(run: partial[torch.Tensor]) -> float:
    """Return the seconds of a call with nothing in the caches."""
    torch.ones(EVICTION_BYTES, dtype=torch.uint8)
    start = thread_time()
    run()
    return thread_time() - start
