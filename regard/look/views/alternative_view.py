"""The view of alternative attention: other weights that give a head the same output, beside the model's own."""

from __future__ import annotations

import torch

from regard.look.compute.alternative_attention import AlternativeAttention, search_size
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.focus import default_focus
from regard.look.views.request import ViewItems, ViewRequest, attention_axes, requested_kinds, single_entry_axis
from regard.look.views.view_data import ViewArray

MAX_SEARCH_SIZE = 1 << 21
"""The largest search for all heads of a kind, half a minute on a CPU; beyond it one head is searched."""


def alternative_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the model's weights, other valid weights as far from them as was found, and the distances."""
    for kind in requested_kinds(analysis, request):
        layer, head, reason = _choose_heads(analysis, kind, request)
        alternative = analysis.alternative_attention(kind, layer=layer, head=head)
        n_layers, n_heads, *_ = analysis.attention(kind).shape
        axes = list(attention_axes(kind))
        axes[0] = axes[0] if layer is None else single_entry_axis("layer", layer, n_layers)
        axes[1] = axes[1] if head is None else single_entry_axis("head", head, n_heads)
        layers, heads = ([int(label) for label in axis.labels] or slice(None) for axis in axes[:2])
        own = analysis.attention(kind)[layers][:, heads]
        yield ViewArray("alternative", kind, "weights", tuple(axes), own)
        yield ViewArray("alternative", kind, "alternative", tuple(axes), alternative.weights)
        yield ViewArray("alternative", kind, "distance", tuple(axes[:3]), alternative.distance)
        yield ViewArray(
            "alternative", kind, "output_difference", tuple(axes[:3]), alternative.output_difference, "error"
        )
        yield describe_alternative(kind, alternative) + reason
        if bool((alternative.distance > 0).any()):
            change = analysis.output_change_with(kind, alternative.weights, layer=layer, head=head)
            yield f"{kind}: with these in place of its weights, the output of the model changes by {change:.1e} at most"
            if layer is None and head is None and alternative.distance[..., 0].numel() > 1:
                yield _name_farthest(kind, alternative)


def _choose_heads(analysis: TextAnalysis, kind: str, request: ViewRequest) -> tuple[int | None, int | None, str]:
    """Return the layer and head to search, and what to add to the sentence about them."""
    n_layers, n_heads, *_ = analysis.attention(kind).shape
    d_value = next(iter(analysis.look_target.attentions(kind).values())).d_value
    rows = (n_layers if request.layer is None else 1) * (n_heads if request.head is None else 1)
    if rows == 1 or search_size(rows, analysis.attention_mask(kind).sum(-1).cpu(), d_value) <= MAX_SEARCH_SIZE:
        return request.layer, request.head, ""
    focus = default_focus(analysis)
    layer = request.layer if request.layer is not None else focus.layer if focus.kind == kind else n_layers - 1
    head = request.head if request.head is not None else focus.head if focus.kind == kind else 0
    named = f"--layer {layer} --head {head}"
    return layer, head, f"; only this head is searched ({named}), as all {rows} would take long: choose others likewise"


def describe_alternative(kind: str, alternative: AlternativeAttention) -> str:
    """Say for how many heads other weights are valid, how far they are, and how exactly the output is the same."""
    n_keys, ranks = int(alternative.keys.max()), alternative.rank.amax(-1)
    rank = f"{int(ranks.min())}" + (f" to {int(ranks.max())}" if ranks.min() < ranks.max() else "")
    moved = alternative.distance > 0
    n_heads, n_moved = ranks.numel(), int(moved.any(-1).sum())
    counted = f"{n_keys} key{'s' if n_keys > 1 else ''}, rank of [T 1] {rank}"
    if not n_moved:
        return f"{kind}: only the model's own weights are valid in every head ({counted}): no alternative exists"
    rows = f" ({int(moved.sum())} of {moved.numel()} rows)" if not bool(moved.all()) else ""
    return (
        f"{kind}: {n_moved} of {n_heads} heads have other valid weights ({counted}){rows}: their total variation "
        f"distance from the model's is {float(alternative.distance[moved].mean()):.2f} on average and "
        f"{float(alternative.distance.max()):.2f} at most, and the outputs of the heads are the same to "
        f"{max(float(alternative.output_difference.max()), torch.finfo(torch.float64).eps):.0e}"
    )


def _name_farthest(kind: str, alternative: AlternativeAttention) -> str:
    by_head = alternative.distance.mean(-1)
    layer, head = divmod(int(by_head.argmax()), by_head.shape[1])
    distance = float(by_head[layer, head])
    return f"{kind}: farthest on average is layer {layer}, head {head} ({distance:.2f}): --layer {layer} --head {head}"
