"""Encoders with their heads as a graph of ONNX, with any batch size and length.

    input_ids, attention_mask[, token_type_ids]   ->   logits, or the hidden states of an encoder without a head

The names of the outputs are those of Hugging Face. Language models give the logits of every next token, without a cache
of keys and values. What has no counterpart here is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.export.encoder_outputs import IDS, MASK, SENTENCE, TYPES
from regard.export.onnx_graph import MASKED_SCORE, OnnxGraph, Value
from regard.export.onnx_layers import LayerBuilder, apply_activation, build_token_inputs, refuse
from regard.models.encoder import TransformerEncoder
from regard.models.heads import MaskedLMHead, Pooler, Pooling
from regard.models.language_model import TransformerLM
from regard.models.layer_combination import (
    COMBINATION_NAME,
    N_LAST_LAYERS,
    LastLayersConcatenation,
    LastLayersSum,
    ScalarMix,
)
from regard.models.seq2seq import TransformerSeq2Seq
from regard.models.span_heads import SpanHead
from regard.nn import AttentionPooling, DotAttention, ScaledDotAttention, TanhAttention

BATCH, LENGTH = "batch", "length"

LOGITS, NEXT_LOGITS, HIDDEN, POOLED = "logits", "seq_relationship_logits", "last_hidden_state", "pooler_output"
SPAN_LOGITS = ("start_logits", "end_logits")

NORM_FLOOR = 1e-12
"""The least length that a vector is divided by."""


def check_expressible(model: nn.Module) -> None:
    """Refuse a model that the graph has no nodes for."""
    if isinstance(model, TransformerSeq2Seq):
        raise refuse("a translator", "encoders and language models (pass --to ctranslate2)")
    if not isinstance(model, TransformerEncoder | TransformerLM):
        architecture = getattr(getattr(model, "config", None), "architecture", type(model).__name__)
        raise refuse(f'model.architecture = "{architecture}"', "only Transformers")
    for head in getattr(model, "heads", {}).values():
        if isinstance(head, Pooler) and head.pooling.kind == "hierarchical":
            raise refuse('task.pooling = "hierarchical"', "the other poolings")
        if type(head).__name__ == "QuestionSpanHead":
            raise refuse('task.pooling = "attention" of a question', 'only "none"')


def input_names(model: Any) -> list[str]:
    """Return the names of the inputs."""
    has_types = isinstance(model, TransformerEncoder) and model.config.n_parts > 1
    return [IDS, MASK, TYPES] if has_types else [IDS, MASK]


def write_onnx_model(path: Path, model: Any, embedding_pooling: str, *, normalised: bool = False) -> None:
    """Write a model; with `embedding_pooling` an encoder also returns the vector of each text."""
    graph = OnnxGraph()
    with torch.inference_mode():
        if isinstance(model, TransformerLM):
            outputs = _build_language_model(graph, model)
        else:
            outputs = EncoderGraph(graph, model).build_outputs(embedding_pooling, normalised=normalised)
        inputs = dict.fromkeys(input_names(model), (BATCH, LENGTH))
        graph.write(path, inputs, {value: (name, dims) for name, value, dims in outputs})


Output = tuple[str, Value, tuple[Any, ...]]
"""The name, the value and the dimensions of an output."""


def _build_language_model(graph: OnnxGraph, model: TransformerLM) -> list[Output]:
    inputs = build_token_inputs(graph, MASK, causal=True, backward=False)
    builder = LayerBuilder(graph, model.config, inputs)
    x = builder.embed(model.embedding, IDS, None)
    for i, layer in enumerate(model.decoder):
        x = builder.append_layer(layer, x, f"decoder.{i}")
    if isinstance(model.decoder_norm, nn.LayerNorm):
        x = graph.layer_norm(x, "decoder_norm", model.decoder_norm)
    weight = model.softmax_embedding.weight
    return [(LOGITS, graph.linear(x, "softmax_embedding", weight), (BATCH, LENGTH, len(weight)))]


class EncoderGraph:
    """The layers of one encoder, and its heads on top of them."""

    def __init__(self, graph: OnnxGraph, model: TransformerEncoder) -> None:
        self.graph, self.model = graph, model
        config = model.config
        inputs = build_token_inputs(graph, MASK, causal=config.is_causal, backward=config.reads_backward)
        self.inputs = inputs
        builder = LayerBuilder(graph, config, inputs)
        self.states = [builder.embed(model.embedding, IDS, TYPES if config.n_parts > 1 else None)]
        for i, layer in enumerate(model.encoder):
            self.states.append(builder.append_layer(layer, self.states[-1], f"encoder.{i}"))
        if isinstance(model.encoder_norm, nn.LayerNorm):
            self.states[-1] = graph.layer_norm(self.states[-1], "encoder_norm", model.encoder_norm)
        self.hidden = self.states[-1]
        self.features = self._combine_layers()

    def build_outputs(self, embedding_pooling: str, *, normalised: bool) -> list[Output]:
        """Append the heads; those that predict come first."""
        width = self.model.config.d_model
        outputs = list(self._head_outputs())
        if embedding_pooling:
            outputs.append((HIDDEN, self.hidden, (BATCH, LENGTH, width)))
            vector = self._normalise(self._pool_kind(embedding_pooling, self.hidden), is_wanted=normalised)
            outputs.append((SENTENCE, vector, (BATCH, width)))
        return outputs

    def _head_outputs(self) -> Iterator[Output]:
        graph, heads, width = self.graph, self.model.heads, self.model.config.d_model
        pooled = self._apply_pooler(heads["pooler"]) if "pooler" in heads else ""
        if "label" in heads:
            label: Any = heads["label"]
            logits = graph.linear(pooled, "heads.label", label.weight, label.bias)
            yield LOGITS, logits, (BATCH, label.out_features)
        if "tags" in heads:
            tags: Any = heads["tags"]
            logits = graph.linear(self.features, "heads.tags", tags.out.weight, tags.out.bias)
            yield LOGITS, logits, (BATCH, LENGTH, tags.out.out_features)
        if "span" in heads:
            yield from self._span_outputs(heads["span"])
        if "masked" in heads:
            weight = self.model.embedding.tokens.weight
            yield LOGITS, self._predict_masked(heads["masked"]), (BATCH, LENGTH, len(weight))
        if "next" in heads:
            next_head: Any = heads["next"]
            logits = graph.linear(pooled, "heads.next", next_head.weight, next_head.bias)
            yield NEXT_LOGITS if "masked" in heads else LOGITS, logits, (BATCH, next_head.out_features)
        if set(heads) == {"pooler"}:
            yield POOLED, pooled, (BATCH, width)

    def _combine_layers(self) -> Value:
        """Append the input of the heads: the last layer, or a combination of several."""
        if COMBINATION_NAME not in self.model.heads:
            return self.hidden
        graph, combination = self.graph, self.model.heads[COMBINATION_NAME]
        if isinstance(combination, LastLayersSum):
            return graph.apply("Sum", *self.states[-N_LAST_LAYERS:])
        if isinstance(combination, LastLayersConcatenation):
            return graph.apply("Concat", *self.states[-N_LAST_LAYERS:], axis=-1)
        assert isinstance(combination, ScalarMix)
        weights = (combination.scale * combination.logits.softmax(0)).tolist()
        return graph.apply(
            "Sum", *(graph.multiply(state, graph.number(w)) for state, w in zip(self.states, weights, strict=True))
        )

    def _span_outputs(self, head: nn.Module) -> Iterator[Output]:
        assert isinstance(head, SpanHead)
        logits = self.graph.linear(self.features, "heads.span", head.out.weight, head.out.bias)
        for number, name in enumerate(SPAN_LOGITS):
            index = self.graph.number(number)
            yield name, self.graph.apply("Gather", logits, index, axis=-1), (BATCH, LENGTH)

    def _predict_masked(self, head: nn.Module) -> Value:
        assert isinstance(head, MaskedLMHead)
        graph, embedding = self.graph, head.output_embedding
        x = graph.linear(self.features, "heads.masked.dense", head.dense.weight, head.dense.bias)
        x = apply_activation(graph, self.model.config.activation.removeprefix("gated-"), x)
        x = graph.layer_norm(x, "heads.masked.norm", head.norm)
        weight = self.model.embedding.tokens.weight if embedding is None else embedding.weight
        return graph.linear(x, "heads.masked.output_embedding", weight, head.bias)

    def _apply_pooler(self, head: nn.Module) -> Value:
        assert isinstance(head, Pooler)
        graph = self.graph
        pooled = self._pool(head.pooling, self.features)
        dense = graph.linear(pooled, "heads.pooler.dense", head.dense.weight, head.dense.bias)
        return apply_activation(graph, self.model.config.pooler, dense)

    def _pool(self, pooling: Pooling, hidden: Value) -> Value:
        if isinstance(pooling.attention, AttentionPooling):
            return self._pool_by_attention(pooling.attention, hidden)
        if pooling.kind == "concat":
            kinds = (pooling.final_token, "max", "mean")
            return self.graph.apply("Concat", *(self._pool_kind(kind, hidden) for kind in kinds), axis=-1)
        return self._pool_kind(pooling.kind, hidden)

    def _pool_kind(self, kind: str, hidden: Value) -> Value:
        """Append the vector (B, D) of each text by a pooling without weights."""
        graph = self.graph
        if kind == "max":
            is_token = graph.unsqueeze(graph.apply("Greater", MASK, graph.number(0)), 2)
            tokens = graph.apply("Where", is_token, hidden, graph.number(MASKED_SCORE))
            return graph.apply("ReduceMax", tokens, axes=[1], keepdims=0)
        weights = graph.unsqueeze(self._average_weights(kind), 1)  # (B, 1, T)
        return graph.apply("Squeeze", graph.matmul(weights, hidden), graph.whole_numbers(1))

    def _average_weights(self, kind: str) -> Value:
        """Append the weight of each token (B, T): all, or 1 for the first or the last."""
        graph = self.graph
        if kind == "mean":
            counted = graph.to_float(MASK)
            return graph.apply("Div", counted, graph.sum_over(counted, 1))
        index = graph.apply("Sub", graph.apply("CumSum", MASK, graph.number(1)), graph.number(1))
        last = graph.apply("Sub", graph.sum_over(MASK, 1), graph.number(1))
        wanted = graph.number(0) if kind == "cls" else last
        chosen = graph.apply("Equal", index, wanted)
        is_token = graph.apply("Greater", MASK, graph.number(0))
        return graph.to_float(graph.apply("And", chosen, is_token))

    def _pool_by_attention(self, pooling: AttentionPooling, hidden: Value) -> Value:
        """Append ``softmax(score(q, K))^T V`` for every hop, hops side by side."""
        graph, name = self.graph, "heads.pooler.attention"
        keys = self._project(pooling.key_projection, hidden, f"{name}.key_projection")
        values = self._project(pooling.value_projection, hidden, f"{name}.value_projection")
        query, scorer = pooling.query, pooling.scorer
        if isinstance(scorer, TanhAttention):
            keys = graph.apply("Tanh", graph.linear(keys, f"{name}.hidden", scorer.hidden.weight, scorer.hidden.bias))
        elif isinstance(scorer, ScaledDotAttention):
            query = query / query.shape[-1] ** 0.5
        assert isinstance(scorer, DotAttention), type(scorer).__name__
        scores = graph.transpose(graph.linear(keys, f"{name}.query", query), 0, 2, 1)  # (B, R, T)
        is_token = graph.unsqueeze(graph.apply("Greater", MASK, graph.number(0)), 1)
        masked = graph.apply("Where", is_token, scores, graph.number(MASKED_SCORE))
        pooled = graph.matmul(graph.apply("Softmax", masked, axis=-1), values)  # (B, R, D)
        return graph.reshape(pooled, 0, len(query) * pooling_width(pooling, self.model))

    def _project(self, projection: nn.Module, x: Value, name: str) -> Value:
        return self.graph.linear(x, name, projection.weight) if isinstance(projection, nn.Linear) else x

    def _normalise(self, vectors: Value, *, is_wanted: bool) -> Value:
        """Append the division of vectors by their lengths."""
        if not is_wanted:
            return vectors
        graph = self.graph
        length = graph.apply("ReduceL2", vectors, axes=[1], keepdims=1)
        return graph.apply("Div", vectors, graph.apply("Max", length, graph.number(NORM_FLOOR)))


def pooling_width(pooling: AttentionPooling, model: TransformerEncoder) -> int:
    """Return the width of the vectors that pooling sums."""
    projection = pooling.value_projection
    combination: Any = dict(model.heads).get(COMBINATION_NAME)
    width = model.config.d_model if combination is None else combination.width
    return projection.out_features if isinstance(projection, nn.Linear) else int(width)
