"""Models trained for a comparison: by recipes, which are written down, through the same door as anybody's.

Every run has its recipe and its run directory in the folder of its part, and goes on where it was stopped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from regard import api, config
from regard.compare.compared_models import RecipeTable
from regard.compare.corpora import CorpusSplit
from regard.progress import progress_bar
from regard.runs.run_directory import RunDirectory
from regard.training.plan import make_plan


class TrainedModel(NamedTuple):
    """A model that was trained, and what that took; `curve` holds what each validation said, by step."""

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
        """What JSON keeps of it."""
        kept = ("name", "parameters", "flops", "steps", "tokens", "seconds", "curve")
        return {name: value for name, value in self._asdict().items() if name in kept} | {"run": self.path.name}


N_VALIDATIONS = 5
"""How often each run is validated."""


def build_recipe(
    task: str, split: CorpusSplit, model: RecipeTable, tokenizer: RecipeTable, train: RecipeTable
) -> config.Tables:
    """The recipe of one run: every model of a comparison is trained alike, to its last step.

    Precision too: on a GPU the habits of Transformers and of recurrence differ in it.
    """
    often = max(1, train["steps"] // N_VALIDATIONS)
    seldom = {"validate_every": often, "save_every": often, "log_every": max(1, train["steps"] // 50)}
    alike = {"schedule": "cosine", "average": 1, "patience": 0, "compiled": False, "precision": "float32"}
    return {
        "task": {"name": task, **({"label_smoothing": 0.0} if task == "translate" else {})},
        "data": {"train": split.train, "valid": split.valid},
        "tokenizer": tokenizer,
        "model": model,
        "train": {**train, **seldom, **alike},
    }


def slug(name: str) -> str:
    """The name of a model as that of a file."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def train_model(name: str, recipe: config.Tables, folder: Path, device: str) -> TrainedModel:
    """Train by a recipe, which is written beside the run; what was begun before is gone on with."""
    folder.mkdir(parents=True, exist_ok=True)
    written, out = folder / f"{slug(name)}.toml", folder / slug(name)
    written.write_text(config.dump(recipe), encoding="utf-8")
    run = api.train(written, out=out, device=device, resume=RunDirectory(out).exists())
    sized = make_plan(run.prepared)
    progress = run.trainer.progress
    with progress_bar(f"training {name}: steps", sized.steps) as shown:
        shown.advance(progress.step)
        for event in run:
            shown.advance(event.step - shown.n_done)
            if event.kind == "interrupted":
                raise KeyboardInterrupt
    return TrainedModel(
        name=name,
        path=out,
        parameters=sized.n_parameters,
        flops=sized.flops * progress.step / sized.steps,
        steps=progress.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        curve=_read_validations(run.prepared.directory.log_path),
        resolved_recipe=run.prepared.config.tables(),
    )


def _read_validations(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "valid_loss" in line]
