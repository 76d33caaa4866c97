"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020): BERT with positions starting after the pad id."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from regard.errors import InputError
from regard.models.encoder import TransformerEncoder
from regard.models.exchange.bert import BERT_LIKE_FIELDS, KEYS
from regard.models.exchange.encoders import CONSTANT_FIELDS, HEADS_BY_SUFFIX, HFEncoderFamily
from regard.models.exchange.hf_config import ConfigKey, HFConfig

DEFAULT_PAD_ID = 1
"""The default pad id of transformers; the first token of a text has the position after it."""

POSITION_KEYS = (
    ConfigKey("pad_token_id", "first_position", DEFAULT_PAD_ID, lambda pad, _: pad + 1, lambda first, _: first - 1),
    ConfigKey(
        "max_position_embeddings",
        "n_positions",
        512,
        lambda n_rows, hf_config: n_rows - hf_config.get("pad_token_id", DEFAULT_PAD_ID) - 1,
        lambda n_positions, config: n_positions + config.first_position,
    ),
)

HEAD_MODULES = {
    "masked": {"heads.masked.dense": "lm_head.dense", "heads.masked.norm": "lm_head.layer_norm"},
    "label": {"heads.pooler.dense": "classifier.dense", "heads.label": "classifier.out_proj"},
    "tags": {"heads.tags.out": "classifier"},
    "span": {"heads.span.out": "qa_outputs"},
}


@dataclass(frozen=True, kw_only=True)
class RobertaFamily(HFEncoderFamily):
    """RoBERTa and XLM-R; their masked LM head has a GELU, whatever the activation of the layers."""

    def config_fields(self, hf_config: HFConfig, tensor_names: Container[str]) -> dict[str, Any]:
        if "lm_head.dense.weight" in tensor_names:
            hf_config.require_values({"hidden_act": "gelu"})
        return super().config_fields(hf_config, tensor_names)

    def to_hf_config(self, model: TransformerEncoder) -> dict[str, Any]:
        if "masked" in model.heads and model.config.activation != "gelu":
            raise InputError(
                f'model.activation = "{model.config.activation}": the masked LM head of {self.name} has only "gelu"'
            )
        return super().to_hf_config(model)


def _roberta_family(name: str, model_type: str, class_prefix: str) -> RobertaFamily:
    return RobertaFamily(
        name=name,
        model_type=model_type,
        class_prefix=class_prefix,
        prefix="roberta.",
        heads_by_suffix={suffix: heads for suffix, heads in HEADS_BY_SUFFIX.items() if "next" not in heads},
        config_keys=(*KEYS, *POSITION_KEYS),
        constant_fields=CONSTANT_FIELDS,
        head_modules=HEAD_MODULES,
        decoder_name="lm_head.decoder",
        bias_name="lm_head.bias",
        **BERT_LIKE_FIELDS,
    )


ROBERTA = _roberta_family("RoBERTa", "roberta", "Roberta")
XLM_ROBERTA = _roberta_family("XLM-R", "xlm-roberta", "XLMRoberta")
