"""Attention identifiability over many texts: the distance of effective attention from the weights by length.

While a query has no more keys than the width of the values, its weights are identifiable; beyond that, less and less
(Brunner et al. 2020, section 3). For every text and head: Pearson's correlation of weights and effective weights over
all visible keys, and the fraction of the norm of the weights without effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.look.compute.look_target import LookTarget
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.render.figures import Curve, CurvePanel, draw_curves
from regard.look.render.save import check_output_path, save_view
from regard.look.views.view_data import Axis, ViewArray, ViewData
from regard.progress import track

MAX_BINS = 12
"""Length bins of a curve, at most."""


def length_bins(keys: Int[Tensor, " N"]) -> Iterator[Int[Tensor, " n"]]:
    """Yield the texts of each length bin, shortest first; bins are equally wide, so that long texts count."""
    step = int(keys.max() - keys.min()) // MAX_BINS + 1
    bin_index = (keys - keys.min()) // step
    return ((bin_index == number).nonzero()[:, 0] for number in bin_index.unique())


def format_span(keys: Int[Tensor, " n"]) -> str:
    """Return the shortest and the longest length of a bin."""
    return "-".join(str(int(end)) for end in keys.unique()[[0, -1]].unique())


def curve_by_length(keys: Int[Tensor, " N"], by_text: Float[Tensor, " N"], limits: tuple[float, float]) -> Curve:
    """Return the mean over the texts of each bin, with its 95 % interval cut at `limits`."""
    x, y, spread = [], [], []
    for texts in length_bins(keys):
        values = by_text[texts].double()
        x.append(float(keys[texts].double().mean()))
        y.append(float(values.mean()))
        spread.append(1.96 * float(values.std()) / len(texts) ** 0.5 if len(texts) > 1 else 0.0)
    pairs = list(zip(y, spread, strict=True))
    low, high = ([min(limits[1], max(limits[0], a + sign * b)) for a, b in pairs] for sign in (-1, 1))
    return Curve(x, y, low, high)


@dataclass(frozen=True)
class KindSurvey:
    """One kind of attention, text by text: the most keys of a query, and two numbers per head."""

    d_value: int
    keys: Int[Tensor, " N"]
    correlation: Float[Tensor, "N L H"]
    null_fraction: Float[Tensor, "N L H"]

    def length_bins(self) -> Iterator[Int[Tensor, " n"]]:
        """Yield the texts of each length bin, shortest first."""
        return length_bins(self.keys)

    def build_curve(self, values: Float[Tensor, "N L H"]) -> Curve:
        """Return the mean over heads and texts of each bin, with the 95 % interval of the mean over texts."""
        return curve_by_length(self.keys, values.mean((1, 2)), (0.0, 1.0))


@dataclass(frozen=True)
class IdentifiabilitySurvey:
    """The survey results by kind of attention."""

    kinds: Mapping[str, KindSurvey]
    about: Mapping[str, Any]

    def summary_lines(self) -> Iterator[str]:
        """Yield a table of texts by length."""
        for name, kind in self.kinds.items():
            yield f"{name}: values have {kind.d_value} dimensions; with more keys weights are not identifiable"
            yield f"{'keys':>8}{'texts':>8}{'correlation':>14}{'no effect':>12}"
            for texts in kind.length_bins():
                keys, correlation = kind.keys[texts], kind.correlation[texts].mean()
                null_fraction = float(kind.null_fraction[texts].mean())
                yield f"{format_span(keys):>8}{len(texts):>8}{float(correlation):>14.4f}{null_fraction:>12.1%}"

    def view_data(self) -> ViewData:
        """Return all numbers, for JSON and CSV."""
        arrays = []
        for name, kind in self.kinds.items():
            text, heads = Axis("text"), (Axis("layer"), Axis("head"))
            arrays.append(ViewArray("identifiability", name, "keys", (text,), kind.keys))
            arrays.append(ViewArray("identifiability", name, "correlation", (text, *heads), kind.correlation))
            arrays.append(ViewArray("identifiability", name, "null_fraction", (text, *heads), kind.null_fraction))
        return ViewData({}, arrays, {"identifiability": list(self.summary_lines())}, self.about)

    def save(self, path: str | Path) -> Path:
        """Write all numbers (.json, .csv) or a figure (.png, .svg, .pdf)."""
        return save_view(
            self.view_data, check_survey_path(path), write_figure=lambda _, figure_path: self.draw(figure_path)
        )

    def draw(self, path: Path) -> Path:
        """Draw both numbers over the number of keys, a panel per kind of attention."""
        panels = [
            CurvePanel(
                f"{name} attention",
                {
                    "correlation of weights and effective weights": kind.build_curve(kind.correlation),
                    "fraction of the norm without effect": kind.build_curve(kind.null_fraction),
                },
                vertical_lines={"width of the values": float(kind.d_value)},
            )
            for name, kind in self.kinds.items()
        ]
        return draw_curves(panels, path, xlabel="keys", ylabel="mean over heads", limits=(-0.02, 1.04))


def check_survey_path(path: str | Path) -> Path:
    """Return the path if a survey can be written there."""
    if Path(path).suffix.lower() == ".html":
        raise InputError(f"{path}: a page shows one text; write .png, .svg, .pdf, .json or .csv")
    return check_output_path(path)


def survey_identifiability(
    look_targets: Sequence[LookTarget], kinds: Sequence[str], about: Mapping[str, Any]
) -> IdentifiabilitySurvey:
    """Measure these kinds of attention in every look target."""
    measurements: dict[str, list[tuple[int, Tensor, Tensor]]] = {kind: [] for kind in kinds}
    for subject in track(look_targets, "looking", len(look_targets)):
        analysis = TextAnalysis(subject)
        for kind in kinds:
            effective, about_it = analysis.effective_with_identifiability(kind)
            likeness = head_correlation(analysis.attention(kind), effective, analysis.attention_mask(kind))
            measurements[kind].append((int(about_it.keys.max()), likeness.cpu(), about_it.null_fraction.mean(-1).cpu()))
    width = {kind: next(iter(look_targets[0].attentions(kind).values())).d_value for kind in kinds}
    return IdentifiabilitySurvey(
        {
            kind: KindSurvey(
                width[kind],
                torch.tensor([keys for keys, _, _ in rows]),
                *map(torch.stack, [*zip(*rows, strict=True)][1:]),
            )
            for kind, rows in measurements.items()
        },
        about,
    )


def head_correlation(
    first: Float[Tensor, "L H Q K"], second: Float[Tensor, "L H Q K"], mask: Bool[Tensor, "Q K"]
) -> Float[Tensor, "L H"]:
    """Return Pearson's correlation per head over the visible keys of all queries; 1 where the two are equal."""
    one, other = (part[..., mask].double() for part in (first, second))
    one, other = (part - part.mean(-1, keepdim=True) for part in (one, other))
    both = one.norm(dim=-1) * other.norm(dim=-1)
    same = (first - second).abs().amax((-2, -1)) <= 1e-6
    return torch.where(same | (both == 0), same.double(), (one * other).sum(-1) / both.clamp(min=1e-300)).float()
