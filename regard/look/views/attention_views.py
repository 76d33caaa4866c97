"""Views of attention: scores, weights, effective weights, identifiability, similarity, rollout; pooling, positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.compute.effective_attention import AttentionIdentifiability
from regard.look.compute.look_target import SentenceAttention
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.focus import is_special_token
from regard.look.views.request import (
    HEAD_AXIS,
    LAYER_AXIS,
    ViewItems,
    ViewRequest,
    attention_axes,
    requested_kinds,
    requested_stacks,
    single_entry_axis,
)
from regard.look.views.view_data import Axis, ValueKind, ViewArray
from regard.text.subwords import Word

N_NAMED_SENTENCES, N_NAMED_WORDS = 3, 4
"""Sentences that the view of pooling names, and words of each."""


def attention_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the attention weights."""
    for kind in requested_kinds(analysis, request):
        yield ViewArray("attention", kind, "weights", attention_axes(kind), analysis.attention(kind))


def scores_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the attention scores before the softmax; if some keys are masked, again with these marked by NaN."""
    for kind in requested_kinds(analysis, request):
        masked = analysis.scores(kind)
        yield ViewArray("scores", kind, "scores", attention_axes(kind), analysis.scores(kind, masked=False), "score")
        if bool(masked.isnan().any()):
            yield ViewArray("scores", kind, "masked_scores", attention_axes(kind), masked, "score")
        yield describe_scores(kind, masked)


def describe_scores(kind: str, masked: Float[Tensor, "L H Q K"]) -> str:
    """Summarise the scores in a sentence: their range, the spread within a row, and the masked cells."""
    is_visible = ~masked.isnan()
    unmasked, n_masked = masked[is_visible], int((~is_visible[0, 0]).sum())
    low, high = (masked.where(is_visible, limit) for limit in (torch.inf, -torch.inf))
    spread = float((high.amax(-1) - low.amin(-1)).mean())
    masks = f"{n_masked} of {is_visible[0, 0].numel()} cells are masked" if n_masked else "no cell is masked"
    return (
        f"{kind}: scores from {float(unmasked.min()):.3g} to {float(unmasked.max()):.3g}; on average the largest of a "
        f"query is {spread:.3g} above its smallest, so its weight is {math.exp(min(spread, 700)):.3g} times as large; "
        f"{masks}"
    )


def effective_attention_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the effective attention weights."""
    for kind in requested_kinds(analysis, request):
        yield ViewArray("effective", kind, "weights", attention_axes(kind), analysis.effective_attention(kind))


def value_norms_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the norms of the weighted values."""
    for kind in requested_kinds(analysis, request):
        yield ViewArray("norms", kind, "norms", attention_axes(kind), analysis.norms(kind))


def identifiability_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield keys, rank, null space and hidden fraction of every head and query."""
    for kind in requested_kinds(analysis, request):
        identifiability = analysis.identifiability(kind)
        yield describe_identifiability(kind, identifiability)
        for name, values in identifiability._asdict().items():
            value_kind: ValueKind = "amount" if name == "null_fraction" else "count"
            yield ViewArray("identifiability", kind, name, attention_axes(kind)[:3], values, value_kind)


def describe_identifiability(kind: str, identifiability: AttentionIdentifiability) -> str:
    """Summarise identifiability in a sentence; a head counts as not identifiable if one of its queries is not."""
    null, null_fraction = identifiability.null.amax(-1), identifiability.null_fraction.mean(-1)
    n_keys, n_heads, n_hidden = int(identifiability.keys.max()), null.numel(), int((null > 0).sum())
    keys = f"{n_keys} key{'s' if n_keys > 1 else ''}"
    ranks = identifiability.rank.amax(-1)
    rank = f"rank {int(ranks.min())}" + (f" to {int(ranks.max())}" if ranks.min() < ranks.max() else "")
    if not n_hidden:
        heads = "the only head is" if n_heads == 1 else f"all {n_heads} heads are"
        return f"{kind}: {heads} identifiable ({keys}, {rank}): raw and effective weights are equal"
    heads = "the only head is" if n_heads == 1 else f"{n_hidden} of {n_heads} heads {'is' if n_hidden == 1 else 'are'}"
    whose = "its weights has no effect on its output" if n_hidden == 1 else "their weights has no effect on the output"
    hidden = f"{float(null_fraction[null > 0].mean()):.0%}"
    return f"{kind}: {heads} not identifiable ({keys}, {rank}): on average {hidden} of the norm of {whose}"


def similarity_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the eigenvalues and the symmetric fraction of the bilinear form of every head."""
    for kind in requested_kinds(analysis, request):
        if not is_bilinear(analysis, kind):
            continue
        n_layers, n_heads = analysis.attention(kind).shape[:2]
        heads = [[analysis.similarity(layer, head, kind) for head in range(n_heads)] for layer in range(n_layers)]
        eigenvalues = torch.stack([torch.stack([head.eigenvalues for head in layer]) for layer in heads])
        yield ViewArray("similarity", kind, "eigenvalues", (LAYER_AXIS, HEAD_AXIS, Axis("dimension")), eigenvalues)
        symmetric = torch.tensor([[head.symmetric_fraction for head in layer] for layer in heads], dtype=torch.float64)
        yield ViewArray("similarity", kind, "symmetric_fraction", (LAYER_AXIS, HEAD_AXIS), symmetric)
        positive = torch.tensor([[int(head.is_positive_semidefinite) for head in layer] for layer in heads])
        yield ViewArray("similarity", kind, "positive", (LAYER_AXIS, HEAD_AXIS), positive)
        yield (
            f"{kind}: {int(positive.sum())} of {positive.numel()} heads learned a metric (positive semi-definite); "
            f"on average {float(symmetric.mean()):.0%} of a head's bilinear form is symmetric (50% for a random matrix)"
        )
        if request.layer is not None and request.head is not None:
            head = heads[request.layer][request.head]
            axes = (
                single_entry_axis("layer", request.layer, n_layers),
                single_entry_axis("head", request.head, n_heads),
                Axis("row"),
                Axis("column"),
            )
            for name in ("form", "symmetric", "antisymmetric"):
                yield ViewArray("similarity", kind, name, axes, getattr(head, name)[None, None])


def is_bilinear(analysis: TextAnalysis, kind: str) -> bool:
    """Return True if every attention of this kind scores by a learned bilinear form."""
    return all(module.bilinear_factors(0) is not None for module in analysis.look_target.attentions(kind).values())


def rollout_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield attention rollout, layer by layer."""
    for stack in [stack for stack in requested_stacks(analysis, request) if stack in analysis.kinds]:
        values = analysis.rollout(stack)
        over = tuple(analysis.tokens) if values.shape[-1] > len(analysis.tokens[stack]) else (stack,)
        output = Axis("output", (stack,), predicts_next=stack == "decoder")
        yield ViewArray("rollout", stack, "rollout", (LAYER_AXIS, output, Axis("input", over)), values)


def pooling_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the weights of attention pooling, one column per hop; of two levels, the weights of each."""
    assert analysis.look_target.hops is not None
    if analysis.look_target.levels is not None:
        yield from _sentence_items(analysis, analysis.look_target.levels())
    weights = analysis.look_target.hops()
    hops = Axis("hop", labels=tuple(map(str, range(len(weights)))))
    yield ViewArray("pooling", "", "weights", (Axis("input", tuple(analysis.tokens)), hops), weights.T)


def _sentence_items(analysis: TextAnalysis, levels: SentenceAttention) -> ViewItems:
    """Yield the weights of sentences, those of words in their sentences, and a line for each sentence that counts."""
    ((side_name, side),) = analysis.look_target.sides.items()
    first_tokens = [levels.owner[word.token_indices[0]] for word in side.words]
    by_sentence = [
        [word for word, owner in zip(side.words, first_tokens, strict=True) if int(owner) == number]
        for number in range(len(levels.sentences))
    ]
    names = tuple(
        f"{number}: {' '.join(word.text for word in words if not is_special_token(word.text))}"
        for number, words in enumerate(by_sentence, 1)
    )
    yield ViewArray("pooling", "", "sentences", (Axis("sentence", labels=names),), levels.sentences)
    yield ViewArray("pooling", "", "words", (Axis("input", (side_name,)),), levels.words)
    for number in levels.sentences.topk(min(N_NAMED_SENTENCES, len(names))).indices.tolist():
        yield _describe_sentence(names[number], float(levels.sentences[number]), by_sentence[number], levels.words)


def _describe_sentence(name: str, weight: float, words: Sequence[Word], weights: Float[Tensor, " T"]) -> str:
    """Say how much a sentence counts, and which of its words count most in it."""
    by_word = [(float(weights[list(word.token_indices)].sum()), word.text) for word in words]
    named = ", ".join(f"{text} ({value:.2f})" for value, text in sorted(by_word, reverse=True)[:N_NAMED_WORDS])
    return f"sentence {name} (weight {weight:.2f}); in it: {named}"


def positions_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the position vectors added to the tokens of each side."""
    for side in requested_stacks(analysis, request):
        if (vectors := analysis.position_vectors(side)) is not None:
            yield ViewArray("positions", side, "vectors", (Axis("position", (side,)), Axis("dimension")), vectors)
