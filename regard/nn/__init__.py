"""Building blocks of Transformers and recurrent models: tensors only, no files, no configs; usable alone.

The legend of shape letters, which mean the same everywhere in the project:

    B rows              T positions         S source positions, or texts of a row
    Q query positions   K key positions     D model width        H heads             E width per head
    F feed-forward      V vocabulary        C classes, or candidates for the next token
    L layers            W beam width        N rows while decoding, items             R pooling hops

A mask is boolean and True means "may attend"; masks follow from segments (`make_mask`).
A fully masked query gets zeros, in every code path.
"""

from regard.nn.attention import (
    AdditiveAttention,
    Attention,
    AttentionPooling,
    BilinearAttention,
    DotAttention,
    InspectableAttention,
    ProjectedAttention,
    RecurrentCrossAttention,
    ScaledDotAttention,
    TanhAttention,
    redundancy_penalty,
)
from regard.nn.contrastive import info_nce
from regard.nn.cuda_graph import CudaGraphRunner
from regard.nn.dropout import Dropout
from regard.nn.kernels.dispatch import gelu, gelu_tanh, linear
from regard.nn.kv_cache import (
    KeyValue,
    KVCache,
    KVCacheLike,
    StaticBeamKVCache,
    StaticKVCache,
    allocate_key_values,
)
from regard.nn.layers import (
    DecoderLayer,
    DecoderStack,
    EncoderLayer,
    EncoderStack,
    FeedForward,
    GatedFeedForward,
    PostNorm,
    PreNorm,
    TokenEmbedding,
)
from regard.nn.linear_layers import Linear, PrepackedLinear
from regard.nn.loss import (
    IGNORE,
    Loss,
    cross_entropy,
    linear_cross_entropy,
    squared_error,
    symmetric_kl_divergence,
)
from regard.nn.mask import AttentionMask, PackedPositions, make_mask
from regard.nn.multihead import MultiHeadAttention
from regard.nn.output_embedding import OutputEmbedding, OutputProjection, RowProjector
from regard.nn.positions import (
    LearnedPositions,
    NoPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from regard.nn.rnn import GRU, LSTM, RNNBase
from regard.nn.rnn_layers import (
    AttentionalDecoderLayer,
    InputFeedingDecoderStack,
    RecurrentDecoderLayer,
    RecurrentDecoderStack,
    RecurrentEncoderLayer,
    RecurrentEncoderStack,
    SeparateDirectionsLayer,
    reverse_sequences,
)
from regard.nn.tap import Tap, edit, record, taps
from regard.nn.unfused import force_unfused

__all__ = [
    "GRU",
    "IGNORE",
    "LSTM",
    "AdditiveAttention",
    "Attention",
    "AttentionMask",
    "AttentionPooling",
    "AttentionalDecoderLayer",
    "BilinearAttention",
    "CudaGraphRunner",
    "DecoderLayer",
    "DecoderStack",
    "DotAttention",
    "Dropout",
    "EncoderLayer",
    "EncoderStack",
    "FeedForward",
    "GatedFeedForward",
    "InputFeedingDecoderStack",
    "InspectableAttention",
    "KVCache",
    "KVCacheLike",
    "KeyValue",
    "LearnedPositions",
    "Linear",
    "Loss",
    "MultiHeadAttention",
    "NoPositions",
    "OutputEmbedding",
    "OutputProjection",
    "PackedPositions",
    "Positions",
    "PostNorm",
    "PreNorm",
    "PrepackedLinear",
    "ProjectedAttention",
    "RNNBase",
    "RecurrentCrossAttention",
    "RecurrentDecoderLayer",
    "RecurrentDecoderStack",
    "RecurrentEncoderLayer",
    "RecurrentEncoderStack",
    "RelativePositions",
    "RotaryPositions",
    "RowProjector",
    "ScaledDotAttention",
    "SeparateDirectionsLayer",
    "SinusoidalPositions",
    "StaticBeamKVCache",
    "StaticKVCache",
    "TanhAttention",
    "Tap",
    "TokenEmbedding",
    "allocate_key_values",
    "cross_entropy",
    "edit",
    "force_unfused",
    "gelu",
    "gelu_tanh",
    "info_nce",
    "linear",
    "linear_cross_entropy",
    "make_mask",
    "record",
    "redundancy_penalty",
    "reverse_sequences",
    "squared_error",
    "symmetric_kl_divergence",
    "taps",
]
