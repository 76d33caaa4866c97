"""View data for the page, made up but plausible: heads attend back, to themselves, to one token, a few or all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.look.compute.effective_attention import effective_attention
from regard.look.compute.rollout import attention_rollout, decoder_rollout
from regard.look.views.view_data import Axis, ViewArray, ViewData

ENGLISH = """the old pilot who had landed in Tokyo at half past seven said that the passengers of the late plane would
be given tea and rice before they were sent home by bus , which none of them had expected ."""
FRENCH = """le vieux pilote qui avait atterri à Tokyo à sept heures et demie dit que les passagers de l' avion en retard
auraient du thé et du riz avant d' être renvoyés chez eux en bus , ce qu' aucun d' eux n' attendait ."""
LAYER, HEAD = Axis("layer"), Axis("head")

HOSTILE = [
    "</script><script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>",
    "\"'&quot;<!--",
    "{{data}}",
    "שלום",
    "a\u202eb",
    "🏳️‍🌈",
    "<0xE2>",
    " ",
    "\n",
    "",
    "Donaudampfschifffahrtsgesellschaft" * 9,
]


def tokens(text: str, count: int) -> list[str]:
    """So many pieces as a reader sees them, the last of them the end of the text."""
    words = text.split()
    return [f"▁{words[place % len(words)]}" for place in range(count - 1)] + ["<eos>"]


def attention(shape: tuple[int, int, int, int], *, causal: bool = False, seed: int = 0) -> Tensor:
    """Weights (layer, head, query, key) of heads that each have a habit."""
    n_layers, n_heads, queries, keys = shape
    random = torch.Generator().manual_seed(seed)
    place = torch.arange(queries)[:, None] * (keys / queries)
    other = torch.arange(keys)[None]
    # Logits of what a head likes: the token before, itself, the first one, a few everywhere, what is near, anything.
    defaults: list[Callable[[], Tensor]] = [
        lambda: -2.0 * (other - place + 1).abs(),
        lambda: -1.2 * (other - place).abs(),
        lambda: 4.0 * (other == 0) - 0.02 * (other - place).abs(),
        lambda: 3.0 * torch.randn(1, keys, generator=random).expand(queries, keys),
        lambda: -0.5 * ((other - place) / 4).square(),
        lambda: torch.zeros(queries, keys),
    ]
    weights = torch.empty(shape)
    for layer in range(n_layers):
        for head in range(n_heads):
            logits = defaults[(2 * layer + head) % len(defaults)]()
            logits = logits + (0.4 + 0.1 * layer) * torch.randn(queries, keys, generator=random)
            if causal:
                logits = logits.masked_fill(other > torch.arange(queries)[:, None], -math.inf)
            weights[layer, head] = logits.softmax(-1)
    return weights


def of_kind(kind: str, query: Axis, key: Axis, weights: Tensor, width: int, seed: int = 0) -> Iterator[ViewArray]:
    """Everything there is to see of one kind of attention, its values being `width` wide and made up."""
    random = torch.Generator().manual_seed(seed)
    n_layers, n_heads, queries, keys = weights.shape
    mask = torch.ones(queries, keys, dtype=torch.bool)
    carried = torch.randn(n_layers, n_heads, keys, width, generator=random, dtype=torch.float64)
    mask = mask.tril() if kind == "decoder" else mask
    effective, found = effective_attention(weights, carried, mask, carried.shape[-1])
    yield ViewArray("attention", kind, "weights", (LAYER, HEAD, query, key), weights)
    yield ViewArray("effective", kind, "weights", (LAYER, HEAD, query, key), effective)
    for name, values in found._asdict().items():
        yield ViewArray("identifiability", kind, name, (LAYER, HEAD, query), values.float())
    eigenvalues = torch.randn(n_layers, n_heads, 2 * width, generator=random).sort(-1, descending=True).values
    yield ViewArray("similarity", kind, "eigenvalues", (LAYER, HEAD, Axis("dimension")), eigenvalues)
    yield ViewArray(
        "similarity",
        kind,
        "symmetric_fraction",
        (LAYER, HEAD),
        0.3 + 0.5 * torch.rand(n_layers, n_heads, generator=random),
    )
    yield ViewArray("similarity", kind, "positive", (LAYER, HEAD), (eigenvalues[..., -1] > -1.5).float())


def of_stack(stack: str, before: tuple[str, ...], mixed: Tensor, estimate: bool) -> Iterator[ViewArray]:
    """Attribution of one stack beside its rollout; its inputs are the tokens of the sides before it and its own."""
    into, out = Axis("input", (*before, stack)), Axis("output", (stack,))
    yield ViewArray("rollout", stack, "rollout", (LAYER, out, into), mixed)
    contributions = (mixed + 0.3 * mixed.mean(1, keepdim=True)).mT
    contributions = contributions / contributions.sum(1, keepdim=True)
    yield ViewArray("attribution", stack, "contribution", (LAYER, into, out), contributions)
    n_tokens = contributions.shape[-1]
    n_before = contributions.shape[1] - n_tokens
    yield ViewArray(
        "attribution", stack, "self_contribution", (LAYER, out), contributions[:, n_before:].diagonal(dim1=1, dim2=2)
    )
    dominated_fraction = (contributions.argmax(1) != torch.arange(n_tokens) + n_before).double().mean(-1)
    yield ViewArray("attribution", stack, "dominated_fraction", (LAYER,), dominated_fraction)
    if estimate:
        yield ViewArray("attribution", stack, "error", (LAYER, into, out), contributions * 0.04)


def of_prediction(sides: dict[str, list[str]], seed: int = 0) -> Iterator[ViewArray]:
    """Gradients of the predicted tokens, and which view found what they need."""
    random = torch.Generator().manual_seed(seed)
    last = list(sides)[-1]
    inputs, outputs = sum(map(len, sides.values())), len(sides[last])
    over = (Axis("input", tuple(sides)), Axis("output", (last,)))
    near = torch.exp(-0.3 * (torch.arange(inputs)[:, None] * (outputs / inputs) - torch.arange(outputs)).abs())
    for name in ("gradient_x_input", "integrated_gradients"):
        yield ViewArray("gradients", "", name, over, near * torch.randn(inputs, outputs, generator=random))
    yield ViewArray("gradients", "", "convergence_delta", over[1:], 0.02 * torch.randn(outputs, generator=random))
    methods = Axis("method", labels=("attention", "effective", "attribution", "integrated_gradients", "random"))
    k = Axis("k", labels=("0", "1", "2", "3", "5"))
    strength = torch.tensor([0.9, 1.1, 1.6, 1.8, 0.6])
    drop = strength[:, None] * (1 - torch.exp(-torch.tensor([0.0, 1, 2, 3, 5]) / 2)) * 2
    yield ViewArray("faithfulness", "", "drop", (methods, k), drop)
    yield ViewArray("faithfulness", "", "score", (methods,), drop.mean(-1))


def make_view_data(
    kinds: Sequence[str] = ("encoder", "decoder", "cross"),
    *,
    source: int = 8,
    target: int = 7,
    n_layers: int = 3,
    n_heads: int = 4,
    width: int = 6,
    estimate: bool = False,
) -> ViewData:
    """What would be seen of a model with these kinds of attention."""
    sides = {}
    if "encoder" in kinds or "cross" in kinds:
        sides["encoder"] = tokens(ENGLISH, source)
    if "decoder" in kinds or "cross" in kinds:
        sides["decoder"] = ["<sos>", *tokens(FRENCH, target)[:-1]]
    arrays: list[ViewArray] = []
    of_side = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}
    weights = {}
    for number, kind in enumerate(kinds):
        query, key = of_side[kind]
        shape = (n_layers, n_heads, len(sides[query]), len(sides[key]))
        weights[kind] = attention(shape, causal=kind == "decoder", seed=number)
        arrays += of_kind(kind, Axis("query", (query,)), Axis("key", (key,)), weights[kind], width, seed=number)
    for stack in [kind for kind in kinds if kind != "cross"]:
        mixed, before = attention_rollout(weights[stack]), ()
        if stack == "decoder" and len(weights) == 3:
            memory = attention_rollout(weights["encoder"])[-1]
            mixed, before = decoder_rollout(weights["decoder"], weights["cross"], memory), ("encoder",)
        arrays += of_stack(stack, before, mixed, estimate)
    arrays += of_prediction(sides)
    for side, side_tokens in sides.items():
        angle = torch.arange(len(side_tokens))[:, None] / 10000 ** (torch.arange(0, 32, 2) / 32)
        vectors = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
        arrays.append(ViewArray("positions", side, "vectors", (Axis("position", (side,)), Axis("dimension")), vectors))
    return ViewData(sides, arrays, notes(arrays), about(sides))


def notes(arrays: Sequence[ViewArray]) -> dict[str, list[str]]:
    """What `look` would say of these arrays in words."""
    sentences: dict[str, list[str]] = {"identifiability": []}
    for array in arrays:
        if (array.view, array.name) == ("identifiability", "null"):
            heads = (array.values > 0).any(-1)
            sentence = f"{array.kind}: {int(heads.sum())} of {heads.numel()} heads here are not identifiable"
            sentences["identifiability"].append(sentence)
    sentences["faithfulness"] = [
        "Trust integrated_gradients first for this prediction: it finds most of what it needs."
    ]
    return sentences


def about(sides: dict[str, list[str]]) -> dict[str, object]:
    """The facts of a text that was looked at."""
    plain = {side: " ".join(side_tokens).replace("▁", "") for side, side_tokens in sides.items()}
    facts: dict[str, object] = {"model": "demo/run", "text": next(iter(plain.values()))}
    if len(plain) > 1:
        facts |= {"target": plain["decoder"], "score": -0.4172}
    return {**facts, "difference": 3.1e-06, "merged": "tokens"}


def hostile() -> ViewData:
    """A text that would like to leave its place."""
    seen = make_view_data(("encoder",), source=len(HOSTILE))
    facts = {"model": "</title><b>model</b>", "text": "".join(HOSTILE), "difference": 1.0}
    return replace(seen, sides={"encoder": HOSTILE}, about=facts, notes={"attention": HOSTILE})
