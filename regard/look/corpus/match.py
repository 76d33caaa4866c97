"""Match evidence: the contribution of each pair of tokens to the cosine of two texts.

A text's vector is a weighted sum of its tokens, ``u = sum_i a_i h_i`` and ``v = sum_j b_j k_j``; so the cosine is an
exact sum over all pairs of tokens:

    cos(u, v) = sum_ij  a_i b_j (h_i . k_j) / (|u| |v|)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.look.render.renderable import RenderableView
from regard.look.render.save import save_view, show_view
from regard.look.views.view_data import Axis, ViewArray, ViewData, merge_subwords
from regard.predict.embedding import WeightedTokens
from regard.text.subwords import Word

N_NAMED_PAIRS = 3
"""Pairs named in the summary."""

TEXT_AXIS, PAIR_AXIS = Axis("text", ("text",)), Axis("pair", ("pair",))

CLS_POOLING_NOTE = (
    "the vector of each text is that of its first token, so all evidence is between these two; "
    "attribution shows the effect of the other tokens"
)


class TokenizedText(NamedTuple):
    """A text as the model reads it: its tokens and its words."""

    tokens: Sequence[str]
    words: Sequence[Word]


@dataclass(frozen=True)
class MatchEvidence(RenderableView):
    """Two texts and the contribution of each pair of their tokens to the cosine."""

    text: TokenizedText
    pair: TokenizedText
    values: Float[Tensor, "T S"]
    pooling: str
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """Return the cosine of the two texts."""
        return float(self.values.sum())

    def save(self, path: str | Path, *, words: bool = False) -> Path:
        """Write it in the format of the suffix: .html, .json, .csv, and with the extra `plot` .png, .svg or .pdf.

        Args:
            path: The file to write.
            words: Merge subwords to words.
        """
        return save_view(lambda: self.view_data(words=words), path)

    def show(self, *, words: bool = False) -> None:
        """Show the page in a notebook, text in a terminal.

        Args:
            words: Merge subwords to words.
        """
        show_view(self.view_data(words=words))

    def view_data(self, *, words: bool = False) -> ViewData:
        """Return the evidence by pairs of tokens, or of words, and its sum per token or word."""
        view_data = ViewData(
            {"text": self.text.tokens, "pair": self.pair.tokens},
            [
                ViewArray("match", "", "evidence", (TEXT_AXIS, PAIR_AXIS), self.values),
                ViewArray("match", "", "of_text", (TEXT_AXIS,), self.values.sum(1)),
                ViewArray("match", "", "of_pair", (PAIR_AXIS,), self.values.sum(0)),
            ],
            about={
                **self.about,
                "score": self.score,
                "prediction": f"cosine {self.score:.4f}",
                "merged": "words" if words else "tokens",
            },
        )
        if words:
            view_data = merge_subwords(view_data, {"text": self.text.words, "pair": self.pair.words})
        return replace(view_data, notes={"match": self._summarise(view_data)})

    def _summarise(self, view_data: ViewData) -> list[str]:
        """Return the score and the pairs that contribute most, in words."""
        values, (text, pair) = view_data.arrays[0].values, view_data.sides.values()
        largest = values.flatten().topk(min(N_NAMED_PAIRS, values.numel()))
        pairs = [divmod(index, len(pair)) for index in largest.indices.tolist()]
        named = [f"{text[i]} / {pair[j]} {values[i, j]:.3f}" for i, j in pairs if values[i, j] > 0]
        sentences = [f"the cosine of the two texts is {self.score:.4f}, the sum of the contributions of all pairs"]
        if self.pooling == "cls":
            return [*sentences, CLS_POOLING_NOTE]
        return [*sentences, f"largest contributions: {', '.join(named)}"] if named else sentences


def compute_match_evidence(text: WeightedTokens, pair: WeightedTokens) -> Float[Tensor, "T S"]:
    """Return the contribution of each pair of tokens to the cosine of the two texts."""
    one, other = (each.weights[:, None] * each.hidden for each in (text, pair))
    lengths: Tensor = one.sum(0).norm() * other.sum(0).norm()
    return one @ other.T / lengths.clamp(min=1e-300)
