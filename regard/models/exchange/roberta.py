"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020): BERT with positions counted from the pad token's id on."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from regard.errors import InputError
from regard.models.encoder import TextEncoder
from regard.models.exchange.bert import EMBEDDING, KEYS, LAYER
from regard.models.exchange.encoders import ALWAYS, EMPTY, HEADS, EncoderFamily
from regard.models.exchange.options import Key, Options

PAD = 1
"""Their default id of the pad token: the first token of a text has the position after it."""

POSITIONS = (
    Key("pad_token_id", "first_position", PAD, lambda pad, _: pad + 1, lambda first, _: first - 1),
    Key(
        "max_position_embeddings",
        "n_positions",
        512,
        lambda rows, options: rows - options.value("pad_token_id", PAD) - 1,
        lambda count, config: count + config.first_position,
    ),
)

TOPS = {
    "masked": {"heads.masked.dense": "lm_head.dense", "heads.masked.norm": "lm_head.layer_norm"},
    "label": {"heads.pooler.dense": "classifier.dense", "heads.label": "classifier.out_proj"},
    "tags": {"heads.tags.out": "classifier"},
}


@dataclass(frozen=True, kw_only=True)
class Roberta(EncoderFamily):
    """Its masked-word head has a gelu, whatever the layers have."""

    def fields(self, options: Options, names: Container[str]) -> dict[str, Any]:
        if "lm_head.dense.weight" in names:
            options.require({"hidden_act": "gelu"})
        return super().fields(options, names)

    def table(self, model: TextEncoder) -> dict[str, Any]:
        if "masked" in model.heads and model.config.activation != "gelu":
            raise InputError(f'model.activation = "{model.config.activation}": {self.name} finds words with a "gelu"')
        return super().table(model)


def _named(name: str, model_type: str, stem: str) -> Roberta:
    return Roberta(
        name=name,
        model_type=model_type,
        stem=stem,
        prefix="roberta.",
        endings={ending: heads for ending, heads in HEADS.items() if "next" not in heads},
        keys=(*KEYS, *POSITIONS),
        always=ALWAYS,
        fixed={"position_embedding_type": "absolute"},
        written={"attention_probs_dropout_prob": 0.0, "position_embedding_type": "absolute"},
        embedding=EMBEDDING,
        layers="encoder.layer",
        layer=LAYER,
        tops=TOPS,
        decoder="lm_head.decoder",
        bias="lm_head.bias",
        empty=EMPTY,
        unneeded=("pooler.dense.*",),
    )


ROBERTA = _named("RoBERTa", "roberta", "Roberta")
XLM_ROBERTA = _named("XLM-R", "xlm-roberta", "XLMRoberta")
