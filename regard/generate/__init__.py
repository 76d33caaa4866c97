"""Writing token by token: greedy, sampling and beam search over anything that can take a `step`.

A search knows two things of a model: ``step(tokens, state) -> logits`` and ``state.select(rows)``. It never sees a
tokenizer, a batch of text or a layer.
"""

from regard.generate.beam import beam_search
from regard.generate.hypothesis import Hypothesis, Marks, hypothesis, length_penalty
from regard.generate.manner import Manner
from regard.generate.sampling import Chosen, Repetition, Way, draw_by_row, follow, most_likely, sampler, walk
from regard.generate.search import Search

__all__ = [
    "Chosen",
    "Hypothesis",
    "Manner",
    "Marks",
    "Repetition",
    "Search",
    "Way",
    "beam_search",
    "draw_by_row",
    "follow",
    "hypothesis",
    "length_penalty",
    "most_likely",
    "sampler",
    "walk",
]
