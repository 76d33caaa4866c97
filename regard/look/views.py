"""The views by name: each makes arrays (look/view.py) of what was seen, and says in words what they mean.

A new view is a function here, registered in `VIEWS` with what it needs and what can be chosen of it; every way of
showing serves it. look/meaning.py has the titles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.errors import InputError, did_you_mean
from regard.look.attribution import of_itself
from regard.look.effective import Identifiability
from regard.look.faithfulness import BEYOND
from regard.look.subject import KINDS, Subject
from regard.look.view import Array, Axis, Nature, Sheet, merged

if TYPE_CHECKING:
    from regard.look.seen import Seen

LAYER, HEAD = Axis("layer"), Axis("head")

ESTIMATE = 16
"""Directions of each token from which faithfulness estimates attribution: what matters most is plain from few."""


@dataclass(frozen=True)
class Asked:
    """What of the views is wanted: one kind of attention or stack, one layer, one head; an estimate; whole words."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    estimate: int | None = None
    words: bool = False


Found = Iterator[Array | str]
"""What a view gives: arrays, and sentences about them."""


def attention(seen: Seen, asked: Asked) -> Found:
    for kind in _kinds(seen, asked):
        yield Array("attention", kind, "weights", _axes(kind), seen.attention(kind))


def effective(seen: Seen, asked: Asked) -> Found:
    for kind in _kinds(seen, asked):
        yield Array("effective", kind, "weights", _axes(kind), seen.effective_attention(kind))


def norms(seen: Seen, asked: Asked) -> Found:
    for kind in _kinds(seen, asked):
        yield Array("norms", kind, "norms", _axes(kind), seen.norms(kind))


def identifiability(seen: Seen, asked: Asked) -> Found:
    for kind in _kinds(seen, asked):
        found = seen.identifiability(kind)
        yield told(kind, found)
        for name, values in found._asdict().items():
            nature: Nature = "amount" if name == "share" else "count"
            yield Array("identifiability", kind, name, _axes(kind)[:3], values, nature)


def told(kind: str, found: Identifiability) -> str:
    """Identifiability in plain words; a head counts by the query that sees most."""
    null, share = found.null.amax(-1), found.share.mean(-1)
    n_keys, total, lost = int(found.keys.max()), null.numel(), int((null > 0).sum())
    keys = f"{n_keys} key{'s' if n_keys > 1 else ''}"
    ranks = found.rank.amax(-1)
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


def attribution(seen: Seen, asked: Asked) -> Found:
    for stack in [stack for stack in _stacks(seen, asked) if seen.subject.n_layers(stack)]:
        over = tuple(seen.tokens)[: list(seen.tokens).index(stack) + 1]
        output = Axis("output", (stack,))
        axes = (LAYER, Axis("input", over), output)
        found = seen.contributions(stack, asked.estimate)
        share = Array("attribution", stack, "share", axes, found.share)
        yield share
        if found.error is not None:
            yield Array("attribution", stack, "error", axes, found.error, "error")
            error = float((found.error / found.share.clamp(min=1e-30))[found.share > 0.01].mean())
            yield f"{stack}: estimated from {asked.estimate} directions of each token; standard error about {error:.1%}"
        words = {name: side.words for name, side in seen.subject.sides.items()}
        own, strayed = of_itself(merged(share, words).values if asked.words else found.share)
        sizes = [len(word.pieces) for word in words[stack]] if asked.words else [1] * own.shape[-1]
        by_piece = own.repeat_interleave(torch.tensor(sizes).to(own.device), -1)  # merged, these are the words' again
        yield Array("attribution", stack, "own_share", (LAYER, output), by_piece)
        yield Array("attribution", stack, "strayed", (LAYER,), strayed)
        token = "word" if asked.words else "token"
        yield (
            f"{stack}: in the last layer a {token} is {float(own[-1].mean()):.0%} itself; "
            f"to {float(strayed[-1]):.0%} of the {token}s another one contributes more"
        )


def similarity(seen: Seen, asked: Asked) -> Found:
    for kind in _kinds(seen, asked):
        if not _is_bilinear(seen, kind):
            continue
        n_layers, n_heads = seen.attention(kind).shape[:2]
        found = [[seen.similarity(layer, head, kind) for head in range(n_heads)] for layer in range(n_layers)]
        eigenvalues = torch.stack([torch.stack([each.eigenvalues for each in heads]) for heads in found])
        yield Array("similarity", kind, "eigenvalues", (LAYER, HEAD, Axis("dimension")), eigenvalues)
        mutual = torch.tensor([[each.mutual for each in heads] for heads in found], dtype=torch.float64)
        yield Array("similarity", kind, "mutual", (LAYER, HEAD), mutual)
        positive = torch.tensor([[int(each.positive) for each in heads] for heads in found])
        yield Array("similarity", kind, "positive", (LAYER, HEAD), positive)
        yield (
            f"{kind}: {int(positive.sum())} of {positive.numel()} heads measure by a metric (positive semi-definite); "
            f"{float(mutual.mean()):.0%} of the forms is mutual, where one without preference has 50%"
        )
        if asked.layer is not None and asked.head is not None:
            one = found[asked.layer][asked.head]
            axes = _one("layer", asked.layer, n_layers), _one("head", asked.head, n_heads), Axis("row"), Axis("column")
            for name in ("form", "symmetric", "antisymmetric"):
                yield Array("similarity", kind, name, axes, getattr(one, name)[None, None])


def rollout(seen: Seen, asked: Asked) -> Found:
    for stack in [stack for stack in _stacks(seen, asked) if stack in seen.kinds]:
        values = seen.rollout(stack)
        sides = tuple(seen.tokens)
        over = sides if values.shape[-1] > len(seen.tokens[stack]) else (stack,)
        yield Array("rollout", stack, "rollout", (LAYER, Axis("output", (stack,)), Axis("input", over)), values)


def gradients(seen: Seen, asked: Asked) -> Found:
    found, sides = seen.gradients(), tuple(seen.tokens)
    output = _output(seen.subject)
    for name in ("gradient_x_input", "integrated_gradients"):
        yield Array("gradients", "", name, (Axis("input", sides), output), getattr(found, name))
    yield Array("gradients", "", "gap", (output,), found.gap)
    if output.ahead:
        yield f"an output is named by the token before it: {seen.tokens['decoder'][0]} stands for the first one"
    predicted = "label" if seen.subject.outputs_side else "class" if seen.subject.outputs else "token"
    explained = "the score" if seen.subject.scored else f"the log-probability of a {predicted}"
    yield (
        f"integrated gradients sum to what the inputs change in {explained}, "
        f"to within {float(found.gap.abs().max()):.2g}"
    )


def faithfulness(seen: Seen, asked: Asked) -> Found:
    found = seen.faithfulness(asked.words, estimate=asked.estimate or ESTIMATE)
    method = Axis("method", labels=tuple(found.methods))
    yield Array("faithfulness", "", "drop", (method, Axis("k", labels=tuple(map(str, found.removed)))), found.drop)
    yield Array("faithfulness", "", "score", (method,), found.score)
    yield Array("faithfulness", "", "error", (method,), found.spread, "error")
    if not found.removed:
        yield "there is only one input, and a prediction from nothing is none: no view can be tested on it"
        return
    most = f"{float(found.score[:-1].max()):.2f}"
    chance = f"{float(found.score[-1]):.2f} ± {float(found.spread[-1]):.2f}"
    if found.best is None:
        clear = f"only {BEYOND:g} times ± above that would be clear"
        yield (
            "no view is clearly better than removing inputs at random, for this prediction: it loses at most "
            f"{most} of its log-probability, and {chance} by chance; {clear}"
        )
    else:
        others = ", ".join(found.near).replace("_", " ")
        yield (
            f"for this prediction trust {found.best.replace('_', ' ')}: without what that view names it loses most, "
            f"{most} of its log-probability, and {chance} by chance"
            + (f"; about as good, and not to be told apart: {others}" if others else "")
        )


def pooling(seen: Seen, asked: Asked) -> Found:
    assert seen.subject.hops is not None
    weights = seen.subject.hops()
    hops = Axis("hop", labels=tuple(map(str, range(len(weights)))))
    yield Array("pooling", "", "weights", (Axis("input", tuple(seen.tokens)), hops), weights.T)


def positions(seen: Seen, asked: Asked) -> Found:
    for side in _stacks(seen, asked):
        if (vectors := seen.positions(side)) is not None:
            yield Array("positions", side, "vectors", (Axis("position", (side,)), Axis("dimension")), vectors)


class Need(NamedTuple):
    """What a model must have for a view, and what is said of one that has it not."""

    met: Callable[[Seen], bool]
    unmet: str


ATTENTION = Need(lambda seen: bool(seen.kinds), "no token of it looks at another by attention")
LAYERS = Need(lambda seen: any(map(seen.subject.n_layers, seen.tokens)), "it has no layers")
FORMS = Need(
    lambda seen: any(_is_bilinear(seen, kind) for kind in seen.kinds),
    "none of its attentions has learned a bilinear form",
)
MIXING = Need(
    lambda seen: any(stack in seen.kinds for stack in seen.tokens), "its tokens do not meet in self-attention"
)
PREDICTION = Need(
    lambda seen: seen.subject.head is not None, "it gives vectors and predicts nothing that could be explained"
)
POOLING = Need(lambda seen: seen.subject.hops is not None, "it makes no vector of a text by attention over its tokens")
POSITIONS = Need(
    lambda seen: any(seen.positions(side) is not None for side in seen.tokens),
    "no vectors are added for positions; its scheme works inside attention, or it has none",
)


class View(NamedTuple):
    """What makes a view, what it needs of a model, and what can be chosen of it."""

    make: Callable[[Seen, Asked], Found]
    need: Need
    chosen: tuple[str, ...] = ()


VIEWS = {
    "attention": View(attention, ATTENTION, ("kind", "layer", "head")),
    "effective": View(effective, ATTENTION, ("kind", "layer", "head")),
    "norms": View(norms, ATTENTION, ("kind", "layer", "head")),
    "identifiability": View(identifiability, ATTENTION, ("kind", "layer", "head")),
    "attribution": View(attribution, LAYERS, ("kind", "layer", "estimate")),
    "similarity": View(similarity, FORMS, ("kind", "layer", "head")),
    "rollout": View(rollout, MIXING, ("kind", "layer")),
    "gradients": View(gradients, PREDICTION),
    "faithfulness": View(faithfulness, PREDICTION, ("estimate",)),
    "pooling": View(pooling, POOLING),
    "positions": View(positions, POSITIONS, ("kind",)),
}


def there(seen: Seen) -> list[str]:
    """The views that this model has."""
    return [name for name, view in VIEWS.items() if view.need.met(seen)]


def usual(seen: Seen) -> str:
    """The view where none is named: attention, else pooling by attention, else gradients."""
    return next((name for name in ("attention", "pooling") if VIEWS[name].need.met(seen)), "gradients")


def sheet(seen: Seen, view: str, asked: Asked) -> Sheet:
    """The arrays and sentences of one view, or of ``all`` there are for this model."""
    check(seen, view, asked)
    arrays: list[Array] = []
    notes: dict[str, list[str]] = {}
    names = there(seen) if view == "all" else [view] if VIEWS[view].need.met(seen) else []
    for name in names:
        for found in VIEWS[name].make(seen, asked):
            if isinstance(found, str):
                notes.setdefault(name, []).append(found)
            else:
                arrays.append(_chosen(replace(found, values=found.values.detach().cpu()), asked))
    if not arrays:
        why = "it has none" if view == "all" else VIEWS[view].need.unmet
        others = [name for name in there(seen) if name != view]
        raise InputError(f"this model has nothing to show for --view {view}: {why}{_instead(others)}")
    return Sheet(_sides(seen, arrays), arrays, notes, seen.about)


def _instead(others: Sequence[str], before: str = "; ") -> str:
    """The end of a message: the views to look at instead, if any."""
    return f"{before}look at: {', '.join(others)}" if others else ""


def _sides(seen: Seen, arrays: Sequence[Array]) -> dict[str, list[str]]:
    """The sides of the model, and its outputs where an array lies over them."""
    outputs = {seen.subject.outputs_side: list(seen.subject.outputs)}
    used = {side for array in arrays for axis in array.axes for side in axis.over}
    return seen.tokens | {side: names for side, names in outputs.items() if side in used}


def check(seen: Seen, view: str, asked: Asked) -> None:
    """Refuse what is not there, before any work; of all views, each has only some things to choose."""
    if view != "all" and view not in VIEWS:
        raise InputError(f"no view is called '{view}'; {did_you_mean(view, [*VIEWS, 'all'])}")
    for name in ("kind", "layer", "head", "estimate"):
        if getattr(asked, name) is not None and view != "all" and name not in VIEWS[view].chosen:
            others = [other for other in there(seen) if name in VIEWS[other].chosen]
            raise InputError(f"{view} has no {name} to choose; leave it out{_instead(others, ', or ')}")
    if asked.kind is not None:
        _stacks(seen, asked)
    for kind in seen.kinds if asked.kind is None else [asked.kind] if asked.kind in seen.kinds else []:
        modules = list(seen.subject.attentions(kind).values())
        for name, number, count in (("layer", asked.layer, len(modules)), ("head", asked.head, modules[0].n_heads)):
            if number is not None and not -count <= number < count:
                raise InputError(f"{name} {number}: {kind} attention has {count}, counted from 0")


def _chosen(array: Array, asked: Asked) -> Array:
    """The layer and head asked for, of an array that has them."""
    for name, number in (("layer", asked.layer), ("head", asked.head)):
        place = array.axis(name)
        if number is not None and place >= 0 and not array.axes[place].labels:
            axis = _one(name, number, array.values.shape[place])
            axes = (*array.axes[:place], axis, *array.axes[place + 1 :])
            array = replace(
                array, axes=axes, values=array.values.index_select(place, torch.tensor([int(axis.labels[0])]))
            )
    return array


def _one(name: str, number: int, count: int) -> Axis:
    """An axis with one of its entries; -1 is the last."""
    return Axis(name, labels=(str(number % count),))


def _axes(kind: str) -> tuple[Axis, Axis, Axis, Axis]:
    return LAYER, HEAD, Axis("query", (KINDS[kind].query,)), Axis("key", (KINDS[kind].key,))


def _output(subject: Subject) -> Axis:
    """What is predicted: the outputs that have names, or one for each token of the last side."""
    if subject.outputs_side:
        return Axis("output", (subject.outputs_side,))
    if subject.outputs:
        return Axis("output", labels=subject.outputs)
    last = list(subject.sides)[-1]
    return Axis("output", (last,), ahead=last == "decoder")


def _is_bilinear(seen: Seen, kind: str) -> bool:
    return all(module.factors(0) is not None for module in seen.subject.attentions(kind).values())


def _kinds(seen: Seen, asked: Asked) -> list[str]:
    """The kinds of attention asked for."""
    if asked.kind is None:
        return seen.kinds
    seen.subject.attentions(asked.kind)
    return [asked.kind]


def _stacks(seen: Seen, asked: Asked) -> list[str]:
    """The stacks asked for; cross-attention belongs to the stack that looks."""
    if asked.kind is None:
        return list(seen.tokens)
    if asked.kind in seen.tokens:
        return [asked.kind]
    seen.subject.attentions(asked.kind)
    return [KINDS[asked.kind].query]
