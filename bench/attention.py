"""Time the kernels of packed attention (regard/nn/kernels/) on a GPU, beside torch's, and blocks for long rows.

    python bench/attention.py           forward and backward at some shapes, in bfloat16, 12 heads of 64
    python bench/attention.py --tune    first every size of blocks below, one kernel at a time; the fastest is used

torch's own attention knows no packed texts without a mask, so it is timed where one text fills a row, at its fastest.
Operations are those of the pairs that are seen: 2 products forward and 5 backward, as is usual, though those of long
rows compute 7; when tuning those that each kernel computes (2, 3, 4).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

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

SIZES = {
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
PRODUCTS = {"forward": 2, "backward_dq": 3, "backward_dkv": 4}
OTHER = {"forward": (), "backward_dq": ("_dkv_kernel",), "backward_dkv": ("_dq_kernel",)}
"""Kernels of the same pass."""


class Rows(NamedTuple):
    """What the kernels take, and how many pairs of a query and a key there are."""

    projected: Tensor
    grad: Tensor
    segment: Tensor
    begin: Tensor
    end: Tensor
    causal: bool
    n_pairs: int

    @classmethod
    def drawn(cls, n_rows: int, length: int, n_texts: int, causal: bool) -> Rows:
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
        return packed_attention_long.forward(self.projected, self.begin, self.end, H, self.causal, **blocks)

    def backward(self, out: Tensor, lse: Tensor, **blocks: Blocks) -> Tensor:
        return packed_attention_long.backward(
            self.grad, out, lse, self.projected, self.begin, self.end, H, self.causal, **blocks
        )  # fmt: skip


def milliseconds(work: Callable[[], Any], n: int = 20) -> float:
    """Of one call, the best of three times 20 in a graph, so that launching costs nothing."""
    for _ in range(3):
        work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            work()
    graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    for mark in marks:
        mark.record()
        graph.replay()
    torch.cuda.synchronize()
    return min(one.elapsed_time(other) for one, other in pairwise(marks)) / n


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Of the kernels of a pass run only this one."""

    class Nothing:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *arguments, **named: None

    kept = {other: getattr(packed_attention_long, other) for other in OTHER[name]}
    try:
        for other in kept:
            setattr(packed_attention_long, other, Nothing())
        yield
    finally:
        for other, kernel in kept.items():
            setattr(packed_attention_long, other, kernel)


def tune(name: str, rows: Rows) -> Blocks:
    """Time one kernel with each size of blocks; the fastest."""
    found: dict[Blocks, float] = {}
    room = rows.forward()
    for blocks in (Blocks(*numbers) for numbers in SIZES[name]):
        run = rows.forward if name == "forward" else lambda **each: rows.backward(*room, **each)
        key = "blocks" if name == "forward" else f"{name.removeprefix('backward_')}_blocks"
        with alone(name):
            found[blocks] = milliseconds(lambda run=run, each={key: blocks}: run(**each))
        rate = PRODUCTS[name] * 2 * E * rows.n_pairs / found[blocks] / 1e9
        print(f"{name:<13}{blocks!s:<66}{found[blocks]:7.3f} ms {rate:5.0f} TFLOP/s", flush=True)
    return min(found, key=found.__getitem__)


def passes(rows: Rows) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward, and forward with backward, by the kernels that rows so long go through."""
    if rows.projected.shape[1] > packed_attention_short.MAX_TOKENS:
        return rows.forward, lambda: rows.backward(*rows.forward())
    position = torch.arange(rows.projected.shape[1], dtype=torch.int32, device="cuda").repeat(len(rows.projected), 1)
    given = rows.projected, rows.segment, position, H, rows.causal

    def forward() -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = packed_attention_short._attention(*given)
        return found

    def both() -> Tensor:
        found: Tensor = packed_attention_short._attention_backward(rows.grad, forward()[1], *given)
        return found

    return forward, both


def show(n_rows: int, length: int, n_texts: int, causal: bool) -> None:
    """Time both passes at one shape."""
    rows = Rows.drawn(n_rows, length, n_texts, causal)
    forward, both = map(milliseconds, passes(rows))
    rates = 4 * E * rows.n_pairs / forward / 1e9, 10 * E * rows.n_pairs / (both - forward) / 1e9
    print(
        f"{n_rows} x {length}, texts in a row {n_texts}, {'causal' if causal else 'both ways'}: "
        f"forward {forward:.3f} ms {rates[0]:.0f} TFLOP/s, backward {both - forward:.3f} ms {rates[1]:.0f} TFLOP/s, "
        f"together {both:.3f} ms" + ("" if n_texts > 1 else f", torch's {torchs(rows):.3f} ms"),
        flush=True,
    )


def torchs(rows: Rows) -> float:
    """`scaled_dot_product_attention` without a mask, forward and backward."""
    parts = [each.unflatten(-1, (H, E)).transpose(1, 2).detach() for each in rows.projected.chunk(3, -1)]
    parts = [part.requires_grad_() for part in parts]
    grad = rows.grad.unflatten(-1, (H, E)).transpose(1, 2)
    return milliseconds(
        lambda: torch.autograd.grad(F.scaled_dot_product_attention(*parts, is_causal=rows.causal), parts, grad)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true")
    if parser.parse_args().tune:
        rows = Rows.drawn(*SHAPES[0])
        for name in SIZES:
            getattr(packed_attention_long, name.upper())[E] = tune(name, rows)
    for shape in SHAPES:
        show(*shape)


if __name__ == "__main__":
    main()
