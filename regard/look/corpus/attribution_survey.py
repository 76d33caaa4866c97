"""Mixing and identifiability side by side, over many texts (Brunner et al. 2020, sections 4 and 5).

Left, how much of each hidden vector comes from its own token: hidden token attribution (look/compute/attribution.py),
median and quartiles over tokens, and the fraction of tokens to which another contributes more. Right, the fraction of
tokens that a probe recovers from their hidden vectors (look/corpus/identify.py). Both are of the same test sentences.
Layer 0 is the input of the layers, where every token is its own; layer l is the output of the l-th.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.compute.attribution import self_contribution_summary
from regard.look.compute.faithfulness import N_ESTIMATE_DIRECTIONS
from regard.look.compute.jvp import record_inputs
from regard.look.compute.look_target import LookTarget
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.corpus.identify import TokenIdentifiability, measure_token_identifiability
from regard.look.corpus.sentences import SentenceSet
from regard.look.corpus.survey import check_survey_path
from regard.look.render.figures import Curve, CurvePanel, draw_curves
from regard.look.render.save import save_view
from regard.look.views.view_data import Axis, ViewArray, ViewData
from regard.progress import quiet_progress, track

SURVEY_PROBES = ("identity", "linear")
"""The probes beside attribution; `regard identify` has more."""

QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class StackContributions:
    """The self-contribution of every test token after every layer, and the fraction of tokens another dominates."""

    own: Float[Tensor, "layers N"]
    dominated: Float[Tensor, " layers"]

    @property
    def quartiles(self) -> Float[Tensor, "layers 3"]:
        """Return lower quartile, median and upper quartile by layer."""
        return self.own.double().quantile(torch.tensor(QUARTILES, dtype=torch.float64), dim=1).T


@dataclass(frozen=True)
class AttributionSurvey:
    """Self-contribution and token identifiability by stack and layer."""

    stacks: Mapping[str, StackContributions]
    identifiability: TokenIdentifiability
    about: Mapping[str, Any]

    def summary_lines(self) -> Iterator[str]:
        """Yield a table by layer for each stack, and its summary in a sentence."""
        about, parts = self.about, self.identifiability.sentences
        directions = f"{about['estimate']} directions per token" if about["estimate"] else "all directions (exact)"
        used = f"{sum(parts.values()):,} of {about['read']:,} texts, seed {about['seed']}"
        yield f"{used}: probes trained on {parts['train']:,}"
        yield f"attribution and recovery of the {parts['test']:,} test texts; attribution from {directions}"
        for stack, contributions in self.stacks.items():
            facts = self.identifiability.stacks[stack]
            yield f"{stack}: {contributions.own.shape[1]:,} test tokens; chance of recovery {facts['chance']:.1%}"
            yield f"{'':>7}{'own contribution':^27}{'another':>10}{'recovered (cosine)':>22}"
            heads = "".join(f"{name:>11}" for name in self.identifiability.settings["maps"])
            yield f"{'layer':>7}{'quartile':>9}{'median':>9}{'quartile':>9}{'dominates':>10}{heads}"
            for layer, (quartiles, dominated) in enumerate(
                zip(contributions.quartiles, contributions.dominated, strict=True)
            ):
                own = "".join(f"{float(each):>9.1%}" for each in quartiles)
                recovered = "".join(f"{self._recovered(stack, layer, name):>11.1%}" for name in self._maps)
                yield f"{layer:>7}{own}{float(dominated):>10.1%}{recovered}"
            yield self._describe(stack, contributions)

    @property
    def _maps(self) -> list[str]:
        return list(self.identifiability.settings["maps"])

    def _recovered(self, stack: str, layer: int, name: str) -> float:
        spec = (stack, layer, name, "cosine")
        return next(each.accuracy for each in self.identifiability.results if each.spec == spec)

    def _describe(self, stack: str, contributions: StackContributions) -> str:
        last = len(contributions.dominated) - 1
        best = max(self._maps, key=lambda name: self._recovered(stack, last, name))
        recovered, median = self._recovered(stack, last, best), float(contributions.quartiles[-1, 1])
        return (
            f"{stack}: after the last layer a token's own input contributes {median:.0%} (median) "
            f"and another more for {float(contributions.dominated[-1]):.0%} of the tokens; {recovered:.0%} "
            f"are still recovered ({best})"
        )

    def view_data(self) -> ViewData:
        """Return all numbers, for JSON and CSV."""
        arrays = []
        for stack, contributions in self.stacks.items():
            layer, quartile = Axis("layer"), Axis("quartile", labels=tuple(map(str, QUARTILES)))
            arrays.append(
                ViewArray("attribution", stack, "self_contribution", (layer, Axis("token")), contributions.own)
            )
            arrays.append(ViewArray("attribution", stack, "own_quartiles", (layer, quartile), contributions.quartiles))
            arrays.append(ViewArray("attribution", stack, "dominated_fraction", (layer,), contributions.dominated))
            measured = [each for each in self.identifiability.results if each.spec.stack == stack]
            for name in ("accuracy", "low", "high"):
                values = torch.tensor([getattr(each, name) for each in measured], dtype=torch.float64)
                axes = (layer, Axis("map", labels=tuple(self._maps)), Axis("distance", labels=("cosine", "l2")))
                shape = (len(contributions.dominated), len(self._maps), 2)
                arrays.append(ViewArray("attribution", stack, f"recovered_{name}", axes, values.view(shape)))
        return ViewData({}, arrays, {"attribution": list(self.summary_lines())}, self.about)

    def save(self, path: str | Path) -> Path:
        """Write all numbers (.json, .csv) or a figure (.png, .svg, .pdf)."""
        return save_view(
            self.view_data, check_survey_path(path), write_figure=lambda _, figure_path: self.draw(figure_path)
        )

    def draw(self, path: Path) -> Path:
        """Draw own contribution beside recovered tokens by layer, two panels a stack."""
        panels = []
        for stack, contributions in self.stacks.items():
            layers = list(range(len(contributions.dominated)))
            low, median, high = (100 * contributions.quartiles.T).tolist()
            mixing = {
                "own contribution (median, quartiles)": Curve(layers, median, low, high),
                "tokens dominated by another": Curve(layers, (100 * contributions.dominated).tolist()),
            }
            panels.append(CurvePanel(f"{stack}: mixing (attribution)", mixing))
            facts = self.identifiability.stacks[stack]
            curves = {f"tokens recovered, {name} probe": self._recovery_curve(stack, name) for name in self._maps}
            lines = {"chance of recovery": 100 * facts["chance"]}
            panels.append(CurvePanel(f"{stack}: token identifiability", curves, lines))
        return draw_curves(
            panels, path, xlabel="layer (0: input)", ylabel="%", limits=(-2.0, 104.0), title=self._caption()
        )

    def _caption(self) -> str:
        n_tokens = sum(contributions.own.shape[1] for contributions in self.stacks.values())
        return (
            f"{Path(self.about['model']).name}: {self.identifiability.sentences['test']:,} texts, {n_tokens:,} tokens"
        )

    def _recovery_curve(self, stack: str, name: str) -> Curve:
        results = [
            each for each in self.identifiability.results if each.spec == (stack, each.spec.layer, name, "cosine")
        ]
        values = ([100 * value for value in column] for column in zip(*(each[1:] for each in results), strict=True))
        return Curve([each.spec.layer for each in results], *values)


def survey_attribution(
    look_targets: Sequence[LookTarget],
    *,
    stacks: Sequence[str],
    seed: int,
    device: torch.device,
    about: Mapping[str, Any],
    estimate: int | None = N_ESTIMATE_DIRECTIONS,
) -> AttributionSurvey:
    """Measure token identifiability, and the attribution of its test sentences; with `estimate` None exactly."""
    identified = measure_token_identifiability(
        look_targets, stacks=stacks, maps=SURVEY_PROBES, seed=seed, device=device, about=about
    )
    sentences = SentenceSet(look_targets, stacks, seed)
    tested = sentences.look_targets[-sentences.split_sizes["test"] :]
    width = next(iter(record_inputs(tested[0]).values())).shape[-1]
    directions = None if estimate is None or estimate >= width else estimate
    by_stack: dict[str, list[tuple[Tensor, Tensor]]] = {stack: [] for stack in stacks}
    for target in track(tested, "attribution", len(tested)):
        with quiet_progress():
            for stack in stacks:
                by_stack[stack].append(_measure_text(target, stack, directions))
    facts = {**about, "seed": seed, "estimate": directions}
    return AttributionSurvey({stack: _join(texts) for stack, texts in by_stack.items()}, identified, facts)


def _measure_text(
    look_target: LookTarget, stack: str, estimate: int | None
) -> tuple[Float[Tensor, "L T"], Float[Tensor, " L"]]:
    """Return the self-contribution of each token and the number of dominated tokens, by layer."""
    own, dominated = self_contribution_summary(TextAnalysis(look_target).contributions(stack, estimate).contribution)
    return own.cpu(), dominated.cpu() * own.shape[1]


def _join(texts: Sequence[tuple[Float[Tensor, "L T"], Float[Tensor, " L"]]]) -> StackContributions:
    """Join the texts, with layer 0 before the others: there every token is its own."""
    own = torch.cat([one for one, _ in texts], 1)
    dominated = torch.stack([count for _, count in texts]).sum(0) / own.shape[1]
    return StackContributions(
        torch.cat((torch.ones_like(own[:1]), own)), torch.cat((torch.zeros_like(dominated[:1]), dominated))
    )
