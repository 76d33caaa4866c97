"""Generation options as a user gives them, checked: sampling, language models, translators.

`SamplingConfig` holds what both share. `GenerationConfig` adds the options of a language model, `DecodingConfig` those
of a translator: beam search, greedy decoding or sampling, behind one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from jaxtyping import Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.beam import BeamSearchConfig
from regard.generate.generation_loop import generate
from regard.generate.hypothesis import DecoderStateLike, DecodeStep, Hypothesis, SpecialTokens
from regard.generate.sampling import Sampler, make_random_sampler, make_row_random_source, select_greedy_tokens
from regard.ranges import MAX_VOCABULARY, SEED_RANGE, Range, check_options

BEAM_WIDTHS = Range(1, 1000)
LENGTH_PENALTIES = Range(0.0, 10.0, zero="no length penalty")
BATCH_SIZES = Range(1, 1 << 16)
LEAST_TEMPERATURE = 1e-6
"""Smaller ones would overflow: log-probabilities are divided by the temperature."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling at a temperature, from the `top_k` most likely tokens (None or 0: all) and the `top_p` mass.

    At temperature 0 the most likely token is taken each time. What a row draws depends on the seed and on its key
    alone, however rows are batched.
    """

    temperature: Annotated[float, Range(0.0, 1000.0, zero="the most likely token each time")] = 1.0
    top_k: Annotated[int | None, Range(0, MAX_VOCABULARY, zero="no limit")] = None
    top_p: Annotated[float, Range(0.0, 1.0, excludes="least")] = 1.0
    seed: Annotated[int, SEED_RANGE] = 0

    def __post_init__(self) -> None:
        check_options(self)
        if 0 < self.temperature < LEAST_TEMPERATURE:
            raise InputError(f"temperature {self.temperature}: expected 0, or {LEAST_TEMPERATURE:g} or more")
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

    max_tokens: Annotated[int, Range(1, 10**6)] = 200
    repetition_penalty: Annotated[float, Range(0.01, 100.0)] = 1.0
    stop: tuple[str, ...] = ()
    n: Annotated[int, Range(1, 10**9)] = 1
    batch: Annotated[int, BATCH_SIZES] = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.stop):
            raise InputError("stop: an empty string stops nothing; leave it out")
        if self.is_greedy and self.n > 1:
            raise InputError(f"n {self.n} at temperature 0: all would be the same; leave one of them out")


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SamplingConfig):
    """The options of a translator: beam search, greedy decoding (beam 1), or sampling.

    Where `beam` is not given, it is 4, or as wide as `n_best` needs. `alpha` is the exponent of the length penalty.
    """

    beam: Annotated[int | None, BEAM_WIDTHS] = None
    alpha: Annotated[float, LENGTH_PENALTIES] = 0.6
    n_best: Annotated[int, BEAM_WIDTHS] = 1
    sample: bool = False
    batch: Annotated[int, BATCH_SIZES] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_greedy:
            raise InputError(
                f"temperature {self.temperature}: expected more than 0; for the most likely token use greedy"
            )
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

    def make_search(self, special_tokens: SpecialTokens) -> BeamSearchConfig:
        """Return the beam search, or greedy decoding, that the options ask for."""
        if self.beam_width == 1:
            return BeamSearchConfig.greedy(special_tokens, self.alpha)
        return BeamSearchConfig.beam(special_tokens, self.beam_width, self.alpha, self.n_best)

    def sample_hypotheses(
        self,
        step: DecodeStep,
        make_state: Callable[[], DecoderStateLike],
        max_lengths: Int[Tensor, " N"],
        special_tokens: SpecialTokens,
        text_indices: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """Return `n_best` samples of each row, best first.

        `make_state` returns the decoder state of rows in which nothing is generated yet. `text_indices` number the
        rows among all texts of the call: with the seed they determine what is drawn, however texts are batched.
        """
        samplers = [self.make_sampler([f"{i} {n}" for i in text_indices]) for n in range(self.n_best)]
        samples = [
            generate(step, make_state(), each, max_lengths, special_tokens, alpha=self.alpha) for each in samplers
        ]
        return [sorted(each, key=lambda h: -h.score) for each in zip(*samples, strict=True)]
