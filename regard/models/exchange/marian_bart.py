"""Marian (Junczys-Dowmunt et al. 2018) and BART (Lewis et al. 2020): encoder-decoders with the same layers.

Marian has sinusoidal positions, which are not weights, and may have two vocabularies; BART has learned positions and a
norm on its embeddings. Both add a bias to the logits.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from regard.errors import CheckpointError, InputError
from regard.models.config import TransformerConfig, TransformerSeq2SeqConfig
from regard.models.exchange.hf_config import HF_ACTIVATIONS, ConfigKey, HFConfig, choice_key
from regard.models.exchange.hf_family import HFModelFamily
from regard.models.exchange.weight_mapping import (
    UNSQUEEZE,
    HFWeights,
    ModuleMapping,
    WeightMapping,
    map_modules,
    map_weights,
)
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import SinusoidalPositions
from regard.text.tokenizer import TokenizerPair

KEYS = (
    ConfigKey("d_model", "d_model", 1024),
    ConfigKey("encoder_layers", "n_layers", 12),
    ConfigKey("decoder_layers", "n_decoder_layers", 12),
    ConfigKey("encoder_attention_heads", "n_heads", 16),
    ConfigKey("decoder_attention_heads", "n_heads", 16),
    ConfigKey("encoder_ffn_dim", "d_ff", 4096),
    ConfigKey("decoder_ffn_dim", "d_ff", 4096),
    ConfigKey("dropout", "dropout", 0.1),
    choice_key("activation_function", "activation", "gelu", HF_ACTIVATIONS),
    ConfigKey("max_position_embeddings", "n_positions", 1024),
    ConfigKey("tie_word_embeddings", "tied", True),
)

CONSTANT_FIELDS = {"architecture": "transformer", "norm": "post", "norm_eps": 1e-5}
REQUIRED_VALUES = {"normalize_before": False, "add_final_layer_norm": False, "add_bias_logits": False}
"""Keys of old configs, for variants that transformers no longer supports."""

SELF_ATTENTION_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
CROSS_ATTENTION_QKV = ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj")

ENCODER_LAYER: ModuleMapping = {
    "attention.projection": SELF_ATTENTION_QKV,
    "attention.output": "self_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.up_projection": "fc1",
    "feed_forward.down_projection": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
DECODER_LAYER: ModuleMapping = {
    **ENCODER_LAYER,
    "cross_attention.projection": CROSS_ATTENTION_QKV,
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}

FINAL_NORMS = {"encoder_norm": "encoder.layer_norm", "decoder_norm": "decoder.layer_norm"}
SIDES = (("source", "encoder"), ("target", "decoder"))

SOURCE_EMBEDDING, TARGET_EMBEDDING, SOFTMAX_EMBEDDING = (
    f"{name}.weight" for name in ("source_embedding.tokens", "target_embedding.tokens", "softmax_embedding")
)
HF_ENCODER_EMBEDDING, HF_DECODER_EMBEDDING, HF_SHARED_EMBEDDING, LM_HEAD = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "shared.weight",
    "lm_head.weight",
)
LOGITS_BIAS = "final_logits_bias"

SINUSOID_TENSORS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
SINUSOID_TOLERANCE = 1e-3
"""The largest accepted difference of stored sinusoids, some of which were rounded to 16 bits."""


@dataclass(frozen=True, kw_only=True)
class HFSeq2SeqFamily(HFModelFamily):
    """A family of encoder-decoders; a base model without a head is read as one with tied embeddings.

    With `has_two_vocabularies`, source and target may have a vocabulary each.
    """

    Config: ClassVar[type[TransformerConfig]] = TransformerSeq2SeqConfig

    base_class: str
    model_class: str
    has_two_vocabularies: bool = False

    @property
    def architectures(self) -> Iterable[str]:
        return [self.base_class, self.model_class]

    def architecture_for(self, model: TransformerSeq2Seq) -> str:
        return self.model_class

    def config_fields(self, hf_config: HFConfig, tensor_names: Container[str]) -> dict[str, Any]:
        return {**super().config_fields(hf_config, tensor_names), "output_bias": LOGITS_BIAS in tensor_names}

    def check_vocabularies(self, model: TransformerSeq2Seq, tokenizers: TokenizerPair) -> None:
        if not (tokenizers.is_joint or self.has_two_vocabularies):
            problem = f"tokenizer.joint = false: {self.name} has one vocabulary"
            raise InputError(f"{problem}, so this model cannot be exported as one")

    def separate_vocabulary_values(self, tokenizers: TokenizerPair) -> dict[str, Any]:
        """Return the config values of a family that may have two vocabularies."""
        if not self.has_two_vocabularies:
            return {}
        return {
            "decoder_vocab_size": len(tokenizers.target),
            "share_encoder_decoder_embeddings": tokenizers.is_joint,
        }

    def weight_mappings(self, model: TransformerSeq2Seq) -> list[WeightMapping]:
        config = model.config
        mappings = list(_embedding_mappings(model))
        if config.positions == "learned":
            for side, hf_side in SIDES:
                mappings += map_weights({f"{side}_embedding.positions.embedding": f"{hf_side}.embed_positions"})
        if config.embedding == "normed":
            for side, hf_side in SIDES:
                mappings += map_modules({f"{side}_embedding.norm": f"{hf_side}.layernorm_embedding"})
        if config.norm == "pre":
            mappings += map_modules(FINAL_NORMS)
        for i in range(config.n_layers):
            mappings += map_modules(ENCODER_LAYER, f"encoder.{i}.", f"encoder.layers.{i}.")
        for i in range(config.n_decoder_layers):
            mappings += map_modules(DECODER_LAYER, f"decoder.{i}.", f"decoder.layers.{i}.")
        if config.output_bias:
            mappings.append(WeightMapping("output_bias", (LOGITS_BIAS,), UNSQUEEZE, in_body=False))
        return mappings

    def load_weights(self, model: TransformerSeq2Seq, weights: HFWeights) -> None:
        """Load all tensors; stored sinusoidal positions, which are not weights, must equal the computed ones."""
        super().load_weights(model, weights)
        for name in self.ignored_tensors:
            table = weights.get(name)
            scheme = model.source_embedding.positions
            if table is not None and isinstance(scheme, SinusoidalPositions):
                expected = scheme.table(torch.arange(len(table)))
                if table.shape != expected.shape or (table - expected).abs().max() > SINUSOID_TOLERANCE:
                    raise CheckpointError(f"{weights.path}: '{self.prefix}{name}' does not hold sinusoidal positions")


def _embedding_mappings(model: TransformerSeq2Seq) -> Iterator[WeightMapping]:
    """Yield the embeddings: all shared, or input and output of the target shared, or all separate."""
    if model.config.tied and model.joint:
        yield WeightMapping(
            SOURCE_EMBEDDING, (HF_SHARED_EMBEDDING,), tied_names=(HF_ENCODER_EMBEDDING, HF_DECODER_EMBEDDING, LM_HEAD)
        )
    elif model.config.tied:
        yield WeightMapping(SOURCE_EMBEDDING, (HF_ENCODER_EMBEDDING,))
        yield WeightMapping(TARGET_EMBEDDING, (HF_DECODER_EMBEDDING,), tied_names=(LM_HEAD,))
    else:
        shared = (HF_SHARED_EMBEDDING,) if model.joint else ()
        yield WeightMapping(SOURCE_EMBEDDING, (HF_ENCODER_EMBEDDING,), legacy_names=shared)
        yield WeightMapping(TARGET_EMBEDDING, (HF_DECODER_EMBEDDING,), legacy_names=shared)
        yield WeightMapping(SOFTMAX_EMBEDDING, (LM_HEAD,), in_body=False)


MARIAN = HFSeq2SeqFamily(
    name="Marian",
    model_type="marian",
    base_class="MarianModel",
    model_class="MarianMTModel",
    prefix="model.",
    has_two_vocabularies=True,
    config_keys=(*KEYS, choice_key("scale_embedding", "embedding", False, {True: "scaled", False: "plain"})),
    constant_fields={**CONSTANT_FIELDS, "positions": "sinusoidal-halves", "first_position": 0},
    required_values={**REQUIRED_VALUES, "normalize_embedding": False, "static_position_embeddings": True},
    extra_config_values={"attention_dropout": 0.0, "activation_dropout": 0.0, "is_encoder_decoder": True},
    ignored_tensors=SINUSOID_TENSORS,
)

BART = HFSeq2SeqFamily(
    name="BART",
    model_type="bart",
    base_class="BartModel",
    model_class="BartForConditionalGeneration",
    prefix="model.",
    config_keys=KEYS,
    constant_fields={**CONSTANT_FIELDS, "positions": "learned", "first_position": 2, "embedding": "normed"},
    required_values={
        **REQUIRED_VALUES,
        "normalize_embedding": True,
        "static_position_embeddings": False,
        "scale_embedding": False,
    },
    extra_config_values={
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "is_encoder_decoder": True,
        "scale_embedding": False,
    },
)
