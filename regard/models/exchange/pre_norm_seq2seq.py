"""Pegasus (Zhang et al. 2020) and Blenderbot (Roller et al. 2021): encoder-decoders with norms before their sublayers.

They have the tensors of Marian and BART (marian_bart.py) and a norm after each stack. Pegasus has sinusoidal positions,
which are not weights, Blenderbot learned ones; both have one vocabulary.
"""

from __future__ import annotations

from typing import Any

from regard.models.exchange.hf_config import choice_key
from regard.models.exchange.marian_bart import KEYS, SINUSOID_TENSORS, HFSeq2SeqFamily

PRE_NORM_FIELDS = {"architecture": "transformer", "norm": "pre", "norm_eps": 1e-5, "first_position": 0}
SCALE_KEY = choice_key("scale_embedding", "embedding", False, {True: "scaled", False: "plain"})

EXTRA_CONFIG_VALUES: dict[str, Any] = {
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "is_encoder_decoder": True,
    "encoder_no_repeat_ngram_size": 0,
}
"""Those of Marian; Blenderbot's default would forbid to repeat three tokens of the source."""

PEGASUS = HFSeq2SeqFamily(
    name="Pegasus",
    model_type="pegasus",
    base_class="PegasusModel",
    model_class="PegasusForConditionalGeneration",
    prefix="model.",
    config_keys=(*KEYS, SCALE_KEY),
    constant_fields={**PRE_NORM_FIELDS, "positions": "sinusoidal-halves"},
    extra_config_values=EXTRA_CONFIG_VALUES,
    ignored_tensors=SINUSOID_TENSORS,
)

BLENDERBOT = HFSeq2SeqFamily(
    name="Blenderbot",
    model_type="blenderbot",
    base_class="BlenderbotModel",
    model_class="BlenderbotForConditionalGeneration",
    prefix="model.",
    config_keys=(*KEYS, SCALE_KEY),
    constant_fields={**PRE_NORM_FIELDS, "positions": "learned"},
    extra_config_values=EXTRA_CONFIG_VALUES,
)
