"""The registry of views: each builds arrays (look/views/view_data.py) from an analysis and sentences about them.

A new view is a function in attention_views.py or prediction_views.py, registered in `VIEWS` with its requirement and
its options; every renderer serves it. look/views/titles.py has the titles of arrays, `GENERIC_VIEWS` in
render/page/views.js the title and explanation on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from regard.errors import InputError, did_you_mean
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.alternative_view import alternative_view
from regard.look.views.attention_views import (
    attention_view,
    effective_attention_view,
    identifiability_view,
    is_bilinear,
    pooling_view,
    positions_view,
    rollout_view,
    scores_view,
    similarity_view,
    value_norms_view,
)
from regard.look.views.focus import default_focus
from regard.look.views.prediction_views import attribution_view, faithfulness_view, gradients_view, summary_view
from regard.look.views.request import ViewItems, ViewRequest, requested_stacks, single_entry_axis
from regard.look.views.view_data import ViewArray, ViewData


class ViewRequirement(NamedTuple):
    """A property a model must have for a view, and the reason given for one that lacks it."""

    is_met: Callable[[TextAnalysis], bool]
    unmet_reason: str


HAS_ATTENTION = ViewRequirement(lambda analysis: bool(analysis.kinds), "it has no attention between tokens")
HAS_LAYERS = ViewRequirement(
    lambda analysis: any(map(analysis.look_target.n_layers, analysis.tokens)), "it has no layers"
)
HAS_BILINEAR_FORM = ViewRequirement(
    lambda analysis: any(is_bilinear(analysis, kind) for kind in analysis.kinds),
    "none of its attention modules scores by a bilinear form",
)
HAS_SELF_ATTENTION = ViewRequirement(
    lambda analysis: any(stack in analysis.kinds for stack in analysis.tokens), "it has no self-attention"
)
HAS_PREDICTION = ViewRequirement(
    lambda analysis: analysis.look_target.head is not None, "it returns vectors and makes no prediction to explain"
)
HAS_ATTENTION_POOLING = ViewRequirement(
    lambda analysis: analysis.look_target.hops is not None, "it does not pool a text by attention"
)
HAS_POSITION_VECTORS = ViewRequirement(
    lambda analysis: any(analysis.position_vectors(side) is not None for side in analysis.tokens),
    "it adds no position vectors; its positions act inside attention, or it has none",
)


class View(NamedTuple):
    """The builder of a view, its requirement, and the options it takes."""

    build: Callable[[TextAnalysis, ViewRequest], ViewItems]
    requirement: ViewRequirement
    options: tuple[str, ...] = ()


VIEWS = {
    "summary": View(summary_view, HAS_PREDICTION, ("estimate",)),
    "attention": View(attention_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "scores": View(scores_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "effective": View(effective_attention_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "alternative": View(alternative_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "norms": View(value_norms_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "identifiability": View(identifiability_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "attribution": View(attribution_view, HAS_LAYERS, ("kind", "layer", "estimate")),
    "similarity": View(similarity_view, HAS_BILINEAR_FORM, ("kind", "layer", "head")),
    "rollout": View(rollout_view, HAS_SELF_ATTENTION, ("kind", "layer")),
    "gradients": View(gradients_view, HAS_PREDICTION),
    "faithfulness": View(faithfulness_view, HAS_PREDICTION, ("estimate",)),
    "pooling": View(pooling_view, HAS_ATTENTION_POOLING),
    "positions": View(positions_view, HAS_POSITION_VECTORS, ("kind",)),
}


def available_views(analysis: TextAnalysis) -> list[str]:
    """Return the names of the views that this model has."""
    return [name for name, view in VIEWS.items() if view.requirement.is_met(analysis)]


def default_view(analysis: TextAnalysis) -> str:
    """Return the view shown if none is named: attention, or else attention pooling, or else gradients."""
    return next((name for name in ("attention", "pooling") if VIEWS[name].requirement.is_met(analysis)), "gradients")


def build_view_data(analysis: TextAnalysis, view: str, request: ViewRequest) -> ViewData:
    """Build the arrays and sentences of one view, or of ``all`` views of this model."""
    check_request(analysis, view, request)
    arrays: list[ViewArray] = []
    notes: dict[str, list[str]] = {}
    names = available_views(analysis) if view == "all" else [view] if VIEWS[view].requirement.is_met(analysis) else []
    for name in names:
        for item in VIEWS[name].build(analysis, request):
            if isinstance(item, str):
                notes.setdefault(name, []).append(item)
            else:
                arrays.append(_select_layer_and_head(replace(item, values=item.values.detach().cpu()), request))
    if not arrays:
        why = "it has no view" if view == "all" else VIEWS[view].requirement.unmet_reason
        others = [name for name in available_views(analysis) if name != view]
        raise InputError(f"this model has nothing to show for --view {view}: {why}{_suggest_views(others)}")
    next_tokens = {name: side.next_tokens for name, side in analysis.look_target.sides.items() if side.next_tokens}
    return ViewData(
        _collect_sides(analysis, arrays), arrays, notes, analysis.about, next_tokens, default_focus(analysis)
    )


def _suggest_views(others: Sequence[str], prefix: str = "; ") -> str:
    """Return the end of a message: the views to look at instead, if any."""
    return f"{prefix}look at: {', '.join(others)}" if others else ""


def _collect_sides(analysis: TextAnalysis, arrays: Sequence[ViewArray]) -> dict[str, list[str]]:
    """Return the sides of the model, and its outputs if an array has an axis over them."""
    outputs = {analysis.look_target.output_side: list(analysis.look_target.output_labels)}
    used = {side for array in arrays for axis in array.axes for side in axis.over}
    return analysis.tokens | {side: names for side, names in outputs.items() if side in used}


def check_request(analysis: TextAnalysis, view: str, request: ViewRequest) -> None:
    """Refuse an unknown view, option, layer or head before any computation."""
    if view != "all" and view not in VIEWS:
        raise InputError(f"unknown view '{view}'; {did_you_mean(view, [*VIEWS, 'all'])}")
    for name in ("kind", "layer", "head", "estimate"):
        if getattr(request, name) is not None and view != "all" and name not in VIEWS[view].options:
            others = [other for other in available_views(analysis) if name in VIEWS[other].options]
            raise InputError(f"{view} has no {name} to choose; leave it out{_suggest_views(others, ', or ')}")
    if request.kind is not None:
        requested_stacks(analysis, request)
    for kind in analysis.kinds if request.kind is None else [request.kind] if request.kind in analysis.kinds else []:
        modules = list(analysis.look_target.attentions(kind).values())
        for name, number, count in (("layer", request.layer, len(modules)), ("head", request.head, modules[0].n_heads)):
            if number is not None and not -count <= number < count:
                raise InputError(f"{name} {number}: {kind} attention has {count}, counted from 0")


def _select_layer_and_head(array: ViewArray, request: ViewRequest) -> ViewArray:
    """Return the requested layer and head of an array that has these axes."""
    for name, number in (("layer", request.layer), ("head", request.head)):
        dim = array.axis_index(name)
        if number is not None and dim >= 0 and not array.axes[dim].labels:
            axis = single_entry_axis(name, number, array.values.shape[dim])
            axes = (*array.axes[:dim], axis, *array.axes[dim + 1 :])
            array = replace(
                array, axes=axes, values=array.values.index_select(dim, torch.tensor([int(axis.labels[0])]))
            )
    return array
