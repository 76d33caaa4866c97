"""Generation options as a user gives them, checked: sampling, language models, translators.

`SamplingConfig` holds what both share. `GenerationConfig` adds the options of a language model, `DecodingConfig` those
of a translator: beam search, greedy decoding or sampling, behind one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.beam import beam_search
from regard.generate.generation_loop import NAN_SCORES_MESSAGE, generate
from regard.generate.hypothesis import DecoderStateLike, DecodeStep, Hypothesis, SpecialTokens
from regard.generate.sampling import Sampler, make_random_sampler, make_row_random_source, select_greedy_tokens


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling at a temperature, from the `top_k` most likely tokens (None or 0: all) and the `top_p` mass.

    At temperature 0 the most likely token is taken each time. What a row draws depends on the seed and on its key
    alone, however rows are batched.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature {self.temperature}: expected 0 (the most likely token each time) or more")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top-p {self.top_p}: expected more than 0 and at most 1")
        if self.top_k is not None and self.top_k < 0:
            raise InputError(f"top-k {self.top_k}: expected 0 (no limit) or more")
        if self.is_greedy and self.cuts_distribution:
            raise InputError("top-k and top-p belong to sampling; at temperature 0 nothing is drawn; leave them out")

    @property
    def is_greedy(self) -> bool:
        """The most likely token is taken each time."""
        return self.temperature == 0

    @property
    def cuts_distribution(self) -> bool:
        """Tokens are drawn from a part of the vocabulary."""
        return bool(self.top_k) or self.top_p < 1

    def make_sampler(self, row_keys: Sequence[str]) -> Sampler:
        """Return the sampler of rows; a row's key and the seed determine what it draws."""
        if self.is_greedy:
            return select_greedy_tokens
        random_source = make_row_random_source([f"{self.seed} {key}" for key in row_keys])
        return make_random_sampler(random_source, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


@dataclass(frozen=True, kw_only=True)
class GenerationConfig(SamplingConfig):
    """The options of a language model: `n` continuations of each prompt, `batch` rows at a time.

    A text ends where the model ends it, before a `stop` string, or after `max_tokens`.
    """

    max_tokens: int = 200
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    n: int = 1
    batch: int = 16

    def __post_init__(self) -> None:
        for name, value in (("max-tokens", self.max_tokens), ("n", self.n), ("batch", self.batch)):
            if value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        super().__post_init__()
        if not 0 < self.repetition_penalty < math.inf:
            raise InputError(f"repetition-penalty {self.repetition_penalty}: expected more than 0; 1 is none")
        if not all(self.stop):
            raise InputError("stop: an empty string stops nothing; leave it out")
        if self.is_greedy and self.n > 1:
            raise InputError(f"n {self.n} at temperature 0: all would be the same; leave one of them out")


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SamplingConfig):
    """The options of a translator: beam search, greedy decoding (beam 1), or sampling.

    Where `beam` is not given, it is 4, or as wide as `n_best` needs. `alpha` is the exponent of the length penalty.
    """

    beam: int | None = None
    alpha: float = 0.6
    n_best: int = 1
    sample: bool = False
    batch: int = 32

    def __post_init__(self) -> None:
        for name, value in (("beam", self.beam_width), ("n-best", self.n_best), ("batch", self.batch)):
            if value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        if self.alpha < 0:
            raise InputError(f"alpha {self.alpha}: expected 0 (no length penalty) or more")
        if not 0 < self.temperature < math.inf:
            raise InputError(
                f"temperature {self.temperature}: expected more than 0; for the most likely token use greedy"
            )
        super().__post_init__()
        if not self.sample and (self.temperature != 1 or self.cuts_distribution):
            raise InputError("temperature, top-k and top-p belong to sampling; pass --sample as well")
        if self.sample and self.beam is not None:
            raise InputError("beam belongs to beam search, which --sample replaces; leave one of them out")
        if self.n_best > self.beam_width:
            raise InputError(f"n-best {self.n_best} needs a beam at least as wide; pass --beam {self.n_best} or more")

    @property
    def beam_width(self) -> int:
        """The width of the beam, given or chosen."""
        return max(4, self.n_best) if self.beam is None else self.beam

    def generate(
        self,
        step: DecodeStep,
        make_state: Callable[[], DecoderStateLike],
        max_lengths: Int[Tensor, " N"],
        special_tokens: SpecialTokens,
        text_indices: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each row, best first, at most `n_best`.

        `make_state` returns the decoder state of rows in which nothing is generated yet. `text_indices` number the
        rows among all texts of the call: with the seed they determine what is drawn, however texts are batched.
        """
        if self.sample:
            samplers = [self.make_sampler([f"{i} {n}" for i in text_indices]) for n in range(self.n_best)]
            samples = [
                generate(step, make_state(), each, max_lengths, special_tokens, alpha=self.alpha) for each in samplers
            ]
            hypotheses = [sorted(each, key=lambda h: -h.score) for each in zip(*samples, strict=True)]
        elif self.beam_width > 1:
            hypotheses = beam_search(
                step, make_state(), max_lengths, special_tokens, beam_width=self.beam_width, alpha=self.alpha
            )
        else:
            state = make_state()
            greedy = generate(step, state, select_greedy_tokens, max_lengths, special_tokens, alpha=self.alpha)
            hypotheses = [[each] for each in greedy]
        if not all(hypotheses):
            raise InputError(NAN_SCORES_MESSAGE)
        return [each[: self.n_best] for each in hypotheses]
