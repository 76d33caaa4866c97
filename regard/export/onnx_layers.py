"""The layers of a Transformer encoder or language model as ONNX operators: embeddings, attention, feed-forward.

One text per row, tokens marked by the attention mask; positions count the tokens of each row, so padding may stand on
either side. onnx_encoder.py adds the heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.export.ctranslate2_spec import position_table
from regard.export.onnx_graph import MASKED_SCORE, OnnxGraph, Value
from regard.models.config import TransformerConfig
from regard.nn import (
    GatedFeedForward,
    MultiHeadAttention,
    PreNorm,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    TokenEmbedding,
)

GELU_TANH_CUBIC = 0.044715
"""The coefficient of the cubic term in the tanh form of GELU (Hendrycks and Gimpel 2016)."""


@dataclass
class TokenInputs:
    """The inputs as every layer needs them: the tokens' positions, and which keys each query may attend to."""

    mask: Value
    position: Value
    score_mask: Value


def build_token_inputs(graph: OnnxGraph, attention_mask: Value, *, causal: bool, backward: bool) -> TokenInputs:
    """Return the positions (B, T) of the tokens and the mask (B, 1, T or 1, T) that is added to scores."""
    counted = graph.apply("CumSum", attention_mask, graph.number(1))
    position = graph.apply("Max", graph.apply("Sub", counted, graph.number(1)), graph.number(0))
    if backward:
        length = graph.sum_over(attention_mask, 1)
        last = graph.apply("Sub", length, graph.number(1))
        position = graph.apply("Max", graph.apply("Sub", last, position), graph.number(0))
    is_key = graph.unsqueeze(graph.apply("Greater", attention_mask, graph.number(0)), 1, 2)
    if causal:
        key, query = graph.unsqueeze(position, 1, 2), graph.unsqueeze(position, 1, 3)
        is_key = graph.apply("And", is_key, graph.apply("LessOrEqual", key, query))
    score_mask = graph.apply("Where", is_key, graph.number(0.0), graph.number(MASKED_SCORE))
    return TokenInputs(attention_mask, position, score_mask)


def apply_activation(graph: OnnxGraph, name: str, x: Value) -> Value:
    """Append an activation function."""
    return ACTIVATIONS[name](graph, x)


def _gelu(graph: OnnxGraph, x: Value) -> Value:
    erf = graph.apply("Erf", graph.apply("Div", x, graph.number(math.sqrt(2.0))))
    return graph.multiply(graph.multiply(x, graph.add(erf, graph.number(1.0))), graph.number(0.5))


def _gelu_tanh(graph: OnnxGraph, x: Value) -> Value:
    cube = graph.multiply(graph.multiply(x, x), x)
    inner = graph.add(x, graph.multiply(cube, graph.number(GELU_TANH_CUBIC)))
    tanh = graph.apply("Tanh", graph.multiply(inner, graph.number(math.sqrt(2.0 / math.pi))))
    return graph.multiply(graph.multiply(x, graph.add(tanh, graph.number(1.0))), graph.number(0.5))


ACTIVATIONS: dict[str, Callable[[OnnxGraph, Value], Value]] = {
    "relu": lambda graph, x: graph.apply("Relu", x),
    "tanh": lambda graph, x: graph.apply("Tanh", x),
    "silu": lambda graph, x: graph.multiply(x, graph.apply("Sigmoid", x)),
    "gelu": _gelu,
    "gelu-tanh": _gelu_tanh,
}


@dataclass(frozen=True)
class LayerBuilder:
    """Appends the embeddings and layers of one model."""

    graph: OnnxGraph
    config: TransformerConfig
    inputs: TokenInputs

    def embed(self, embedding: TokenEmbedding, ids: Value, token_type_ids: Value | None) -> Value:
        """Append the input embeddings; without token types all tokens are of type 0."""
        graph = self.graph
        x = graph.apply("Gather", graph.constant("embedding.tokens.weight", embedding.tokens.weight), ids)
        if embedding.scale != 1:
            x = graph.multiply(x, graph.number(embedding.scale))
        if self.config.positions == "learned" or isinstance(embedding.positions, SinusoidalPositions):
            table = graph.constant("embedding.positions", position_table(embedding.positions, self.config))
            x = graph.add(x, graph.apply("Gather", table, self.inputs.position))
        if embedding.token_types is not None:
            types = graph.constant("embedding.token_types.weight", embedding.token_types.weight)
            x = graph.add(x, graph.apply("Gather", types, token_type_ids or graph.number(0)))
        return graph.layer_norm(x, "embedding.norm", embedding.norm) if isinstance(embedding.norm, nn.LayerNorm) else x

    def append_layer(self, layer: Any, x: Value, name: str) -> Value:
        """Append one encoder layer."""
        x = self._residual(
            layer.attention_residual,
            f"{name}.attention_residual",
            x,
            lambda x: self._attend(layer.attention, x, f"{name}.attention"),
        )
        return self._residual(
            layer.feed_forward_residual,
            f"{name}.feed_forward_residual",
            x,
            lambda x: self._feed_forward(layer.feed_forward, x, f"{name}.feed_forward"),
        )

    def _residual(self, residual: Any, name: str, x: Value, sublayer: Callable[[Value], Value]) -> Value:
        if isinstance(residual, PreNorm):
            return self.graph.add(x, sublayer(self.graph.layer_norm(x, f"{name}.norm", residual.norm)))
        return self.graph.layer_norm(self.graph.add(x, sublayer(x)), f"{name}.norm", residual.norm)

    def _feed_forward(self, feed_forward: Any, x: Value, name: str) -> Value:
        graph, activation = self.graph, self.config.activation.removeprefix("gated-")
        up, down = feed_forward.up_projection, feed_forward.down_projection
        x = graph.linear(x, f"{name}.up_projection", up.weight, up.bias)
        if isinstance(feed_forward, GatedFeedForward):
            width = self.config.d_ff
            gate, value = graph.slice(x, 0, width, -1), graph.slice(x, width, 2 * width, -1)
            x = graph.multiply(apply_activation(graph, activation, gate), value)
        else:
            x = apply_activation(graph, activation, x)
        return graph.linear(x, f"{name}.down_projection", down.weight, down.bias)

    def _attend(self, attention: MultiHeadAttention, x: Value, name: str) -> Value:
        graph = self.graph
        weights = attention.projection.weight.split(attention.qkv_widths)
        biases = attention.projection.bias.split(attention.qkv_widths)
        query, key, value = (
            self._split_heads(graph.linear(x, f"{name}.{part}", weight, bias), attention.n_heads, width)
            for part, weight, bias, width in zip(
                ("query", "key", "value"),
                weights,
                biases,
                (attention.d_key, attention.d_key, attention.d_value),
                strict=True,
            )
        )
        positions = attention.positions
        if isinstance(positions, RotaryPositions):
            query, key = self._rotate(positions, query), self._rotate(positions, key)
        scores = graph.matmul(query, graph.transpose(key, 0, 1, 3, 2))
        if isinstance(positions, RelativePositions):
            scores = graph.add(scores, self._score_bias(positions, query, name))
        scaled = graph.apply("Div", scores, graph.number(math.sqrt(attention.d_key)))
        attended = graph.apply("Softmax", graph.add(scaled, self.inputs.score_mask), axis=-1)
        mixed = graph.matmul(attended, value)
        if isinstance(positions, RelativePositions) and positions.values is not None:
            mixed = graph.add(mixed, self._value_bias(positions, positions.values.weight, attended, name))
        joined = graph.reshape(graph.transpose(mixed, 0, 2, 1, 3), 0, 0, attention.n_heads * attention.d_value)
        return graph.linear(joined, f"{name}.output", attention.output.weight, attention.output.bias)

    def _split_heads(self, x: Value, n_heads: int, width: int) -> Value:
        return self.graph.transpose(self.graph.reshape(x, 0, 0, n_heads, width), 0, 2, 1, 3)

    def _rotate(self, positions: RotaryPositions, heads: Value) -> Value:
        graph, half = self.graph, positions.d_key // 2
        angle = torch.arange(self.config.n_positions)[:, None] * positions.base ** (
            -torch.arange(0, positions.d_key, 2) / positions.d_key
        )
        cos, sin = (
            graph.unsqueeze(graph.apply("Gather", graph.constant(f"rotary.{name}", table), self.inputs.position), 1)
            for name, table in (("cos", angle.cos()), ("sin", angle.sin()))
        )
        first, second = graph.slice(heads, 0, half, -1), graph.slice(heads, half, 2 * half, -1)
        rotated = graph.apply("Sub", graph.multiply(first, cos), graph.multiply(second, sin))
        other = graph.add(graph.multiply(second, cos), graph.multiply(first, sin))
        return graph.apply("Concat", rotated, other, axis=-1)

    def _distance_index(self, positions: RelativePositions) -> Value:
        """Append the embedding row of each query and key (B, 1, T, T)."""
        graph, position = self.graph, self.inputs.position
        distance = graph.apply("Sub", graph.unsqueeze(position, 1, 2), graph.unsqueeze(position, 1, 3))
        most = graph.number(positions.max_distance)
        clipped = graph.apply("Min", graph.apply("Max", distance, graph.number(-positions.max_distance)), most)
        return graph.add(clipped, most)

    def _score_bias(self, positions: RelativePositions, query: Value, name: str) -> Value:
        graph = self.graph
        by_distance = graph.linear(query, f"{name}.distance_keys", positions.keys.weight)  # (B, H, T, distances)
        index = graph.apply("Expand", self._distance_index(positions), self._head_shape())
        return graph.apply("GatherElements", by_distance, index, axis=-1)

    def _value_bias(self, positions: RelativePositions, vectors: Tensor, weights: Value, name: str) -> Value:
        """Append the weights summed by distance, times the vectors of the distances."""
        graph = self.graph
        distances = graph.whole_numbers(*range(2 * positions.max_distance + 1))
        index = graph.unsqueeze(self._distance_index(positions), -1)
        is_distance = graph.to_float(graph.apply("Equal", index, distances))  # (B, 1, T, T, distances)
        rows = graph.unsqueeze(weights, 3)  # (B, H, T, 1, T)
        by_distance = graph.apply("Squeeze", graph.matmul(rows, is_distance), graph.whole_numbers(3))
        return graph.linear(by_distance, f"{name}.distance_values", vectors.T)

    def _head_shape(self) -> Value:
        """Append a shape that repeats a tensor of one head for every head."""
        return self.graph.whole_numbers(1, self.config.n_heads, 1, 1)


def refuse(feature: str, accepted: str) -> InputError:
    """Return the error for a feature that the ONNX export does not support."""
    return InputError(f"{feature}: the ONNX export has {accepted}, so this model cannot be exported to it")
