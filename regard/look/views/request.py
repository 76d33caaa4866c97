"""The request for a view, and the axes that views share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.view_data import Axis, ViewArray

LAYER_AXIS, HEAD_AXIS = Axis("layer"), Axis("head")


@dataclass(frozen=True)
class ViewRequest:
    """The requested part of a view: one kind of attention or stack, one layer, one head; an estimate; whole words."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    estimate: int | None = None
    words: bool = False


ViewItems = Iterator[ViewArray | str]
"""The output of a view: arrays, and sentences about them."""


def attention_axes(kind: str) -> tuple[Axis, Axis, Axis, Axis]:
    """Return the axes (layer, head, query, key) of one kind of attention."""
    query_side, key_side = ATTENTION_KINDS[kind].query_side, ATTENTION_KINDS[kind].key_side
    query = Axis("query", (query_side,), predicts_next=query_side == "decoder")
    return LAYER_AXIS, HEAD_AXIS, query, Axis("key", (key_side,))


def output_axis(look_target: LookTarget) -> Axis:
    """Return the axis over what is predicted: the named outputs, or one output per token of the last side."""
    if look_target.output_side:
        return Axis("output", (look_target.output_side,))
    if look_target.output_labels:
        return Axis("output", labels=look_target.output_labels)
    last = list(look_target.sides)[-1]
    return Axis("output", (last,), predicts_next=last == "decoder")


def single_entry_axis(name: str, index: int, length: int) -> Axis:
    """Return an axis with one of its entries; -1 is the last."""
    return Axis(name, labels=(str(index % length),))


def requested_kinds(analysis: TextAnalysis, request: ViewRequest) -> list[str]:
    """Return the requested kinds of attention."""
    if request.kind is None:
        return analysis.kinds
    analysis.look_target.attentions(request.kind)
    return [request.kind]


def requested_stacks(analysis: TextAnalysis, request: ViewRequest) -> list[str]:
    """Return the requested stacks; cross-attention belongs to the stack of its queries."""
    if request.kind is None:
        return list(analysis.tokens)
    if request.kind in analysis.tokens:
        return [request.kind]
    analysis.look_target.attentions(request.kind)
    return [ATTENTION_KINDS[request.kind].query_side]
