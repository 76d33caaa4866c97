"""Options that mean the same for every verb, and what verbs share in handling them. Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.disk import json_text
from regard.errors import ConfigError, InputError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.api.loading import NetworkModel

    ModelT = TypeVar("ModelT", bound=Model)

DeviceOption = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda, cuda:N (GPU N) or mps.")]
PrecisionOption = Annotated[
    str, typer.Option(help="Precision to compute in: auto (float32), float32, bfloat16 or, on a CPU, int8.")
]
SeedOption = Annotated[int, typer.Option(help="The seed of everything drawn at random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A run directory, a ready-made model, or a Hugging Face model directory.")
]
ColumnsOption = Annotated[
    str, typer.Option(help="The columns of a table: source,target or text,label; en,fr by header or 1,3 by number.")
]
ColumnOption = Annotated[
    str, typer.Option(help="For tagged words: the column of the labels, by name (upos) or number.")
]
SkipEmptyOption = Annotated[
    bool, typer.Option("--skip-empty", help="Leave out examples with an empty side, and count them.")
]

BeamOption = Annotated[
    int | None, typer.Option(help="Beam width; 1 is greedy search. Default: 4, or --n-best if that is more.")
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="LANGUAGE", help="The language to translate into, for a model of several.")
]
AlphaOption = Annotated[float | None, typer.Option(help="Length penalty ((5 + length) / 6)^alpha. Default: 0.6.")]
ShortlistOption = Annotated[
    str, typer.Option(help="For a translator on a CPU: a file that `regard shortlist` wrote for this model.")
]
BatchOption = Annotated[int | None, typer.Option(help="Sentences translated at a time. Default: 32.")]


def load_model(model_class: type[ModelT], path: str, device: str, verb: str, precision: str = "auto") -> ModelT:
    """Load a model for a verb; refuse one of another kind and name the verb it is for."""
    from regard.api import load

    model = load(path, device=device, precision=precision)
    if not isinstance(model, model_class):
        task = model.task
        raise InputError(f"{path}: a model for {task.name}, which cannot {verb}; use it with: regard {task.verb}")
    return model


def load_network(path: str, device: str, verb: str, precision: str = "auto", to: str = "") -> NetworkModel:
    """Load a model of any kind that has a network, to translate into a language if given; refuse word vectors."""
    from regard.api import Translator, WordVectors, load

    model = load(path, device=device, precision=precision)
    if isinstance(model, WordVectors):
        raise InputError(f"{path}: word vectors, without a network: they cannot {verb}; use them with: regard match")
    if isinstance(model, Translator):
        model.to = to or model.to  # that of the name of a ready-made model
    elif to:
        raise InputError(f"{path}: a model for {model.task.name}, which does not translate; leave --to out")
    return model


def refuse_reduced(precision: str, verb: str) -> None:
    """Refuse any precision but float32 for a verb that looks inside a model."""
    if precision not in ("auto", "float32"):
        raise InputError(f"precision '{precision}': {verb} works in float32 only; leave --precision out")


def select_accepted(method: Callable[..., Any], options: dict[str, Any], owner: str) -> dict[str, Any]:
    """Return the options that were given, which are those that are not None; refuse what the method does not take."""
    given = drop_none(**options)
    accepted = inspect.signature(method).parameters
    if foreign := [f"--{name.replace('_', '-')}" for name in given if name not in accepted]:
        raise InputError(f"{owner} does not take {', '.join(foreign)}; leave {'them' if foreign[1:] else 'it'} out")
    return given


def drop_none(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the others keep the default of the function that takes them."""
    return {name: value for name, value in options.items() if value is not None}


def split_commas(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated option; none for an empty one."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def parse_columns(column: str, columns: str) -> tuple[str, ...]:
    """Return the columns of --column or of --columns."""
    if column and columns:
        raise ConfigError("both --column and --columns given; tag takes --column, all others --columns")
    return split_commas(column or columns)


def print_json(value: Any) -> None:
    """Print one object on one line of stdout."""
    print(json_text(value), flush=True)
