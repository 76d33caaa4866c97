"""Training runs of the experiments, through the public API, from recipes that are written beside them.

Every run has its recipe and its run directory in the directory of its experiment, and is resumed after an interruption.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from regard import api, config
from regard.compare.compared_models import RecipeTable
from regard.compare.corpora import CorpusSplit
from regard.progress import progress_bar
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import read_log
from regard.training.guards import raise_interruption
from regard.training.plan import make_plan


class TrainedModel(NamedTuple):
    """A trained model and its cost; `curve` holds the log lines of all validations. Fields are JSON keys."""

    name: str
    path: Path
    parameters: int
    flops: float
    steps: int
    tokens: int
    seconds: float
    curve: list[dict[str, Any]]
    resolved_recipe: config.Tables

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are stored."""
        stored = ("name", "parameters", "flops", "steps", "tokens", "seconds", "curve")
        return {name: value for name, value in self._asdict().items() if name in stored} | {"run": self.path.name}


N_VALIDATIONS = 5
"""Validations per run."""


def build_recipe(
    task: str, split: CorpusSplit, model: RecipeTable, tokenizer: RecipeTable, train: RecipeTable
) -> config.Tables:
    """Return the recipe of one run; every model of a comparison is trained in the same way, to its last step.

    Precision is set too: on a GPU the defaults of Transformers and of recurrent models differ.
    """
    interval = max(1, train["steps"] // N_VALIDATIONS)
    intervals = {"validate_every": interval, "save_every": interval, "log_every": max(1, train["steps"] // 50)}
    common = {"schedule": "cosine", "average": 1, "patience": 0, "compiled": False, "precision": "float32"}
    return {
        "task": {"name": task, **({"label_smoothing": 0.0} if task == "translate" else {})},
        "data": {"train": split.train, "valid": split.valid},
        "tokenizer": tokenizer,
        "model": model,
        "train": {**train, **intervals, **common},
    }


def slug(name: str) -> str:
    """Return the name of a model as a file name."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def train_model(name: str, recipe: config.Tables, folder: Path, device: str) -> TrainedModel:
    """Train by a recipe, which is written beside the run; an interrupted run is resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe_path, out = folder / f"{slug(name)}.toml", folder / slug(name)
    recipe_path.write_text(config.dump(recipe), encoding="utf-8")
    run = api.train(recipe_path, out=out, device=device, resume=RunDirectory(out).exists())
    plan = make_plan(run.prepared)
    progress = run.trainer.progress
    with progress_bar(f"training {name}: steps", plan.steps) as bar:
        bar.advance(progress.step)
        for event in run:
            bar.advance(event.step - bar.n_done)
            if event.kind == "interrupted":
                raise_interruption(event.values["signal"])
    return TrainedModel(
        name=name,
        path=out,
        parameters=plan.n_parameters,
        flops=plan.flops * progress.step / plan.steps,
        steps=progress.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        curve=[line for line in read_log(run.prepared.directory) if "valid_loss" in line],
        resolved_recipe=run.prepared.config.tables(),
    )
