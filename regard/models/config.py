"""Model configs: the ``[model]`` table of a recipe and its presets.

There is one config for each architecture and kind of model (models/architectures.py); `ModelConfig` has the fields
common to all, `TransformerConfig` those common to all Transformers. A preset gives the keys that a recipe leaves out.
Names that stand for modules (``positions = "rotary"``) become those modules in models/blocks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from regard.config import IN_TRAINING, AppliesIf
from regard.errors import ConfigError, did_you_mean
from regard.ranges import Range, check_table

PositionScheme = Literal["sinusoidal", "sinusoidal-halves", "learned", "relative", "relative-values", "rotary", "none"]
NormPlacement = Literal["post", "pre"]
ActivationName = Literal["relu", "gelu", "gelu-tanh", "silu", "gated-gelu", "gated-silu"]
EmbeddingName = Literal["scaled", "normed", "plain"]
Directions = Literal["both", "forward", "backward"]

Width = Annotated[int, Range(1, 1 << 16)]
HeadWidth = Annotated[int, Range(0, 1 << 16, zero="d_model / n_heads")]
FeedForwardWidth = Annotated[int, Range(1, 1 << 20)]
LayerCount = Annotated[int, Range(1, 1000)]
PositionCount = Annotated[int, Range(1, 1 << 20)]
TokenTypeCount = Annotated[int, Range(0, 1 << 10)]
Dropout = Annotated[float, Range(0.0, 1.0, excludes="most")]
Spread = Annotated[float, Range(0.0, 2.0), IN_TRAINING]
NormEps = Annotated[float, Range(0.0, 1.0, excludes="least")]

WITH_SINUSOIDS = AppliesIf(*(f"model.positions={scheme}" for scheme in ("sinusoidal", "sinusoidal-halves", "rotary")))
WITH_MASKED_HEAD = AppliesIf("task.objective=masked+next", "task.objective=masked")
WITH_POOLER = AppliesIf(
    "task.name=classify", *(f"task.objective={objective}" for objective in ("masked+next", "next", "pooled"))
)

ConfigTable = dict[str, Any]

SINUSOID_BASE = 10000.0
"""The n of sinusoidal positions in Vaswani et al. 2017, section 3.5, and of rotary ones in Su et al. 2021."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Fields of every model.

    `start` is the run or Hugging Face directory that the initial weights come from; if empty, they are random. A text
    has at most `n_positions` tokens. `spread` times ``d_model^-0.5`` is the standard deviation of random weights; 0
    means Glorot's, which depends on the shape. BERT's and GPT-2's 0.02 is 0.55 at a width of 768.
    """

    presets: ClassVar[Mapping[str, ConfigTable]]
    largest_cpu_preset: ClassVar[str] = "small"
    """The largest preset that is chosen automatically on a CPU."""
    uses_packing: ClassVar[bool] = True
    """Pack texts into rows of one shape; otherwise every text has a row, and batches hold texts of similar length."""
    recipe_defaults: ClassVar[Mapping[str, ConfigTable]] = {}
    """Defaults of other recipe tables for these models, by table."""
    transfer_defaults: ClassVar[Mapping[str, ConfigTable]] = {}
    """Defaults of other recipe tables for classifiers and taggers that start from such a language model, by table."""

    preset: str
    start: str = ""
    architecture: str
    d_model: Width
    dropout: Dropout
    n_positions: PositionCount = 1024
    spread: Spread = 0.0

    @property
    def init_std(self) -> float:
        """The standard deviation of random weights; 0 means Glorot's."""
        std: float = self.spread * self.d_model**-0.5
        return std

    def __post_init__(self) -> None:
        check_table(self, "model")

    @classmethod
    def fit_to_length(cls, table: ConfigTable, max_length: int) -> ConfigTable:
        """Return the ``[model]`` table for training texts of at most `max_length` tokens."""
        return table

    @property
    def is_length_limited(self) -> bool:
        """Return True if a text longer than `n_positions` is impossible, for lack of weights for its positions."""
        return False


@dataclass(frozen=True, kw_only=True)
class EncoderModelConfig(ModelConfig):
    """Fields of every encoder model with heads.

    `n_parts` is the number of token types in one input (2 for BERT's sentence A and B); with 0 or 1 they are not
    distinguished. `pooler` is the activation of the pooler.
    """

    n_parts: TokenTypeCount = 2
    pooler: Annotated[Literal["tanh", "relu"], WITH_POOLER] = "tanh"

    @property
    def is_causal(self) -> bool:
        """True if a token is encoded without the tokens on one side of it."""
        return False

    @property
    def reads_backward(self) -> bool:
        """True if a text is read from its last token to its first, so that the first token has seen all others."""
        return False


@dataclass(frozen=True, kw_only=True)
class DirectedEncoderConfig(EncoderModelConfig):
    """Fields of encoders that may read a text in one direction, as a language model does.

    `directions` are those that a token is encoded from: both, as in BERT; forward, from the tokens before it; or
    backward, from those after it.
    """

    directions: Directions = "both"

    @property
    def is_causal(self) -> bool:
        return self.directions != "both"

    @property
    def reads_backward(self) -> bool:
        return self.directions == "backward"


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Fields of every Transformer.

    `embedding` is how token embeddings enter the first layer: times ``sqrt(d_model)`` (Vaswani et al. 2017), normed
    together with their positions (BERT), or unchanged (GPT-2). `first_position` is the row of the learned positions
    that belongs to the first token. `d_key` and `d_value` are the widths of keys and values in each head; 0 means
    ``d_model / n_heads``. `sinusoid_base` is the n of sinusoidal positions and of the angles of rotary ones.
    """

    architecture: str = "transformer"
    n_layers: LayerCount
    n_heads: Width
    d_key: HeadWidth = 0
    d_value: HeadWidth = 0
    d_ff: FeedForwardWidth
    positions: PositionScheme = "sinusoidal"
    sinusoid_base: Annotated[float, Range(1.0, 1e12, excludes="least"), WITH_SINUSOIDS] = SINUSOID_BASE
    first_position: Annotated[int, Range(0, 1 << 10), AppliesIf("model.positions=learned")] = 0
    norm: NormPlacement
    norm_eps: NormEps = 1e-5
    activation: ActivationName = "relu"
    embedding: EmbeddingName = "scaled"
    tied: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.n_heads and not (self.d_key and self.d_value):
            raise ConfigError(
                f"model.n_heads = {self.n_heads} does not divide model.d_model = {self.d_model}; "
                "choose a number of heads that does, or set model.d_key and model.d_value"
            )
        if self.positions.startswith("sinusoidal") and self.d_model % 2:
            raise ConfigError(f"model.d_model = {self.d_model} is odd; sinusoidal positions need an even width")
        if self.positions == "rotary" and self.key_width % 2:
            raise ConfigError(
                "model.positions = 'rotary' needs an even width per head; change d_model, n_heads or d_key"
            )
        self._check_sinusoid_base()

    def _check_sinusoid_base(self) -> None:
        if self.sinusoid_base != SINUSOID_BASE and not self.has_sinusoids:
            raise ConfigError(
                "model.sinusoid_base goes with sinusoidal or rotary positions, "
                f"not model.positions = '{self.positions}'"
            )

    @property
    def has_sinusoids(self) -> bool:
        """Return True if positions are sines and cosines of `sinusoid_base`."""
        return self.positions.startswith("sinusoidal") or self.positions == "rotary"

    @property
    def key_width(self) -> int:
        """The width of queries and keys in each head."""
        return self.d_key or self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        """The width of values in each head: the largest rank they can have, which is where identifiability ends."""
        return self.d_value or self.d_model // self.n_heads

    @classmethod
    def fit_to_length(cls, table: ConfigTable, max_length: int) -> ConfigTable:
        """Return the table with no more learned positions than the longest training text can train."""
        learned = table.get("positions", cls.positions) == "learned"
        return {"n_positions": max_length, **table} if learned else table

    @property
    def is_length_limited(self) -> bool:
        return self.positions == "learned"


def _transformer_preset(d_model: int, n_layers: int, n_heads: int, dropout: float = 0.1, **more: Any) -> ConfigTable:
    shape = {"d_model": d_model, "n_layers": n_layers, "n_heads": n_heads, "d_ff": 4 * d_model, "dropout": dropout}
    return shape | more


def _seq2seq_preset(
    d_model: int, layers: tuple[int, int], n_heads: int, d_ff: int, dropout: float, norm: str
) -> ConfigTable:
    return _transformer_preset(d_model, layers[0], n_heads, dropout, n_decoder_layers=layers[1], d_ff=d_ff, norm=norm)


@dataclass(frozen=True, kw_only=True)
class TransformerSeq2SeqConfig(TransformerConfig):
    """An encoder-decoder; ``base`` and ``big`` as in Vaswani et al. 2017.

    Most of the time of decoding is spent in the decoder, so a deep encoder with a shallow decoder is faster at the same
    number of layers (Kasai et al. 2021): ``deep-*``, and the presets named by their encoder + decoder layers.
    """

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _seq2seq_preset(128, (2, 2), 4, 512, 0.1, "pre"),
        "mini": _seq2seq_preset(192, (4, 4), 4, 512, 0.3, "pre"),
        "small": _seq2seq_preset(256, (3, 3), 4, 1024, 0.1, "pre"),
        "medium": _seq2seq_preset(384, (6, 6), 6, 1536, 0.1, "pre"),
        "base": _seq2seq_preset(512, (6, 6), 8, 2048, 0.1, "post"),
        "big": _seq2seq_preset(1024, (6, 6), 16, 4096, 0.3, "post"),
        "deep-small": _seq2seq_preset(256, (8, 2), 4, 1024, 0.1, "pre"),
        "deep-base": _seq2seq_preset(512, (12, 2), 8, 2048, 0.1, "pre"),
        "small-6+2": _seq2seq_preset(256, (6, 2), 4, 1024, 0.1, "pre"),
        "medium-6+2": _seq2seq_preset(384, (6, 2), 6, 1536, 0.1, "pre"),
        "base-6+2": _seq2seq_preset(512, (6, 2), 8, 2048, 0.1, "pre"),
        "base-12+1": _seq2seq_preset(512, (12, 1), 8, 2048, 0.1, "pre"),
    }

    n_decoder_layers: LayerCount
    output_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(TransformerConfig, DirectedEncoderConfig):
    """An encoder; the presets are the sizes of BERT (Devlin et al. 2019, Turc et al. 2019).

    ``deep-small`` is MiniLM's (Wang et al. 2020): weights in many layers instead of a wide vocabulary.
    """

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _transformer_preset(128, 2, 2),
        "mini": _transformer_preset(256, 4, 4),
        "small": _transformer_preset(512, 4, 8),
        "medium": _transformer_preset(512, 8, 8),
        "base": _transformer_preset(768, 12, 12),
        "deep-small": _transformer_preset(384, 12, 6),
    }

    positions: PositionScheme = "learned"
    n_positions: PositionCount = 512
    norm: NormPlacement = "post"
    norm_eps: NormEps = 1e-12
    activation: ActivationName = "gelu"
    embedding: EmbeddingName = "normed"
    tied: Annotated[bool, WITH_MASKED_HEAD] = True
    spread: Spread = 0.55


@dataclass(frozen=True, kw_only=True)
class TransformerLMConfig(TransformerConfig):
    """A decoder-only model as GPT-2 (Radford et al. 2019); ``base``, or ``gpt2-small``, is its smallest size."""

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _transformer_preset(128, 2, 2),
        "mini": _transformer_preset(256, 4, 4),
        "small": _transformer_preset(384, 6, 6),
        "medium": _transformer_preset(512, 8, 8),
        "base": _transformer_preset(768, 12, 12),
        "gpt2-small": _transformer_preset(768, 12, 12, n_positions=1024),
    }
    largest_cpu_preset: ClassVar[str] = "tiny"

    positions: PositionScheme = "learned"
    norm: NormPlacement = "pre"
    activation: ActivationName = "gelu-tanh"
    embedding: EmbeddingName = "plain"
    spread: Spread = 0.55


def apply_preset(table: ConfigTable, config_class: type[ModelConfig] = TransformerSeq2SeqConfig) -> ConfigTable:
    """Return the ``[model]`` table completed by its preset; an imported model has an empty preset."""
    name = table["preset"]
    if not name:
        return dict(table)
    if name not in config_class.presets:
        raise ConfigError(f"model.preset = '{name}' is unknown; {did_you_mean(name, config_class.presets)}")
    return {**config_class.presets[name], **table}
