"""The base of all models: load one, describe it, and measure what can be identified in it.

A subclass builds from a text, or a pair of texts, the `LookTarget` that look/ works on; the rest is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from regard.api.inputs import split_data
from regard.errors import DataError, InputError, did_you_mean
from regard.look.compute.faithfulness import N_ESTIMATE_DIRECTIONS
from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.look.compute.probes import PROBE_FITTERS
from regard.look.corpus.attribution_survey import AttributionSurvey, survey_attribution
from regard.look.corpus.effective_survey import DEFAULT_N_TEXTS, EffectiveSurvey, survey_effective_attention
from regard.look.corpus.identify import (
    DEFAULT_N_SENTENCES,
    TokenIdentifiability,
    check_probe_names,
    measure_token_identifiability,
)
from regard.look.corpus.sentences import filter_examples, sample_examples
from regard.look.corpus.survey import IdentifiabilitySurvey, survey_identifiability
from regard.models.freezing import count_parameters
from regard.nn.quantization import count_weights
from regard.progress import print_message, warn
from regard.ranges import SEED_RANGE, check_option
from regard.runs.model_loading import describe_origin, describe_teacher
from regard.runs.precision import Precision
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import summarise_training
from regard.tasks import Task
from regard.text.files import file_format, read_lines
from regard.text.pairs import pair_paths, read_pairs

TokenIds = list[int]
ModelT = TypeVar("ModelT", bound="Model")


class Model(ABC):
    """A trained model on a device; `load` one instead of calling the constructor.

    Attributes:
        path: The directory it was loaded from.
        config: The recipe it was trained with, as dataclasses.
        device: The torch device it computes on.
        precision: The precision it computes in, and for int8 the relative error that this makes.
        network: The torch module itself, with taps at every inner value.
    """

    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    """The stacks of layers; a second stack reads the second texts of pairs."""

    network: nn.Module
    precision: Precision = Precision()

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        self.path, self.config, self.device = path, run_config, device
        self._validation_metric = task.validation_metric
        network.to(device)

    @classmethod
    def load(cls: type[ModelT], path: str | Path, *, device: str = "auto", precision: str = "auto") -> ModelT:
        """Load a trained model of this class; refuse a model of another kind.

        Args:
            path: A run directory, as `regard train` writes it, or a Hugging Face model directory.
            device: "auto" (a GPU where one is available), "cpu", "cuda", "cuda:1" (the second GPU) or "mps".
            precision: "auto" (float32), "float32", "bfloat16" or, on a CPU, "int8".

        Example:
            >>> translator = regard.Translator.load("runs/en-fr")
        """
        from regard.api.loading import load

        model = load(path, device=device, precision=precision)
        if not isinstance(model, cls):
            class_name = type(model).__name__
            raise InputError(f"{path}: a {class_name}, not a {cls.__name__}; load it with regard.{class_name}.load")
        return model

    def __repr__(self) -> str:
        parameters = f"{_format_count(self.n_parameters)} parameters"
        reduced = [] if self.precision.name == "float32" else [self.precision.name]
        facts = [repr(str(self.path)), *self._describe(), parameters, str(self.device), *reduced]
        return f"{type(self).__name__}({', '.join(facts)})"

    def _describe(self) -> list[str]:
        """Return what the repr says beyond path, size and device."""
        return []

    @abstractmethod
    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        """Return the ids of an example's texts, without special tokens."""

    @abstractmethod
    def _build_look_target(self, *sides: TokenIds) -> LookTarget:
        """Build the forward pass to look at: the texts alone in their row, with the names of their tokens."""

    @property
    @abstractmethod
    def _max_text_tokens(self) -> int:
        """The largest number of tokens of a text."""

    @property
    @abstractmethod
    def _vocabulary_size(self) -> int: ...

    @property
    def n_parameters(self) -> int:
        """The number of trained weights."""
        return count_weights(self.network)

    def info(self) -> dict[str, Any]:
        """Return what this model is and how it was made.

        Returns:
            A dict with the keys task, architecture, parameters (with train.freeze also trained_parameters and
            frozen_parameters), vocabulary, precision (of int8 also relative_error),
            config (the keys of the recipe that have an effect on this model) and
            training (the metrics written at the end of training); for a model of another library also imported_from,
            for a student distilled_from.
        """
        origin, teacher = describe_origin(self.path, self.config), describe_teacher(self.path)
        return {
            **({"imported_from": origin} if origin else {}),
            **({"distilled_from": teacher} if teacher else {}),
            "task": self.config.task.name,
            "architecture": self.config.model.architecture,
            "parameters": self.n_parameters,
            **self._count_frozen_parameters(),
            "vocabulary": self._vocabulary_size,
            **self.precision.describe(),
            "config": self.config.applicable_tables(),
            "training": summarise_training(RunDirectory(self.path), self.config, self._validation_metric),
        }

    def _count_frozen_parameters(self) -> dict[str, int]:
        """Return how many parameters were trained and frozen; nothing where all were trained."""
        counts = count_parameters(self.network, self.config.train.freeze)
        return {"trained_parameters": counts.trained, "frozen_parameters": counts.frozen} if counts.frozen else {}

    def identify(
        self,
        data: str | Sequence[str],
        *,
        stack: str = "all",
        sentences: int = DEFAULT_N_SENTENCES,
        maps: Sequence[str] = tuple(PROBE_FITTERS),
        seed: int = 0,
        out: str | Path | None = None,
    ) -> TokenIdentifiability:
        """Measure how many tokens can be identified from their hidden vectors, layer by layer (Brunner et al. 2020).

        Args:
            data: One file of texts, which only the encoder reads, or pairs as `evaluate` takes them, for the decoder
                as well.
            stack: "encoder", "decoder" or "all".
            sentences: The number of sentences drawn from the data.
            maps: The probes to train: "identity", "linear", "mlp".
            seed: Fixes the sentences drawn and the training of the probes.
            out: A directory for the results and a figure; an interrupted call continues from it.

        Returns:
            The accuracy of every probe at every layer, with 95 % confidence intervals.
        """
        files = split_data(data)
        stacks = self._select_stacks(stack, _has_pairs(files))
        check_probe_names(maps)
        targets, n_read = self._draw_look_targets(files, sentences, seed)
        return measure_token_identifiability(
            targets,
            stacks=stacks,
            maps=maps,
            seed=seed,
            device=self.device,
            about={"model": str(self.path), "data": files, "read": n_read},
            out=None if out is None else Path(out),
        )

    def survey(
        self,
        data: str | Sequence[str],
        *,
        kind: str | None = None,
        sentences: int = DEFAULT_N_SENTENCES,
        seed: int = 0,
    ) -> IdentifiabilitySurvey:
        """Measure, by the length of texts, how much of the attention weights is identifiable.

        Args:
            data: Files as `identify` takes them.
            kind: Only "encoder", "decoder" or "cross" attention; all that the data allows by default.
            sentences: The number of sentences drawn from the data.
            seed: Fixes the sentences drawn.

        Returns:
            The survey; `summary_lines()` gives it as text, `save(path)` as a figure or numbers.
        """
        files = split_data(data)
        targets, available, about = self._draw_survey_targets(files, kind, sentences, seed)
        return survey_identifiability(targets, available, about)

    def survey_attribution(
        self,
        data: str | Sequence[str],
        *,
        stack: str = "all",
        sentences: int = DEFAULT_N_SENTENCES,
        estimate: int | None = N_ESTIMATE_DIRECTIONS,
        seed: int = 0,
    ) -> AttributionSurvey:
        """Measure, layer by layer, how much tokens mix and how many are still identifiable (Brunner et al. 2020).

        Args:
            data: Files as `identify` takes them.
            stack: "encoder", "decoder" or "all".
            sentences: The number of sentences drawn from the data; attribution is of the 15 % that test the probes.
            estimate: Random directions per token for attribution; None for exact attribution, slow on a CPU.
            seed: Fixes the sentences drawn and the training of the probes.

        Returns:
            The survey; `summary_lines()` gives it as text, `save(path)` as a figure or numbers.
        """
        files = split_data(data)
        stacks = self._select_stacks(stack, _has_pairs(files))
        targets, n_read = self._draw_look_targets(files, sentences, seed)
        about = {"model": str(self.path), "data": files, "read": n_read, "texts": len(targets)}
        return survey_attribution(targets, stacks=stacks, seed=seed, device=self.device, about=about, estimate=estimate)

    def survey_effective_attention(
        self,
        data: str | Sequence[str],
        *,
        kind: str | None = None,
        sentences: int = DEFAULT_N_TEXTS,
        seed: int = 0,
    ) -> EffectiveSurvey:
        """Correlate raw and effective attention with gradients and removal, by length, and test the difference.

        Args:
            data: Files as `identify` takes them; for a translator pairs, as its output is that of the decoder.
            kind: Only "encoder", "decoder" or "cross" attention; all that leads to the output by default.
            sentences: The number of sentences drawn from the data.
            seed: Fixes the sentences drawn.

        Returns:
            The survey; `summary_lines()` gives it as text, `save(path)` as a figure or numbers.
        """
        files = split_data(data)
        targets, available, about = self._draw_survey_targets(files, kind, sentences, seed)
        n_tokens = sum(len(side.tokens) for target in targets for side in target.sides.values())
        return survey_effective_attention(targets, available, {**about, "tokens": n_tokens, "seed": seed})

    def _draw_survey_targets(
        self, files: Sequence[str], kind: str | None, sentences: int, seed: int
    ) -> tuple[list[LookTarget], list[str], dict[str, Any]]:
        """Draw sentences; return their forward passes, the requested kinds of attention, and facts about them."""
        kinds = list(ATTENTION_KINDS) if _has_pairs(files) and len(self.stacks) > 1 else list(self.stacks[:1])
        if kind is not None and kind not in kinds:
            raise InputError(f"{kind} attention cannot be surveyed on {' '.join(files)}; accepted: {', '.join(kinds)}")
        targets, n_read = self._draw_look_targets(files, sentences, seed)
        about = {"model": str(self.path), "data": files, "read": n_read, "texts": len(targets)}
        available = [each for each in kinds if each in targets[0].kinds()] if kind is None else [kind]
        if not available:
            raise InputError(f"this model has no {' or '.join(kinds)} attention; nothing can be surveyed")
        return targets, available, about

    def _select_stacks(self, requested: str, has_pairs: bool) -> list[str]:
        """Return the stacks to measure; a decoder reads targets, so it is measured on pairs only."""
        if requested not in (*self.stacks, "all"):
            raise InputError(f"unknown stack '{requested}'; {did_you_mean(requested, [*self.stacks, 'all'])}")
        available = self.stacks if has_pairs else self.stacks[:1]
        if requested != "all" and requested not in available:
            raise InputError(f"the {requested} reads targets; give pairs, as in test.en test.fr, or a table")
        return [name for name in available if requested in (name, "all")]

    def _draw_look_targets(self, data: Sequence[str], n_sentences: int, seed: int) -> tuple[list[LookTarget], int]:
        """Draw sentences from files; return their forward passes to look at and the number of sentences read."""
        check_option("seed", seed, SEED_RANGE)
        examples = read_pairs(data, skip_empty=True) if _has_pairs(data) else _read_texts(data[0])
        drawn = sample_examples(examples, n_sentences, seed)
        fitting = filter_examples([self._encode_texts(example) for example in drawn.examples], self._max_text_tokens)
        if len(drawn.examples) < drawn.n_examples_read:
            print_message(f"{len(drawn.examples):,} of {drawn.n_examples_read:,} sentences are drawn, by seed {seed}")
        return [self._build_look_target(*example) for example in fitting], drawn.n_examples_read


def _format_count(count: int) -> str:
    """Return a number of parameters in thousands or millions."""
    return f"{count / 1e6:.1f} M" if count >= 100_000 else f"{count:,}"


def _has_pairs(data: Sequence[str]) -> bool:
    """Return True for pairs of texts: two files of lines or a table, not one file of lines."""
    return len(data) != 1 or file_format(pair_paths(data)[0]) != "text"


def _read_texts(path: str) -> Iterator[tuple[str]]:
    """Yield the lines of a file that are not empty; a warning counts the others."""
    n_texts = n_blank = 0
    for line in read_lines(path):
        if line.strip():
            n_texts += 1
            yield (line,)
        else:
            n_blank += 1
    if not n_texts:
        raise DataError(path, "no texts; give one per line")
    if n_blank:
        warn(f"{path}: left out {n_blank:,} of {n_texts + n_blank:,} lines: empty")
