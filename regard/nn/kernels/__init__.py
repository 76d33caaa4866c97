"""Hand-written kernels, in Triton and in C, behind one dispatch table, each with a definition in plain PyTorch.

    dispatch.py        the operations that layers call, and the table: which kernel is tried for which, in what order
    plain.py           the same operations in plain PyTorch: taken where no kernel fits or all are switched off
    triton_support.py  what the Triton kernels share
    native/            kernels in C; native_library.py compiles them on the machine that runs them
    workspace.py       memory that a caller owns and kernels use
    tracing.py         what a compiled graph takes as a constant
    every other file   one kernel: `supports(...)`, `available(...)` and a function with the name of its operation

To switch all kernels off: ``REGARD_KERNELS=off`` in the environment, or ``with kernels.disabled():``. To see what runs:
`kernels.in_use(device, dtype)`. To drop one kernel: delete its file and its line in the table.
"""

from regard.nn.kernels.dispatch import disabled, in_use, names_in_use

__all__ = ["disabled", "in_use", "names_in_use"]
