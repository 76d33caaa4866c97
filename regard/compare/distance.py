"""Recurrence and distance: the fraction of a final vector owed to each position, and the gradient by distance.

Recurrent encoders with and without attention pooling and a Transformer learn the majority task (majority_task.py) with
several seeds; both quantities are measured before and after training. The verdicts are in distance_claims.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.compare import majority_task
from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.compared_models import (
    FINAL_VECTOR_MODELS,
    TRANSFORMER_ENCODER,
    RecipeTable,
    build_model,
    count_parameters,
    match_parameter_count,
)
from regard.compare.copy_task import single_thread
from regard.compare.distance_claims import DistanceCurves, judge_claims
from regard.compare.experiment import ComparisonSettings, Experiment, ExperimentSummary, Measurements, ResultTable
from regard.compare.intervals import MeanInterval
from regard.compare.majority_task import FinalVectorClassifier, MajorityBatch, MajorityTaskSetup
from regard.models.architectures import ENCODER_MODELS
from regard.models.blocks import initialise_weights
from regard.progress import progress_bar
from regard.runs.device import select_device

SETUPS = {
    "quick": MajorityTaskSetup(32, 4, 120, 32, 64, 6e-3, 32, 3),
    "full": MajorityTaskSetup(64, 4, 300, 32, 100, 4e-3, 64, 5),
}


def measure(settings: ComparisonSettings, _: Mapping[str, Measurements]) -> Measurements:
    """Train every model with every seed, and measure it before and after."""
    setup, device = SETUPS[settings.pace], select_device(settings.device)
    tables, models = _model_tables(setup), []
    n_steps = len(tables) * setup.seeds * setup.steps
    with single_thread(), progress_bar("majority: steps of training", n_steps) as progress:
        for name, table in tables.items():
            runs = []
            for seed in range(settings.seed, settings.seed + setup.seeds):
                model = _build_classifier(name, table, setup, seed).to(device)
                before = _measure_distances(model, setup, seed, device)
                for _loss in majority_task.train_steps(model, setup, seed, device):
                    progress.advance()
                after = _measure_distances(model, setup, seed, device)
                runs.append({"seed": seed, "before": before, "after": after})
            models.append({"name": name, "shape": table, "parameters": count_parameters(model), "runs": runs})
    return {**vars(setup), "models": models}


def _model_tables(setup: MajorityTaskSetup) -> dict[str, RecipeTable]:
    """Return the ``[model]`` table of every model, with about as many parameters as the Transformer."""
    common = {"dropout": 0.0, "n_positions": setup.length + 1, "n_parts": 0}
    transformer = {**common, "n_layers": 2, "n_heads": 2, "d_ff": 2 * setup.width, "d_model": setup.width}
    baseline = {**transformer, **FINAL_VECTOR_MODELS[TRANSFORMER_ENCODER][0]}
    target_count = count_parameters(build_model(ENCODER_MODELS, baseline, setup.vocabulary_size))
    return {
        name: baseline
        if name == TRANSFORMER_ENCODER
        else match_parameter_count(
            ENCODER_MODELS, {**common, "n_layers": 1, **table}, setup.vocabulary_size, target_count
        )
        for name, (table, _) in FINAL_VECTOR_MODELS.items()
    }


def _build_classifier(name: str, table: RecipeTable, setup: MajorityTaskSetup, seed: int) -> FinalVectorClassifier:
    encoder = build_model(ENCODER_MODELS, table, setup.vocabulary_size)
    model = FinalVectorClassifier(encoder, FINAL_VECTOR_MODELS[name][1], setup.symbols)
    initialise_weights(model, torch.Generator().manual_seed(seed), encoder.config.init_std)
    return model.train()  # without dropout; cuDNN computes gradients of recurrent layers in this mode alone


def _measure_distances(
    model: FinalVectorClassifier, setup: MajorityTaskSetup, seed: int, device: torch.device
) -> dict[str, Any]:
    """Return the accuracy on new texts, and every quantity by distance: that of the last symbol, 1, comes first."""
    generator = torch.Generator().manual_seed(seed + 2)
    batch = majority_task.sample_majority_batch(generator, setup.tested, setup.length, setup.symbols)
    batch = MajorityBatch(*(part.to(device) for part in batch))
    by_position = {
        "removal": majority_task.removal_fractions(model, batch.ids, generator, setup.symbols),
        "gradient_input": majority_task.gradient_input_fractions(model, batch.ids),
        "gradient_norm": majority_task.gradient_norms(model, batch),
    }
    by_distance = {key: values.flip(0).tolist() for key, values in by_position.items()}
    return {"accuracy": majority_task.accuracy(model, batch), **by_distance}


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    curves = DistanceCurves(measurements)
    method = (
        f"Texts of {curves.length} tokens out of {measurements['symbols']} symbols and an end token; the class is the "
        f"symbol that each token is with probability {majority_task.MAJORITY:g}, so every position counts equally. "
        f"{measurements['steps']:,} steps on batches of {measurements['batch']} texts, {curves.n_seeds} seeds, no "
        f"dropout, one learning rate ({measurements['rate']:g}, cosine); {curves.parameter_range} parameters. The "
        "final vector is the last state of a unidirectional layer, the attention pooling of its states, or the last "
        "hidden state of the end token in a Transformer of two layers with sinusoidal positions. Removal: the "
        "distance the vector moves if a token is replaced by another one. Gradient x input: of half the squared norm "
        "of the vector. Gradients: of the loss, at the embedding of each token. All on "
        f"{measurements['tested']:,} new texts; intervals are 95 % over seeds (Student's t)."
    )
    return ExperimentSummary(method, judge_claims(measurements), [_fractions_table(curves), _gradients_table(curves)])


def _fractions_table(curves: DistanceCurves) -> ResultTable:
    columns = ["model", "parameters", "accuracy %", "removal, before", "after", "gradient x input, before", "after"]
    rows = [
        [
            name,
            f"{curves.parameters[name]:,}",
            _percent(curves.accuracy(name)),
            *(
                _percent(curves.last_fraction(name, moment, method))
                for method in ("removal", "gradient_input")
                for moment in ("before", "after")
            ),
        ]
        for name in curves.names
    ]
    note = f"Equal fractions would be {100 * curves.equal_fraction:.1f} %; before and after training."
    title = f"Fraction of the final vector owed to the last {curves.n_last} of {curves.length} tokens, in %"
    return ResultTable(title, columns, rows, note)


def _percent(interval: MeanInterval) -> str:
    return MeanInterval(*(100 * value for value in interval)).format()


def _gradients_table(curves: DistanceCurves) -> ResultTable:
    columns = ["model", *(f"{moment} training, {what}" for moment in ("before", "after") for what in ("ratio", "step"))]
    rows = []
    for name in curves.names:
        cells = []
        for moment in ("before", "after"):
            ratio = curves.gradient_ratio(name, moment)
            cells += [f"{ratio.mean:.2g} ({ratio.low:.2g} to {ratio.high:.2g})", f"{curves.step_factor(ratio):.3f}"]
        rows.append([name, *cells])
    note = "The ratio is that of the first token to the last; step is the factor of one step that gives this ratio."
    return ResultTable("Norm of the gradient at the first token, relative to the last", columns, rows, note)


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot the fractions by removal and the gradient norms, before and after training, with their intervals."""
    curves = DistanceCurves(measurements)
    distances = list(range(1, curves.length + 1))

    def series(moment: str, quantity: str) -> dict[str, Series]:
        by_name = {}
        for name in curves.names:
            means, low, high = zip(*curves.by_distance(name, moment, quantity), strict=True)
            by_name[name] = Series(distances, means, low, high, markers=False)
        return by_name

    fractions = [
        Chart(f"fraction by removal, {moment} training", series(moment, "removal"), {"equal": 1 / curves.length})
        for moment in ("before", "after")
    ]
    gradients = [
        Chart(
            f"gradient norm (last token: 1), {moment} training",
            series(moment, "gradient_norm"),
            axis_scales=("linear", "log"),
        )
        for moment in ("before", "after")
    ]
    charts = [*fractions, *gradients]
    return plot_charts(charts, path, "distance from the end, tokens", "", columns=2, share_axes=False)


EXPERIMENT = Experiment(
    title="Recurrence and distance",
    claim="The last tokens contribute most to the last state of a recurrent network, and gradients vanish on their way "
    "back through the steps; attention reads every token directly.",
    source="Bengio et al. 1994; Hochreiter and Schmidhuber 1997; Vaswani et al. 2017, section 4",
    measure=measure,
    summarise=summarise,
    plot=plot,
)
