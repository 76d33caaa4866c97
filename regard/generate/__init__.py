"""Writing token by token: greedy, sampling and beam search over anything that can take a `step`.

A search knows two things of a model: ``step(tokens, state) -> logits`` and ``state.select(rows)``. It never sees a
tokenizer, a batch of text or a layer.
"""

from regard.generate.beam import beam_search
from regard.generate.config import GenerationConfig
from regard.generate.hypothesis import Hypothesis, SpecialTokens, length_penalty, make_hypothesis
from regard.generate.sampling import (
    DecodingLoopOptions,
    GenerationStep,
    RepetitionPenalty,
    generate,
    generate_tokens,
    make_random_sampler,
    make_row_random_source,
    select_greedy_tokens,
)
from regard.generate.search import DecodingConfig

__all__ = [
    "DecodingConfig",
    "DecodingLoopOptions",
    "GenerationConfig",
    "GenerationStep",
    "Hypothesis",
    "RepetitionPenalty",
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
