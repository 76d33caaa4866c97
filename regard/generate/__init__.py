"""Generation token by token: greedy decoding, sampling and beam search over any model with a `step`.

A search knows two things of a model: ``step(tokens, state) -> logits`` and ``state.select(rows)``. It never sees a
tokenizer, a batch of text or a layer.
"""

from regard.generate.beam import BeamSearchConfig, SelectedLogits
from regard.generate.config import DecodingConfig, GenerationConfig, SamplingConfig
from regard.generate.continuous_batching import ContinuousBatcher
from regard.generate.decoding_batch import DecodingBatch, EagerBatch, beam_search
from regard.generate.generation_loop import DecodingLoopOptions, GenerationStep, generate, generate_tokens
from regard.generate.graphed_batch import GraphedBatch
from regard.generate.hypothesis import Hypothesis, SpecialTokens, length_penalty, make_hypothesis
from regard.generate.sampling import (
    RepetitionPenalty,
    make_random_sampler,
    make_row_random_source,
    select_greedy_tokens,
)

__all__ = [
    "BeamSearchConfig",
    "ContinuousBatcher",
    "DecodingBatch",
    "DecodingConfig",
    "DecodingLoopOptions",
    "EagerBatch",
    "GenerationConfig",
    "GenerationStep",
    "GraphedBatch",
    "Hypothesis",
    "RepetitionPenalty",
    "SamplingConfig",
    "SelectedLogits",
    "SpecialTokens",
    "beam_search",
    "generate",
    "generate_tokens",
    "length_penalty",
    "make_hypothesis",
    "make_random_sampler",
    "make_row_random_source",
    "select_greedy_tokens",
]
