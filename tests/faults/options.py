"""Fuzz of every option and argument of every verb, of every recipe key, and of every number of the Python interface.

Each case is a command that works, changed in one to three places: numbers at their extremes, NaN, texts that are no
numbers, paths that cannot be. It must succeed, or print one line of error and end with status 2. The long form is

    python tests/faults/campaign.py options --cases 1000
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import random
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fault_counts import FaultCounts
from isolation import run_isolated
from tiny_directories import write_data, write_runs
from typer.models import OptionInfo

import regard
from regard.cli import VERBS, main, module_name
from regard.errors import RegardError
from regard.export import export_model
from regard.runs.recipe import recipe_schema
from regard.tasks import TASKS

WHOLE_NUMBERS = ["-1", "0", "1", "2", "7", "100", "100000", "1000000000", "-9223372036854775809", "9" * 20, "9" * 401]
NUMBERS = ["nan", "inf", "-inf", "-1", "0", "0.5", "1", "1e-320", "1e-9", "1e9", "1e308", "1e400", "9" * 401]
NO_NUMBERS = ["", " ", "x", "1.5", "1,5", "1_000", "0x10", "٣", "1e3", "None", "true", "--", "\u2212" + "1"]
HOSTILE_TEXTS = [
    "",
    " ",
    "a",
    "the cat",
    "ü☃\U0001f600",
    "\n",
    "a\tb",
    "\x01\x1b[31m",
    "\udcff",
    "-",
    "=1+1",
    "[MASK]",
    "%s{0}",
]
PATHS = [
    "x" * 300,
    "y" * 5000,
    "/proc",
    ".",
    "..",
    "no/such/file",
    "/dev/null/x",
    "a\nb",
    "x.toml",
    "x.json",
    "x.csv",
    "~",
]
TOML_VALUES = [
    *WHOLE_NUMBERS,
    *NUMBERS,
    *('""', "true", "[]", "[1]", "[[1]]", "{}", "{a = 1}", '"x"', '"\\u0000"', "1979-05-27", '["a", "b"]', "-0.0"),
    "[" * 3000 + "]" * 3000,
    "9" * 5000,
    '"' + "z" * 5000 + '"',
]
ARGUMENTS = [-(10**30), -1, 0, 1, 2, 10**6, 10**9, 2**63, 10**400, *map(float, ("nan", "inf", "-inf", "1e-320", "0.5"))]

LONG_WORK = ("demo ", "compare ", "--n=", "--max-tokens=", "train.steps=", "train.compiled=true", "(n=", "(max_tokens=")
"""Parts of commands that work for long where nothing is wrong with them; these count as successful if they begin."""

BEGIN_SECONDS = 5.0
"""Time after which a command that works for long has begun."""

SMALL = {
    "train": {"steps": 2, "batch_tokens": 256, "validate_every": 2, "average": 1},
    "data": {"max_length": 32},
    "model": {"d_model": 16, "dropout": 0.0, "n_layers": 1, "n_decoder_layers": 1, "n_heads": 2, "d_ff": 32},
}
"""Settings with which a run of any task is trained in a moment; an architecture may lack some."""


class Case(NamedTuple):
    """A call with hostile input, and its name in messages."""

    name: str
    call: Callable[[], object]

    @property
    def may_run_long(self) -> bool:
        return any(part in self.name for part in LONG_WORK)


class Fuzzer:
    """Draws cases in a folder with models and data of every kind."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.n_outputs = folder, random.Random(seed), 0
        self.runs = {task: str(path) for task, path in write_runs(folder / "runs").items()}
        self.data = write_data(folder)
        for verb in VERBS:  # what is imported here, no child imports again
            importlib.import_module(f"regard.cli.{module_name(verb)}")
        importlib.import_module("regard.cli.training_display")
        self.hf_directory = str(export_model(Path(self.runs["pretrain"]), folder / "bert", "hf"))
        for verb in VERBS:  # a verb that is not here yet is noticed before the first case
            self._valid_commands(verb)

    def cases(self) -> Iterator[Case]:
        """Yield cases for ever, of commands, of recipe keys and of Python in turn."""
        commands, keys, calls = self._commands(), self._recipe_keys(), self._python_calls()
        while True:
            yield from (next(commands), next(keys), next(calls))

    def _commands(self) -> Iterator[Case]:
        while True:
            for verb in VERBS:
                yield self._change_command(verb)

    def _change_command(self, verb: str) -> Case:
        """Return a valid command with one to three hostile options or arguments."""
        base = self.random.choice(self._valid_commands(verb))
        options = list(_options(verb))
        for _ in range(self.random.randint(1, 3)):
            if options and self.random.random() < 0.8:
                name, kind = self.random.choice(options)
                base = [*base, name] if kind is bool else [*base, f"{name}={self._draw(kind)}"]
            else:
                base[self.random.randrange(1, len(base))] = self.random.choice([*HOSTILE_TEXTS, *PATHS])
        device = [] if verb in ("info", "export", "import", "train") else ["--device", "cpu"]
        return Case(" ".join(base), partial(main, [*base, *device]))

    def _draw(self, kind: Any) -> str:
        if self.random.random() < 0.2:
            return self.random.choice(NO_NUMBERS)
        numbers = {int: WHOLE_NUMBERS, float: NUMBERS}
        return self.random.choice(
            numbers.get(kind) or [*HOSTILE_TEXTS, *PATHS, *self.data["translate"], *self.runs.values()]
        )

    def _output(self, suffix: str = "") -> str:
        self.n_outputs += 1
        return str(self.folder / f"out{self.n_outputs}{suffix}")

    def _valid_commands(self, verb: str) -> list[list[str]]:
        runs, data, text = self.runs, self.data, "the red cat sits in tokyo"
        source = data["translate"][0]
        commands = {
            "demo": [["--out", self._output(), "--pairs", "1000", "--steps", "1"]],
            "compare": [["--quick", "--only", "cost", "--out", self._output()]],
            "train": [self._training(task)[1:] for task in TASKS],
            "distill": [self._distillation("text.src"), self._distillation("text.src", "text.tgt", "--references")],
            "shortlist": [[runs["translate"], *data["translate"], "--out", self._output()]],
            "models": [["--json"]],
            "translate": [[runs["translate"], text], [runs["translate"], "--file", source, "--beam", "2"]],
            "generate": [[runs["lm"], text, "--max-tokens", "3"], [runs["lm"], "--n", "3", "--max-tokens", "2"]],
            "fill": [[runs["pretrain"], "the [MASK] sits"], [runs["pretrain"], "--file", data["masked"][0]]],
            "next": [[runs["pretrain"], text, text]],
            "classify": [[runs["classify"], text], [runs["classify"], "--file", source]],
            "tag": [[runs["tag"], text], [runs["tag"], "--file", source, "--json"]],
            "answer": [[runs["qa"], "--question", "where", "--context", text], [runs["qa"], "--file", *data["qa"]]],
            "embed": [[runs["pretrain"], source, "--json"], [runs["tag"], source, "--out", self._output(".npy")]],
            "match": [[runs["pretrain"], text, text], [runs["vectors"], "cat"], [runs["tag"], text, "--in", source]],
            "cluster": [[runs["pretrain"], source, "--k", "2", "--out", self._output(".csv")]],
            "evaluate": [[runs[task], *data[task]] for task in TASKS if TASKS[task].has_evaluation],
            "identify": [[runs["pretrain"], source, "--maps", "identity", "--sentences", "8"]],
            "look": [[runs["translate"], text], [runs["classify"], text, "--view", "gradients"]],
            "info": [[path] for path in runs.values()],
            "export": [[runs[task], "--to", "hf", "--out", self._output()] for task in ("translate", "lm", "tag")],
            "import": [[self.hf_directory, "--out", self._output()]],
        }
        return [[verb, *map(str, command)] for command in commands[verb]]

    def _distillation(self, *files: str) -> list[str]:
        """Return the arguments of a distillation of files of the folder; the student is as small as other models."""
        _, _, *settings = self._training("translate")[len(self.data["translate"]) :]
        paths = [each if each.startswith("--") else str(self.folder / each) for each in files]
        return [self.runs["translate"], *paths, "--beam", "1", *settings]

    def _training(self, task: str, architecture: str = "", *settings: str) -> list[str]:
        schema = _schema(task, architecture)
        small = [
            f"{table}.{key}={value}"
            for table, values in SMALL.items()
            for key, value in values.items()
            if key in {each.name for each in dataclasses.fields(schema[table])}
        ]
        overrides = [part for each in (*small, *settings) for part in ("--set", each)]
        family = ["--architecture", architecture] if architecture else []
        return ["train", task, *self.data[task], "--out", self._output(), *family, *overrides, "--device", "cpu"]

    def _recipe_keys(self) -> Iterator[Case]:
        """Yield trainings in which one key has a hostile value: every key of every task and architecture in turn."""
        keys = [each for task in TASKS for each in _recipe_keys(task)]
        while True:
            self.random.shuffle(keys)
            for task, architecture, key in keys:
                value = self.random.choice(TOML_VALUES)
                command = self._training(task, architecture, f"{key}={value}")
                yield Case(f"train {task} {architecture} --set {key}={value:.60}", partial(main, command))

    def _python_calls(self) -> Iterator[Case]:
        """Yield calls of public methods in which one number is hostile."""
        calls = [
            (task, method, name)
            for task, (cls, methods) in METHODS.items()
            for method in methods
            for name in _number_parameters(getattr(cls, method))
        ]
        while True:
            self.random.shuffle(calls)
            for task, method, name in calls:
                value = self.random.choice(ARGUMENTS)
                shown = f"{value:.3g}" if isinstance(value, float) or abs(value) < 10**300 else "10**400"
                yield Case(f"{task}.{method}({name}={shown})", partial(self._call, task, method, {name: value}))

    def _call(self, task: str, method: str, options: dict[str, Any]) -> None:
        """Call a method; end as a command does that is refused."""
        model: Any = regard.load(self.runs[task], device="cpu")
        source = self.data["translate"][0]
        texts = {"nearest": ("cat",) if task == "vectors" else ("cat", ["the dog", "a cat"]), "cluster": (["a", "b"],)}
        arguments: dict[str, tuple[Any, ...]] = {
            "answer": ("where", "in tokyo"),
            "fill": ("the [MASK]",),
            "senses": ("cat", ["the cat", "a cat"]),
            "identify": (source,),
            "survey": (source,),
            "force_decode": ("the cat", "a dog"),
            "evaluate": (self.data[task],),
            "analogy": ("cat", "dog", "mat"),
            **texts,
        }
        defaults = {"cluster": {"k": 2}, "identify": {"maps": ("identity",)}, "generate": {"max_tokens": 3}}
        try:
            result = getattr(model, method)(
                *arguments.get(method, ("the cat",)), **{**defaults.get(method, {}), **options}
            )
            list(result) if inspect.isgenerator(result) else result
        except RegardError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)


METHODS: dict[str, tuple[type, tuple[str, ...]]] = {
    "translate": (regard.Translator, ("translate", "force_decode", "look", "evaluate", "identify", "survey")),
    "lm": (regard.LanguageModel, ("generate", "stream", "evaluate")),
    "pretrain": (regard.MaskedLanguageModel, ("fill", "nearest", "cluster", "senses", "survey")),
    "qa": (regard.QuestionAnswerer, ("answer",)),
    "vectors": (regard.WordVectors, ("nearest", "analogy")),
}
"""Public methods that take numbers, by the task of the model."""


def _options(verb: str) -> Iterator[tuple[str, Any]]:
    """Yield the options of a verb with the types of their values."""
    name = module_name(verb)
    command = getattr(importlib.import_module(f"regard.cli.{name}"), name)
    for parameter, hint in typing.get_type_hints(command, include_extras=True).items():
        described = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionInfo)), None)
        if described is not None and parameter != "device":
            flags = [flag for flag in described.param_decls or () if flag.startswith("--")]
            yield flags[0] if flags else f"--{parameter.replace('_', '-')}", _number_type(hint.__origin__)


def _number_type(hint: Any) -> Any:
    """Return bool, int or float where a hint is one of them, perhaps beside None; else str."""
    return next((each for each in (bool, int, float) if each in (hint, *typing.get_args(hint))), str)


def _schema(task: str, architecture: str) -> dict[str, type]:
    return recipe_schema(TASKS[task], {"model": {"architecture": architecture} if architecture else {}}, "fuzz")


def _recipe_keys(task: str) -> Iterator[tuple[str, str, str]]:
    """Yield task, architecture and key of every field of a task's recipe."""
    for number, architecture in enumerate(TASKS[task].architectures):
        schema = _schema(task, architecture)
        tables = schema if number == 0 else {"model": schema["model"]}
        for table, cls in tables.items():
            for each in dataclasses.fields(cls):
                yield task, architecture if number else "", f"{table}.{each.name}"


def _number_parameters(method: Callable[..., Any]) -> Iterator[str]:
    for name, hint in typing.get_type_hints(method).items():
        if name != "return" and _number_type(hint) in (int, float):
            yield name


def run(n_cases: int, seed: int) -> FaultCounts:
    """Run so many cases and count how they ended."""
    counts = FaultCounts("options")
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder), seed)
        for case, _ in zip(fuzzer.cases(), range(n_cases), strict=False):
            ended = run_isolated(case.call, **({"seconds": BEGIN_SECONDS} if case.may_run_long else {}))
            began = case.may_run_long and ended.is_timed_out
            counts.add(case.name, ended._replace(status=0, is_timed_out=False) if began else ended)
    return counts
