"""Operations in graphs that torch compiles: kernels are chosen while tracing, and give what they give eagerly.

In a process of its own: where shapes are checked nothing can be compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from regard.nn.kernels import triton_support

COMPILED = """
import sys
import torch
import torch.nn.functional as F
from attention_reference import packed, with_gradient
from regard.nn import MultiHeadAttention, gelu, gelu_tanh, kernels, linear_cross_entropy
from regard.nn.kernels import dispatch

device = torch.device(sys.argv[1])
how = {"backend": "aot_eager"} if device.type == "cpu" else {"mode": "reduce-overhead"}
used = []


def watched(kernel):
    def run(*inputs):
        used.append(kernel.name)
        return kernel.run(*inputs)
    return kernel._replace(run=run)


plain = dispatch.KERNELS
dispatch.KERNELS = {operation: tuple(map(watched, those)) for operation, those in dispatch.KERNELS.items()}


def took(name):
    there = any(kernel.name == name for those in dispatch.KERNELS.values() for kernel in those)
    assert set(used) == ({name} if there else set()), (name, used)
    used.clear()


def compiled(function):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, **how)


torch.manual_seed(0)
long = device.type == "cpu" or torch.cuda.get_device_capability()[0] in (9, 10)
for name, n_tokens in (("packed_attention_short", 24), *([("packed_attention_long", 140)] if long else [])):
    qkv, mask = torch.randn(2, n_tokens, 24, device=device).half(), packed(2, n_tokens, device, causal=True)
    eager = with_gradient(dispatch.packed_self_attention, qkv, mask, 1)
    took(name)
    run = compiled(dispatch.packed_self_attention)
    for _ in range(1 if device.type == "cpu" else 3):
        found = with_gradient(run, qkv, mask, 1)
        assert all(torch.equal(one, other) for one, other in zip(found, eager, strict=True))
    took(name)

attention, mask = MultiHeadAttention(16, 2).half().to(device), packed(2, 9, device, causal=True)
x = torch.randn(2, 9, 16, device=device).half()
with kernels.disabled():
    without = compiled(lambda x: attention(x, mask))(x)
    assert not used
torch.testing.assert_close(compiled(lambda x: attention(x, mask))(x), without, rtol=0, atol=1e-2)
took("packed_attention_short")

for name, function, kind in (("gelu", gelu, "none"), ("gelu_tanh", gelu_tanh, "tanh")):
    results = []
    for run, dtype in ((compiled(function), torch.bfloat16), (lambda x: F.gelu(x, approximate=kind), torch.float64)):
        x = torch.linspace(-12, 12, 20001, device=device, dtype=torch.bfloat16).to(dtype).requires_grad_()
        y = run(x)
        results.append((y.detach().double(), torch.autograd.grad(y.sum(), x)[0].double()))
    # Triton's interpreter cuts bfloat16 off.
    rtol, atol = (2**-7, 2e-6) if device.type == "cpu" else (2**-8, 1e-6)
    torch.testing.assert_close(*results, rtol=rtol, atol=atol)
    if device.type == "cuda" or name == "gelu":  # the other is for CUDA alone, and needs no Triton
        took(name)

hidden, weight = torch.randn(20, 32, device=device).bfloat16(), torch.randn(64, 32, device=device).bfloat16()
hidden, weight, target = hidden.requires_grad_(), weight.requires_grad_(), torch.arange(20, device=device)
eager = linear_cross_entropy(hidden, weight, target, 0.1).total
took("cross_entropy")
dispatch.KERNELS = plain  # what is watched changes a list, which a function with a backward pass must not
found = compiled(linear_cross_entropy)(hidden, weight, target, 0.1).total
torch.testing.assert_close(found, eager)
torch.testing.assert_close(*(torch.autograd.grad(loss, (hidden, weight)) for loss in (eager, found)))
print("compiled")
"""


def run_compiled(device: str, **environment: str) -> None:
    path = os.pathsep.join(folder for folder in sys.path if folder)
    ended = subprocess.run(
        [sys.executable, "-c", COMPILED, device],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
    )
    assert ended.stdout.endswith("compiled\n"), ended.stderr[-3000:]


def test_in_the_interpreter_they_give_the_same_in_one_graph(interpreter: torch.device) -> None:
    run_compiled("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(triton_support.triton is None, reason="needs triton")
def test_on_a_gpu_they_give_the_same_in_one_graph() -> None:
    run_compiled("cuda")
