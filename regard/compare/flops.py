"""Training cost in floating-point operations, beside the published table (Vaswani et al. 2017, table 2).

The runs are those of the experiment translation; their operations are estimated from a few profiled batches of each
(training/plan.py). The published numbers are included as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.compared_models import BASELINE_TRANSFORMER
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
from regard.training.plan import N_PROFILED_BATCHES

PUBLISHED_SOURCE = "Vaswani et al. 2017, table 2: newstest2014, BLEU and floating-point operations of training"


class PublishedResult(NamedTuple):
    """A row of the published table: BLEU and operations for English-German and English-French; None if not given."""

    name: str
    german: float | None = None
    french: float | None = None
    german_flops: float | None = None
    french_flops: float | None = None
    ensemble: bool = False


PUBLISHED_RESULTS = (
    PublishedResult("ByteNet", 23.75),
    PublishedResult("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    PublishedResult("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    PublishedResult("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    PublishedResult("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    PublishedResult("Deep-Att + PosUnk, ensemble", None, 40.4, None, 8.0e20, ensemble=True),
    PublishedResult("GNMT + RL, ensemble", 26.30, 41.16, 1.8e20, 1.1e21, ensemble=True),
    PublishedResult("ConvS2S, ensemble", 26.36, 41.29, 7.7e19, 1.2e21, ensemble=True),
    PublishedResult("Transformer base", 27.3, 38.1, 3.3e18),
    PublishedResult("Transformer big", 28.4, 41.8, 2.3e19),
)

COMPARABILITY_NOTE = (
    "The data differ: ours are a few thousand sentences or the user's own, the published ones the millions of WMT "
    "2014. So BLEU can be compared among our rows, and among the published ones, but not across."
)


def measure(_: ComparisonSettings, measurements: Mapping[str, Measurements]) -> Measurements:
    """Return cost and BLEU of the runs of the experiment translation, by step."""
    models = []
    for each in measurements["translation"]["models"]:
        per_step = each["flops"] / each["steps"]
        curve = [{"flops": per_step * line["step"], "bleu": line["bleu"]} for line in each["curve"]]
        totals = {name: each[name] for name in ("name", "parameters", "steps", "tokens", "seconds", "flops", "bleu")}
        models.append({**totals, "curve": curve})
    published = [row._asdict() for row in PUBLISHED_RESULTS]
    about = {name: measurements["translation"][name] for name in ("origin", "n_valid", "n_test")}
    return {**about, "models": models, "published": published, "source": PUBLISHED_SOURCE}


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdicts on the published numbers and on those measured here."""
    rows = [PublishedResult(**row) for row in measurements["published"]]
    baseline = next(each for each in measurements["models"] if each["name"] == BASELINE_TRANSFORMER)
    differences = [min_significant_difference(measurements[key]) for key in ("n_valid", "n_test")]
    return [
        _judge_published_cost(rows),
        *(_judge_cheaper(baseline, each, *differences) for each in measurements["models"] if each is not baseline),
    ]


def _judge_published_cost(rows: list[PublishedResult]) -> Finding:
    """Judge whether the Transformer was better for fewer operations, from the published rows."""
    base, big = (next(row for row in rows if row.name == f"Transformer {size}") for size in ("base", "big"))
    others = [row for row in rows if not row.name.startswith("Transformer")]
    best = max(row.german for row in others if row.german is not None)
    cheapest = min(row.german_flops for row in others if row.german_flops is not None)
    assert base.german is not None
    assert base.german_flops is not None
    held = base.german > best and base.german_flops < cheapest
    return Finding(
        "Published: better translations for fewer operations (English to German).",
        held,
        f"Transformer base {base.german} BLEU for {base.german_flops:.1e} operations, big {big.german}; of all others "
        f"the best reached {best}, ensembles included, and the cheapest took {cheapest:.1e}.",
    )


def _judge_cheaper(
    baseline: dict[str, Any], other: dict[str, Any], min_difference: float, min_test_difference: float
) -> Finding:
    """Judge whether the Transformer reached the other model's best validation BLEU with fewer operations.

    It needed more if it was still lower by `min_difference` at its first validation after as many operations.
    """
    best = max(point["bleu"] for point in other["curve"])
    needed, reached = (flops_to_reach(each["curve"], best) for each in (other, baseline))
    assert needed is not None, f"no validation of {best} in its own curve"
    by_then, poor = best_bleu_by(baseline["curve"], needed), best < POOR_SCORE
    cheaper = reached is not None and reached < needed
    dearer = best - by_then > min_difference or other["bleu"] - baseline["bleu"] > min_test_difference
    held = None if poor else weigh_evidence(cheaper, dearer)
    why = (
        "; validation and test do not agree"
        if cheaper and dearer
        else undecided_note(held, min_difference, is_poor=poor)
    )
    outcome = "never reached that" if reached is None else f"reached that after {reached:.1e}"
    return Finding(
        f"Here: the Transformer reaches the BLEU of {other['name']} for fewer operations.",
        held,
        f"on the validation data {other['name']} was best after {needed:.1e} operations, with BLEU {best:.1f}; the "
        f"Transformer had {by_then:.1f} by then and {outcome}{why}. In the end, on the test data: "
        f"{baseline['bleu']:.1f} for {baseline['flops']:.1e} ({baseline['seconds']:.0f} s) against "
        f"{other['bleu']:.1f} for {other['flops']:.1e} ({other['seconds']:.0f} s).",
    )


def flops_to_reach(curve: list[dict[str, float]], bleu: float) -> float | None:
    """Return the operations after which a model first reached a validation BLEU, or None."""
    return next((point["flops"] for point in curve if point["bleu"] >= bleu), None)


def best_bleu_by(curve: list[dict[str, float]], flops: float) -> float:
    """Return the best BLEU up to the first validation after `flops` operations, or up to the last validation."""
    last = next((index for index, point in enumerate(curve) if point["flops"] >= flops), len(curve) - 1)
    return max(point["bleu"] for point in curve[: last + 1])


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    method = (
        f"The runs of the experiment before: {measurements['origin']}. Operations are those of the matrix "
        "multiplications of one training batch, forward and backward, counted from shapes, times the steps; for models "
        f"whose batches differ, the mean of {N_PROFILED_BATCHES}, from narrow to wide ones. {COMPARABILITY_NOTE}"
    )
    ours = [
        [
            m["name"],
            f"{m['parameters']:,}",
            f"{m['steps']:,}",
            f"{m['flops']:.2e}",
            f"{m['seconds']:.0f}",
            f"{m['bleu']:.1f}",
        ]
        for m in measurements["models"]
    ]
    columns = ["model", "parameters", "steps", "operations", "seconds", "BLEU (test)"]
    rows = [
        [row.name, *(_format_bleu(score) for score in row[1:3]), *(_format_flops(flops) for flops in row[3:5])]
        for row in (PublishedResult(**row) for row in measurements["published"])
    ]
    names = ["model", "BLEU EN-DE", "BLEU EN-FR", "operations EN-DE", "operations EN-FR"]
    tables = [
        ResultTable("Measured here", columns, ours, COMPARABILITY_NOTE),
        ResultTable("Published", names, rows, measurements["source"]),
    ]
    return ExperimentSummary(method, judge_claims(measurements), tables)


def _format_bleu(score: float | None) -> str:
    return "" if score is None else f"{score:g}"


def _format_flops(flops: float | None) -> str:
    return "" if flops is None else f"{flops:.1e}"


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot BLEU against operations: the runs during training, and the published results."""
    ours = {
        each["name"]: Series([point["flops"] for point in each["curve"]], [point["bleu"] for point in each["curve"]])
        for each in measurements["models"]
    }
    rows = [PublishedResult(**row) for row in measurements["published"]]
    german = {
        row.name: Series([row.german_flops], [row.german], connected=False)
        for row in rows
        if row.german is not None and row.german_flops is not None
    }
    charts = [
        Chart("here, validation data, while training", ours),
        Chart("published, EN-DE (other data)", german, axis_scales=("log", "linear")),
    ]
    return plot_charts(charts, path, "floating-point operations", "BLEU", columns=2, share_axes=False)


EXPERIMENT = Experiment(
    title="Training cost",
    claim="The Transformer reaches better translations for a fraction of the floating-point operations of training.",
    source="Vaswani et al. 2017, table 2",
    measure=measure,
    summarise=summarise,
    plot=plot,
    depends_on=("translation",),
)
