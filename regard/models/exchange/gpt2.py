"""GPT-2 (Radford et al. 2019): a language model whose matrices are stored lying on their side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from regard.models.exchange.family import Family
from regard.models.exchange.options import ACTIVATIONS, Key, choice
from regard.models.exchange.tensors import TURNED, Line, modules, weights
from regard.models.language_model import LanguageModel
from regard.models.presets import LanguageModelConfig, TransformerConfig

WIDTH = 768
"""Their default."""

KEYS = (
    Key("n_embd", "d_model", WIDTH),
    Key("n_layer", "n_layers", 12),
    Key("n_head", "n_heads", 12),
    Key("n_inner", "d_ff", None, lambda _, options: options.value("n_inner", 4 * options.value("n_embd", WIDTH))),
    Key("resid_pdrop", "dropout", 0.1),
    choice("activation_function", "activation", "gelu_new", ACTIVATIONS),
    Key("n_positions", "n_positions", 1024),
    Key("layer_norm_epsilon", "norm_eps", 1e-5),
    Key("tie_word_embeddings", "tied", True),
)

EMBEDDING = {"embedding.tokens": "wte", "embedding.positions.vectors": "wpe"}
MATRICES = {
    "attention.projection": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.inner": "mlp.c_fc",
    "feed_forward.outer": "mlp.c_proj",
}
NORMS = {"around_attention.norm": "ln_1", "around_feed_forward.norm": "ln_2"}
TOP = "lm_head.weight"


@dataclass(frozen=True, kw_only=True)
class Gpt2(Family):
    """A body alone is read as a language model, whose words are those that enter it."""

    Config: ClassVar[type[TransformerConfig]] = LanguageModelConfig

    @property
    def architectures(self) -> Iterable[str]:
        return ["GPT2Model", "GPT2LMHeadModel"]

    def architecture(self, model: LanguageModel) -> str:
        return "GPT2LMHeadModel"

    def lines(self, model: LanguageModel) -> list[Line]:
        tokens, positions = weights(EMBEDDING)
        tied = model.config.tied
        lines = [replace(tokens, copies=(TOP,)) if tied else tokens, positions]
        for i in range(model.config.n_layers):
            lines += modules(MATRICES, f"decoder.{i}.", f"h.{i}.", TURNED)
            lines += modules(NORMS, f"decoder.{i}.", f"h.{i}.")
        lines += modules({"decoder_norm": "ln_f"})
        return lines if tied else [*lines, Line("softmax_embedding.weight", (TOP,), body=False)]


GPT2 = Gpt2(
    name="GPT-2",
    model_type="gpt2",
    prefix="transformer.",
    keys=KEYS,
    always={
        "architecture": "transformer",
        "positions": "learned",
        "first_position": 0,
        "norm": "pre",
        "embedding": "plain",
    },
    fixed={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    written={"embd_pdrop": 0.0, "attn_pdrop": 0.0},
    empty=("h.*.attn.bias", "h.*.attn.masked_bias"),
)
