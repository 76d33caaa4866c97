"""How a language model goes on with a text, as a user says it: drawn at random, or the most likely token each time.

Beside it, `Search` says how a translator writes. The task turns both into calls of sampling.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import InputError
from regard.generate.sampling import (
    Sampler,
    check_sampling_options,
    make_random_sampler,
    make_row_random_source,
    select_greedy_tokens,
)


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """At temperature 0 the most likely token is taken each time; `top_k` None or 0 is no limit.

    A text ends where the model ends it, before a `stop` string, or after `max_tokens`. What is drawn depends on the
    seed, on the number of the prompt and on which of its `n` continuations it is, and on nothing else.
    """

    max_tokens: int = 200
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    n: int = 1
    seed: int = 0
    batch: int = 16

    def __post_init__(self) -> None:
        for name, value in (("max-tokens", self.max_tokens), ("n", self.n), ("batch", self.batch)):
            if value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        check_sampling_options(self.temperature, self.top_k, self.top_p, allows_greedy=True)
        if not 0 < self.repetition_penalty < math.inf:
            raise InputError(f"repetition-penalty {self.repetition_penalty}: expected more than 0; 1 is none")
        if not all(self.stop):
            raise InputError("stop: an empty string stops nothing; leave it out")
        if self.is_greedy and (self.top_k or self.top_p < 1):
            raise InputError("top-k and top-p belong to sampling; at temperature 0 nothing is drawn; leave them out")
        if self.is_greedy and self.n > 1:
            raise InputError(f"n {self.n} at temperature 0: all would be the same; leave one of them out")

    @property
    def is_greedy(self) -> bool:
        """The most likely token is taken each time."""
        return self.temperature == 0

    def make_sampler(self, row_keys: Sequence[str]) -> Sampler:
        """What chooses the tokens of rows; with the seed, their names say what is drawn."""
        if self.is_greedy:
            return select_greedy_tokens
        draw = make_row_random_source([f"{self.seed} {name}" for name in row_keys])
        return make_random_sampler(draw, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
