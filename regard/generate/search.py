"""How to write, as a user says it: greedy, beam or sampling; one call for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.beam import beam_search
from regard.generate.hypothesis import DecoderStateLike, DecodeStep, Hypothesis, SpecialTokens
from regard.generate.sampling import (
    NAN_SCORES_MESSAGE,
    Sampler,
    check_sampling_options,
    generate,
    make_random_sampler,
    make_row_random_source,
    select_greedy_tokens,
)


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (4 wide, or as wide as `n_best` needs, where `beam` is not given), greedy (beam 1), or sampling.

    `temperature`, `top_k` (None or 0 is no limit) and `top_p` are those of sampling.
    """

    beam: int | None = None
    alpha: float = 0.6
    n_best: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    batch: int = 32

    def __post_init__(self) -> None:
        for name, value in (("beam", self.beam_width), ("n-best", self.n_best), ("batch", self.batch)):
            if value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        if self.alpha < 0:
            raise InputError(f"alpha {self.alpha}: expected 0 (no length penalty) or more")
        check_sampling_options(self.temperature, self.top_k, self.top_p)
        if not self.sample and (self.temperature != 1 or self.top_k or self.top_p != 1):
            raise InputError("temperature, top-k and top-p belong to sampling; pass --sample as well")
        if self.sample and self.beam is not None:
            raise InputError("beam belongs to beam search, which --sample replaces; leave one of them out")
        if self.n_best > self.beam_width:
            raise InputError(f"n-best {self.n_best} needs a beam at least as wide; pass --beam {self.n_best} or more")

    @property
    def beam_width(self) -> int:
        """Of the beam."""
        return max(4, self.n_best) if self.beam is None else self.beam

    def generate(
        self,
        step: DecodeStep,
        make_state: Callable[[], DecoderStateLike],
        max_lengths: Int[Tensor, " N"],
        special_tokens: SpecialTokens,
        text_indices: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each row, best first, at most `n_best`.

        `start` gives the state of rows in which nothing is written yet. `numbers` are those of the texts among all
        that are written: with the seed they say what is drawn, however the texts are grouped.
        """
        if self.sample:
            picks = [self._make_sampler(text_indices, time) for time in range(self.n_best)]
            drawn = [
                generate(step, make_state(), pick, max_lengths, special_tokens, alpha=self.alpha) for pick in picks
            ]
            found = [sorted(each, key=lambda h: -h.score) for each in zip(*drawn, strict=True)]
        elif self.beam_width > 1:
            found = beam_search(
                step, make_state(), max_lengths, special_tokens, beam_width=self.beam_width, alpha=self.alpha
            )
        else:
            found = [
                [one]
                for one in generate(
                    step, make_state(), select_greedy_tokens, max_lengths, special_tokens, alpha=self.alpha
                )
            ]
        if not all(found):
            raise InputError(NAN_SCORES_MESSAGE)
        return [hypotheses[: self.n_best] for hypotheses in found]

    def _make_sampler(self, text_indices: Sequence[int], sample_index: int) -> Sampler:
        draw = make_row_random_source([f"{self.seed} {number} {sample_index}" for number in text_indices])
        return make_random_sampler(draw, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
