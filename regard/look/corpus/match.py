"""Why two texts match (SPEC 8.8): what each pair of tokens adds to the cosine of their vectors.

A text's vector is a weighted sum of its tokens, ``u = sum_i a_i h_i`` and ``v = sum_j b_j k_j``; so the cosine is a sum
over all pairs of tokens, with nothing left over:

    cos(u, v) = sum_ij  a_i b_j (h_i . k_j) / (|u| |v|)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.look.render.renderable import RenderableView
from regard.look.views.view_data import Axis, ViewArray, ViewData, merge_subwords
from regard.tasks.shared.embedder import WeightedTokens
from regard.text.subwords import Word

N_NAMED_PAIRS = 3
"""Pairs that are named in words."""

TEXT_AXIS, PAIR_AXIS = Axis("text", ("text",)), Axis("pair", ("pair",))

CLS_POOLING_NOTE = (
    "the vector of each text is that of its first token, so all evidence is between these two; "
    "what other tokens did to them, attribution shows"
)


class TokenizedText(NamedTuple):
    """A text as it was read: its tokens, and the words they make up."""

    tokens: Sequence[str]
    words: Sequence[Word]


@dataclass(frozen=True)
class MatchEvidence(RenderableView):
    """The two texts, what each pair of their tokens adds to the score, and facts about them."""

    text: TokenizedText
    pair: TokenizedText
    values: Float[Tensor, "T S"]
    pooling: str
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """The cosine of the two texts."""
        return float(self.values.sum())

    def view_data(self, *, words: bool = False) -> ViewData:
        """Evidence by pairs of tokens, or of words, and what each of them adds in all."""
        found = ViewData(
            {"text": self.text.tokens, "pair": self.pair.tokens},
            [
                ViewArray("match", "", "evidence", (TEXT_AXIS, PAIR_AXIS), self.values),
                ViewArray("match", "", "of_text", (TEXT_AXIS,), self.values.sum(1)),
                ViewArray("match", "", "of_pair", (PAIR_AXIS,), self.values.sum(0)),
            ],
            about={
                **self.about,
                "score": self.score,
                "said": f"cosine {self.score:.4f}",
                "merged": "words" if words else "tokens",
            },
        )
        if words:
            found = merge_subwords(found, {"text": self.text.words, "pair": self.pair.words})
        return replace(found, notes={"match": self._summarise(found)})

    def _summarise(self, view_data: ViewData) -> list[str]:
        """The score in words, and the pairs that add most to it."""
        values, (text, pair) = view_data.arrays[0].values, view_data.sides.values()
        largest = values.flatten().topk(min(N_NAMED_PAIRS, values.numel()))
        pairs = [divmod(place, len(pair)) for place in largest.indices.tolist()]
        named = [f"{text[i]} / {pair[j]} {values[i, j]:.3f}" for i, j in pairs if values[i, j] > 0]
        said = [f"the cosine of the two texts is {self.score:.4f}, the sum of what each pair adds"]
        if self.pooling == "cls":
            return [*said, CLS_POOLING_NOTE]
        return [*said, f"most is added by {', '.join(named)}"] if named else said


def compute_match_evidence(text: WeightedTokens, pair: WeightedTokens) -> Float[Tensor, "T S"]:
    """What each pair of tokens adds to the cosine of the two texts."""
    one, other = (each.weights[:, None] * each.hidden for each in (text, pair))
    lengths: Tensor = one.sum(0).norm() * other.sum(0).norm()
    return one @ other.T / lengths.clamp(min=1e-300)
