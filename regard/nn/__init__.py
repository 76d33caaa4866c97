"""Building blocks of Transformers: tensors only, no files, no configs; usable alone.

The letters of shapes mean the same everywhere in the project:

    B rows              T positions         S source positions   Q query positions   K key positions
    D model width       H heads             E width per head     F feed-forward width
    V vocabulary        C candidates        L layers             W beam width        N rows while decoding, items

A mask is boolean and True means "may attend"; masks follow from segments (`visible`).
A query with nothing to attend to gets zeros, in every path.
"""

from regard.nn.attention import (
    AdditiveAttention,
    Attention,
    AttentionPooling,
    BilinearAttention,
    DotAttention,
    HeadedAttention,
    ScaledDotAttention,
    StateAttention,
    redundancy,
)
from regard.nn.cache import Cache, KeyValue, Memory, Slots
from regard.nn.cuda_graph import CudaGraphRunner
from regard.nn.dropout import Dropout
from regard.nn.kernels.dispatch import gelu, gelu_tanh
from regard.nn.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    PostNorm,
    PreNorm,
    TokenEmbedding,
)
from regard.nn.linear import Linear, PrepackedLinear
from regard.nn.loss import Loss, cross_entropy, divergence, linear_cross_entropy
from regard.nn.multihead import MultiHeadAttention
from regard.nn.positions import (
    LearnedPositions,
    NoPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from regard.nn.recurrence import GRU, LSTM, Recurrence, step_by_step
from regard.nn.recurrent import (
    AttentiveLayer,
    FedDecoder,
    RecurrentDecoder,
    RecurrentDecoderLayer,
    RecurrentEncoder,
    RecurrentLayer,
    reversed_texts,
)
from regard.nn.sight import Place, Sight, visible
from regard.nn.tap import Tap, edit, record, taps

__all__ = [
    "GRU",
    "LSTM",
    "AdditiveAttention",
    "Attention",
    "AttentionPooling",
    "AttentiveLayer",
    "BilinearAttention",
    "Cache",
    "CudaGraphRunner",
    "Decoder",
    "DecoderLayer",
    "DotAttention",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FedDecoder",
    "FeedForward",
    "GatedFeedForward",
    "HeadedAttention",
    "KeyValue",
    "LearnedPositions",
    "Linear",
    "Loss",
    "Memory",
    "MultiHeadAttention",
    "NoPositions",
    "Place",
    "Positions",
    "PostNorm",
    "PreNorm",
    "PrepackedLinear",
    "Recurrence",
    "RecurrentDecoder",
    "RecurrentDecoderLayer",
    "RecurrentEncoder",
    "RecurrentLayer",
    "RelativePositions",
    "RotaryPositions",
    "ScaledDotAttention",
    "Sight",
    "SinusoidalPositions",
    "Slots",
    "StateAttention",
    "Tap",
    "TokenEmbedding",
    "cross_entropy",
    "divergence",
    "edit",
    "gelu",
    "gelu_tanh",
    "linear_cross_entropy",
    "record",
    "redundancy",
    "reversed_texts",
    "step_by_step",
    "taps",
    "visible",
]
