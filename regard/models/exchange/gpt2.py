"""GPT-2 (Radford et al. 2019): a language model whose matrices are stored transposed (Conv1D)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from regard.models.config import TransformerConfig, TransformerLMConfig
from regard.models.exchange.hf_config import HF_ACTIVATIONS, ConfigKey, choice_key
from regard.models.exchange.hf_family import HFModelFamily
from regard.models.exchange.weight_mapping import TRANSPOSE, WeightMapping, map_modules, map_weights
from regard.models.language_model import TransformerLM

DEFAULT_WIDTH = 768
"""The default of transformers."""

KEYS = (
    ConfigKey("n_embd", "d_model", DEFAULT_WIDTH),
    ConfigKey("n_layer", "n_layers", 12),
    ConfigKey("n_head", "n_heads", 12),
    ConfigKey(
        "n_inner", "d_ff", None, lambda _, config: config.get("n_inner", 4 * config.get("n_embd", DEFAULT_WIDTH))
    ),
    ConfigKey("resid_pdrop", "dropout", 0.1),
    choice_key("activation_function", "activation", "gelu_new", HF_ACTIVATIONS),
    ConfigKey("n_positions", "n_positions", 1024),
    ConfigKey("layer_norm_epsilon", "norm_eps", 1e-5),
    ConfigKey("tie_word_embeddings", "tied", True),
)

EMBEDDING = {"embedding.tokens": "wte", "embedding.positions.embedding": "wpe"}
CONV1D_MODULES = {
    "attention.projection": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.up_projection": "mlp.c_fc",
    "feed_forward.down_projection": "mlp.c_proj",
}
NORMS = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}
LM_HEAD = "lm_head.weight"


@dataclass(frozen=True, kw_only=True)
class GPT2Family(HFModelFamily):
    """GPT-2; a base model without a head is read as a language model with tied embeddings."""

    Config: ClassVar[type[TransformerConfig]] = TransformerLMConfig

    @property
    def architectures(self) -> Iterable[str]:
        return ["GPT2Model", "GPT2LMHeadModel"]

    def architecture_for(self, model: TransformerLM) -> str:
        return "GPT2LMHeadModel"

    def weight_mappings(self, model: TransformerLM) -> list[WeightMapping]:
        tokens, positions = map_weights(EMBEDDING)
        tied = model.config.tied
        mappings = [replace(tokens, tied_names=(LM_HEAD,)) if tied else tokens, positions]
        for i in range(model.config.n_layers):
            mappings += map_modules(CONV1D_MODULES, f"decoder.{i}.", f"h.{i}.", TRANSPOSE)
            mappings += map_modules(NORMS, f"decoder.{i}.", f"h.{i}.")
        mappings += map_modules({"decoder_norm": "ln_f"})
        return mappings if tied else [*mappings, WeightMapping("softmax_embedding.weight", (LM_HEAD,), in_body=False)]


GPT2 = GPT2Family(
    name="GPT-2",
    model_type="gpt2",
    prefix="transformer.",
    config_keys=KEYS,
    constant_fields={
        "architecture": "transformer",
        "positions": "learned",
        "first_position": 0,
        "norm": "pre",
        "embedding": "plain",
    },
    required_values={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    extra_config_values={"embd_pdrop": 0.0, "attn_pdrop": 0.0},
    ignored_tensors=("h.*.attn.bias", "h.*.attn.masked_bias"),
)
