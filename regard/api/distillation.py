"""`regard.distill`: a teacher translates texts, and a student is trained on the result; as `regard.train` it returns
the student's run to iterate over.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import torch

from regard import config
from regard.api.inputs import split_columns, split_data
from regard.api.loading import load
from regard.api.training_run import TrainingRun, next_run_directory
from regard.api.translator import Translator
from regard.disk import convert_write_errors
from regard.errors import ConfigError, InputError, TrainingError
from regard.generate import DecodingConfig
from regard.runs.device import select_device
from regard.runs.run_directory import DISTILLED_FROM, RunDirectory
from regard.text.languages import names_languages
from regard.text.sources import list_source_directions
from regard.training.distillation import Distillation, DistillationConfig, make_student_recipe
from regard.training.prepare import prepare_run
from regard.training.recipe_completion import build_provisional_config, parse_recipe

DEFAULT_STUDENT_PRESET = "small-6+2"
"""The student's shape where neither a recipe nor an option gives one."""

GIVEN_DATA_KEYS = {"train": "TEXT", "columns": "--columns", "skip_empty": "--skip-empty"}
"""Keys of ``[data]`` that a student's recipe must leave out, and what gives them."""


def distill(
    teacher: str | Path,
    texts: str | Sequence[str],
    *,
    out: str | Path | None = None,
    recipe: str | Path | config.Tables | None = None,
    overrides: Sequence[str] = (),
    preset: str = "",
    valid: str | Sequence[str] = (),
    columns: str | Sequence[str] = (),
    pairs: bool = False,
    references: bool = False,
    interpolate: bool = False,
    skip_empty: bool = False,
    beam: int | None = None,
    alpha: float = DecodingConfig.alpha,
    batch: int | None = None,
    max_ratio: float = DistillationConfig.max_ratio,
    device: str = "auto",
    precision: str = "auto",
    resume: bool = False,
    where: str = "recipe",
) -> TrainingRun:
    """Let a teacher translate texts, and prepare the training of a student on them (Kim and Rush 2016).

    Args:
        teacher: A translator: its run directory or Hugging Face directory.
        texts: Files of lines, or tables, in the language that the teacher reads.
        out: The run directory to create; by default the next free one of runs/distill-1, runs/distill-2, ...
        recipe: The student's recipe, a path or tables; its training data are the translations.
        overrides: Settings that override the recipe, as in ["train.steps=1000"].
        preset: The preset of the student; "small-6+2" if nothing else determines its shape.
        valid: Validation pairs: two files of lines, or tables; by default translated texts are held out.
        columns: The source and target columns of tables, by header or number.
        pairs: The texts are pairs, as `regard.train` takes them, whose sources are translated.
        references: Train on the pairs themselves as well.
        interpolate: Train on the hypothesis of the beam that is nearest to the reference, by sentence BLEU.
        skip_empty: Leave out pairs with an empty side, and count them.
        beam, alpha, batch: The teacher's search, as in `Translator.translate`.
        max_ratio: Leave out translations if the ratio of the lengths of both sides, in tokens, is larger.
        device: As in `regard.train`.
        precision: The precision of the teacher, as in `regard.load`.
        resume: Continue the distillation in `out`; the result is that of one that was never interrupted.
        where: The name of the recipe in error messages, for tables.

    Returns:
        A `TrainingRun`: iterate over it to train the student, or read its `path`, which trains to the end. The texts
        have been translated by then.

    Example:
        >>> run = regard.distill("runs/en-fr", "news.en", out="runs/student", preset="medium-6+2")
        >>> regard.load(run.path).translate("I am good")[0].text
    """
    files = split_data(texts)
    distillation_config = DistillationConfig(
        texts=tuple(files),
        directions=_choose_directions(Path(teacher), files, pairs=pairs or references or interpolate),
        columns=split_columns(columns),
        pairs=pairs,
        references=references,
        interpolate=interpolate,
        skip_empty=skip_empty,
        beam=beam,
        alpha=alpha,
        batch=batch,
        max_ratio=max_ratio,
        precision=precision,
    )
    given, where = _read_student_recipe(recipe, where)
    given = _add_options(given, preset, split_data(valid) if valid else [], where)
    given = config.override(given, list(overrides))
    directory = Path(out) if out is not None else next_run_directory(Path("runs"), {"task": {"name": "distill"}})
    chosen_device = select_device(device)
    run = RunDirectory(directory)
    with convert_write_errors(directory, fix="make room, then continue with --resume", error_type=TrainingError):
        run.acquire_lock()
        try:
            distillation = Distillation(run, str(teacher), distillation_config)
            distillation.check_directory(resume=resume)
            tables = given if run.exists() else _translate_texts(distillation, given, chosen_device, where)
        finally:
            run.lock.release()
    note = {DISTILLED_FROM: str(teacher)}
    is_begun = run.exists()
    return TrainingRun(prepare_run(tables, directory, chosen_device, where=where, resume=is_begun, notes=note))


def _read_student_recipe(recipe: str | Path | config.Tables | None, where: str) -> tuple[config.Tables, str]:
    """Return the student's recipe as the user gave it, and its name in messages."""
    tables = recipe if isinstance(recipe, dict) else config.read(Path(recipe)) if recipe is not None else {}
    where = where if recipe is None or isinstance(recipe, dict) else str(recipe)
    name = tables.get("task", {}).get("name", "translate")
    if name != "translate":
        raise ConfigError(f"{where}: task.name = {name!r}; a student translates, as its teacher does")
    return {**tables, "task": {"name": "translate", **tables.get("task", {})}}, where


def _add_options(tables: config.Tables, preset: str, valid: Sequence[str], where: str) -> config.Tables:
    data = tables.get("data", {})
    for key, option in GIVEN_DATA_KEYS.items():
        if key in data:
            raise ConfigError(f"{where}: data.{key} of a student is given by {option}; leave it out of the recipe")
    added = {"data": {**data, "valid": tuple(valid)} if valid else data}
    if preset:
        added["model"] = {**tables.get("model", {}), "preset": preset}
    return {**tables, **added}


def _translate_texts(
    distillation: Distillation, given: config.Tables, device: torch.device, where: str
) -> config.Tables:
    """Translate what is not translated yet, and return the student's recipe."""
    if distillation.is_complete:
        distillation.clean_up()
        return _complete_recipe(distillation, given, device, where)
    distillation.config.paths()
    teacher = _load_teacher(distillation, device)
    tables = _complete_recipe(distillation, given, device, where)
    if not distillation.is_begun:
        distillation.begin(device)
    distillation.translate(teacher.predictor, device)
    del teacher
    _free_memory(device)
    return tables


def _complete_recipe(
    distillation: Distillation, given: config.Tables, device: torch.device, where: str
) -> config.Tables:
    """Return the student's recipe, checked as far as it can be before the texts are translated."""
    teacher_task = RunDirectory(Path(distillation.teacher))
    languages = vars(teacher_task.read_config().task) if teacher_task.exists() else {}
    languages = {key: languages.get(key, "") for key in ("source_lang", "target_lang")}
    tables = make_student_recipe(given, distillation, languages, DEFAULT_STUDENT_PRESET)
    recipe = parse_recipe(tables, device, where)
    provisional = build_provisional_config(recipe, device)
    data = provisional.data
    if data.valid:
        reader = recipe.task_class.make_reader(provisional.task, data)
        for _ in reader.read_examples(data.valid, data.columns, skip_empty=data.skip_empty):
            pass
    return tables


def _choose_directions(teacher: Path, texts: Sequence[str], *, pairs: bool) -> tuple[str, ...]:
    """Return the directions of a teacher of several that the texts are translated in."""
    run = RunDirectory(teacher)
    directions = getattr(run.read_config().task, "directions", ()) if run.exists() else ()
    if names_languages(texts) and not directions:
        raise ConfigError(f"{teacher}: has one direction, but the texts name languages; leave these out")
    return tuple(list_source_directions(texts, directions, pairs=pairs)) if directions else ()


def _load_teacher(distillation: Distillation, device: torch.device) -> Translator:
    path = distillation.teacher
    model = load(path, device=str(device), precision=distillation.config.precision)
    if not isinstance(model, Translator):
        kind = type(model).__name__
        raise InputError(f"{path}: a {kind}, not a translator; name a model as the teacher that translates")
    return model


def _free_memory(device: torch.device) -> None:
    """Free the memory of the teacher for the student."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
