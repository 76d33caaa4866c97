"""Time the kernels of packed attention (regard/nn/kernels/) on a GPU, beside torch's, and blocks for long rows.

    python bench/attention.py           forward and backward at some shapes, in bfloat16, 12 heads of 64
    python bench/attention.py --tune    first every size of blocks below, one kernel at a time; the fastest is used

torch's own attention knows no packed texts without a mask, so it is timed where one text fills a row, at its fastest.
Operations are those of the pairs that are seen: 2 products forward and 5 backward, as is usual, though those of long
rows compute 7; when tuning those that each kernel computes (2, 3, 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import harness
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.kernels import packed_attention_long, packed_attention_short
from regard.nn.kernels.packed_attention_long import Blocks

H, E = 12, 64

SHAPES = [
    (32, 1024, 1, True), (32, 1024, 4, True), (64, 512, 1, False), (64, 512, 4, False), (8, 4096, 1, True),
    (256, 128, 1, False), (256, 128, 4, False), (256, 128, 4, True),
]  # fmt: skip
"""Rows, tokens, texts in a row, causal."""

SMOKE_SHAPES = [(2, 256, 2, True), (2, 64, 2, False)]
"""One shape for each kernel."""

BLOCK_SIZES = {
    "forward": [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2, 128), (64, 64, 4, 3, 128), (64, 128, 4, 2, 168)],
    "backward_dq": [(128, 64, 8, 3, 128), (128, 64, 4, 3), (64, 64, 4, 2, 128), (64, 64, 4, 3, 128), (64, 32, 4, 3)],
    "backward_dkv": [
        (64, 64, 4, 2),
        (64, 64, 4, 2, 168),
        (64, 64, 4, 3, 168),
        (32, 64, 4, 2, 128),
        (64, 128, 8, 2, 128),
    ],
}
N_MATMULS = {"forward": 2, "backward_dq": 3, "backward_dkv": 4}
OTHER_KERNELS = {"forward": (), "backward_dq": ("_dkv_kernel",), "backward_dkv": ("_dq_kernel",)}
"""Kernels of the same pass."""


class KernelInputs(NamedTuple):
    """What the kernels take, and how many pairs of a query and a key there are."""

    qkv: Tensor
    grad_out: Tensor
    segment: Tensor
    begin: Tensor
    end: Tensor
    causal: bool
    n_pairs: int

    @classmethod
    def sample(cls, n_rows: int, length: int, n_texts: int, causal: bool) -> KernelInputs:
        """Rows of so many texts of about the same length."""
        torch.manual_seed(0)
        cuts = torch.randint(length, (n_rows, n_texts - 1)).sort(1).values
        segment = (torch.arange(length)[None, :, None] >= cuts[:, None, :]).sum(-1).int().cuda() + 1
        begin, end = packed_attention_long.segment_bounds(segment)
        seen = (torch.arange(1, length + 1, device="cuda") if causal else end) - begin
        projected = torch.randn(n_rows, length, 3 * H * E, device="cuda", dtype=torch.bfloat16)
        grad = torch.randn(n_rows, length, H * E, device="cuda", dtype=torch.bfloat16)
        return cls(projected, grad, segment, begin, end, causal, H * int(seen.sum()))

    def forward(self, **blocks: Blocks) -> tuple[Tensor, Tensor]:
        return packed_attention_long.forward(self.qkv, self.begin, self.end, H, self.causal, **blocks)

    def backward(self, out: Tensor, lse: Tensor, **blocks: Blocks) -> Tensor:
        return packed_attention_long.backward(
            self.grad_out, out, lse, self.qkv, self.begin, self.end, H, self.causal, **blocks
        )  # fmt: skip


def measure_milliseconds(function: Callable[[], Any], n_calls: int = 20) -> float:
    """Of one call, the best of three times 20 in a graph, so that launching costs nothing."""
    for _ in range(3):
        function()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n_calls):
            function()
    graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    for mark in marks:
        mark.record()
        graph.replay()
    torch.cuda.synchronize()
    return min(one.elapsed_time(other) for one, other in pairwise(marks)) / n_calls


@contextmanager
def only_kernel(name: str) -> Iterator[None]:
    """Of the kernels of a pass run only this one."""

    class Nothing:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *arguments, **named: None

    kept = {other: getattr(packed_attention_long, other) for other in OTHER_KERNELS[name]}
    try:
        for other in kept:
            setattr(packed_attention_long, other, Nothing())
        yield
    finally:
        for other, kernel in kept.items():
            setattr(packed_attention_long, other, kernel)


def tune_blocks(name: str, inputs: KernelInputs) -> Blocks:
    """Time one kernel with each size of blocks; the fastest."""
    found: dict[Blocks, float] = {}
    room = inputs.forward()
    for blocks in (Blocks(*numbers) for numbers in BLOCK_SIZES[name]):
        run = inputs.forward if name == "forward" else lambda **each: inputs.backward(*room, **each)
        key = "blocks" if name == "forward" else f"{name.removeprefix('backward_')}_blocks"
        with only_kernel(name):
            found[blocks] = measure_milliseconds(lambda run=run, each={key: blocks}: run(**each))
        rate = N_MATMULS[name] * 2 * E * inputs.n_pairs / found[blocks] / 1e9
        print(f"{name:<13}{blocks!s:<66}{found[blocks]:7.3f} ms {rate:5.0f} TFLOP/s", flush=True)
    return min(found, key=found.__getitem__)


def build_passes(inputs: KernelInputs) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward, and forward with backward, by the kernels that rows so long go through."""
    if inputs.qkv.shape[1] > packed_attention_short.MAX_TOKENS:
        return inputs.forward, lambda: inputs.backward(*inputs.forward())
    position = torch.arange(inputs.qkv.shape[1], dtype=torch.int32, device="cuda").repeat(len(inputs.qkv), 1)
    given = inputs.qkv, inputs.segment, position, H, inputs.causal

    def forward() -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = packed_attention_short._attention(*given)
        return found

    def both() -> Tensor:
        found: Tensor = packed_attention_short._attention_backward(inputs.grad_out, forward()[1], *given)
        return found

    return forward, both


def print_timings(n_rows: int, length: int, n_texts: int, causal: bool) -> None:
    """Time both passes at one shape."""
    rows = KernelInputs.sample(n_rows, length, n_texts, causal)
    forward, both = map(measure_milliseconds, build_passes(rows))
    rates = 4 * E * rows.n_pairs / forward / 1e9, 10 * E * rows.n_pairs / (both - forward) / 1e9
    print(
        f"{n_rows} x {length}, texts in a row {n_texts}, {'causal' if causal else 'both ways'}: "
        f"forward {forward:.3f} ms {rates[0]:.0f} TFLOP/s, backward {both - forward:.3f} ms {rates[1]:.0f} TFLOP/s, "
        f"together {both:.3f} ms" + ("" if n_texts > 1 else f", torch's {time_sdpa(rows):.3f} ms"),
        flush=True,
    )


def time_sdpa(inputs: KernelInputs) -> float:
    """`scaled_dot_product_attention` without a mask, forward and backward."""
    parts = [each.unflatten(-1, (H, E)).transpose(1, 2).detach() for each in inputs.qkv.chunk(3, -1)]
    parts = [part.requires_grad_() for part in parts]
    grad = inputs.grad_out.unflatten(-1, (H, E)).transpose(1, 2)
    return measure_milliseconds(
        lambda: torch.autograd.grad(F.scaled_dot_product_attention(*parts, is_causal=inputs.causal), parts, grad)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke={})
    parser.add_argument("--tune", action="store_true")
    options = parser.parse(arguments)
    if not torch.cuda.is_available():
        print("attention kernels: skipped, no CUDA device")
        return
    if options.tune:
        rows = KernelInputs.sample(*SHAPES[0])
        for name in BLOCK_SIZES:
            getattr(packed_attention_long, name.upper())[E] = tune_blocks(name, rows)
    for shape in SMOKE_SHAPES if options.smoke else SHAPES:
        print_timings(*shape)


if __name__ == "__main__":
    main()
