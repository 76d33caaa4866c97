"""Long-range dependence: the accuracy of copying a sequence, by the distance of its tokens.

One fixed vector has to hold the whole sequence; attention can look back at it. The task and its training are in
copy_task.py. Every encoder-decoder and language model takes part, with about as many parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.compared_models import (
    BASELINE_TRANSFORMER,
    LANGUAGE_MODELS,
    MODEL_ARCHITECTURES,
    RNN_ADDITIVE_ATTENTION,
    RNN_DOT_ATTENTION,
    RNN_LM,
    RNN_MODELS,
    RNN_WITHOUT_ATTENTION,
    TRANSFORMER_LM,
    TRANSFORMER_MODELS,
    RecipeTable,
    build_model,
    count_parameters,
    match_parameter_count,
)
from regard.compare.copy_task import CopyTaskSetup, CopyTaskTrainer, single_thread
from regard.compare.experiment import (
    ComparisonSettings,
    Experiment,
    ExperimentSummary,
    Finding,
    Measurements,
    ResultTable,
    weigh_evidence,
)
from regard.models.architectures import CAUSAL_LMS
from regard.models.blocks import initialise_weights
from regard.progress import progress_bar
from regard.runs.device import select_device

MIN_ACCURACY_DIFFERENCE = 0.05
"""Smallest difference of accuracies that counts, if it also exceeds three standard errors."""

RECALLED_ACCURACY = 0.95
"""Accuracy from which a sequence counts as recalled."""


SETUPS = {
    "quick": CopyTaskSetup(
        longest=12,
        distances=(1, 2, 4, 6, 8, 10, 12),
        tokens=16,
        steps=400,
        batch=32,
        tested=250,
        rate=6e-3,
        width=48,
        layers=1,
    ),
    "full": CopyTaskSetup(
        longest=32,
        distances=(1, 2, 4, 8, 12, 16, 20, 24, 28, 32),
        tokens=32,
        steps=1500,
        batch=64,
        tested=1000,
        rate=3e-3,
        width=64,
        layers=2,
    ),
}


def measure(settings: ComparisonSettings, _: Mapping[str, Measurements]) -> Measurements:
    """Train every model on the same sequences and test it at every distance."""
    setup, device = SETUPS[settings.pace], select_device(settings.device)
    tables, models = _model_tables(setup), []
    with single_thread(), progress_bar("copying: steps of training", len(tables) * setup.steps) as progress:
        for name, table in tables.items():
            model = build_model(MODEL_ARCHITECTURES[name], table, setup.vocabulary_size)
            initialise_weights(model, torch.Generator().manual_seed(settings.seed), model.config.init_std)
            trainer = CopyTaskTrainer(
                model, setup, settings.seed, device, is_decoder_only=MODEL_ARCHITECTURES[name] is CAUSAL_LMS
            )
            losses = []
            for loss in trainer.train_steps():
                losses.append(round(loss, 4))
                progress.advance()
            sampled = losses[:: max(1, setup.steps // 100)]
            about = {"name": name, "shape": table, "parameters": count_parameters(model)}
            models.append({**about, "right": trainer.count_correct(), "losses": sampled})
    return {**vars(setup), "distances": list(setup.distances), "models": models}


def _model_tables(setup: CopyTaskSetup) -> dict[str, RecipeTable]:
    """Return the ``[model]`` table of every model, with about as many parameters as the baseline Transformer."""
    common = {"n_decoder_layers": 1, "n_layers": setup.layers, "dropout": 0.0, "n_positions": setup.longest}
    heads = {"n_heads": 2, "d_ff": 2 * setup.width, "d_model": setup.width}
    baseline = {**common, **heads, **TRANSFORMER_MODELS[BASELINE_TRANSFORMER]}
    architectures = MODEL_ARCHITECTURES[BASELINE_TRANSFORMER]
    target_count = count_parameters(build_model(architectures, baseline, setup.vocabulary_size))

    def match(name: str, shape: RecipeTable) -> RecipeTable:
        return match_parameter_count(MODEL_ARCHITECTURES[name], shape, setup.vocabulary_size, target_count)

    unidirectional = {**common, "n_layers": 1, "directions": "forward"}
    decoder_only = {"n_layers": setup.layers + 1, "dropout": 0.0, "n_positions": 2 * setup.longest}
    return {
        **{name: match(name, {**unidirectional, **shape}) for name, shape in RNN_MODELS.items()},
        **{name: {**baseline, **shape} for name, shape in TRANSFORMER_MODELS.items()},
        TRANSFORMER_LM: match(TRANSFORMER_LM, {**decoder_only, **heads, **LANGUAGE_MODELS[TRANSFORMER_LM]}),
        RNN_LM: match(RNN_LM, {**decoder_only, **LANGUAGE_MODELS[RNN_LM]}),
    }


class RecallAccuracies:
    """Accuracies by model and distance."""

    def __init__(self, measurements: Measurements) -> None:
        self.distances: list[int] = measurements["distances"]
        self.n_tested: int = measurements["tested"]
        self.chance = 1 / measurements["tokens"]
        self.accuracy = {
            each["name"]: [n / self.n_tested / d for n, d in zip(each["right"], self.distances, strict=True)]
            for each in measurements["models"]
        }
        self.parameters = {each["name"]: each["parameters"] for each in measurements["models"]}

    def accuracy_at_longest(self, name: str) -> float:
        """Return the accuracy at the greatest distance."""
        accuracy: float = self.accuracy[name][-1]
        return accuracy

    def has_learned(self, *names: str) -> bool:
        """Return True if one of the models recalls the shortest sequences; otherwise none can be judged."""
        return any(self.accuracy[name][0] >= RECALLED_ACCURACY for name in names)

    def error_margin(self, *accuracies: float) -> float:
        """Return three standard errors of a difference over sequences; tokens of one sequence are not independent."""
        return 3 * math.sqrt(sum(each * (1 - each) for each in accuracies) / self.n_tested)

    def is_clearly_above(self, one: float, other: float) -> bool:
        """Return True if one accuracy is significantly higher."""
        return one - other > self.min_difference(one, other)

    def min_difference(self, one: float, other: float) -> float:
        """Return the smallest significant difference of two accuracies."""
        return max(MIN_ACCURACY_DIFFERENCE, self.error_margin(one, other))


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdict on each claim."""
    recalled = RecallAccuracies(measurements)
    transformers = [name for name in TRANSFORMER_MODELS if "none" not in name]
    return [
        _judge_forgetting(recalled, RNN_WITHOUT_ATTENTION),
        *(
            _judge_recalls_more(
                recalled, name, RNN_WITHOUT_ATTENTION, "Attention lets recurrence recall more than one vector holds"
            )
            for name in (RNN_ADDITIVE_ATTENTION, RNN_DOT_ATTENTION)
        ),
        *(
            _judge_recalls_more(
                recalled,
                BASELINE_TRANSFORMER,
                name,
                "A Transformer recalls at least as much from afar",
                allow_ties=True,
            )
            for name in (RNN_WITHOUT_ATTENTION, RNN_ADDITIVE_ATTENTION, RNN_DOT_ATTENTION)
        ),
        *(_judge_any_distance(recalled, name) for name in transformers),
        _judge_recalls_more(
            recalled, BASELINE_TRANSFORMER, "Transformer, none", "Without positions a Transformer cannot know the order"
        ),
        _judge_recalls_more(
            recalled, TRANSFORMER_LM, RNN_LM, "A Transformer recalls more from afar as a language model too"
        ),
    ]


def _judge_forgetting(accuracies: RecallAccuracies, name: str) -> Finding:
    near, far = accuracies.accuracy[name][0], accuracies.accuracy_at_longest(name)
    ends = f"n = {accuracies.distances[0]} and {far:.1%} at n = {accuracies.distances[-1]}"
    learned = accuracies.has_learned(name)
    held = weigh_evidence(accuracies.is_clearly_above(near, far), far >= RECALLED_ACCURACY) if learned else None
    evidence = f"{name}: {near:.1%} at {ends}{_undertrained_note(learned)}."
    return Finding("One fixed vector holds less of a text the longer it is.", held, evidence)


def _judge_any_distance(accuracies: RecallAccuracies, name: str) -> Finding:
    lowest = min(accuracies.accuracy[name])
    where = accuracies.distances[accuracies.accuracy[name].index(lowest)]
    learned, margin = accuracies.has_learned(name), accuracies.error_margin(lowest)
    held = weigh_evidence(lowest >= RECALLED_ACCURACY, RECALLED_ACCURACY - lowest > margin) if learned else None
    few = f", and only {margin:.1%} below that would be clear" if learned and held is None else ""
    return Finding(
        f"{name} positions: any distance is one step away, so none is lost.",
        held,
        f"at worst {lowest:.1%}, at n = {where}; from {RECALLED_ACCURACY:.0%} on a text counts as recalled{few}"
        f"{_undertrained_note(learned)}.",
    )


def _judge_recalls_more(
    accuracies: RecallAccuracies, one: str, other: str, claim: str, *, allow_ties: bool = False
) -> Finding:
    """Judge whether one model is significantly better at the greatest distance, or with `allow_ties` not worse.

    It must not be significantly worse at any distance.
    """
    a, b = accuracies.accuracy_at_longest(one), accuracies.accuracy_at_longest(other)
    learned, higher = (
        accuracies.has_learned(one, other),
        a - b > -MIN_ACCURACY_DIFFERENCE if allow_ties else accuracies.is_clearly_above(a, b),
    )
    each = zip(accuracies.distances, accuracies.accuracy[one], accuracies.accuracy[other], strict=True)
    below = [f"{n}" for n, first, second in each if accuracies.is_clearly_above(second, first)]
    held = weigh_evidence(higher, bool(below)) if learned else None
    evidence = f"{a:.1%} against {b:.1%} at n = {accuracies.distances[-1]}"
    if below:
        evidence += f"; clearly less at n = {', '.join(below)}"
    elif learned and held is None:
        evidence += f"; only {accuracies.min_difference(a, b):.1%} apart would be clear"
    return Finding(f"{claim}: {one} against {other}.", held, f"{evidence}{_undertrained_note(learned)}.")


def _undertrained_note(learned: bool) -> str:
    return (
        ""
        if learned
        else f"; too little was learned to tell: not even the shortest text is recalled to {RECALLED_ACCURACY:.0%}"
    )


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    recalled = RecallAccuracies(measurements)
    counts = recalled.parameters.values()
    method = (
        f"Texts of 1 to {measurements['longest']} random tokens out of {measurements['tokens']}, read and then "
        "generated again: n steps lie between reading a token and generating it. "
        f"{measurements['steps']:,} steps on batches of {measurements['batch']} texts, the same texts for all, no "
        f"dropout, one learning rate ({measurements['rate']:g}, cosine) and one seed for all; "
        f"{min(counts):,} to {max(counts):,} parameters. Encoders of recurrent models are unidirectional, so that the "
        f"distance is the same for every token. Tested on {recalled.n_tested:,} new texts of each length; a token "
        "counts as recalled if it is the most likely one given the correct tokens before it. Chance is "
        f"{recalled.chance:.1%}. More training moves these curves: they compare models after the same number of steps."
    )
    rows = [
        [name, f"{recalled.parameters[name]:,}", *(f"{100 * each:.1f}" for each in accuracy)]
        for name, accuracy in recalled.accuracy.items()
    ]
    columns = ["model", "parameters", *(f"n = {distance}" for distance in recalled.distances)]
    return ExperimentSummary(
        method, judge_claims(measurements), [ResultTable("Tokens recalled, in %, by distance n", columns, rows)]
    )


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot accuracy against distance."""
    recalled = RecallAccuracies(measurements)
    groups = {
        "recurrence and attention": [*RNN_MODELS, BASELINE_TRANSFORMER],
        "Transformers by their positions": list(TRANSFORMER_MODELS),
        "language models": list(LANGUAGE_MODELS),
    }
    charts = [
        Chart(
            title,
            {name: Series(recalled.distances, [100 * each for each in recalled.accuracy[name]]) for name in names},
            reference_levels={"chance": 100 * recalled.chance},
        )
        for title, names in groups.items()
    ]
    return plot_charts(charts, path, "distance n", "tokens recalled, %", columns=3, y_limits=(-3.0, 103.0))


EXPERIMENT = Experiment(
    title="Long-range dependence",
    claim="Whatever a recurrent model keeps of a text must pass through every step since; with one fixed vector, long "
    "texts do not fit. Attention reaches any token in one step, however far back it lies.",
    source="Bahdanau et al. 2015; Vaswani et al. 2017, section 4",
    measure=measure,
    summarise=summarise,
    plot=plot,
)
