"""Raw and effective attention against what the output owes to each token, over many texts.

For every head, output and text: Kendall's tau-b, over the visible inputs, of the weights of a query and the importance
of the inputs to its output (look/compute/output_importance.py), as Jain and Wallace (2019) compare attention with
gradients and leave-one-out. Effective attention (Brunner et al. 2020) is compared by magnitude. Both are of the same
heads and texts, so their difference is tested in pairs: one difference for each text, the mean over its heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.look.compute.output_importance import gradient_importance, removal_importance
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.corpus.paired_test import PairedTest, paired_t_test
from regard.look.corpus.survey import check_survey_path, curve_by_length, format_span, length_bins
from regard.look.render.figures import Curve, CurvePanel, draw_curves
from regard.look.render.save import save_view
from regard.look.views.view_data import Axis, ViewArray, ViewData
from regard.progress import quiet_progress, track

DEFAULT_N_TEXTS = 300
"""Texts drawn by default: each takes a forward pass for every token."""

OUTPUT_MEASURES: dict[str, Callable[[LookTarget], Float[Tensor, "inputs O"]]] = {
    "gradients": gradient_importance,
    "removal": removal_importance,
}


@dataclass(frozen=True)
class KindCorrelations:
    """One kind of attention: the keys of each text, and the correlation of every head with each measure."""

    d_value: int
    keys: Int[Tensor, " N"]
    raw: Mapping[str, Float[Tensor, "N L H"]]
    effective: Mapping[str, Float[Tensor, "N L H"]]

    def test_difference(self, measure: str, texts: Int[Tensor, " n"]) -> PairedTest:
        """Test the difference of effective and raw attention over these texts, without those that have none."""
        difference = (self.effective[measure] - self.raw[measure])[texts].flatten(1).nanmean(1)
        return paired_t_test(difference[~difference.isnan()].double().tolist())


@dataclass(frozen=True)
class EffectiveSurvey:
    """The correlations by kind of attention."""

    kinds: Mapping[str, KindCorrelations]
    about: Mapping[str, Any]

    def summary_lines(self) -> Iterator[str]:
        """Yield a table for each kind and measure: correlations by length, and the paired test of their difference."""
        yield "{texts:,} texts, {tokens:,} tokens, seed {seed}".format(**self.about)
        for name, kind in self.kinds.items():
            yield f"{name}: values have {kind.d_value} dimensions; with more keys raw and effective attention differ"
            for measure in kind.raw:
                yield f"Kendall's tau of attention and {measure}, mean over heads; effective minus raw, paired t test"
                yield f"{'keys':>10}{'texts':>7}{'raw':>9}{'effective':>11}{'difference [95 %]':>28}{'t':>9}{'p':>15}"
                bins = [*length_bins(kind.keys), torch.arange(len(kind.keys))]
                labels = [*(format_span(kind.keys[texts]) for texts in bins[:-1]), "all"]
                for label, texts in zip(labels, bins, strict=True):
                    yield f"{label:>10}{len(texts):>7}{_format_row(kind, measure, texts)}"

    def view_data(self) -> ViewData:
        """Return all numbers, for JSON and CSV."""
        arrays = []
        for name, kind in self.kinds.items():
            text, heads = Axis("text"), (Axis("layer"), Axis("head"))
            arrays.append(ViewArray("effective", name, "keys", (text,), kind.keys))
            for measure in kind.raw:
                arrays.append(ViewArray("effective", name, f"raw_{measure}", (text, *heads), kind.raw[measure]))
                values = kind.effective[measure]
                arrays.append(ViewArray("effective", name, f"effective_{measure}", (text, *heads), values))
                test = kind.test_difference(measure, torch.arange(len(kind.keys)))
                axis = Axis("test", labels=test._fields)
                arrays.append(ViewArray("effective", name, f"test_{measure}", (axis,), torch.tensor(test).double()))
        return ViewData({}, arrays, {"effective": list(self.summary_lines())}, self.about)

    def save(self, path: str | Path) -> Path:
        """Write all numbers (.json, .csv) or a figure (.png, .svg, .pdf)."""
        return save_view(
            self.view_data, check_survey_path(path), write_figure=lambda _, figure_path: self.draw(figure_path)
        )

    def draw(self, path: Path) -> Path:
        """Draw both correlations over the number of keys, a panel per kind of attention and measure."""
        panels = []
        for name, kind in self.kinds.items():
            for measure in kind.raw:
                both = {"raw attention": kind.raw[measure], "effective attention": kind.effective[measure]}
                curves = {label: _curve_of_texts(kind.keys, values) for label, values in both.items()}
                p = _format_p(kind.test_difference(measure, torch.arange(len(kind.keys))).p)
                title = f"{name}, {measure}\ndifference: p {p if p.startswith('<') else f'= {p}'}"
                panels.append(CurvePanel(title, curves, vertical_lines={"width of the values": float(kind.d_value)}))
        return draw_curves(panels, path, xlabel="keys", ylabel="Kendall's tau, mean over heads")


def _curve_of_texts(keys: Int[Tensor, " N"], taus: Float[Tensor, "N L H"]) -> Curve:
    """Return the mean over heads by the number of keys, of the texts that have a correlation, if any has."""
    by_text = taus.flatten(1).nanmean(1)
    has_tau = ~by_text.isnan()
    texts = has_tau if bool(has_tau.any()) else torch.ones_like(has_tau)
    return curve_by_length(keys[texts], by_text[texts], (-1.0, 1.0))


def _format_row(kind: KindCorrelations, measure: str, texts: Int[Tensor, " n"]) -> str:
    raw, effective = (float(values[measure][texts].nanmean()) for values in (kind.raw, kind.effective))
    test = kind.test_difference(measure, texts)
    if test.mean == 0 and test.p == 1:
        return f"{raw:>9.3f}{effective:>11.3f}{'equal':>28}"
    if test.n == 0:
        return f"{'no two inputs to rank':>48}"
    if test.n < 2:
        return f"{raw:>9.3f}{effective:>11.3f}{f'{test.mean:+.4f} (one text)':>28}"
    interval = f"{test.mean:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
    return f"{raw:>9.3f}{effective:>11.3f}{interval:>28}{test.t:>9.2f}{_format_p(test.p):>15}"


def _format_p(p: float) -> str:
    return "< 1e-16" if p < 1e-16 else f"{p:.2g}"


def survey_effective_attention(
    look_targets: Sequence[LookTarget], kinds: Sequence[str], about: Mapping[str, Any]
) -> EffectiveSurvey:
    """Correlate these kinds of attention, raw and effective, with both measures in every look target."""
    last = list(look_targets[0].sides)[-1]
    usable = [kind for kind in kinds if ATTENTION_KINDS[kind].query_side == last]
    if not usable:
        raise InputError(f"the output is of the {last}; give pairs, as in test.en test.fr, to compare its attention")
    by_kind: dict[str, list[tuple[int, dict[str, Tensor], dict[str, Tensor]]]] = {kind: [] for kind in usable}
    for target in track(look_targets, "looking", len(look_targets)):
        with quiet_progress():
            for kind, row in _correlate_text(target, usable).items():
                by_kind[kind].append(row)
    return EffectiveSurvey({kind: _collect(look_targets[0], kind, rows) for kind, rows in by_kind.items()}, about)


def _correlate_text(
    look_target: LookTarget, kinds: Sequence[str]
) -> dict[str, tuple[int, dict[str, Tensor], dict[str, Tensor]]]:
    """Return of each kind the most keys of a query, and the correlations of raw and effective attention."""
    analysis = TextAnalysis(look_target)
    sizes = {name: len(side.tokens) for name, side in look_target.sides.items()}
    importance = {name: measure(look_target) for name, measure in OUTPUT_MEASURES.items()}
    correlations = {}
    for kind in kinds:
        by_side = {name: values.split(list(sizes.values())) for name, values in importance.items()}
        side = list(sizes).index(ATTENTION_KINDS[kind].key_side)
        mask = analysis.attention_mask(kind)
        raw, (effective, facts) = analysis.attention(kind), analysis.effective_with_identifiability(kind)
        # Identifiable rows differ by rounding only, which must not break ties.
        effective = torch.where(facts.null[..., None] > 0, effective.abs(), raw)
        taus = [
            {name: _mean_tau(weights, parts[side].T, mask) for name, parts in by_side.items()}
            for weights in (raw, effective)
        ]
        correlations[kind] = (int(mask.sum(-1).max()), taus[0], taus[1])
    return correlations


def _collect(
    look_target: LookTarget, kind: str, rows: Sequence[tuple[int, dict[str, Tensor], dict[str, Tensor]]]
) -> KindCorrelations:
    keys, raw, effective = zip(*rows, strict=True)
    stacked = (
        {name: torch.stack([row[name] for row in part]) for name in OUTPUT_MEASURES} for part in (raw, effective)
    )
    return KindCorrelations(next(iter(look_target.attentions(kind).values())).d_value, torch.tensor(keys), *stacked)


def _mean_tau(
    weights: Float[Tensor, "L H Q K"], importance: Float[Tensor, "Q K"], mask: Bool[Tensor, "Q K"]
) -> Float[Tensor, "L H"]:
    """Return the mean over queries of the correlation of weights and importance; NaN where no query has one."""
    taus = torch.stack([kendall_tau(layer, importance, mask) for layer in weights])
    return taus.nanmean(-1).float().cpu()


def kendall_tau(
    one: Float[Tensor, "*B K"], other: Float[Tensor, "*B K"], mask: Bool[Tensor, "*B K"]
) -> Float[Tensor, "*B"]:
    """Return Kendall's tau-b over the visible entries of each row; NaN where all entries of a row are tied."""
    pairs = (mask[..., :, None] & mask[..., None, :]).double()
    first, second = (torch.sign(x[..., :, None] - x[..., None, :]).double() * pairs for x in (one, other))
    untied = (first.abs().sum((-2, -1)) * second.abs().sum((-2, -1))).sqrt()
    return torch.where(untied > 0, (first * second).sum((-2, -1)) / untied, torch.nan)
