"""BERT (Devlin et al. 2019), and models stored as one, such as MiniLM: tables for weight_mapping.py."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from regard.models.exchange.encoders import (
    CONSTANT_FIELDS,
    HEADS_BY_SUFFIX,
    IGNORED_TENSORS,
    POOLER_WEIGHT,
    HFEncoderFamily,
)
from regard.models.exchange.hf_config import HF_ACTIVATIONS, ConfigKey, choice_key
from regard.models.exchange.weight_mapping import ModuleMapping

KEYS = (
    ConfigKey("hidden_size", "d_model", 768),
    ConfigKey("num_hidden_layers", "n_layers", 12),
    ConfigKey("num_attention_heads", "n_heads", 12),
    ConfigKey("intermediate_size", "d_ff", 3072),
    ConfigKey("hidden_dropout_prob", "dropout", 0.1),
    choice_key("hidden_act", "activation", "gelu", HF_ACTIVATIONS),
    ConfigKey("type_vocab_size", "n_parts", 2),
    ConfigKey("layer_norm_eps", "norm_eps", 1e-12),
    ConfigKey("tie_word_embeddings", "tied", True),
)

EMBEDDING = {
    "embedding.tokens": "embeddings.word_embeddings",
    "embedding.positions.embedding": "embeddings.position_embeddings",
    "embedding.token_types": "embeddings.token_type_embeddings",
}

LAYER: ModuleMapping = {
    "attention.projection": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.up_projection": "intermediate.dense",
    "feed_forward.down_projection": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}

HEAD_MODULES = {
    "masked": {
        "heads.masked.dense": "cls.predictions.transform.dense",
        "heads.masked.norm": "cls.predictions.transform.LayerNorm",
    },
    "next": {"heads.next": "cls.seq_relationship"},
    "label": {"heads.label": "classifier"},
    "tags": {"heads.tags.out": "classifier"},
    "span": {"heads.span.out": "qa_outputs"},
}


BERT_LIKE_FIELDS: dict[str, Any] = {
    "required_values": {"position_embedding_type": "absolute"},
    "extra_config_values": {"attention_probs_dropout_prob": 0.0, "position_embedding_type": "absolute"},
    "embedding_modules": EMBEDDING,
    "layers_name": "encoder.layer",
    "layer_modules": LAYER,
    "ignored_tensors": IGNORED_TENSORS,
    "unused_tensors": ("pooler.dense.*",),
}
"""Fields of BERT and of the families that store their layers as BERT does."""


@dataclass(frozen=True, kw_only=True)
class BertFamily(HFEncoderFamily):
    """BERT; bert-base names BertForMaskedLM as its class but holds all tensors of BertForPreTraining."""

    def head_names(self, architecture: str, tensor_names: Container[str]) -> tuple[str, ...]:
        has_all_heads = "cls.seq_relationship.weight" in tensor_names and POOLER_WEIGHT in tensor_names
        if has_all_heads and architecture == "BertForMaskedLM":
            architecture = "BertForPreTraining"
        return super().head_names(architecture, tensor_names)


BERT = BertFamily(
    name="BERT",
    model_type="bert",
    class_prefix="Bert",
    prefix="bert.",
    heads_by_suffix=HEADS_BY_SUFFIX,
    config_keys=(*KEYS, ConfigKey("max_position_embeddings", "n_positions", 512)),
    constant_fields={**CONSTANT_FIELDS, "first_position": 0},
    head_modules=HEAD_MODULES,
    decoder_name="cls.predictions.decoder",
    bias_name="cls.predictions.bias",
    **BERT_LIKE_FIELDS,
)
