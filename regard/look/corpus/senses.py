"""Occurrences of one word in several sentences: one static vector, different contextual ones.

At every layer the cosine distances ``1 - cos`` between all occurrences, and their projection to a plane. The layers are
``static``, the token embeddings; 0, the input of the layers, with positions; and l, the output of the l-th layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.compute.pca import project_to_plane
from regard.look.render.renderable import RenderableView
from regard.look.views.view_data import Axis, ViewArray, ViewData
from regard.text.tokenizer import Tokenizer

OCCURRENCE_CONTEXT_CHARACTERS = 24
"""Characters of context around a word that label its occurrence."""

OCCURRENCE_AXIS, OTHER_OCCURRENCE_AXIS = Axis("occurrence", ("occurrence",)), Axis("other", ("occurrence",))
COORDINATE_AXIS = Axis("coordinate", labels=("x", "y"))


@dataclass(frozen=True)
class WordOccurrence:
    """A word in a sentence: its vector at every layer, the mean over its subwords."""

    text: str
    context: str
    vectors: Float[Tensor, "L D"]


@dataclass(frozen=True)
class WordSenses(RenderableView):
    """The occurrences of a word."""

    word: str
    occurrences: Sequence[WordOccurrence]
    about: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def distances(self) -> Float[Tensor, "L N N"]:
        """Return cosine distances between all occurrences, layer by layer; exactly 0 between equal vectors."""
        unit = torch.nn.functional.normalize(self._vectors, dim=-1)
        return torch.stack([(layer[:, None] - layer).square().sum(-1) / 2 for layer in unit])

    @cached_property
    def projections(self) -> Float[Tensor, "L N 2"]:
        """Return the occurrences of each layer along their first two principal components."""
        return torch.stack([project_to_plane(layer).points for layer in self._vectors])

    @property
    def _vectors(self) -> Float[Tensor, "L N D"]:
        return torch.stack([each.vectors for each in self.occurrences], 1)

    @property
    def mean_distances(self) -> Float[Tensor, " L"]:
        """Return the mean distance between two occurrences, layer by layer."""
        n_pairs = len(self.occurrences) * (len(self.occurrences) - 1)
        return self.distances.sum((1, 2)) / max(1, n_pairs)

    def view_data(self) -> ViewData:
        """Return distances, their means and the projections, by layer."""
        layer = Axis("layer", labels=("static", *map(str, range(len(self.distances) - 1))))
        names = [f"{number} {each.context}" for number, each in enumerate(self.occurrences, 1)]
        return ViewData(
            {"occurrence": names},
            [
                ViewArray("senses", "", "distance", (layer, OCCURRENCE_AXIS, OTHER_OCCURRENCE_AXIS), self.distances),
                ViewArray("senses", "", "mean", (layer,), self.mean_distances),
                ViewArray("senses", "", "map", (layer, OCCURRENCE_AXIS, COORDINATE_AXIS), self.projections),
            ],
            {"senses": self._summarise()},
            {**self.about, "word": self.word, "occurrences": len(self.occurrences)},
        )

    def _summarise(self) -> list[str]:
        static, last = float(self.distances[0].max()), float(self.mean_distances[-1])
        equal = "are equal" if static == 0 else f"differ by up to {static:.3f} (different spellings)"
        return [
            f"static vectors of '{self.word}' {equal}; after the last layer the mean distance between occurrences is "
            f"{last:.3f} (1 - cosine)",
            *(f"{number}: {each.text}" for number, each in enumerate(self.occurrences, 1)),
        ]


def find_occurrences(tokenizer: Tokenizer, ids: Sequence[int], word: str) -> Iterator[tuple[int, ...]]:
    """Yield the subword indices of each occurrence of a word; case and punctuation are ignored."""
    spelled = tokenizer.encode(word)
    known = tokenizer.special_ids.isdisjoint(spelled)
    wanted = {word.casefold(), *([_normalised_spelling(tokenizer, spelled)] if known else [])}
    for each in tokenizer.words(ids):
        if not any(one in each.text.casefold() for one in wanted):
            continue
        first, end = each.token_indices[0], each.token_indices[-1] + 1
        for start, stop in combinations(range(first, end + 1), 2):
            rest = _normalised_spelling(tokenizer, ids[first:start]) + _normalised_spelling(tokenizer, ids[stop:end])
            if _normalised_spelling(tokenizer, ids[start:stop]) in wanted and not any(map(str.isalnum, rest)):
                yield tuple(range(start, stop))
                break


def _normalised_spelling(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return "".join(word.text for word in tokenizer.words(ids)).casefold()


def extract_context(tokenizer: Tokenizer, ids: Sequence[int], subword_indices: Sequence[int]) -> str:
    """Return a word with some context on both sides."""
    before, after = tokenizer.decode(ids[: subword_indices[0]]), tokenizer.decode(ids[subword_indices[-1] + 1 :])
    word = tokenizer.decode(ids[subword_indices[0] : subword_indices[-1] + 1]).strip()
    start = (
        before[-OCCURRENCE_CONTEXT_CHARACTERS // 2 :].partition(" ")[2]
        if len(before) > OCCURRENCE_CONTEXT_CHARACTERS // 2
        else before
    )
    stop = (
        after[: OCCURRENCE_CONTEXT_CHARACTERS // 2].rpartition(" ")[0]
        if len(after) > OCCURRENCE_CONTEXT_CHARACTERS // 2
        else after
    )
    return " ".join(part for part in (start.strip(), word, stop.strip()) if part)
