"""DistilBERT (Sanh et al. 2019): BERT without token types, and without a pooler except for sequence classification."""

from __future__ import annotations

from regard.models.exchange.encoders import CONSTANT_FIELDS, IGNORED_TENSORS, HFEncoderFamily
from regard.models.exchange.hf_config import HF_ACTIVATIONS, ConfigKey, choice_key
from regard.models.exchange.weight_mapping import ModuleMapping

KEYS = (
    ConfigKey("dim", "d_model", 768),
    ConfigKey("n_layers", "n_layers", 6),
    ConfigKey("n_heads", "n_heads", 12),
    ConfigKey("hidden_dim", "d_ff", 3072),
    ConfigKey("dropout", "dropout", 0.1),
    choice_key("activation", "activation", "gelu", HF_ACTIVATIONS),
    ConfigKey("max_position_embeddings", "n_positions", 512),
    ConfigKey("tie_word_embeddings", "tied", True),
)

LAYER: ModuleMapping = {
    "attention.projection": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": "attention.out_lin",
    "attention_residual.norm": "sa_layer_norm",
    "feed_forward.up_projection": "ffn.lin1",
    "feed_forward.down_projection": "ffn.lin2",
    "feed_forward_residual.norm": "output_layer_norm",
}

DISTILBERT = HFEncoderFamily(
    name="DistilBERT",
    model_type="distilbert",
    class_prefix="DistilBert",
    prefix="distilbert.",
    heads_by_suffix={
        "Model": (),
        "ForMaskedLM": ("masked",),
        "ForSequenceClassification": ("pooler", "label"),
        "ForTokenClassification": ("tags",),
        "ForQuestionAnswering": ("span",),
    },
    config_keys=KEYS,
    constant_fields={**CONSTANT_FIELDS, "first_position": 0, "norm_eps": 1e-12, "n_parts": 0},
    required_values={"sinusoidal_pos_embds": False},
    extra_config_values={"attention_dropout": 0.0, "sinusoidal_pos_embds": False},
    embedding_modules={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.positions.embedding": "embeddings.position_embeddings",
    },
    layers_name="transformer.layer",
    layer_modules=LAYER,
    head_modules={
        "masked": {"heads.masked.dense": "vocab_transform", "heads.masked.norm": "vocab_layer_norm"},
        "label": {"heads.pooler.dense": "pre_classifier", "heads.label": "classifier"},
        "tags": {"heads.tags.out": "classifier"},
        "span": {"heads.span.out": "qa_outputs"},
    },
    decoder_name="vocab_projector",
    bias_name="vocab_projector.bias",
    pooler_activation="relu",
    ignored_tensors=IGNORED_TENSORS,
)
