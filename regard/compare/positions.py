"""Position schemes of the Transformer, compared on a translation and a tagging task.

A sweep of recipes that differ in ``model.positions`` alone; each is written to disk, trained and evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import api
from regard.compare import corpora
from regard.compare import training_runs as runs
from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.compared_models import POSITION_SCHEMES, RecipeTable
from regard.compare.corpora import CorpusSize, CorpusSplit
from regard.compare.experiment import (
    ComparisonSettings,
    Experiment,
    ExperimentSummary,
    Finding,
    Measurements,
    ResultTable,
    weigh_evidence,
)
from regard.compare.translation import POOR_SCORE, min_significant_difference, undecided_note

NO_POSITIONS = "none"

MIN_DIFFERENCE = {"translate": 2.0, "tag": 1.0}
"""Smallest difference of scores (0 to 100) that counts, for any number of sentences."""

TASK_TITLES = {"translate": "translation", "tag": "tagging"}
"""Names of the tasks in titles."""


@dataclass(frozen=True)
class PositionSweepSetup:
    """Corpus sizes, model tables, tokenizer and training settings."""

    corpus_sizes: dict[str, CorpusSize]
    models: dict[str, RecipeTable]
    tokenizer: dict[str, Any]
    train: dict[str, Any]


SMALL_MODEL = {"preset": "tiny", "d_model": 64, "d_ff": 256, "n_layers": 2, "dropout": 0.0}

SETUPS = {
    "quick": PositionSweepSetup(
        {"translate": CorpusSize(6_000, 60, 200, 3), "tag": CorpusSize(3_000, 60, 300, 3)},
        {"translate": {**SMALL_MODEL, "n_decoder_layers": 1}, "tag": SMALL_MODEL},
        {"vocabulary": 512},
        {"steps": 300, "batch_tokens": 768, "learning_rate": 5e-3, "warmup": 30},
    ),
    "full": PositionSweepSetup(
        {"translate": CorpusSize(40_000, 200, 1000, 4), "tag": CorpusSize(10_000, 200, 1000, 4)},
        {"translate": {"preset": "tiny", "dropout": 0.0}, "tag": {"preset": "tiny", "dropout": 0.0}},
        {"vocabulary": 1024},
        {"steps": 1500, "batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 150},
    ),
}


def measure(settings: ComparisonSettings, _: Mapping[str, Measurements]) -> Measurements:
    """Train a model for each task and scheme."""
    translate = _train_all_schemes(
        "translate", corpora.prepare_pairs, settings, {} if settings.data else SETUPS[settings.pace].tokenizer
    )
    return {"translate": translate, "tag": _train_all_schemes("tag", corpora.prepare_tagged, settings, {})}


def _train_all_schemes(
    task: str,
    prepare_corpus: Callable[[ComparisonSettings, CorpusSize, Path], CorpusSplit],
    settings: ComparisonSettings,
    tokenizer: RecipeTable,
) -> Measurements:
    """Train and evaluate one task with each scheme on the same text."""
    size, folder = SETUPS[settings.pace], settings.out / "positions" / task
    split, search = (
        prepare_corpus(settings, size.corpus_sizes[task], folder),
        {"beam": 1} if task == "translate" else {},
    )
    train, models = {**size.train, "seed": settings.seed}, []
    for scheme in POSITION_SCHEMES:
        model = {**size.models[task], "positions": scheme}
        recipe = runs.build_recipe(task, split, model, tokenizer, train)
        trained = runs.train_model(scheme, recipe, folder, settings.device)
        scores = api.load(trained.path, device=settings.device).evaluate(list(split.test), **search)  # type: ignore[arg-type, union-attr]
        models.append({**trained.to_json(), "scores": scores})
    return {"origin": split.origin, "n_train": split.n_train, "n_test": split.n_test, "models": models}


def primary_score(task: str, scores: Mapping[str, Any]) -> tuple[str, float]:
    """Return the name and value (0 to 100) of a task's main metric: BLEU, entity F1, or else accuracy."""
    if task == "translate":
        return "BLEU", scores["bleu"]
    return ("entity F1", 100 * scores["f1"]) if "f1" in scores else ("accuracy", 100 * scores["accuracy"])


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdicts on the benefit of positions and on sinusoidal ones."""
    return [finding for task, about in measurements.items() for finding in _judge_task(task, about)]


def _judge_task(task: str, task_measurements: Mapping[str, Any]) -> list[Finding]:
    label, _ = primary_score(task, task_measurements["models"][0]["scores"])
    scores = {each["name"]: primary_score(task, each["scores"])[1] for each in task_measurements["models"]}
    without = scores.pop(NO_POSITIONS)
    difference = min_significant_difference(task_measurements["n_test"], MIN_DIFFERENCE[task])
    return [
        _judge_order_matters(task, label, scores, without, difference),
        _judge_sinusoidal(task, label, scores, difference),
    ]


def _judge_order_matters(
    task: str, label: str, scores: dict[str, float], score_without_positions: float, min_difference: float
) -> Finding:
    """Judge whether every scheme is better than none; the worst of them decides."""
    ahead, poor = (
        min(scores.values()) - score_without_positions,
        max(*scores.values(), score_without_positions) < POOR_SCORE,
    )
    held = None if poor else weigh_evidence(ahead > min_difference, ahead < -min_difference)
    ranked = ", ".join(f"{name} {scores[name]:.1f}" for name in sorted(scores, key=lambda name: -scores[name]))
    return Finding(
        f"Order matters in {TASK_TITLES[task]}: every scheme is better than none.",
        held,
        f"{label}: {ranked}, none {score_without_positions:.1f}{undecided_note(held, min_difference, is_poor=poor)}.",
    )


def _judge_sinusoidal(task: str, label: str, scores: dict[str, float], min_difference: float) -> Finding:
    """Judge whether sinusoidal positions do as well as learned ones: worse means by `min_difference` at least."""
    own, learned = scores["sinusoidal"], scores["learned"]
    poor, best = max(own, learned) < POOR_SCORE, max(scores, key=lambda name: scores[name])
    held = None if poor else weigh_evidence(own > learned - MIN_DIFFERENCE[task], own < learned - min_difference)
    return Finding(
        f"In {TASK_TITLES[task]}, sinusoidal positions do as well as learned ones.",
        held,
        f"{label} {own:.1f} against {learned:.1f}{undecided_note(held, min_difference, is_poor=poor)}; the best here "
        f"was {best}, {scores[best]:.1f}.",
    )


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    about = [
        f"{TASK_TITLES[task].capitalize()}: {each['origin']}; {each['n_train']:,} to train on, {each['n_test']:,} "
        "to test on"
        for task, each in measurements.items()
    ]
    steps = measurements["translate"]["models"][0]["steps"]
    method = (
        f"{'. '.join(about)}. Recipes that differ in model.positions alone, in positions/; {steps:,} steps, one seed. "
        "One run each: small differences may be chance."
    )
    return ExperimentSummary(
        method, judge_claims(measurements), [_scores_table(task, about) for task, about in measurements.items()]
    )


def _scores_table(task: str, task_measurements: Mapping[str, Any]) -> ResultTable:
    label = primary_score(task, task_measurements["models"][0]["scores"])[0]
    second = "exact" if task == "translate" else "accuracy"
    more = [second] if second != label.lower() else []
    rows = [
        [
            each["name"],
            f"{each['parameters']:,}",
            f"{primary_score(task, each['scores'])[1]:.1f}",
            *(f"{100 * each['scores'][name]:.1f}" for name in more),
            f"{each['curve'][-1]['valid_loss']:.3f}",
            f"{each['seconds']:.0f}",
        ]
        for each in task_measurements["models"]
    ]
    others = [f"{name} %" for name in more]
    columns = ["positions", "parameters", f"{label} (test)", *others, "loss (validation)", "seconds"]
    return ResultTable(TASK_TITLES[task].capitalize(), columns, rows)


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot the validation loss of each scheme during training."""
    charts = [
        Chart(
            TASK_TITLES[task],
            {
                each["name"]: Series(
                    [line["step"] for line in each["curve"]], [line["valid_loss"] for line in each["curve"]]
                )
                for each in about["models"]
            },
        )
        for task, about in measurements.items()
    ]
    return plot_charts(charts, path, "steps", "loss (validation)", columns=2, share_axes=False)


EXPERIMENT = Experiment(
    title="Positions",
    claim="Attention alone sees a bag of tokens, so a Transformer must be told their order; sinusoidal positions do "
    "as well as learned ones.",
    source="Vaswani et al. 2017, section 3.5 and table 3, row E",
    measure=measure,
    summarise=summarise,
    plot=plot,
)
