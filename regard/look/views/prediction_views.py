"""Views of the prediction: attribution, gradients, faithfulness, and the summary a page opens with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.compute.attribution import self_contribution_summary
from regard.look.compute.faithfulness import MIN_STDS_ABOVE_RANDOM, N_ESTIMATE_DIRECTIONS, Faithfulness
from regard.look.compute.text_analysis import TextAnalysis
from regard.look.views.focus import focus_output, is_special_token
from regard.look.views.request import LAYER_AXIS, ViewItems, ViewRequest, output_axis, requested_stacks
from regard.look.views.view_data import Axis, Focus, ViewArray, ViewData, merge_array_subwords, merge_subwords

N_NAMED_INPUTS, N_NAMED_OUTPUTS = 3, 12
"""Inputs that the summary names for one output, and outputs of which it names the most important input."""

N_DETAILED_OUTPUTS = 2
"""Outputs, at most, for each of which the summary names as many inputs as for one: the start and end of an answer."""

MATTERED_MOST = ("mattered most", "to")
RANKED_HIGHEST = ("ranked highest (no proof that it mattered)", "for")
"""Claims about the most important inputs by a view that is to be trusted, and by one that is not."""


def attribution_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the contribution of every input to every output of every layer."""
    for stack in [stack for stack in requested_stacks(analysis, request) if analysis.look_target.n_layers(stack)]:
        over = tuple(analysis.tokens)[: list(analysis.tokens).index(stack) + 1]
        # Merged to words, outputs stay with the word that is read: only then is one of them the word's own.
        output = Axis("output", (stack,), predicts_next=stack == "decoder" and not request.words)
        axes = (LAYER_AXIS, Axis("input", over), output)
        attribution = analysis.contributions(stack, request.estimate)
        contributions = ViewArray("attribution", stack, "contribution", axes, attribution.contribution)
        yield contributions
        if attribution.error is not None:
            yield ViewArray("attribution", stack, "error", axes, attribution.error, "error")
            relative = attribution.error / attribution.contribution.clamp(min=1e-30)
            error = float(relative[attribution.contribution > 0.01].mean())
            yield f"{stack}: estimated from {request.estimate} directions per token; standard error about {error:.1%}"
        words = {name: side.words for name, side in analysis.look_target.sides.items()}
        own, dominated = self_contribution_summary(
            merge_array_subwords(contributions, words).values if request.words else attribution.contribution
        )
        sizes = [len(word.token_indices) for word in words[stack]] if request.words else [1] * own.shape[-1]
        by_subword = own.repeat_interleave(torch.tensor(sizes).to(own.device), -1)  # merged, the words' values again
        yield ViewArray("attribution", stack, "self_contribution", (LAYER_AXIS, output), by_subword)
        yield ViewArray("attribution", stack, "dominated_fraction", (LAYER_AXIS,), dominated)
        yield describe_self_contribution(stack, own[-1], float(dominated[-1]), "word" if request.words else "token")


def describe_self_contribution(stack: str, own: Float[Tensor, " T"], dominated: float, unit: str) -> str:
    """Summarise in a sentence how much the own inputs contribute to the outputs of the last layer."""
    others = "none of them" if dominated == 0 else "all of them" if dominated == 1 else f"{dominated:.0%} of them"
    return (
        f"{stack}: after the last layer, a {unit}'s own input contributes {float(own.mean()):.0%} of its output on "
        f"average; for {others} another input contributes more"
    )


def gradients_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield gradient x input and integrated gradients of every prediction."""
    gradients, sides = analysis.gradients(), tuple(analysis.tokens)
    target, output = analysis.look_target, output_axis(analysis.look_target)
    for name in ("gradient_x_input", "integrated_gradients"):
        yield ViewArray("gradients", "", name, (Axis("input", sides), output), getattr(gradients, name))
    yield ViewArray("gradients", "", "convergence_delta", (output,), gradients.convergence_delta)
    predicted = target.output_unit or ("label" if target.output_side else "class" if target.output_labels else "token")
    explained = "the score" if target.is_regression else f"the log-probability of a {predicted}"
    gap = float(gradients.convergence_delta.abs().max())
    yield f"integrated gradients sum to the change of {explained} from the zero baseline, to within {gap:.2g}"


def faithfulness_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the log-probability, or the score, lost when the inputs that each view ranks highest are removed."""
    faithfulness = _measure(analysis, request)
    method = Axis("method", labels=tuple(faithfulness.methods))
    k = Axis("k", labels=tuple(map(str, faithfulness.removal_counts)))
    yield ViewArray("faithfulness", "", "drop", (method, k), faithfulness.drop)
    yield ViewArray("faithfulness", "", "score", (method,), faithfulness.score)
    yield ViewArray("faithfulness", "", "error", (method,), faithfulness.std, "error")
    yield describe_faithfulness(faithfulness, explained_value(analysis))


def explained_value(analysis: TextAnalysis) -> str:
    """Return the name of the number that faithfulness is measured by."""
    return "score" if analysis.look_target.is_regression else "log-probability"


def describe_faithfulness(faithfulness: Faithfulness, explained: str = "log-probability") -> str:
    """Say which view to trust for a prediction, and why."""
    if not faithfulness.removal_counts:
        return "there is only one input, and nothing is predicted without it: no view can be tested"
    most = f"{float(faithfulness.score[:-1].max()):z.2f}"
    chance = f"{float(faithfulness.score[-1]):z.2f} ± {float(faithfulness.std[-1]):.2f}"
    if faithfulness.best is None:
        return (
            "no view is clearly better than chance for this prediction: removing the inputs a view ranks highest "
            f"lowers its {explained} by {most} at most, removing random inputs by {chance} "
            f"(clearly better: more than {MIN_STDS_ABOVE_RANDOM:g} times ± above)"
        )
    best, others = faithfulness.best.replace("_", " "), ", ".join(faithfulness.runners_up).replace("_", " ")
    return (
        f"trust {best} for this prediction: removing the inputs it ranks highest lowers the {explained} by {most}, "
        f"removing random inputs by {chance}" + (f"; not distinguishable from it: {others}" if others else "")
    )


def summary_view(analysis: TextAnalysis, request: ViewRequest) -> ViewItems:
    """Yield the prediction, the inputs that mattered to it by the most faithful view, and why that view is chosen.

    Where no view is to be trusted, that comes before the inputs.
    """
    faithfulness = _measure(analysis, request)
    method = faithfulness.methods[int(faithfulness.score[:-1].argmax())]
    values = analysis.importances(request.estimate or N_ESTIMATE_DIRECTIONS)[method]
    axes = (Axis("input", tuple(analysis.tokens)), output_axis(analysis.look_target))
    importance = ViewArray("summary", "", "importance", axes, values)
    yield importance
    yield _describe_prediction(analysis)
    trust = describe_faithfulness(faithfulness, explained_value(analysis))
    if faithfulness.best is None:
        yield trust
        yield _describe_importance(analysis, importance, request, RANKED_HIGHEST, method)
    else:
        yield _describe_importance(analysis, importance, request, MATTERED_MOST, method)
        yield trust


def _measure(analysis: TextAnalysis, request: ViewRequest) -> Faithfulness:
    return analysis.faithfulness(request.words, estimate=request.estimate or N_ESTIMATE_DIRECTIONS)


def _describe_prediction(analysis: TextAnalysis) -> str:
    target, about = analysis.look_target, analysis.about
    with torch.no_grad():
        outputs = target.explained_outputs()
    if target.is_regression and not target.output_side:
        return f"predicted: a score of {float(outputs[0]):.3g}"
    if target.is_regression:
        return f"predicted: {about.get('prediction')} (mean score {float(outputs.mean()):.3g})"
    if target.output_labels and not target.output_side:
        return f"predicted: {target.output_labels[0]} (probability {float(outputs[0].exp()):.0%})"
    probability = f"mean probability per output {float(outputs.mean().exp()):.0%}"
    written = "an empty text" if about.get("target") == "" else "each token"
    return f"predicted: {about.get('target') or about.get('prediction') or written} ({probability})"


def _describe_importance(
    analysis: TextAnalysis, importance: ViewArray, request: ViewRequest, claim: tuple[str, str], method: str
) -> str:
    """Name the most important inputs: of one output its top inputs, of several the top (source) input of each."""
    (claimed, preposition), by = claim, f"by {method.replace('_', ' ')}"
    focus = focus_output(analysis.look_target)
    data = ViewData(
        analysis.tokens | {analysis.look_target.output_side: list(analysis.look_target.output_labels)},
        [importance],
        next_tokens={name: side.next_tokens for name, side in analysis.look_target.sides.items() if side.next_tokens},
        focus=Focus(tokens={importance.axes[1].over[0]: focus} if focus and importance.axes[1].over else {}),
    )
    if request.words:
        data = merge_subwords(data, {name: side.words for name, side in analysis.look_target.sides.items()})
    (array,) = data.arrays
    inputs = data.labels(array.axes[0], array.values.shape[0])
    outputs = data.display_labels(array.axes[1], array.values.shape[1])
    if focus is not None:
        chosen = next(iter(data.focus.tokens.values()), 0)
        named = _name_top_inputs(array.values[:, chosen], inputs)
        return f"{claimed} {preposition} {outputs[chosen]}, {by}: {named}"
    if analysis.look_target.output_side and len(outputs) <= N_DETAILED_OUTPUTS:
        each = (f"{name} ← {_name_top_inputs(array.values[:, i], inputs)}" for i, name in enumerate(outputs))
        return f"{claimed} {preposition} each output, {by}: {'; '.join(each)}"
    written = [(i, name.rpartition(" → ")[2]) for i, name in enumerate(outputs)]
    content = [(i, name) for i, name in written if not is_special_token(name)][:N_NAMED_OUTPUTS]
    n_candidates = len(data.sides["encoder"]) if {"encoder", "decoder"} <= data.sides.keys() else len(inputs)
    named = "; ".join(f"{name} ← {inputs[int(array.values[:n_candidates, i].argmax())]}" for i, name in content)
    where = f"{claimed} in the source" if n_candidates < len(inputs) else claimed
    return f"{where} {preposition} each output, {by}: {named or 'nothing but special tokens'}"


def _name_top_inputs(importance: Float[Tensor, " inputs"], inputs: Sequence[str]) -> str:
    """Return the most important inputs, each with its importance."""
    top = importance.topk(min(N_NAMED_INPUTS, len(inputs))).indices.tolist()
    return ", ".join(f"{inputs[i]} ({float(importance[i]):z.2f})" for i in top)
