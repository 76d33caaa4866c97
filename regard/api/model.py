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
from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.look.compute.probes import PROBE_FITTERS
from regard.look.corpus.identify import (
    DEFAULT_N_SENTENCES,
    TokenIdentifiability,
    check_probe_names,
    measure_token_identifiability,
)
from regard.look.corpus.sentences import filter_examples, sample_examples
from regard.look.corpus.survey import IdentifiabilitySurvey, survey_identifiability
from regard.progress import print_message, warn
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import summarise_training
from regard.tasks import Task
from regard.text.files import file_format as file_kind
from regard.text.files import read_lines
from regard.text.pairs import pair_paths, read_pairs

TokenIds = list[int]


class Model(ABC):
    """A trained model."""

    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    """The stacks of layers it has; a second one reads the second texts of pairs."""

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        self.path, self.config, self.device = path, run_config, device
        self._validation_metric = task.validation_metric
        network.to(device)

    @abstractmethod
    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        """The ids of an example's texts, without special tokens."""

    @abstractmethod
    def _build_look_target(self, *sides: TokenIds) -> LookTarget:
        """Texts as the viewer takes them: alone in their row, with the names of their tokens."""

    @property
    @abstractmethod
    def _network(self) -> nn.Module: ...

    @property
    @abstractmethod
    def _max_text_tokens(self) -> int:
        """Tokens of a text, at most."""

    @property
    @abstractmethod
    def _vocabulary_size(self) -> int: ...

    def info(self) -> dict[str, Any]:
        """What this model is and how it was made."""
        return {
            "task": self.config.task.name,
            "architecture": self.config.model.architecture,
            "parameters": sum(weight.numel() for weight in self._network.parameters()),
            "vocabulary": self._vocabulary_size,
            "config": self.config.known_tables(),
            "training": summarise_training(RunDirectory(self.path), self.config, self._validation_metric),
        }

    def identify(
        self,
        data: Sequence[str],
        *,
        stack: str = "all",
        sentences: int = DEFAULT_N_SENTENCES,
        maps: Sequence[str] = tuple(PROBE_FITTERS),
        seed: int = 0,
        out: str | Path | None = None,
    ) -> TokenIdentifiability:
        """How many tokens can be told from their hidden vectors, layer by layer (look/corpus/identify.py).

        `data` is one file of texts, which only the encoder reads, or pairs as `evaluate` takes them, for the decoder
        as well. So many `sentences` are drawn from it. With `out`, results and a figure are kept in that directory,
        and a call that was interrupted goes on.
        """
        stacks = self._select_stacks(stack, _has_pairs(data))
        check_probe_names(maps)
        subjects, n_read = self._draw_look_targets(data, sentences, seed)
        return measure_token_identifiability(
            subjects,
            stacks=stacks,
            maps=maps,
            seed=seed,
            device=self.device,
            about={"model": str(self.path), "data": list(data), "read": n_read},
            out=None if out is None else Path(out),
        )

    def survey(
        self, data: Sequence[str], *, kind: str | None = None, sentences: int = DEFAULT_N_SENTENCES, seed: int = 0
    ) -> IdentifiabilitySurvey:
        """How attention and what of it is identifiable differ as texts grow (look/corpus/survey.py); data as in `identify`."""
        kinds = list(ATTENTION_KINDS) if _has_pairs(data) and len(self.stacks) > 1 else list(self.stacks[:1])
        if kind is not None and kind not in kinds:
            raise InputError(f"{kind} attention cannot be surveyed on {' '.join(data)}; there are: {', '.join(kinds)}")
        subjects, n_read = self._draw_look_targets(data, sentences, seed)
        about = {"model": str(self.path), "data": list(data), "read": n_read, "texts": len(subjects)}
        there = [each for each in kinds if each in subjects[0].kinds()] if kind is None else [kind]
        if not there:
            raise InputError(f"this model has none of: {', '.join(kinds)} attention; there is nothing to survey")
        return survey_identifiability(subjects, there, about)

    def _select_stacks(self, requested: str, has_pairs: bool) -> list[str]:
        """The stacks to measure; a decoder reads targets, so it can be measured only where there are some."""
        if requested not in (*self.stacks, "all"):
            raise InputError(f"no stack is called '{requested}'; {did_you_mean(requested, [*self.stacks, 'all'])}")
        there = self.stacks if has_pairs else self.stacks[:1]
        if requested != "all" and requested not in there:
            raise InputError(f"the {requested} reads targets; give pairs, as in test.en test.fr, or a table")
        return [name for name in there if requested in (name, "all")]

    def _draw_look_targets(self, data: Sequence[str], n_sentences: int, seed: int) -> tuple[list[LookTarget], int]:
        """Sentences drawn from files, as the viewer takes them, and how many were read."""
        paired = _has_pairs(data)
        drawn = sample_examples(
            read_pairs(data, skip_empty=True) if paired else _read_texts(data[0]), n_sentences, seed
        )
        chosen = filter_examples([self._encode_texts(example) for example in drawn.examples], self._max_text_tokens)
        if len(drawn.examples) < drawn.n_examples_read:
            print_message(f"{len(drawn.examples):,} of {drawn.n_examples_read:,} sentences are drawn, by seed {seed}")
        return [self._build_look_target(*example) for example in chosen], drawn.n_examples_read


def check_text(text: object) -> None:
    """Refuse what is not a text to look at."""
    if not isinstance(text, str):
        raise InputError(f"one text is looked at, as a str, not {type(text).__name__}; look at several one by one")
    if not text.strip():
        raise InputError("there is nothing to look at: the text is empty; give at least one word")


def check_options(options: Mapping[str, Any], options_class: type) -> None:
    """Refuse options that a dataclass of them does not have."""
    known = [field.name for field in fields(options_class)]
    for name in options:
        if name not in known:
            raise InputError(f"unknown option '{name}'; {did_you_mean(name, known)}")


def _has_pairs(data: Sequence[str]) -> bool:
    """Whether files hold pairs: two files of lines or a table, not one file of lines."""
    return len(data) != 1 or file_kind(pair_paths(data)[0]) != "text"


def _read_texts(path: str) -> Iterator[tuple[str]]:
    """The lines of a file that hold a text; a warning counts the others."""
    n_texts = n_blank = 0
    for line in read_lines(path):
        if line.strip():
            n_texts += 1
            yield (line,)
        else:
            n_blank += 1
    if not n_texts:
        raise DataError(path, "no texts; give one a line")
    if n_blank:
        warn(f"{path}: left out {n_blank:,} of {n_texts + n_blank:,} lines: empty")
