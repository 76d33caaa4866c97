"""Time the kernels of packed attention (regard/nn/kernels/) on a GPU, beside torch's, and blocks for long rows.

    python bench/attention.py           forward and backward at some shapes, in bfloat16, 12 heads of 64
    python bench/attention.py --tune    first every size of blocks below, one kernel at a time; the fastest is used

torch's own attention needs a mask for packed texts, so it is timed where one text fills a row, without a mask. FLOPs
are those of the pairs of query and key that attend: 2 matrix multiplications forward and 5 backward, as is customary,
though the kernel of long rows computes 7; when tuning, those that each kernel computes (2, 3, 4).
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
from regard.nn.kernels.packed_row_blocks import segment_bounds

H, E = 12, 64

SHAPES = [
    (32, 1024, 1, True), (32, 1024, 4, True), (64, 512, 1, False), (64, 512, 4, False), (8, 4096, 1, True),
    (256, 128, 1, False), (256, 128, 4, False), (256, 128, 4, True),
]  # fmt: skip
"""Rows, tokens per row, texts per row, causal."""

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
    """Inputs of the kernels, and the number of pairs of query and key that attend."""

    qkv: Tensor
    grad_out: Tensor
    segment: Tensor
    begin: Tensor
    end: Tensor
    causal: bool
    n_pairs: int

    @classmethod
    def sample(cls, n_rows: int, length: int, n_texts: int, causal: bool) -> KernelInputs:
        """Return random rows of `n_texts` packed texts each."""
        torch.manual_seed(0)
        cuts = torch.randint(length, (n_rows, n_texts - 1)).sort(1).values
        segment = (torch.arange(length)[None, :, None] >= cuts[:, None, :]).sum(-1).int().cuda() + 1
        begin, end = segment_bounds(segment)
        n_keys = (torch.arange(1, length + 1, device="cuda") if causal else end) - begin
        qkv = torch.randn(n_rows, length, 3 * H * E, device="cuda", dtype=torch.bfloat16)
        grad_out = torch.randn(n_rows, length, H * E, device="cuda", dtype=torch.bfloat16)
        return cls(qkv, grad_out, segment, begin, end, causal, H * int(n_keys.sum()))

    def forward(self, **blocks: Blocks) -> tuple[Tensor, Tensor]:
        return packed_attention_long.forward(self.qkv, self.begin, self.end, H, self.causal, **blocks)

    def backward(self, out: Tensor, lse: Tensor, **blocks: Blocks) -> Tensor:
        return packed_attention_long.backward(
            self.grad_out, out, lse, self.qkv, self.begin, self.end, H, self.causal, **blocks
        )  # fmt: skip


def measure_milliseconds(function: Callable[[], Any], n_calls: int = 20) -> float:
    """Return the milliseconds of one call: the best of three replays of a CUDA graph, without launch overhead."""
    for _ in range(3):
        function()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n_calls):
            function()
    graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize()
    return min(start.elapsed_time(end) for start, end in pairwise(events)) / n_calls


@contextmanager
def only_kernel(name: str) -> Iterator[None]:
    """Disable the other kernels of the same pass."""

    class NoKernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *arguments, **named: None

    disabled = {other: getattr(packed_attention_long, other) for other in OTHER_KERNELS[name]}
    try:
        for other in disabled:
            setattr(packed_attention_long, other, NoKernel())
        yield
    finally:
        for other, kernel in disabled.items():
            setattr(packed_attention_long, other, kernel)


def tune_blocks(name: str, inputs: KernelInputs) -> Blocks:
    """Time one kernel with each block size and return the fastest."""
    milliseconds: dict[Blocks, float] = {}
    forward_result = inputs.forward()
    for blocks in (Blocks(*numbers) for numbers in BLOCK_SIZES[name]):
        run = inputs.forward if name == "forward" else lambda **each: inputs.backward(*forward_result, **each)
        key = "blocks" if name == "forward" else f"{name.removeprefix('backward_')}_blocks"
        with only_kernel(name):
            milliseconds[blocks] = measure_milliseconds(lambda run=run, each={key: blocks}: run(**each))
        rate = N_MATMULS[name] * 2 * E * inputs.n_pairs / milliseconds[blocks] / 1e9
        print(f"{name:<13}{blocks!s:<66}{milliseconds[blocks]:7.3f} ms {rate:5.0f} TFLOP/s", flush=True)
    return min(milliseconds, key=milliseconds.__getitem__)


def build_passes(inputs: KernelInputs) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return the forward pass, and forward with backward, of the kernel that is used for this length."""
    if inputs.qkv.shape[1] > packed_attention_short.MAX_TOKENS:
        return inputs.forward, lambda: inputs.backward(*inputs.forward())
    position = torch.arange(inputs.qkv.shape[1], dtype=torch.int32, device="cuda").repeat(len(inputs.qkv), 1)
    arguments = inputs.qkv, inputs.segment, position, H, inputs.causal

    def forward() -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = packed_attention_short._attention(*arguments)
        return result

    def both() -> Tensor:
        grad_qkv: Tensor = packed_attention_short._attention_backward(inputs.grad_out, forward()[1], *arguments)
        return grad_qkv

    return forward, both


def print_timings(n_rows: int, length: int, n_texts: int, causal: bool) -> None:
    """Print the times of both passes at one shape."""
    inputs = KernelInputs.sample(n_rows, length, n_texts, causal)
    forward, both = map(measure_milliseconds, build_passes(inputs))
    rates = 4 * E * inputs.n_pairs / forward / 1e9, 10 * E * inputs.n_pairs / (both - forward) / 1e9
    print(
        f"{n_rows} x {length}, {n_texts} texts per row, {'causal' if causal else 'bidirectional'}: "
        f"forward {forward:.3f} ms {rates[0]:.0f} TFLOP/s, backward {both - forward:.3f} ms {rates[1]:.0f} TFLOP/s, "
        f"forward + backward {both:.3f} ms" + ("" if n_texts > 1 else f", torch {time_sdpa(inputs):.3f} ms"),
        flush=True,
    )


def time_sdpa(inputs: KernelInputs) -> float:
    """Return the milliseconds of `scaled_dot_product_attention` without a mask, forward and backward."""
    qkv = [each.unflatten(-1, (H, E)).transpose(1, 2).detach().requires_grad_() for each in inputs.qkv.chunk(3, -1)]
    grad = inputs.grad_out.unflatten(-1, (H, E)).transpose(1, 2)
    return measure_milliseconds(
        lambda: torch.autograd.grad(F.scaled_dot_product_attention(*qkv, is_causal=inputs.causal), qkv, grad)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke={})
    parser.add_argument("--tune", action="store_true")
    options = parser.parse(arguments)
    if not torch.cuda.is_available():
        print("attention kernels: skipped, no CUDA device")
        return
    if options.tune:
        inputs = KernelInputs.sample(*SHAPES[0])
        for name in BLOCK_SIZES:
            getattr(packed_attention_long, name.upper())[E] = tune_blocks(name, inputs)
    for shape in SMOKE_SHAPES if options.smoke else SHAPES:
        print_timings(*shape)


if __name__ == "__main__":
    harness.run_script(main)
