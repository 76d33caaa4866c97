"""One word in several sentences (SPEC 8.7): its static vectors are the same, its contextual ones are not.

At every layer the cosine distances ``1 - cos`` between all its occurrences, and where they lie in a plane. The layers
are ``static``, the vectors of tokens by themselves; 0, with their positions, as they enter the layers; and l, as they
leave the l-th.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.plane import plane
from regard.look.shown import Shown
from regard.look.view import Array, Axis, Sheet
from regard.text.tokenizer import Tokenizer

AROUND = 24
"""Letters of a sentence around its word that name an occurrence."""

OCCURRENCE, OTHER = Axis("occurrence", ("occurrence",)), Axis("other", ("occurrence",))
COORDINATE = Axis("coordinate", labels=("x", "y"))


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence: its vector at every layer, the mean of its pieces."""

    text: str
    around: str
    vectors: Float[Tensor, "L D"]


@dataclass(frozen=True)
class Senses(Shown):
    """A word where it occurs."""

    word: str
    occurrences: Sequence[Occurrence]
    about: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def distances(self) -> Float[Tensor, "L N N"]:
        """Cosine distances between all occurrences, layer by layer; 0 between equal vectors, exactly."""
        unit = torch.nn.functional.normalize(self._vectors, dim=-1)
        return torch.stack([(layer[:, None] - layer).square().sum(-1) / 2 for layer in unit])

    @cached_property
    def maps(self) -> Float[Tensor, "L N 2"]:
        """The occurrences in the plane in which those of a layer differ most (look/plane.py)."""
        return torch.stack([plane(layer).points for layer in self._vectors])

    @property
    def _vectors(self) -> Float[Tensor, "L N D"]:
        return torch.stack([each.vectors for each in self.occurrences], 1)

    @property
    def means(self) -> Float[Tensor, " L"]:
        """The mean distance between two occurrences, layer by layer."""
        n_pairs = len(self.occurrences) * (len(self.occurrences) - 1)
        return self.distances.sum((1, 2)) / max(1, n_pairs)

    def sheet(self) -> Sheet:
        """Distances, their means and the maps, by layer."""
        layer = Axis("layer", labels=("static", *map(str, range(len(self.distances) - 1))))
        names = [f"{number} {each.around}" for number, each in enumerate(self.occurrences, 1)]
        return Sheet(
            {"occurrence": names},
            [
                Array("senses", "", "distance", (layer, OCCURRENCE, OTHER), self.distances),
                Array("senses", "", "mean", (layer,), self.means),
                Array("senses", "", "map", (layer, OCCURRENCE, COORDINATE), self.maps),
            ],
            {"senses": self._said()},
            {**self.about, "word": self.word, "occurrences": len(self.occurrences)},
        )

    def _said(self) -> list[str]:
        static, last = float(self.distances[0].max()), float(self.means[-1])
        equal = "are equal" if static == 0 else f"differ by up to {static:.3f}: it is not always written alike"
        return [
            f"static vectors of '{self.word}' {equal}; after the last layer its occurrences are {last:.3f} apart "
            f"on average (1 - cosine)",
            *(f"{number}: {each.text}" for number, each in enumerate(self.occurrences, 1)),
        ]


def places(tokenizer: Tokenizer, ids: Sequence[int], word: str) -> Iterator[tuple[int, ...]]:
    """Where a word stands in a text, as the pieces that spell it; capitals and what is not a letter do not matter."""
    spelled = tokenizer.encode(word)
    known = tokenizer.specials.isdisjoint(spelled)
    wanted = {word.casefold(), *([_spelled(tokenizer, spelled)] if known else [])}
    for each in tokenizer.words(ids):
        if not any(one in each.text.casefold() for one in wanted):
            continue
        first, end = each.pieces[0], each.pieces[-1] + 1
        for start, stop in combinations(range(first, end + 1), 2):
            rest = _spelled(tokenizer, ids[first:start]) + _spelled(tokenizer, ids[stop:end])
            if _spelled(tokenizer, ids[start:stop]) in wanted and not any(map(str.isalnum, rest)):
                yield tuple(range(start, stop))
                break


def _spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return "".join(word.text for word in tokenizer.words(ids)).casefold()


def around(tokenizer: Tokenizer, ids: Sequence[int], pieces: Sequence[int]) -> str:
    """A word with some of the sentence on both sides of it."""
    before, after = tokenizer.decode(ids[: pieces[0]]), tokenizer.decode(ids[pieces[-1] + 1 :])
    word = tokenizer.decode(ids[pieces[0] : pieces[-1] + 1]).strip()
    start = before[-AROUND // 2 :].partition(" ")[2] if len(before) > AROUND // 2 else before
    stop = after[: AROUND // 2].rpartition(" ")[0] if len(after) > AROUND // 2 else after
    return " ".join(part for part in (start.strip(), word, stop.strip()) if part)
