"""Marian (Junczys-Dowmunt et al. 2018) and BART (Lewis et al. 2020): encoder-decoders with the same layers.

Marian has sinusoidal positions, which are no weights, and may have a vocabulary for each side; BART has learned ones
and a norm on its embeddings. Both add a bias to the logits.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from regard.errors import CheckpointError
from regard.models.exchange.family import Family
from regard.models.exchange.options import ACTIVATIONS, Key, Options, choice
from regard.models.exchange.tensors import IN_A_ROW, File, Line, Table, modules, weights
from regard.models.presets import Seq2SeqConfig, TransformerConfig
from regard.models.seq2seq import Seq2Seq
from regard.nn import SinusoidalPositions

KEYS = (
    Key("d_model", "d_model", 1024),
    Key("encoder_layers", "n_layers", 12),
    Key("decoder_layers", "n_decoder_layers", 12),
    Key("encoder_attention_heads", "n_heads", 16),
    Key("decoder_attention_heads", "n_heads", 16),
    Key("encoder_ffn_dim", "d_ff", 4096),
    Key("decoder_ffn_dim", "d_ff", 4096),
    Key("dropout", "dropout", 0.1),
    choice("activation_function", "activation", "gelu", ACTIVATIONS),
    Key("max_position_embeddings", "n_positions", 1024),
    Key("tie_word_embeddings", "tied", True),
)

ALWAYS = {"architecture": "transformer", "norm": "post", "norm_eps": 1e-5}
FIXED = {"normalize_before": False, "add_final_layer_norm": False, "add_bias_logits": False}
"""Keys of old configs, for kinds that these families do not have any more."""

SELF = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
CROSS = ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj")

ENCODER_LAYER: Table = {
    "attention.projection": SELF,
    "attention.output": "self_attn.out_proj",
    "around_attention.norm": "self_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
}
DECODER_LAYER: Table = {
    **ENCODER_LAYER,
    "cross_attention.projection": CROSS,
    "cross_attention.output": "encoder_attn.out_proj",
    "around_cross.norm": "encoder_attn_layer_norm",
}

SOURCE, TARGET, SOFTMAX = (
    f"{name}.weight" for name in ("source_embedding.tokens", "target_embedding.tokens", "softmax_embedding")
)
ENCODER, DECODER, SHARED, TOP = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "shared.weight",
    "lm_head.weight",
)
BIAS = "final_logits_bias"

NEARLY = 1e-3
"""How far stored sinusoids may be from ours: some were rounded to 16 bits."""


@dataclass(frozen=True, kw_only=True)
class Seq2SeqFamily(Family):
    """An encoder-decoder, `model` in their words; a body alone is read as one, whose words are those that enter it."""

    Config: ClassVar[type[TransformerConfig]] = Seq2SeqConfig

    body: str
    model: str

    @property
    def architectures(self) -> Iterable[str]:
        return [self.body, self.model]

    def architecture(self, model: Seq2Seq) -> str:
        return self.model

    def fields(self, options: Options, names: Container[str]) -> dict[str, Any]:
        return {**super().fields(options, names), "output_bias": BIAS in names}

    def lines(self, model: Seq2Seq) -> list[Line]:
        config = model.config
        lines = list(_tokens(model))
        if config.positions == "learned":
            for ours, theirs in (("source", "encoder"), ("target", "decoder")):
                lines += weights({f"{ours}_embedding.positions.vectors": f"{theirs}.embed_positions"})
                lines += modules({f"{ours}_embedding.norm": f"{theirs}.layernorm_embedding"})
        for i in range(config.n_layers):
            lines += modules(ENCODER_LAYER, f"encoder.{i}.", f"encoder.layers.{i}.")
        for i in range(config.n_decoder_layers):
            lines += modules(DECODER_LAYER, f"decoder.{i}.", f"decoder.layers.{i}.")
        if config.output_bias:
            lines.append(Line("output_bias", (BIAS,), IN_A_ROW, body=False))
        return lines

    def fill(self, model: Seq2Seq, file: File) -> None:
        """Positions that are stored although they are no weights must be the ones our models work out."""
        super().fill(model, file)
        for name in self.empty:
            table = file.get(name)
            scheme = model.source_embedding.positions
            if table is not None and isinstance(scheme, SinusoidalPositions):
                expected = scheme.table(torch.arange(len(table)))
                if table.shape != expected.shape or (table - expected).abs().max() > NEARLY:
                    raise CheckpointError(f"{file.where}: '{self.prefix}{name}' holds other than sinusoidal positions")


def _tokens(model: Seq2Seq) -> Iterator[Line]:
    """The vectors of tokens: all one, or those of the target one, or all apart, with one more that is of no use."""
    if model.config.tied and model.joint:
        yield Line(SOURCE, (SHARED,), copies=(ENCODER, DECODER, TOP))
    elif model.config.tied:
        yield Line(SOURCE, (ENCODER,))
        yield Line(TARGET, (DECODER,), copies=(TOP,))
    else:
        shared = (SHARED,) if model.joint else ()
        yield Line(SOURCE, (ENCODER,), older=shared)
        yield Line(TARGET, (DECODER,), older=shared)
        yield Line(SOFTMAX, (TOP,), body=False)


MARIAN = Seq2SeqFamily(
    name="Marian",
    model_type="marian",
    body="MarianModel",
    model="MarianMTModel",
    prefix="model.",
    keys=(*KEYS, choice("scale_embedding", "embedding", False, {True: "scaled", False: "plain"})),
    always={**ALWAYS, "positions": "sinusoidal-halves", "first_position": 0},
    fixed={**FIXED, "normalize_embedding": False, "static_position_embeddings": True},
    written={"attention_dropout": 0.0, "activation_dropout": 0.0, "is_encoder_decoder": True},
    empty=("encoder.embed_positions.weight", "decoder.embed_positions.weight"),
)

BART = Seq2SeqFamily(
    name="BART",
    model_type="bart",
    body="BartModel",
    model="BartForConditionalGeneration",
    prefix="model.",
    keys=KEYS,
    always={**ALWAYS, "positions": "learned", "first_position": 2, "embedding": "normed"},
    fixed={**FIXED, "normalize_embedding": True, "static_position_embeddings": False, "scale_embedding": False},
    written={"attention_dropout": 0.0, "activation_dropout": 0.0, "is_encoder_decoder": True, "scale_embedding": False},
)
