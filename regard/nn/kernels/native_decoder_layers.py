"""One step of a stack of Transformer decoder layers on a CPU, in C, by one call (native/decoder.c).

In torch a step is some two hundred small operations, each of which takes and releases the interpreter; decoders in
several threads wait for each other at every one. Here a thread computes a whole step without it. Keys and values are
written to, and read from, the buffers of the caches: no row is copied when hypotheses branch and sentences leave.

It computes the layers that most translators have: plain attention, a feed-forward sublayer with a common activation,
norms before or after. An active tap, or a layer of another kind, and PyTorch computes all of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.native_library import Linear, describe_int8, library, pointer
from regard.nn.kernels.workspace import prepare
from regard.nn.mask import AttentionMask

LIMITS = "plain attention, widths that fill vectors, no active tap, without gradients"

INT8_LAYOUT = "regard.nn.kernels.native_int8_linear"

ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
"""Activations, by the names of their functions, and their numbers in native/linear.h."""


class _Norm(ctypes.Structure):
    _fields_ = (("gain", ctypes.c_void_p), ("shift", ctypes.c_void_p), ("eps", ctypes.c_double))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, Linear) for name in ("projection", "output", "query", "cross_output", "up", "down")),
        *((name, _Norm) for name in ("norm", "cross_norm", "feed_forward_norm")),
    )


class _Decoder(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.POINTER(_Layer)),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("n_layers", "d_model", "d_feed_forward", "n_heads", "d_key", "d_value", "norm_first", "activation"),
            )
        ),
    )


class _Cache(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("row", "head", "token")))


class _KeyValue(ctypes.Structure):
    _fields_ = (("key", _Cache), ("value", _Cache))


class _Context(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.POINTER(_KeyValue)),
        ("rows", ctypes.POINTER(ctypes.c_int64)),
        ("mask", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("mask_stride", "n_keys", "first")),
    )


@dataclass
class _Prepared:
    """A stack of layers as the library takes it, what it points to, and the buffers that were described last."""

    decoder: _Decoder
    kept: list[Any]
    shape: tuple[int, int, int]
    described: dict[str, tuple[list[Any], Any]] = field(default_factory=dict)


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine."""
    return native_library.is_loaded(device, dtype)


def supports(
    layers: Any,
    x: Tensor,
    cross_kv: Sequence[Any],
    attention_mask: AttentionMask,
    cross_attention_mask: AttentionMask,
    caches: Sequence[Any],
) -> bool:
    """Return True for layers of the common kind, caches that grow and one new token of each hypothesis."""
    from regard.nn.kv_cache import KVCache  # which imports the kernels
    from regard.nn.tap import has_hooks

    if torch.is_grad_enabled() or not available(x.device, x.dtype) or has_hooks() or torch.compiler.is_compiling():
        return False
    are_caches = all(isinstance(each, KVCache) for each in (*cross_kv, *caches))
    unmasked = cross_attention_mask.fully_masked is None or not bool(cross_attention_mask.fully_masked.any())
    return are_caches and unmasked and not attention_mask.lengths and prepare(layers, _prepare) is not None


def decoder_layers(
    layers: Any,
    x: Float[Tensor, "B T D"],
    cross_kv: Sequence[Any],
    attention_mask: AttentionMask,
    cross_attention_mask: AttentionMask,
    caches: Sequence[Any],
) -> Float[Tensor, "B T D"]:
    """Return the output of the layers for the next tokens, which are appended to the caches."""
    prepared = prepare(layers, _prepare)
    n_rows, width, _ = x.shape
    new = _new_tokens(prepared, x)
    own_buffers = [cache.reserve(width, new) for cache in caches]
    own = _describe_context(prepared, "own", caches, own_buffers, attention_mask.mask, width)
    source_buffers = [cache.reserve(0, new) for cache in cross_kv]
    source = _describe_context(prepared, "source", cross_kv, source_buffers, cross_attention_mask.mask, 1)
    out = x.clone(memory_format=torch.contiguous_format)
    library().regard_decoder_step(
        ctypes.byref(prepared.decoder),
        ctypes.byref(own[0]),
        ctypes.byref(source[0]),
        ctypes.c_void_p(out.data_ptr()),
        ctypes.c_int64(n_rows),
        ctypes.c_int64(width),
    )
    return out


def _new_tokens(prepared: _Prepared, x: Tensor) -> Any:
    """Return keys and values of the shape that the next tokens have, for a cache that is still empty."""
    from regard.nn.kv_cache import KeyValue

    n_heads, d_key, d_value = prepared.shape
    return KeyValue(*(x.new_empty(1).expand(len(x), n_heads, x.shape[1], width) for width in (d_key, d_value)))


def _describe_context(
    prepared: _Prepared, name: str, caches: Sequence[Any], buffers: list[Any], mask: Tensor | None, width: int
) -> tuple[_Context, list[Any]]:
    """Return caches as the library takes them, with what must live as long."""
    before, described = prepared.described.get(name, ([], None))
    if len(before) != len(buffers) or any(one is not other for one, other in zip(before, buffers, strict=True)):
        described = (_KeyValue * len(buffers))(*(_KeyValue(*map(_describe_cache, each)) for each in buffers))
        prepared.described[name] = (buffers, described)
    rows, n_keys = caches[0].buffer_rows, caches[0].length
    numbers = (ctypes.c_int64 * len(rows))(*rows)
    if mask is not None:
        mask = mask.expand(len(rows), 1, width, n_keys).contiguous()
    context = _Context(described, numbers, pointer(mask), n_keys, n_keys, caches[0].first)
    return context, [numbers, mask, described]


def _describe_cache(buffer: Tensor) -> _Cache:
    row, head, token, _ = buffer.stride()
    return _Cache(buffer.data_ptr(), row, head, token)


def _prepare(layers: Any) -> _Prepared | None:
    """Return a stack of layers as the library takes it, None if it does not."""
    kept: list[Any] = []
    described = [each for layer in layers if (each := _describe_layer(layer, kept)) is not None]
    if not described or len(described) < len(layers):
        return None
    first, array = layers[0], (_Layer * len(described))(*described)
    attention = first.attention
    decoder = _Decoder(
        array,
        len(described),
        attention.output.out_features,
        first.feed_forward.up_projection.out_features,
        attention.n_heads,
        attention.d_key,
        attention.d_value,
        type(first.attention_residual).__name__ == "PreNorm",
        ACTIVATIONS[first.feed_forward.activation.__name__],
    )
    return _Prepared(decoder, [array, kept], (attention.n_heads, attention.d_key, attention.d_value))


def _describe_layer(layer: Any, kept: list[Any]) -> _Layer | None:
    """Return a layer as the library takes it; what it points to is added to `kept`."""
    own, cross, feed_forward = layer.attention, layer.cross_attention, layer.feed_forward
    residuals = (layer.attention_residual, layer.cross_attention_residual, layer.feed_forward_residual)
    name = getattr(getattr(feed_forward, "activation", None), "__name__", "")
    is_common = type(feed_forward).__name__ == "FeedForward" and name in ACTIVATIONS
    is_plain = not any(each.positions.acts_in_attention or each.positions.needs_weights for each in (own, cross))
    widths = (own.d_key, own.d_value, own.output.out_features, feed_forward.up_projection.out_features)
    fills = all(width % library().regard_lanes() == 0 for width in widths)
    if layer.training or not (is_common and is_plain and fills):
        return None
    query = cross.qkv_widths[0]
    linears = [
        _describe_linear(own.projection, kept),
        _describe_linear(own.output, kept),
        _describe_linear(cross.projection, kept, query),
        _describe_linear(cross.output, kept),
        _describe_linear(feed_forward.up_projection, kept),
        _describe_linear(feed_forward.down_projection, kept),
    ]
    norms = [_Norm(pointer(each.norm.weight), pointer(each.norm.bias), each.norm.eps) for each in residuals]
    kept += [parameter for each in residuals for parameter in (each.norm.weight, each.norm.bias)]
    return None if None in linears else _Layer(*linears, *norms)


def _describe_linear(module: Any, kept: list[Any], n_out: int = 0) -> Linear | None:
    """Return a linear layer as the library takes it, or its first outputs alone."""
    if hasattr(module, "block"):
        weight, bias = module.block(0)
        kept += [weight, bias]
        if weight.layout != INT8_LAYOUT:
            return None
        return describe_int8(weight, bias)
    weight, bias = module.weight, module.bias
    kept += [weight, bias]
    if not native_library.fits_float32(weight, bias):
        return None
    return native_library.describe_float32(weight, bias, n_out)
