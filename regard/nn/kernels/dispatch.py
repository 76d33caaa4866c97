"""Choose for each operation the kernel that runs it: the one place where layers and kernels meet.

Layers call the operations below and know of no kernel. An operation tries the kernels of its lines in `TABLE` from top
to bottom and takes the first that `supports` its inputs; if none does, or kernels are switched off, plain.py computes
the same (attention by `F.scaled_dot_product_attention`). To add a kernel: a file and a line. To drop one: delete both.
``REGARD_KERNELS=off`` in the environment, or ``with kernels.disabled():``, switches all of them off.

In a graph that torch.compile makes, the choice is made while it is traced and stays as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn.kernels import plain, plain_beam_update
from regard.nn.kernels.int8_weight import Int8Weight
from regard.nn.kernels.plain_beam_update import BeamTensors
from regard.nn.kernels.tracing import constant_in_graphs
from regard.nn.kernels.workspace import PackedWeight
from regard.nn.mask import AttentionMask

TABLE = (
    # operation, file in this folder, written for; each file has its limits in `supports`
    ("packed_self_attention", "packed_attention_short", "cuda"),  # rows of at most 128 tokens, any CUDA GPU
    ("packed_self_attention", "packed_attention_long", "cuda"),  # rows of 129 to 4,096 tokens, Hopper and Blackwell
    ("packed_self_attention", "native_packed_attention", "cpu"),
    ("scaled_dot_product_attention", "decode_attention", "cuda"),
    ("linear", "small_batch_gemm", "cuda"),
    ("linear", "native_linear", "cpu"),
    ("linear", "small_batch_gemm_cpu", "cpu"),
    ("prepacked_linear", "native_vocabulary", "cpu"),
    ("prepacked_linear", "prepacked_linear", "cpu"),
    ("int8_linear", "native_int8_linear", "cpu"),
    ("int8_linear", "int8_linear_packed", "cpu"),
    ("int8_linear", "int8_linear_rows", "cpu"),
    ("gelu", "gelu", "cuda"),
    ("gelu_tanh", "gelu_tanh", "cuda"),
    ("cross_entropy_with_gradient", "cross_entropy", "cuda"),
    ("attention_jvp", "attention_jvp", "cuda"),
    ("append_key_values", "append_key_values", "cuda"),
    ("top_log_probs", "top_log_probs", "cuda"),
    ("top_log_probs", "native_top_log_probs", "cpu"),
    ("advance_beams", "advance_beams", "cuda"),
    ("advance_beams", "native_advance_beams", "cpu"),
    ("decoder_layers", "native_decoder_layers", "cpu"),
)

OPERATIONS = (
    "packed_self_attention",
    "scaled_dot_product_attention",
    "linear",
    "prepacked_linear",
    "int8_linear",
    "gelu",
    "gelu_tanh",
    "cross_entropy_with_gradient",
    "attention_jvp",
    "append_key_values",
    "top_log_probs",
    "advance_beams",
    "decoder_layers",
)

PLAIN = "pytorch"
"""The name of an operation's implementation in plain PyTorch, always its last."""


class Kernel(NamedTuple):
    """One way to compute an operation: `run` has the operation's signature, and so has `supports`.

    A kernel of int8 has `pack`, which brings a weight into its layout; one that `is_fastest` is taken wherever it runs,
    others are timed.
    """

    name: str
    supports: Callable[..., bool]
    run: Callable[..., Any]
    available: Callable[[torch.device, torch.dtype], bool]
    limits: str
    pack: Callable[[Int8Weight], Int8Weight] | None = None
    is_fastest: bool = False


def _load() -> dict[str, tuple[Kernel, ...]]:
    """Import the kernels that this build of torch can run; Triton, which takes its time, only with CUDA."""
    devices = {"cpu", "cuda"} if torch.version.cuda or os.environ.get("TRITON_INTERPRET") == "1" else {"cpu"}
    off = os.environ.get("REGARD_KERNELS", "").lower() in ("off", "0")
    loaded: dict[str, tuple[Kernel, ...]] = dict.fromkeys(OPERATIONS, ())
    for operation, file, device in () if off else TABLE:
        if device in devices:
            module = import_module(f"regard.nn.kernels.{file}")
            run, pack = getattr(module, operation), getattr(module, "pack", None)
            is_fastest = getattr(module, "IS_FASTEST", False)
            loaded[operation] += (
                Kernel(file, module.supports, run, module.available, module.LIMITS, pack, is_fastest),
            )
    return loaded


KERNELS = _load()
"""For each operation its kernels in order of preference; empty where ``REGARD_KERNELS=off``."""

_enabled: ContextVar[bool] = ContextVar("enabled", default=True)


@contextmanager
def disabled() -> Iterator[None]:
    """Run every operation in plain PyTorch meanwhile, in this thread; graphs already compiled stay as they are."""
    before = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(before)


def in_use(device: torch.device | str, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """Return by operation what may run on a device in a precision, in order of preference, each with its limits.

    On an H200 in bfloat16 ``in_use("cuda", torch.bfloat16)["packed_self_attention"]`` is
    ``"packed_attention_short (rows of at most 128 tokens, ...), packed_attention_long (...), pytorch"``.
    """
    device = torch.device(device)
    return {operation: ", ".join((*_named(kernels, device, dtype), PLAIN)) for operation, kernels in KERNELS.items()}


def names_in_use(device: torch.device | str, dtype: torch.dtype = torch.float32) -> list[str]:
    """Return the names of the kernels that may run on a device in a precision."""
    device = torch.device(device)
    named = [_named(kernels, device, dtype) for kernels in KERNELS.values()]
    return list(dict.fromkeys(name.partition(" (")[0] for names in named for name in names))


def _named(kernels: tuple[Kernel, ...], device: torch.device, dtype: torch.dtype) -> list[str]:
    candidates = kernels if _enabled.get() else ()
    return [f"{kernel.name} ({kernel.limits})" for kernel in candidates if kernel.available(device, dtype)]


@constant_in_graphs
def _are_enabled() -> bool:
    """Return whether kernels may run; a constant in compiled graphs, where a ContextVar cannot be read."""
    return _enabled.get()


def _choose(operation: str, *inputs: Any) -> Callable[..., Any] | None:
    """Return the first kernel that takes these inputs; None if there is none."""
    if _are_enabled():
        for kernel in KERNELS[operation]:
            if kernel.supports(*inputs):
                return kernel.run
    return None


def has_kernel(operation: str, *inputs: Any) -> bool:
    """Return True if a kernel takes these inputs, so that plain PyTorch is not needed."""
    return _choose(operation, *inputs) is not None


def packed_self_attention(qkv: Float[Tensor, "B T HEEE"], mask: AttentionMask, n_heads: int) -> Float[Tensor, "B T HE"]:
    """Return attention within each segment of packed rows, from q, k and v of all heads side by side.

    The mask must come from segments (`make_mask` of one `PackedPositions`). Fully masked queries get zeros.
    """
    run = _choose("packed_self_attention", qkv, mask, n_heads) or plain.packed_self_attention
    o: Tensor = run(qkv, mask, n_heads)
    return o


def scaled_dot_product_attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Bool[Tensor, "_ _ _ K"] | Float[Tensor, "_ _ _ K"] | None,
) -> Float[Tensor, "B H Q Ev"]:
    """Return ``softmax(q k^T / sqrt(E)) v`` under a boolean mask, True = may attend, or one that is added to scores."""
    run = _choose("scaled_dot_product_attention", q, k, v, mask) or plain.scaled_dot_product_attention
    o: Tensor = run(q, k, v, mask)
    return o


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias``; outside of training it may be a transposed view."""
    run = _choose("linear", x, weight, bias) or plain.linear
    out: Tensor = run(x, weight, bias)
    return out


def prepacked_linear(
    x: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None, packed: PackedWeight
) -> Float[Tensor, "N V"]:
    """Return ``x @ weight.T + bias``, contiguous, for weights that stay as they are while `packed` is in use."""
    run = _choose("prepacked_linear", x, weight, bias, packed)
    out: Tensor = linear(x, weight, bias).contiguous() if run is None else run(x, weight, bias, packed)
    return out


def int8_linear(
    x: Float[Tensor, "*B D"], weight: Int8Weight, bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias``, contiguous, with an int8 weight and each row of x quantised to int8."""
    run = _choose("int8_linear", x, weight, bias) or plain.int8_linear
    out: Tensor = run(x, weight, bias)
    return out


def int8_kernels() -> list[Kernel]:
    """Return the kernels for int8 that run on this machine; none where they are switched off."""
    cpu = torch.device("cpu")
    candidates = KERNELS["int8_linear"] if _are_enabled() else ()
    return [kernel for kernel in candidates if kernel.available(cpu, torch.float32)]


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x P(X < x)`` for a standard normal X (Hendrycks & Gimpel 2016)."""
    out: Tensor = (_choose("gelu", x) or plain.gelu)(x)
    return out


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return GPT-2's ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    out: Tensor = (_choose("gelu_tanh", x) or plain.gelu_tanh)(x)
    return out


def cross_entropy_with_gradient(
    logits: Float[Tensor, "N V"], target: Int[Tensor, " N"], smoothing: float, n_classes: int, ignore_index: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, "N V"]]:
    """Return the summed loss, the summed negative log-likelihood, and the gradient of the loss by the logits.

    Of the logits, which may be overwritten, the first `n_classes` count; those behind them are zeros that fill up a
    tile. A kernel rounds the gradient to the precision of the logits.
    """
    inputs = logits, target, smoothing, n_classes, ignore_index
    run = _choose("cross_entropy_with_gradient", *inputs) or plain.cross_entropy_with_gradient
    results: tuple[Tensor, Tensor, Tensor] = run(*inputs)
    return results


def attention_jvp(
    dq: Float[Tensor, "Q N HE"],
    dk: Float[Tensor, "K N HE"] | None,
    dv: Float[Tensor, "K N HE2"] | None,
    q: Float[Tensor, "H Q E"],
    k: Float[Tensor, "H K E"],
    v: Float[Tensor, "H K E2"],
    p: Float[Tensor, "H Q K"],
    o: Float[Tensor, "H Q E2"],
) -> Float[Tensor, "Q N HE2"]:
    """Return the Jacobian-vector products of attention for N directions; dk and dv that are None are zero."""
    inputs = dq, dk, dv, q, k, v, p, o
    do: Tensor = (_choose("attention_jvp", *inputs) or plain.attention_jvp)(*inputs)
    return do


def top_log_probs(
    logits: Float[Tensor, "N V"], n: int, eos_id: int, suppressed: Int[Tensor, " M"]
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, " N"]]:
    """Return the log-probabilities of each row's `n` most likely tokens, those tokens, and that of ``<eos>``.

    Suppressed tokens, which are distinct, are never among them, as long as there are others. A smaller vocabulary
    gives fewer.
    """
    inputs = logits, n, eos_id, suppressed
    results: tuple[Tensor, Tensor, Tensor] = (_choose("top_log_probs", *inputs) or plain.top_log_probs)(*inputs)
    return results


def append_key_values(
    key_cache: Float[Tensor, "B H K E"],
    value_cache: Float[Tensor, "B H K Ev"],
    key: Float[Tensor, "B H W E"],
    value: Float[Tensor, "B H W Ev"],
    columns: Int[Tensor, "B W"],
) -> None:
    """Write W tokens of each row to its columns of the cache."""
    inputs = key_cache, value_cache, key, value, columns
    (_choose("append_key_values", *inputs) or plain.append_key_values)(*inputs)


def advance_beams(
    beams: BeamTensors,
    score: Float[Tensor, "N C"],
    token: Int[Tensor, "N C"],
    end: Float[Tensor, " N"],
    length_penalties: Float[Tensor, " T2"],
    eos_id: int,
    n_candidates: int,
) -> Int[Tensor, "B W"]:
    """Write the next token of each beam, in place; return the beams they go on from.

    `score`, `token` and `end` are those of `top_log_probs`, of all beams or of the first of each sentence.
    """
    inputs = beams, score, token, end, length_penalties, eos_id, n_candidates
    parents: Tensor = (_choose("advance_beams", *inputs) or plain_beam_update.advance_beams)(*inputs)
    return parents


def decoder_layers(
    layers: Iterable[Any],
    x: Float[Tensor, "B T D"],
    cross_kv: Sequence[Any],
    attention_mask: AttentionMask,
    cross_attention_mask: AttentionMask,
    caches: Sequence[Any],
) -> Float[Tensor, "B T D"]:
    """Return the output of a stack of decoder layers for the next tokens, which are appended to the caches.

    The keys and values of the source, and those cached, are `KVCache` or alike, one of each for every layer.
    """
    inputs = layers, x, cross_kv, attention_mask, cross_attention_mask, caches
    out: Tensor = (_choose("decoder_layers", *inputs) or plain.decoder_layers)(*inputs)
    return out
