"""What every model can do: say what it is, be looked into, and have its tokens identified.

A kind of model says how a text, or a pair, becomes a subject of the viewer; the rest is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.errors import DataError, InputError, did_you_mean
from regard.look.identify import SENTENCES, Identification, check_maps, identify
from regard.look.probes import MAPS
from regard.look.sentences import draw, usable
from regard.look.subject import KINDS, Subject
from regard.look.survey import Survey, survey
from regard.progress import say, warn
from regard.tasks import Task
from regard.text.files import kind as file_kind
from regard.text.files import lines
from regard.text.pairs import paths_of, read_pairs
from regard.train.run import RunConfig, RunDirectory

Ids = list[int]


class Model(ABC):
    """A trained model."""

    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    """The stacks of layers it has; a second one reads the second texts of pairs."""

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        self.path, self.config, self.device = path, settings, device
        network.to(device)

    @abstractmethod
    def _encoded(self, example: Sequence[str]) -> list[Ids]:
        """The ids of an example's texts, without special tokens."""

    @abstractmethod
    def _subject(self, *sides: Ids) -> Subject:
        """Texts as the viewer takes them: alone in their row, with the names of their tokens."""

    @property
    @abstractmethod
    def _network(self) -> nn.Module: ...

    @property
    @abstractmethod
    def _longest(self) -> int:
        """Tokens of a text, at most."""

    @property
    @abstractmethod
    def _vocabulary(self) -> int: ...

    def info(self) -> dict[str, Any]:
        """What this model is and how it was made."""
        return {
            "task": self.config.task.name,
            "architecture": self.config.model.architecture,
            "parameters": sum(weight.numel() for weight in self._network.parameters()),
            "vocabulary": self._vocabulary,
            "config": self.config.tables(),
            "training": RunDirectory(self.path).read_metrics(),
        }

    def identify(
        self,
        data: Sequence[str],
        *,
        stack: str = "all",
        sentences: int = SENTENCES,
        maps: Sequence[str] = tuple(MAPS),
        seed: int = 0,
        out: str | Path | None = None,
    ) -> Identification:
        """How many tokens can be told from their hidden vectors, layer by layer (look/identify.py).

        `data` is one file of texts, which only the encoder reads, or pairs as `evaluate` takes them, for the decoder
        as well. So many `sentences` are drawn from it. With `out`, results and a figure are kept in that directory,
        and a call that was interrupted goes on.
        """
        stacks = self._asked_stacks(stack, _paired(data))
        check_maps(maps)
        subjects, n_read = self._subjects(data, sentences, seed)
        return identify(
            subjects,
            stacks=stacks,
            maps=maps,
            seed=seed,
            device=self.device,
            about={"model": str(self.path), "data": list(data), "read": n_read},
            out=None if out is None else Path(out),
        )

    def survey(
        self, data: Sequence[str], *, kind: str | None = None, sentences: int = SENTENCES, seed: int = 0
    ) -> Survey:
        """How attention and what of it is identifiable differ as texts grow (look/survey.py); data as in `identify`."""
        kinds = list(KINDS) if _paired(data) and len(self.stacks) > 1 else list(self.stacks[:1])
        if kind is not None and kind not in kinds:
            raise InputError(f"{kind} attention cannot be surveyed on {' '.join(data)}; there are: {', '.join(kinds)}")
        subjects, n_read = self._subjects(data, sentences, seed)
        about = {"model": str(self.path), "data": list(data), "read": n_read, "texts": len(subjects)}
        there = [each for each in kinds if each in subjects[0].kinds()] if kind is None else [kind]
        if not there:
            raise InputError(f"this model has none of: {', '.join(kinds)} attention; there is nothing to survey")
        return survey(subjects, there, about)

    def _asked_stacks(self, asked: str, paired: bool) -> list[str]:
        """The stacks to measure; a decoder reads targets, so it can be measured only where there are some."""
        if asked not in (*self.stacks, "all"):
            raise InputError(f"no stack is called '{asked}'; {did_you_mean(asked, [*self.stacks, 'all'])}")
        there = self.stacks if paired else self.stacks[:1]
        if asked != "all" and asked not in there:
            raise InputError(f"the {asked} reads targets; give pairs, as in test.en test.fr, or a table")
        return [name for name in there if asked in (name, "all")]

    def _subjects(self, data: Sequence[str], sentences: int, seed: int) -> tuple[list[Subject], int]:
        """Sentences drawn from files, as the viewer takes them, and how many were read."""
        paired = _paired(data)
        drawn = draw(read_pairs(data, skip_empty=True) if paired else _texts(data[0]), sentences, seed)
        chosen = usable([self._encoded(example) for example in drawn.examples], self._longest)
        if len(drawn.examples) < drawn.n_read:
            say(f"{len(drawn.examples):,} of {drawn.n_read:,} sentences are drawn, by seed {seed}")
        return [self._subject(*example) for example in chosen], drawn.n_read


def one_text(text: object) -> None:
    """Refuse what is not a text to look at."""
    if not isinstance(text, str):
        raise InputError(f"one text is looked at, as a str, not {type(text).__name__}; look at several one by one")
    if not text.strip():
        raise InputError("there is nothing to look at: the text is empty; give at least one word")


def check_options(options: Mapping[str, Any], kind: type) -> None:
    """Refuse options that a dataclass of them does not have."""
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            raise InputError(f"unknown option '{name}'; {did_you_mean(name, known)}")


def _paired(data: Sequence[str]) -> bool:
    """Whether files hold pairs: two files of lines or a table, not one file of lines."""
    return len(data) != 1 or file_kind(paths_of(data)[0]) != "text"


def _texts(path: str) -> Iterator[tuple[str]]:
    """The lines of a file that hold a text; a warning counts the others."""
    n_texts = n_blank = 0
    for line in lines(path):
        if line.strip():
            n_texts += 1
            yield (line,)
        else:
            n_blank += 1
    if not n_texts:
        raise DataError(path, "no texts; give one a line")
    if n_blank:
        warn(f"{path}: left out {n_blank:,} of {n_texts + n_blank:,} lines: empty")
