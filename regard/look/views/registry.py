"""The views by name: each makes arrays (look/views/view_data.py) of what was seen, and says in words what they mean.

A new view is a function here, registered in `VIEWS` with what it needs and what can be chosen of it; every way of
showing serves it. look/views/titles.py has the titles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from regard.errors import InputError, did_you_mean
from regard.look.compute.attribution import self_contribution_summary
from regard.look.compute.effective_attention import AttentionIdentifiability
from regard.look.compute.faithfulness import MIN_STDS_ABOVE_RANDOM, N_ESTIMATE_DIRECTIONS
from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.view_data import Axis, ValueKind, ViewArray, ViewData, merge_array_subwords

LAYER_AXIS, HEAD_AXIS = Axis("layer"), Axis("head")


@dataclass(frozen=True)
class ViewRequest:
    """What of the views is wanted: one kind of attention or stack, one layer, one head; an estimate; whole words."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    estimate: int | None = None
    words: bool = False


ViewItems = Iterator[ViewArray | str]
"""What a view gives: arrays, and sentences about them."""


def attention_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for kind in _requested_kinds(analysis, request):
        yield ViewArray("attention", kind, "weights", _attention_axes(kind), analysis.attention(kind))


def effective_attention_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for kind in _requested_kinds(analysis, request):
        yield ViewArray("effective", kind, "weights", _attention_axes(kind), analysis.effective_attention(kind))


def value_norms_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for kind in _requested_kinds(analysis, request):
        yield ViewArray("norms", kind, "norms", _attention_axes(kind), analysis.norms(kind))


def identifiability_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for kind in _requested_kinds(analysis, request):
        found = analysis.identifiability(kind)
        yield describe_identifiability(kind, found)
        for name, values in found._asdict().items():
            nature: ValueKind = "amount" if name == "share" else "count"
            yield ViewArray("identifiability", kind, name, _attention_axes(kind)[:3], values, nature)


def describe_identifiability(kind: str, identifiability: AttentionIdentifiability) -> str:
    """Identifiability in plain words; a head counts by the query that sees most."""
    null, share = identifiability.null.amax(-1), identifiability.share.mean(-1)
    n_keys, total, lost = int(identifiability.keys.max()), null.numel(), int((null > 0).sum())
    keys = f"{n_keys} key{'s' if n_keys > 1 else ''}"
    ranks = identifiability.rank.amax(-1)
    rank = f"rank {int(ranks.min())}" + (f" to {int(ranks.max())}" if ranks.min() < ranks.max() else "")
    if not lost:
        heads = "the one head here is" if total == 1 else f"all {total} heads here are"
        tell = "its output tells its weights" if total == 1 else "their outputs tell their weights"
        return f"{kind}: {heads} identifiable: {keys}, {rank}; {tell}"
    heads = "the one head here is" if total == 1 else f"{lost} of {total} heads here {'is' if lost == 1 else 'are'}"
    whose = "its weights does not show in its output" if lost == 1 else "their weights does not show in their outputs"
    return (
        f"{kind}: {heads} not identifiable: {keys}, {rank}; {float(share[null > 0].mean()):.0%} of the norm of {whose}"
    )


def attribution_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for stack in [stack for stack in _requested_stacks(analysis, request) if analysis.look_target.n_layers(stack)]:
        over = tuple(analysis.tokens)[: list(analysis.tokens).index(stack) + 1]
        output = Axis("output", (stack,))
        axes = (LAYER_AXIS, Axis("input", over), output)
        found = analysis.contributions(stack, request.estimate)
        share = ViewArray("attribution", stack, "share", axes, found.contribution)
        yield share
        if found.error is not None:
            yield ViewArray("attribution", stack, "error", axes, found.error, "error")
            error = float((found.error / found.contribution.clamp(min=1e-30))[found.contribution > 0.01].mean())
            yield f"{stack}: estimated from {request.estimate} directions of each token; standard error about {error:.1%}"
        words = {name: side.words for name, side in analysis.look_target.sides.items()}
        own, strayed = self_contribution_summary(
            merge_array_subwords(share, words).values if request.words else found.contribution
        )
        sizes = [len(word.token_indices) for word in words[stack]] if request.words else [1] * own.shape[-1]
        by_piece = own.repeat_interleave(torch.tensor(sizes).to(own.device), -1)  # merged, these are the words' again
        yield ViewArray("attribution", stack, "own_share", (LAYER_AXIS, output), by_piece)
        yield ViewArray("attribution", stack, "strayed", (LAYER_AXIS,), strayed)
        token = "word" if request.words else "token"
        yield (
            f"{stack}: in the last layer a {token} is {float(own[-1].mean()):.0%} itself; "
            f"to {float(strayed[-1]):.0%} of the {token}s another one contributes more"
        )


def similarity_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for kind in _requested_kinds(analysis, request):
        if not _is_bilinear(analysis, kind):
            continue
        n_layers, n_heads = analysis.attention(kind).shape[:2]
        found = [[analysis.similarity(layer, head, kind) for head in range(n_heads)] for layer in range(n_layers)]
        eigenvalues = torch.stack([torch.stack([each.eigenvalues for each in heads]) for heads in found])
        yield ViewArray("similarity", kind, "eigenvalues", (LAYER_AXIS, HEAD_AXIS, Axis("dimension")), eigenvalues)
        mutual = torch.tensor([[each.symmetric_fraction for each in heads] for heads in found], dtype=torch.float64)
        yield ViewArray("similarity", kind, "mutual", (LAYER_AXIS, HEAD_AXIS), mutual)
        positive = torch.tensor([[int(each.is_positive_semidefinite) for each in heads] for heads in found])
        yield ViewArray("similarity", kind, "positive", (LAYER_AXIS, HEAD_AXIS), positive)
        yield (
            f"{kind}: {int(positive.sum())} of {positive.numel()} heads measure by a metric (positive semi-definite); "
            f"{float(mutual.mean()):.0%} of the forms is mutual, where one without preference has 50%"
        )
        if request.layer is not None and request.head is not None:
            one = found[request.layer][request.head]
            axes = (
                _single_entry_axis("layer", request.layer, n_layers),
                _single_entry_axis("head", request.head, n_heads),
                Axis("row"),
                Axis("column"),
            )
            for name in ("form", "symmetric", "antisymmetric"):
                yield ViewArray("similarity", kind, name, axes, getattr(one, name)[None, None])


def rollout_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for stack in [stack for stack in _requested_stacks(analysis, request) if stack in analysis.kinds]:
        values = analysis.rollout(stack)
        sides = tuple(analysis.tokens)
        over = sides if values.shape[-1] > len(analysis.tokens[stack]) else (stack,)
        yield ViewArray(
            "rollout", stack, "rollout", (LAYER_AXIS, Axis("output", (stack,)), Axis("input", over)), values
        )


def gradients_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    found, sides = analysis.gradients(), tuple(analysis.tokens)
    output = _output_axis(analysis.look_target)
    for name in ("gradient_x_input", "integrated_gradients"):
        yield ViewArray("gradients", "", name, (Axis("input", sides), output), getattr(found, name))
    yield ViewArray("gradients", "", "gap", (output,), found.convergence_delta)
    if output.ahead:
        yield f"an output is named by the token before it: {analysis.tokens['decoder'][0]} stands for the first one"
    predicted = (
        "label" if analysis.look_target.output_side else "class" if analysis.look_target.output_labels else "token"
    )
    explained = "the score" if analysis.look_target.is_regression else f"the log-probability of a {predicted}"
    yield (
        f"integrated gradients sum to what the inputs change in {explained}, "
        f"to within {float(found.convergence_delta.abs().max()):.2g}"
    )


def faithfulness_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    found = analysis.faithfulness(request.words, estimate=request.estimate or N_ESTIMATE_DIRECTIONS)
    method = Axis("method", labels=tuple(found.methods))
    yield ViewArray(
        "faithfulness", "", "drop", (method, Axis("k", labels=tuple(map(str, found.removal_counts)))), found.drop
    )
    yield ViewArray("faithfulness", "", "score", (method,), found.score)
    yield ViewArray("faithfulness", "", "error", (method,), found.std, "error")
    if not found.removal_counts:
        yield "there is only one input, and a prediction from nothing is none: no view can be tested on it"
        return
    most = f"{float(found.score[:-1].max()):.2f}"
    chance = f"{float(found.score[-1]):.2f} ± {float(found.std[-1]):.2f}"
    if found.best is None:
        clear = f"only {MIN_STDS_ABOVE_RANDOM:g} times ± above that would be clear"
        yield (
            "no view is clearly better than removing inputs at random, for this prediction: it loses at most "
            f"{most} of its log-probability, and {chance} by chance; {clear}"
        )
    else:
        others = ", ".join(found.runners_up).replace("_", " ")
        yield (
            f"for this prediction trust {found.best.replace('_', ' ')}: without what that view names it loses most, "
            f"{most} of its log-probability, and {chance} by chance"
            + (f"; about as good, and not to be told apart: {others}" if others else "")
        )


def pooling_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    assert analysis.look_target.hops is not None
    weights = analysis.look_target.hops()
    hops = Axis("hop", labels=tuple(map(str, range(len(weights)))))
    yield ViewArray("pooling", "", "weights", (Axis("input", tuple(analysis.tokens)), hops), weights.T)


def positions_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    for side in _requested_stacks(analysis, request):
        if (vectors := analysis.position_vectors(side)) is not None:
            yield ViewArray("positions", side, "vectors", (Axis("position", (side,)), Axis("dimension")), vectors)


class ViewRequirement(NamedTuple):
    """What a model must have for a view, and what is said of one that has it not."""

    is_met: Callable[[TextAnalysis], bool]
    unmet_reason: str


HAS_ATTENTION = ViewRequirement(lambda seen: bool(seen.kinds), "no token of it looks at another by attention")
HAS_LAYERS = ViewRequirement(lambda seen: any(map(seen.look_target.n_layers, seen.tokens)), "it has no layers")
HAS_BILINEAR_FORM = ViewRequirement(
    lambda seen: any(_is_bilinear(seen, kind) for kind in seen.kinds),
    "none of its attentions has learned a bilinear form",
)
HAS_SELF_ATTENTION = ViewRequirement(
    lambda seen: any(stack in seen.kinds for stack in seen.tokens), "its tokens do not meet in self-attention"
)
HAS_PREDICTION = ViewRequirement(
    lambda seen: seen.look_target.head is not None, "it gives vectors and predicts nothing that could be explained"
)
HAS_ATTENTION_POOLING = ViewRequirement(
    lambda seen: seen.look_target.hops is not None, "it makes no vector of a text by attention over its tokens"
)
HAS_POSITION_VECTORS = ViewRequirement(
    lambda seen: any(seen.position_vectors(side) is not None for side in seen.tokens),
    "no vectors are added for positions; its scheme works inside attention, or it has none",
)


class View(NamedTuple):
    """What makes a view, what it needs of a model, and what can be chosen of it."""

    build: Callable[[TextAnalysis, ViewRequest], ViewItems]
    requirement: ViewRequirement
    options: tuple[str, ...] = ()


VIEWS = {
    "attention": View(attention_view, HAS_ATTENTION, ("kind", "layer", "head")),
    "effective": View(effective_attention_view, HAS_ATTENTION, ("kind", "layer", "head")),
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
    """The views that this model has."""
    return [name for name, view in VIEWS.items() if view.requirement.is_met(analysis)]


def default_view(analysis: TextAnalysis) -> str:
    """The view where none is named: attention, else pooling by attention, else gradients."""
    return next((name for name in ("attention", "pooling") if VIEWS[name].requirement.is_met(analysis)), "gradients")


def build_view_data(analysis: TextAnalysis, view: str, request: ViewRequest) -> ViewData:
    """The arrays and sentences of one view, or of ``all`` there are for this model."""
    check_request(analysis, view, request)
    arrays: list[ViewArray] = []
    notes: dict[str, list[str]] = {}
    names = available_views(analysis) if view == "all" else [view] if VIEWS[view].requirement.is_met(analysis) else []
    for name in names:
        for found in VIEWS[name].build(analysis, request):
            if isinstance(found, str):
                notes.setdefault(name, []).append(found)
            else:
                arrays.append(_select_layer_and_head(replace(found, values=found.values.detach().cpu()), request))
    if not arrays:
        why = "it has none" if view == "all" else VIEWS[view].requirement.unmet_reason
        others = [name for name in available_views(analysis) if name != view]
        raise InputError(f"this model has nothing to show for --view {view}: {why}{_suggest_views(others)}")
    return ViewData(_collect_sides(analysis, arrays), arrays, notes, analysis.about)


def _suggest_views(others: Sequence[str], prefix: str = "; ") -> str:
    """The end of a message: the views to look at instead, if any."""
    return f"{prefix}look at: {', '.join(others)}" if others else ""


def _collect_sides(analysis: TextAnalysis, arrays: Sequence[ViewArray]) -> dict[str, list[str]]:
    """The sides of the model, and its outputs where an array lies over them."""
    outputs = {analysis.look_target.output_side: list(analysis.look_target.output_labels)}
    used = {side for array in arrays for axis in array.axes for side in axis.over}
    return analysis.tokens | {side: names for side, names in outputs.items() if side in used}


def check_request(analysis: TextAnalysis, view: str, request: ViewRequest) -> None:
    """Refuse what is not there, before any work; of all views, each has only some things to choose."""
    if view != "all" and view not in VIEWS:
        raise InputError(f"no view is called '{view}'; {did_you_mean(view, [*VIEWS, 'all'])}")
    for name in ("kind", "layer", "head", "estimate"):
        if getattr(request, name) is not None and view != "all" and name not in VIEWS[view].options:
            others = [other for other in available_views(analysis) if name in VIEWS[other].options]
            raise InputError(f"{view} has no {name} to choose; leave it out{_suggest_views(others, ', or ')}")
    if request.kind is not None:
        _requested_stacks(analysis, request)
    for kind in analysis.kinds if request.kind is None else [request.kind] if request.kind in analysis.kinds else []:
        modules = list(analysis.look_target.attentions(kind).values())
        for name, number, count in (("layer", request.layer, len(modules)), ("head", request.head, modules[0].n_heads)):
            if number is not None and not -count <= number < count:
                raise InputError(f"{name} {number}: {kind} attention has {count}, counted from 0")


def _select_layer_and_head(array: ViewArray, request: ViewRequest) -> ViewArray:
    """The layer and head asked for, of an array that has them."""
    for name, number in (("layer", request.layer), ("head", request.head)):
        place = array.axis_index(name)
        if number is not None and place >= 0 and not array.axes[place].labels:
            axis = _single_entry_axis(name, number, array.values.shape[place])
            axes = (*array.axes[:place], axis, *array.axes[place + 1 :])
            array = replace(
                array, axes=axes, values=array.values.index_select(place, torch.tensor([int(axis.labels[0])]))
            )
    return array


def _single_entry_axis(name: str, index: int, length: int) -> Axis:
    """An axis with one of its entries; -1 is the last."""
    return Axis(name, labels=(str(index % length),))


def _attention_axes(kind: str) -> tuple[Axis, Axis, Axis, Axis]:
    return (
        LAYER_AXIS,
        HEAD_AXIS,
        Axis("query", (ATTENTION_KINDS[kind].query_side,)),
        Axis("key", (ATTENTION_KINDS[kind].key_side,)),
    )


def _output_axis(look_target: LookTarget) -> Axis:
    """What is predicted: the outputs that have names, or one for each token of the last side."""
    if look_target.output_side:
        return Axis("output", (look_target.output_side,))
    if look_target.output_labels:
        return Axis("output", labels=look_target.output_labels)
    last = list(look_target.sides)[-1]
    return Axis("output", (last,), ahead=last == "decoder")


def _is_bilinear(analysis: TextAnalysis, kind: str) -> bool:
    return all(module.bilinear_factors(0) is not None for module in analysis.look_target.attentions(kind).values())


def _requested_kinds(analysis: TextAnalysis, request: ViewRequest) -> list[str]:
    """The kinds of attention asked for."""
    if request.kind is None:
        return analysis.kinds
    analysis.look_target.attentions(request.kind)
    return [request.kind]


def _requested_stacks(analysis: TextAnalysis, request: ViewRequest) -> list[str]:
    """The stacks asked for; cross-attention belongs to the stack that looks."""
    if request.kind is None:
        return list(analysis.tokens)
    if request.kind in analysis.tokens:
        return [request.kind]
    analysis.look_target.attentions(request.kind)
    return [ATTENTION_KINDS[request.kind].query_side]
