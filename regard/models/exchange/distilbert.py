"""DistilBERT (Sanh et al. 2019): BERT without parts of the input and without a pooler, but for its head of texts."""

from __future__ import annotations

from regard.models.exchange.encoders import ALWAYS, EMPTY, EncoderFamily
from regard.models.exchange.options import ACTIVATIONS, Key, choice
from regard.models.exchange.tensors import Table

KEYS = (
    Key("dim", "d_model", 768),
    Key("n_layers", "n_layers", 6),
    Key("n_heads", "n_heads", 12),
    Key("hidden_dim", "d_ff", 3072),
    Key("dropout", "dropout", 0.1),
    choice("activation", "activation", "gelu", ACTIVATIONS),
    Key("max_position_embeddings", "n_positions", 512),
    Key("tie_word_embeddings", "tied", True),
)

LAYER: Table = {
    "attention.projection": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": "attention.out_lin",
    "around_attention.norm": "sa_layer_norm",
    "feed_forward.inner": "ffn.lin1",
    "feed_forward.outer": "ffn.lin2",
    "around_feed_forward.norm": "output_layer_norm",
}

DISTILBERT = EncoderFamily(
    name="DistilBERT",
    model_type="distilbert",
    stem="DistilBert",
    prefix="distilbert.",
    endings={
        "Model": (),
        "ForMaskedLM": ("masked",),
        "ForSequenceClassification": ("pooler", "label"),
        "ForTokenClassification": ("tags",),
    },
    keys=KEYS,
    always={**ALWAYS, "first_position": 0, "norm_eps": 1e-12, "n_parts": 0},
    fixed={"sinusoidal_pos_embds": False},
    written={"attention_dropout": 0.0, "sinusoidal_pos_embds": False},
    embedding={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.positions.vectors": "embeddings.position_embeddings",
    },
    layers="transformer.layer",
    layer=LAYER,
    tops={
        "masked": {"heads.masked.dense": "vocab_transform", "heads.masked.norm": "vocab_layer_norm"},
        "label": {"heads.pooler.dense": "pre_classifier", "heads.label": "classifier"},
        "tags": {"heads.tags.out": "classifier"},
    },
    decoder="vocab_projector",
    bias="vocab_projector.bias",
    pooler="relu",
    empty=EMPTY,
)
