"""Translation by sentence length: recurrence without attention, with attention, and the Transformer.

All are trained on the same pairs for as many steps, with about as many parameters; the test sentences are divided into
buckets by the number of words of their source, and BLEU is computed for each bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard import api
from regard.compare import corpora
from regard.compare import training_runs as runs
from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.compared_models import (
    BASELINE_TRANSFORMER,
    RNN_ADDITIVE_ATTENTION,
    RNN_MODELS,
    RNN_WITHOUT_ATTENTION,
    TRANSFORMER_MODELS,
    RecipeTable,
    match_parameter_count,
)
from regard.compare.corpora import CorpusSize
from regard.compare.experiment import (
    ComparisonSettings,
    Experiment,
    ExperimentSummary,
    Finding,
    Measurements,
    ResultTable,
    weigh_evidence,
)
from regard.metrics import translation_score
from regard.models.architectures import SEQ2SEQ_MODELS
from regard.text.pairs import read_pairs

N_BUCKETS = 5

MIN_BLEU_DIFFERENCE = 2.0
"""Smallest difference of BLEU that counts, for any number of sentences."""

POOR_SCORE = 10.0
"""BLEU below which a model has learned too little to be compared."""


@dataclass(frozen=True)
class TranslationSetup:
    """Corpus size, model tables, tokenizer and training settings."""

    corpus_size: CorpusSize
    transformer: RecipeTable
    recurrent: RecipeTable
    tokenizer: dict[str, Any]
    train: dict[str, Any]


SETUPS = {
    "quick": TranslationSetup(
        CorpusSize(6_000, 60, 200, 3),
        {"preset": "tiny", "d_model": 64, "d_ff": 256, "n_layers": 2, "n_decoder_layers": 1, "dropout": 0.0},
        {"preset": "tiny", "n_layers": 1, "n_decoder_layers": 1, "dropout": 0.0},
        {"vocabulary": 512},
        {"steps": 400, "batch_tokens": 768, "learning_rate": 5e-3, "warmup": 40},
    ),
    "full": TranslationSetup(
        CorpusSize(40_000, 200, 1000, 6),
        {"preset": "tiny", "dropout": 0.0},
        {"preset": "tiny", "dropout": 0.0},
        {"vocabulary": 1024},
        {"steps": 2500, "batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 250},
    ),
}


def measure(settings: ComparisonSettings, _: Mapping[str, Measurements]) -> Measurements:
    """Train all three models and translate the test sentences greedily."""
    setup, folder = SETUPS[settings.pace], settings.out / "translation"
    split = corpora.prepare_corpus("translate", settings, setup.corpus_size, folder)
    sources, references = map(list, zip(*read_pairs(split.test), strict=True))
    edges = bucket_edges([len(source.split()) for source in sources], N_BUCKETS)
    models = []
    for trained in _train_models(setup, split, folder, settings):
        hypotheses = translate_greedily(trained.path, sources, settings.device)
        # One line each, even if a line break was generated.
        lines = [f"{' '.join(text.splitlines())}\n" for text in hypotheses]
        (folder / f"{trained.path.name}.translated").write_text("".join(lines), "utf-8")
        buckets = score_buckets(sources, hypotheses, references, edges)
        models.append({**trained.to_json(), **_score(hypotheses, references), "buckets": buckets})
    counts = {"n_train": split.n_train, "n_valid": split.n_valid, "n_test": split.n_test}
    return {"origin": split.origin, **counts, "edges": edges, "models": models}


def _train_models(
    setup: TranslationSetup, split: corpora.CorpusSplit, folder: Path, settings: ComparisonSettings
) -> Iterator[runs.TrainedModel]:
    """Train the models one by one; the others match the number of parameters of the first on this text."""
    tokenizer = {} if settings.data else setup.tokenizer
    train = {**setup.train, "seed": settings.seed}

    def run(name: str, model: RecipeTable) -> runs.TrainedModel:
        return runs.train_model(
            name, runs.build_recipe("translate", split, model, tokenizer, train), folder, settings.device
        )

    yield (first := run(BASELINE_TRANSFORMER, {**setup.transformer, **TRANSFORMER_MODELS[BASELINE_TRANSFORMER]}))
    vocabulary = first.resolved_recipe["tokenizer"]["vocabulary"]
    for name in (RNN_WITHOUT_ATTENTION, RNN_ADDITIVE_ATTENTION):
        yield run(
            name,
            match_parameter_count(
                SEQ2SEQ_MODELS, {**setup.recurrent, **RNN_MODELS[name]}, vocabulary, first.parameters
            ),
        )


def translate_greedily(path: Path, sources: Sequence[str], device: str) -> list[str]:
    """Return the greedy translations of the model in a run directory."""
    translations = api.Translator.load(path, device=device).translate(list(sources), aligned=False, beam=1, batch=64)
    return [best[0].text for best in translations]


def bucket_edges(lengths: Sequence[int], n_buckets: int) -> list[int]:
    """Return the least length of each of `n_buckets` buckets of about equal size; fewer if many lengths are equal."""
    ordered = sorted(lengths)
    return sorted({ordered[len(ordered) * index // n_buckets] for index in range(n_buckets)})


def score_buckets(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], edges: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the scores of each bucket, with the number of words of its shortest and longest source."""
    buckets = []
    for low, above in pairwise([*edges, 10**9]):
        indices = [i for i, source in enumerate(sources) if low <= len(source.split()) < above]
        longest = max(len(sources[i].split()) for i in indices)
        scores = _score([hypotheses[i] for i in indices], [references[i] for i in indices])
        buckets.append({"from": low, "to": longest, "n": len(indices), **scores})
    return buckets


def _score(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    scores = translation_score(hypotheses, references)
    return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact, "signature": scores.bleu_signature}


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdict on each claim."""
    models = {each["name"]: each for each in measurements["models"]}
    return [
        _judge_quality_falls(models[RNN_WITHOUT_ATTENTION]),
        _judge_gain_grows(
            models,
            RNN_ADDITIVE_ATTENTION,
            RNN_WITHOUT_ATTENTION,
            "Attention helps recurrence most with long sentences.",
        ),
        _judge_better(models, BASELINE_TRANSFORMER, RNN_WITHOUT_ATTENTION),
        _judge_better(models, BASELINE_TRANSFORMER, RNN_ADDITIVE_ATTENTION),
    ]


def min_significant_difference(n_sentences: int, minimum: float = MIN_BLEU_DIFFERENCE) -> float:
    """Return the smallest significant difference of scores on that many sentences: about their 95 % interval."""
    return max(minimum, 60 / math.sqrt(n_sentences))


def undecided_note(held: bool | None, min_difference: float, *, is_poor: bool, has_one_bucket: bool = False) -> str:
    """Return why a claim is undecided: too little was learned, there is one bucket, or the difference is noise."""
    if held is not None:
        return ""
    if is_poor:
        return f"; too little was learned to tell (scores below {POOR_SCORE:g})"
    return (
        "; all sentences are about as long" if has_one_bucket else f"; only {min_difference:.1f} apart would be clear"
    )


def _judge_quality_falls(model: Mapping[str, Any]) -> Finding:
    """Judge whether one fixed vector translates long sentences worse than short ones."""
    first, last = model["buckets"][0], model["buckets"][-1]
    short, long, min_difference = first["bleu"], last["bleu"], min_significant_difference(min(first["n"], last["n"]))
    poor = max(short, long) < POOR_SCORE
    held = None if poor else weigh_evidence(short - long > min_difference, long - short > min_difference)
    return Finding(
        "With one fixed vector, quality falls as sentences grow.",
        held,
        f"{model['name']}: BLEU {short:.1f} with {_format_word_range(first)}, "
        f"{long:.1f} with {_format_word_range(last)}"
        f"{undecided_note(held, min_difference, is_poor=poor, has_one_bucket=first is last)}.",
    )


def _judge_gain_grows(models: Mapping[str, Any], one: str, other: str, claim: str) -> Finding:
    """Judge whether one model gains more over the other in the longest bucket than in the shortest."""
    gains = [a["bleu"] - b["bleu"] for a, b in zip(models[one]["buckets"], models[other]["buckets"], strict=True)]
    first, last = models[one]["buckets"][0], models[one]["buckets"][-1]
    more, min_difference = gains[-1] - gains[0], min_significant_difference(min(first["n"], last["n"]))
    poor = min(models[one]["bleu"], models[other]["bleu"]) < POOR_SCORE
    held = None if poor else weigh_evidence(more > min_difference, more < -min_difference)
    return Finding(
        claim,
        held,
        f"{one} gains {gains[0]:+.1f} BLEU with {_format_word_range(first)} and "
        f"{gains[-1]:+.1f} with {_format_word_range(last)}"
        f"{undecided_note(held, min_difference, is_poor=poor, has_one_bucket=first is last)}.",
    )


def _judge_better(models: Mapping[str, Any], one: str, other: str) -> Finding:
    a, b = models[one], models[other]
    ahead, min_difference = (
        a["bleu"] - b["bleu"],
        min_significant_difference(sum(bucket["n"] for bucket in a["buckets"])),
    )
    poor = max(a["bleu"], b["bleu"]) < POOR_SCORE
    held = None if poor else weigh_evidence(ahead > min_difference, ahead < -min_difference)
    long = f"{a['buckets'][-1]['bleu']:.1f} against {b['buckets'][-1]['bleu']:.1f}"
    return Finding(
        f"The Transformer translates better than recurrence: {one} against {other}.",
        held,
        f"BLEU {a['bleu']:.1f} against {b['bleu']:.1f}, with {_format_word_range(a['buckets'][-1])} {long}"
        f"{undecided_note(held, min_difference, is_poor=poor)}.",
    )


def _format_word_range(bucket: Mapping[str, Any]) -> str:
    low, high = bucket["from"], bucket["to"]
    return f"{low} to {high} words" if low < high else "1 word" if low == 1 else f"{low} words"


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    models = measurements["models"]
    counts = [each["parameters"] for each in models]
    method = (
        f"{measurements['origin']}; {measurements['n_train']:,} to train on, {measurements['n_test']:,} to test on. "
        f"Each model was trained by the recipe in translation/ for {models[0]['steps']:,} steps in float32 on one "
        f"seed; {min(counts):,} to {max(counts):,} parameters. Test sentences are translated greedily, divided by the "
        f"number of words of their source into buckets of about equal size. {models[0]['signature']}."
    )
    buckets = models[0]["buckets"]
    columns = ["model", "parameters", "all", *map(_format_word_range, buckets)]
    bleu = [
        [m["name"], f"{m['parameters']:,}", f"{m['bleu']:.1f}", *(f"{b['bleu']:.1f}" for b in m["buckets"])]
        for m in models
    ]
    exact = [
        [
            m["name"],
            f"{m['parameters']:,}",
            f"{100 * m['exact']:.1f}",
            *(f"{100 * b['exact']:.1f}" for b in m["buckets"]),
        ]
        for m in models
    ]
    n = ["sentences", "", f"{measurements['n_test']:,}", *(f"{b['n']:,}" for b in buckets)]
    tables = [
        ResultTable("BLEU by words in the source", columns, [*bleu, n]),
        ResultTable("Translated exactly, in %", columns, [*exact, n]),
    ]
    return ExperimentSummary(method, judge_claims(measurements), tables)


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot BLEU and exact translations against length: a point at the middle of each bucket."""
    charts = []
    for title, score, scale in (("BLEU", "bleu", 1), ("translated exactly, %", "exact", 100)):
        lines = {
            each["name"]: Series(
                [(bucket["from"] + bucket["to"]) / 2 for bucket in each["buckets"]],
                [scale * bucket[score] for bucket in each["buckets"]],
            )
            for each in measurements["models"]
        }
        charts.append(Chart(title, lines))
    return plot_charts(charts, path, "words in the source", "score", columns=2, y_limits=(0.0, None), share_axes=False)


EXPERIMENT = Experiment(
    title="Translation by length",
    claim="A recurrent encoder-decoder with one fixed vector translates long sentences worse than short ones; "
    "attention remedies that, and the Transformer, built of attention alone, translates best.",
    source="Bahdanau et al. 2015, figure 2; Vaswani et al. 2017, table 2",
    measure=measure,
    summarise=summarise,
    plot=plot,
)
