"""Weights of a Transformer as a specification of CTranslate2, which writes and reads it.

    translator       ctranslate2.specs.TransformerSpec                 ctranslate2.Translator
    language model   ctranslate2.specs.TransformerDecoderModelSpec     ctranslate2.Generator
    encoder          ctranslate2.specs.TransformerEncoderModelSpec     ctranslate2.Encoder

What CTranslate2 cannot express is refused by name. Positions are written as a table, since its own sinusoids have
another formula. No files are written here; ctranslate2_files.py does that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.encoder import TransformerEncoder
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import (
    GatedFeedForward,
    LearnedPositions,
    MultiHeadAttention,
    Positions,
    RelativePositions,
    SinusoidalPositions,
    TokenEmbedding,
)

ENGINE = "CTranslate2"

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
"""Activations and their names in ctranslate2.specs."""


def check_expressible(model: nn.Module) -> None:
    """Refuse a model that CTranslate2 has no layers for."""
    if not isinstance(model, TransformerSeq2Seq | TransformerLM | TransformerEncoder):
        architecture = getattr(getattr(model, "config", None), "architecture", type(model).__name__)
        raise _refusal(f'model.architecture = "{architecture}"', "only Transformers")
    config = model.config
    if config.key_width != config.value_width:
        raise _refusal(f"model.d_key = {config.key_width}", f"one width per head, here d_value = {config.value_width}")
    if isinstance(model, TransformerEncoder):
        _check_encoder(model)


def _check_encoder(model: TransformerEncoder) -> None:
    if model.config.is_causal:
        raise _refusal(f'model.directions = "{model.config.directions}"', 'only encoders of "both"')
    if predicting := sorted({"label", "tags", "span", "layers"} & set(model.heads)):
        raise _refusal(f"a head '{predicting[0]}'", "encoders without heads (pass --to onnx)")


def _refusal(feature: str, accepted: str) -> InputError:
    return InputError(f"{feature}: {ENGINE} has {accepted}, so this model cannot be exported to it")


def build_translator_spec(model: TransformerSeq2Seq) -> Any:
    """Return the specification of a translator, without its vocabularies."""
    from ctranslate2 import specs

    config = model.config
    options = _spec_options(config)
    encoder = specs.TransformerEncoderSpec(config.n_layers, config.n_heads, **options)
    decoder = specs.TransformerDecoderSpec(config.n_decoder_layers, config.n_heads, **options)
    _fill_embedding(encoder.embeddings[0], encoder, model.source_embedding, config)
    _fill_embedding(decoder.embeddings, decoder, model.target_embedding, config)
    _fill_layers(encoder, model.encoder, model.encoder_norm)
    _fill_layers(decoder, model.decoder, model.decoder_norm)
    _fill_linear(decoder.projection, model.softmax_embedding.weight, model.output_bias)
    return specs.TransformerSpec(encoder, decoder)


def build_language_model_spec(model: TransformerLM) -> Any:
    """Return the specification of a language model, without its vocabulary."""
    from ctranslate2 import specs

    config = model.config
    decoder = specs.TransformerDecoderSpec(
        config.n_layers, config.n_heads, with_encoder_attention=False, **_spec_options(config)
    )
    _fill_embedding(decoder.embeddings, decoder, model.embedding, config)
    _fill_layers(decoder, model.decoder, model.decoder_norm)
    _fill_linear(decoder.projection, model.softmax_embedding.weight, None)
    return specs.TransformerDecoderModelSpec(decoder)


def build_encoder_spec(model: TransformerEncoder) -> Any:
    """Return the specification of an encoder with its pooler, if it has one, without its vocabulary."""
    from ctranslate2 import specs

    config = model.config
    pools = "pooler" in model.heads
    n_embeddings = 1 if model.embedding.token_types is None else 2
    merge = specs.common_spec.EmbeddingsMerge.ADD
    options = {**_spec_options(config), "num_source_embeddings": n_embeddings, "embeddings_merge": merge}
    encoder = specs.TransformerEncoderSpec(config.n_layers, config.n_heads, **options)
    _fill_embedding(encoder.embeddings[0], encoder, model.embedding, config)
    if model.embedding.token_types is not None:
        encoder.embeddings[1].weight = _array(model.embedding.token_types.weight)
    _fill_layers(encoder, model.encoder, model.encoder_norm)
    activation = {"tanh": "Tanh", "relu": "RELU"}[config.pooler]
    spec = specs.TransformerEncoderModelSpec(encoder, pools, specs.Activation[activation])
    if pools:
        pooler: Any = model.heads["pooler"]
        _fill_linear(spec.pooler_dense, pooler.dense.weight, pooler.dense.bias)
    return spec


def _spec_options(config: TransformerConfig) -> dict[str, Any]:
    """Return the options that the specifications of all stacks have in common."""
    from ctranslate2 import specs

    is_rotary = config.positions == "rotary"
    return {
        "pre_norm": config.norm == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation.removeprefix("gated-")]],
        "ffn_glu": config.activation.startswith("gated-"),
        "layernorm_embedding": config.embedding == "normed",
        "relative_position": config.positions.startswith("relative"),
        "head_dim": None if config.key_width * config.n_heads == config.d_model else config.key_width,
        **({"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.sinusoid_base} if is_rotary else {}),
    }


def _fill_embedding(spec: Any, stack: Any, embedding: TokenEmbedding, config: TransformerConfig) -> None:
    spec.weight = _array(embedding.tokens.weight)
    stack.scale_embeddings = config.embedding == "scaled"
    if config.embedding == "normed":
        _fill_norm(stack.layernorm_embedding, embedding.norm)
    if config.positions == "rotary":
        vars(stack).pop("position_encodings", None)
    elif not config.positions.startswith("relative"):
        stack.position_encodings.encodings = _array(position_table(embedding.positions, config))


def position_table(positions: Positions, config: TransformerConfig) -> Tensor:
    """Return the vectors that absolute positions add to the embeddings, one row for each position."""
    if isinstance(positions, LearnedPositions):
        return positions.embedding.weight[positions.offset :]
    if isinstance(positions, SinusoidalPositions):
        return positions.table(torch.arange(config.n_positions))
    return torch.zeros(config.n_positions, config.d_model)


def _fill_layers(stack: Any, layers: nn.ModuleList, final_norm: nn.Module) -> None:
    for spec, layer in zip(stack.layer, layers, strict=True):
        layer_any: Any = layer
        _fill_self_attention(spec.self_attention, layer_any.attention, layer_any.attention_residual.norm)
        if hasattr(layer_any, "cross_attention"):
            _fill_cross_attention(spec.attention, layer_any.cross_attention, layer_any.cross_attention_residual.norm)
        _fill_feed_forward(spec.ffn, layer_any.feed_forward, layer_any.feed_forward_residual.norm)
    if isinstance(final_norm, nn.LayerNorm):
        _fill_norm(stack.layer_norm, final_norm)


def _fill_self_attention(spec: Any, attention: MultiHeadAttention, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    _fill_linear(spec.linear[0], attention.projection.weight, attention.projection.bias)
    _fill_linear(spec.linear[1], attention.output.weight, attention.output.bias)
    positions = attention.positions
    if isinstance(positions, RelativePositions):
        spec.relative_position_keys = _array(positions.keys.weight)
        values = torch.zeros_like(positions.keys.weight) if positions.values is None else positions.values.weight
        spec.relative_position_values = _array(values)


def _fill_cross_attention(spec: Any, attention: MultiHeadAttention, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    n_query = attention.qkv_widths[0]
    weight, bias = attention.projection.weight, attention.projection.bias
    _fill_linear(spec.linear[0], weight[:n_query], bias[:n_query])
    _fill_linear(spec.linear[1], weight[n_query:], bias[n_query:])
    _fill_linear(spec.linear[2], attention.output.weight, attention.output.bias)


def _fill_feed_forward(spec: Any, feed_forward: Any, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    weight, bias = feed_forward.up_projection.weight, feed_forward.up_projection.bias
    if isinstance(feed_forward, GatedFeedForward):
        (weight, value_weight), (bias, value_bias) = weight.chunk(2), bias.chunk(2)
        _fill_linear(spec.linear_0_noact, value_weight, value_bias)
    _fill_linear(spec.linear_0, weight, bias)
    _fill_linear(spec.linear_1, feed_forward.down_projection.weight, feed_forward.down_projection.bias)


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Any) -> np.ndarray:
    """Return a copy, since quantization there changes weights in place."""
    array: np.ndarray = tensor.detach().float().cpu().clone(memory_format=torch.contiguous_format).numpy()
    return array
