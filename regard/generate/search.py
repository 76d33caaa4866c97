"""How to write, as a user says it: greedy, beam or sampling; one call for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.beam import beam_search
from regard.generate.hypothesis import Hypothesis, Marks, State, Step
from regard.generate.sampling import Pick, follow, most_likely, sampler


@dataclass(frozen=True, kw_only=True)
class Search:
    """Beam search (4 wide, or as wide as `n_best` needs, where `beam` is not given), greedy (beam 1), or sampling."""

    beam: int | None = None
    alpha: float = 0.6
    n_best: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    batch: int = 32

    def __post_init__(self) -> None:
        for name, value in (("beam", self.width), ("n-best", self.n_best), ("batch", self.batch)):
            if value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        if self.alpha < 0:
            raise InputError(f"alpha {self.alpha}: expected 0 (no length penalty) or more")
        if not self.sample and (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise InputError("temperature, top-k and top-p belong to sampling; pass --sample as well")
        if self.n_best > self.width and not self.sample:
            raise InputError(f"n-best {self.n_best} needs a beam at least as wide; pass --beam {self.n_best} or more")

    @property
    def width(self) -> int:
        """Of the beam."""
        return max(4, self.n_best) if self.beam is None else self.beam

    def pick(self, device: torch.device) -> Pick:
        """How to choose one token at a time; a sampler draws on from text to text."""
        if not self.sample:
            return most_likely
        generator = torch.Generator(device).manual_seed(self.seed)
        return sampler(generator, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)

    def run(
        self, step: Step, start: Callable[[], State], limits: Int[Tensor, " N"], marks: Marks, pick: Pick
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each row, best first; `start` gives the state of rows nothing is written in."""
        if not self.sample and self.width > 1:
            found = beam_search(step, start(), limits, marks, width=self.width, alpha=self.alpha)
            return [hypotheses[: self.n_best] for hypotheses in found]
        times = self.n_best if self.sample else 1
        drawn = [follow(step, start(), pick, limits, marks, alpha=self.alpha) for _ in range(times)]
        return [sorted(each, key=lambda h: -h.score) for each in zip(*drawn, strict=True)]
