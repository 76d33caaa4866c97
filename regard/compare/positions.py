"""Position schemes of the Transformer, compared on translation, tagging, classification and span extraction.

A sweep of recipes that differ in ``model.positions`` and the seed alone; each is written to disk, trained and
evaluated. Every seed has a corpus, or a split of the user's corpus, of its own. The verdicts are in position_claims.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from regard import api
from regard.compare import corpora
from regard.compare import training_runs as runs
from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.compared_models import POSITION_SCHEMES, RecipeTable
from regard.compare.corpora import CorpusSize, CorpusSplit
from regard.compare.experiment import ComparisonSettings, Experiment, ExperimentSummary, Measurements, ResultTable
from regard.compare.intervals import MeanInterval, interval_of_mean
from regard.compare.position_claims import LEARNED, TASK_TITLES, TaskScores, judge_claims, primary_score
from regard.text.labelled import read_labelled_examples


@dataclass(frozen=True)
class TaskSetup:
    """Corpus size, model table, tokenizer and training settings of a task, and the number of seeds."""

    corpus_size: CorpusSize
    model: RecipeTable
    tokenizer: dict[str, Any]
    train: dict[str, Any]
    n_seeds: int


SMALL_MODEL = {"preset": "tiny", "d_model": 64, "d_ff": 256, "n_layers": 2, "dropout": 0.0}
SMALLEST_MODEL = {"preset": "tiny", "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 2, "dropout": 0.0}
TINY_MODEL = {"preset": "tiny", "dropout": 0.0}

QUICK_TRANSLATION = {"steps": 300, "batch_tokens": 768, "learning_rate": 5e-3, "warmup": 30}
QUICK_ENCODER = {"steps": 100, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 10}
FULL_TRAINING = {"steps": 1500, "batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 150}

SETUPS: dict[str, dict[str, TaskSetup]] = {
    "quick": {
        "translate": TaskSetup(
            CorpusSize(6_000, 60, 200, 3),
            {**SMALL_MODEL, "n_decoder_layers": 1},
            {"vocabulary": 512},
            QUICK_TRANSLATION,
            1,
        ),
        "tag": TaskSetup(CorpusSize(2_000, 60, 200, 3), SMALLEST_MODEL, {}, QUICK_ENCODER, 3),
        "classify": TaskSetup(CorpusSize(2_000, 60, 200, 3), SMALLEST_MODEL, {"vocabulary": 512}, QUICK_ENCODER, 3),
        "qa": TaskSetup(CorpusSize(2_000, 60, 200, 3), SMALLEST_MODEL, {"vocabulary": 512}, QUICK_ENCODER, 3),
    },
    "full": {
        "translate": TaskSetup(CorpusSize(40_000, 200, 1000, 4), TINY_MODEL, {"vocabulary": 1024}, FULL_TRAINING, 1),
        "tag": TaskSetup(CorpusSize(10_000, 200, 1000, 4), TINY_MODEL, {}, FULL_TRAINING, 5),
        "classify": TaskSetup(CorpusSize(10_000, 200, 1000, 4), TINY_MODEL, {"vocabulary": 1024}, FULL_TRAINING, 5),
        "qa": TaskSetup(CorpusSize(10_000, 200, 1000, 4), TINY_MODEL, {"vocabulary": 1024}, FULL_TRAINING, 5),
    },
}


def measure(settings: ComparisonSettings, _: Mapping[str, Measurements]) -> Measurements:
    """Train a model for each task, seed and scheme."""
    return {task: _measure_task(task, setup, settings) for task, setup in SETUPS[settings.pace].items()}


def _measure_task(task: str, setup: TaskSetup, settings: ComparisonSettings) -> Measurements:
    """Train and evaluate one task with each seed and scheme; the schemes of a seed have the same text."""
    models, baselines = [], []
    for seed in range(settings.seed, settings.seed + setup.n_seeds):
        folder = settings.out / "positions" / task / f"seed-{seed}"
        split = corpora.prepare_corpus(task, replace(settings, seed=seed), setup.corpus_size, folder)
        models += list(_train_all_schemes(task, setup, split, replace(settings, seed=seed), folder))
        baselines.append(100 * _majority_fraction(split) if task == "classify" else 0.0)
    about = {"origin": split.origin, "n_train": split.n_train, "n_test": split.n_test}
    return {**about, "baseline": fmean(baselines), "models": models}


def _train_all_schemes(
    task: str, setup: TaskSetup, split: CorpusSplit, settings: ComparisonSettings, folder: Path
) -> Iterator[dict[str, Any]]:
    """Train and evaluate each scheme on the same text with the same seed."""
    tokenizer = {} if corpora.user_files(settings, task) else setup.tokenizer
    search = {"beam": 1} if task == "translate" else {}
    for scheme in POSITION_SCHEMES:
        model = {**setup.model, "positions": scheme}
        recipe = runs.build_recipe(task, split, model, tokenizer, {**setup.train, "seed": settings.seed})
        trained = runs.train_model(scheme, recipe, folder, settings.device)
        scores = api.load(trained.path, device=settings.device).evaluate(list(split.test), **search)  # type: ignore[arg-type, union-attr]
        yield {**trained.to_json(), "seed": settings.seed, "scores": scores}


def _majority_fraction(split: CorpusSplit) -> float:
    """Return the fraction of test examples that have the most frequent class."""
    counts = Counter(example.label for example in read_labelled_examples(split.test))
    return counts.most_common(1)[0][1] / counts.total()


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    descriptions = []
    for task, each in measurements.items():
        n_seeds, steps = TaskScores(task, each).n_seeds, each["models"][0]["steps"]
        seeds = "one seed" if n_seeds == 1 else f"{n_seeds} seeds, each with a split of its own"
        descriptions.append(
            f"{TASK_TITLES[task].capitalize()}: {each['origin']}; {each['n_train']:,} to train on, "
            f"{each['n_test']:,} to test on; {steps:,} steps; {seeds}"
        )
    method = (
        f"{'. '.join(descriptions)}. Recipes that differ in model.positions and the seed alone, in positions/. Schemes "
        "are compared seed by seed; intervals are 95 % of the mean over seeds (Student's t). Of one run each, small "
        "differences may be chance."
    )
    return ExperimentSummary(
        method, judge_claims(measurements), [_scores_table(task, about) for task, about in measurements.items()]
    )


SECOND_SCORES = {"translate": "exact", "tag": "accuracy", "classify": "macro_f1", "qa": "exact_match"}
"""The second score of each task in its table."""


def _scores_table(task: str, task_measurements: Mapping[str, Any]) -> ResultTable:
    label = primary_score(task, task_measurements["models"][0]["scores"])[0]
    second = SECOND_SCORES[task]
    more = [second] if second != label.lower() else []
    by_scheme: dict[str, list[Mapping[str, Any]]] = {}
    for each in task_measurements["models"]:
        by_scheme.setdefault(each["name"], []).append(each)
    rows = [
        [
            name,
            f"{each[0]['parameters']:,}",
            _format_scores([primary_score(task, run["scores"])[1] for run in each]),
            *(f"{fmean(100 * run['scores'][name] for run in each):.1f}" for name in more),
            f"{fmean(run['curve'][-1]['valid_loss'] for run in each):.3f}",
            f"{fmean(run['seconds'] for run in each):.0f}",
        ]
        for name, each in by_scheme.items()
    ]
    others = [f"{name.replace('_', ' ')} %" for name in more]
    columns = ["positions", "parameters", f"{label} (test)", *others, "loss (validation)", "seconds"]
    return ResultTable(TASK_TITLES[task].capitalize(), columns, rows)


def _format_scores(scores: list[float]) -> str:
    """Return the mean with its interval, which ends where scores do: at 0 and 100."""
    if len(scores) == 1:
        return f"{scores[0]:.1f}"
    mean, low, high = interval_of_mean(scores)
    return MeanInterval(mean, max(0.0, low), min(100.0, high)).format()


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot the validation loss of each scheme during training, and its score minus that of learned positions."""
    charts = [
        Chart(f"{TASK_TITLES[task]}: validation loss by step", _loss_curves(about["models"]))
        for task, about in measurements.items()
    ]
    return plot_charts([*charts, _difference_chart(measurements)], path, "", "", columns=3, share_axes=False)


def _loss_curves(models: list[dict[str, Any]]) -> dict[str, Series]:
    """Return the mean over seeds of the validation loss of each scheme."""
    curves: dict[str, list[list[dict[str, Any]]]] = {}
    for each in models:
        curves.setdefault(each["name"], []).append(each["curve"])
    return {
        name: Series(
            [line["step"] for line in runs_of_scheme[0]],
            [fmean(line["valid_loss"] for line in lines) for lines in zip(*runs_of_scheme, strict=True)],
        )
        for name, runs_of_scheme in curves.items()
    }


def _difference_chart(measurements: Measurements) -> Chart:
    """Return the score of each scheme minus that of learned positions, by task, with intervals."""
    tasks = [TaskScores(task, about) for task, about in measurements.items()]
    others = [name for name in POSITION_SCHEMES if name != LEARNED]
    series = {}
    for number, name in enumerate(others):
        intervals = [scores.difference([name], [LEARNED]) for scores in tasks]
        x = [index + 0.15 * (number - (len(others) - 1) / 2) for index in range(len(tasks))]
        means, low, high = zip(*intervals, strict=True)
        series[name] = Series(x, means, low, high, connected=False)
    names = [scores.title.removeprefix("sequence ") for scores in tasks]
    return Chart("score minus that of learned positions, by task", series, {"no difference": 0.0}, x_names=names)


EXPERIMENT = Experiment(
    title="Positions",
    claim="Attention alone sees a bag of tokens, so a Transformer must be told their order; sinusoidal positions do "
    "as well as learned ones. Learned positions are better for sequence classification, fixed and relative ones for "
    "token classification and span extraction.",
    source="Vaswani et al. 2017, section 3.5 and table 3, row E; Wang et al. 2021",
    measure=measure,
    summarise=summarise,
    plot=plot,
)
