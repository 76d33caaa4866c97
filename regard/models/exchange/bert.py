"""BERT (Devlin et al. 2019), and with it MiniLM and whatever else is stored as one."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from regard.models.exchange.encoders import ALWAYS, EMPTY, HEADS, POOLED, EncoderFamily
from regard.models.exchange.options import ACTIVATIONS, Key, choice
from regard.models.exchange.tensors import Table

KEYS = (
    Key("hidden_size", "d_model", 768),
    Key("num_hidden_layers", "n_layers", 12),
    Key("num_attention_heads", "n_heads", 12),
    Key("intermediate_size", "d_ff", 3072),
    Key("hidden_dropout_prob", "dropout", 0.1),
    choice("hidden_act", "activation", "gelu", ACTIVATIONS),
    Key("type_vocab_size", "n_parts", 2),
    Key("layer_norm_eps", "norm_eps", 1e-12),
    Key("tie_word_embeddings", "tied", True),
)

EMBEDDING = {
    "embedding.tokens": "embeddings.word_embeddings",
    "embedding.positions.vectors": "embeddings.position_embeddings",
    "embedding.parts": "embeddings.token_type_embeddings",
}

LAYER: Table = {
    "attention.projection": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": "attention.output.dense",
    "around_attention.norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "around_feed_forward.norm": "output.LayerNorm",
}

TOPS = {
    "masked": {
        "heads.masked.dense": "cls.predictions.transform.dense",
        "heads.masked.norm": "cls.predictions.transform.LayerNorm",
    },
    "next": {"heads.next": "cls.seq_relationship"},
    "label": {"heads.label": "classifier"},
    "tags": {"heads.tags.out": "classifier"},
}


@dataclass(frozen=True, kw_only=True)
class Bert(EncoderFamily):
    """bert-base says that it is a BertForMaskedLM, and holds all that BertForPreTraining has."""

    def heads(self, architecture: str, names: Container[str]) -> tuple[str, ...]:
        whole = "cls.seq_relationship.weight" in names and POOLED in names
        more = whole and architecture == "BertForMaskedLM"
        return super().heads("BertForPreTraining" if more else architecture, names)


BERT = Bert(
    name="BERT",
    model_type="bert",
    stem="Bert",
    prefix="bert.",
    endings=HEADS,
    keys=(*KEYS, Key("max_position_embeddings", "n_positions", 512)),
    always={**ALWAYS, "first_position": 0},
    fixed={"position_embedding_type": "absolute"},
    written={"attention_probs_dropout_prob": 0.0, "position_embedding_type": "absolute"},
    embedding=EMBEDDING,
    layers="encoder.layer",
    layer=LAYER,
    tops=TOPS,
    decoder="cls.predictions.decoder",
    bias="cls.predictions.bias",
    empty=EMPTY,
    unneeded=("pooler.dense.*",),
)
