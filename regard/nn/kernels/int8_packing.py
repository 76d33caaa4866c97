"""Bring int8 weights into the layout of the kernel that is the fastest on this machine, found by measuring.

All kernels give the same numbers (int8_weight.py), so what is found changes nothing but time.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter

import torch

from regard.nn.kernels.dispatch import Kernel, int8_kernels
from regard.nn.kernels.int8_weight import Int8Weight

TIMED_ROWS, N_TIMINGS = (1, 32), 4
"""Rows of the products by which kernels are compared, and how often each is timed."""

_fastest: dict[tuple[int, int], str] = {}
"""The name of the fastest kernel for each shape of a weight, measured once in a process."""


def pack_int8_weight(weight: Int8Weight) -> Int8Weight:
    """Return the weight in the layout of the kernel that is the fastest for its shape; as it is where none runs."""
    kernels = {kernel.name: kernel for kernel in int8_kernels()}
    if not kernels:
        return weight
    if _fastest.get(weight.shape) not in kernels:
        _fastest[weight.shape] = min(kernels, key=lambda name: _measure(kernels[name], weight))
    pack = kernels[_fastest[weight.shape]].pack
    assert pack is not None, "a kernel for int8 needs `pack`"
    return pack(weight)


@torch.inference_mode()
def _measure(kernel: Kernel, weight: Int8Weight) -> float:
    """Return the product of the seconds that a kernel takes for one row and for a batch: their geometric mean."""
    assert kernel.pack is not None, "a kernel for int8 needs `pack`"
    packed, product = kernel.pack(weight), 1.0
    for n_rows in TIMED_ROWS:
        run = partial(kernel.run, torch.ones(n_rows, weight.shape[1]), packed, None)
        product *= min(_seconds(run) for _ in range(N_TIMINGS))
    return product


def _seconds(run: partial[torch.Tensor]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start
