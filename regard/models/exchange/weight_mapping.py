"""Mappings between Hugging Face tensors and regard's weights: each is written once and used in both directions.

A `WeightMapping` names the tensors that make up one weight, and the conversion, which has an inverse. Families
(bert.py, ...) list the mappings of a model; this file converts the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.progress import warn

StateDict = Mapping[str, Tensor]

LEGACY_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}
"""Names of the weight and the bias of a norm in the original BERT files."""


class TensorConversion(NamedTuple):
    """A conversion of several tensors into one, and its inverse."""

    join: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor, int], Sequence[Tensor]]


IDENTITY = TensorConversion(lambda parts: parts[0], lambda whole, _: [whole])
CONCATENATE = TensorConversion(lambda parts: torch.cat(tuple(parts)), lambda whole, n: whole.chunk(n))
TRANSPOSE = TensorConversion(lambda parts: parts[0].T, lambda whole, _: [whole.T])
UNSQUEEZE = TensorConversion(lambda parts: parts[0][0], lambda whole, _: [whole[None]])


@dataclass(frozen=True)
class WeightMapping:
    """One weight and the Hugging Face tensors that make it up.

    `tied_names` are further names of the same tensor, under which it may be stored as well, or instead.
    `legacy_names` are names that other versions of transformers use; they are read only if the others are missing.
    `in_body` marks names of the base model, which have the family's prefix in an architecture with a head.
    """

    name: str
    hf_names: tuple[str, ...]
    conversion: TensorConversion = IDENTITY
    tied_names: tuple[str, ...] = ()
    legacy_names: tuple[str, ...] = ()
    in_body: bool = True


ModuleMapping = Mapping[str, str | tuple[str, ...]]
"""Module names and their Hugging Face names; several of the latter are concatenated."""


def map_weights(mapping: ModuleMapping, prefix: str = "", hf_prefix: str = "") -> Iterator[WeightMapping]:
    """Yield the mappings of modules that have a weight and no bias."""
    for name, hf_modules in mapping.items():
        modules = (hf_modules,) if isinstance(hf_modules, str) else hf_modules
        hf_names = tuple(f"{hf_prefix}{module}.weight" for module in modules)
        yield WeightMapping(f"{prefix}{name}.weight", hf_names, IDENTITY if len(modules) == 1 else CONCATENATE)


def map_modules(
    mapping: ModuleMapping, prefix: str = "", hf_prefix: str = "", conversion: TensorConversion = IDENTITY
) -> Iterator[WeightMapping]:
    """Yield the mappings of the weights of modules, with this conversion, and of their biases."""
    for weight in map_weights(mapping, prefix, hf_prefix):
        yield weight if conversion is IDENTITY else replace(weight, conversion=conversion)
        hf_biases = tuple(f"{name.removesuffix('weight')}bias" for name in weight.hf_names)
        yield replace(weight, name=f"{weight.name.removesuffix('weight')}bias", hf_names=hf_biases)


class HFWeights:
    """The tensors of a Hugging Face directory, by their names without the prefix of the base model."""

    def __init__(self, path: Path, tensors: StateDict, prefix: str) -> None:
        self.path = path
        self._stored_names = {_modern_name(name.removeprefix(prefix)): name for name in tensors}
        self._tensors = tensors
        self._used_names: set[str] = set()
        for name in tensors.keys() - self._stored_names.values():
            other = self._stored_names[_modern_name(name.removeprefix(prefix))]
            raise CheckpointError(f"{path}: holds '{name}' and '{other}', which are names of one tensor")

    def __contains__(self, name: object) -> bool:
        return name in self._stored_names

    def get(self, name: str) -> Tensor | None:
        """Return a tensor without marking it as used, or None."""
        return self._tensors[self._stored_names[name]] if name in self._stored_names else None

    def has_rows(self, n_rows: int) -> bool:
        """Return True if a tensor that is not empty has that many rows."""
        return any(tensor.shape[:1] == (n_rows,) and tensor.numel() > 0 for tensor in self._tensors.values())

    def load_into(self, model: nn.Module, mappings: Iterable[WeightMapping]) -> None:
        """Load the tensors into a model; each must be present in the expected shape."""
        with torch.no_grad():
            for weight, conversion, tensors in self.match_tensors(model, mappings):
                weight.copy_(conversion.join(tensors))

    def match_tensors(
        self, model: nn.Module, mappings: Iterable[WeightMapping]
    ) -> Iterator[tuple[nn.Parameter, TensorConversion, list[Tensor]]]:
        """Yield each weight of a model, whose memory is not needed, with the tensors that it is converted from."""
        parameters = dict(model.named_parameters())
        for mapping in mappings:
            weight = parameters.pop(mapping.name)
            parts = mapping.conversion.split(weight, len(mapping.hf_names))
            named = zip(mapping.hf_names, parts, strict=True)
            yield weight, mapping.conversion, [self._take_tensor(name, mapping, part.shape) for name, part in named]
        assert not parameters, f"no mapping for {', '.join(parameters)}"

    def check_unused(self, ignored: Iterable[str], unused: Iterable[str]) -> None:
        """Refuse unused tensors except `ignored` ones; those matching `unused` are reported in a warning."""
        left = [name for name in self._stored_names if name not in self._used_names and not _matches(name, ignored)]
        for name in left:
            if not _matches(name, unused):
                raise CheckpointError(
                    f"{self.path}: holds a tensor '{self._stored_names[name]}' this model does not have"
                )
        if left:
            names = ", ".join(self._stored_names[name] for name in left)
            warn(f"{self.path}: left out {len(left)} tensors that this architecture does not use: {names}")

    def _take_tensor(self, name: str, mapping: WeightMapping, shape: torch.Size) -> Tensor:
        """Return one tensor under whichever name it is stored; tied copies must be equal."""
        tied = [each for each in (name, *mapping.tied_names) if each in self._stored_names]
        stored = tied or [each for each in mapping.legacy_names if each in self._stored_names]
        if not stored:
            raise CheckpointError(f"{self.path}: lacks the tensor '{name}', of shape {tuple(shape)}")
        self._used_names.update(stored, mapping.legacy_names)
        tensor = self._checked_tensor(stored[0], shape)
        for other in stored[1:]:
            if tied and not torch.equal(self._checked_tensor(other, shape), tensor):
                raise CheckpointError(
                    f"{self.path}: '{self._stored_names[other]}' differs from '{self._stored_names[stored[0]]}', "
                    "but config.json says that they are one (tie_word_embeddings)"
                )
        return tensor

    def _checked_tensor(self, name: str, shape: torch.Size) -> Tensor:
        full, tensor = self._stored_names[name], self._tensors[self._stored_names[name]]
        if tensor.shape != shape:
            shapes = f"{tuple(tensor.shape)}, expected {tuple(shape)}"
            raise CheckpointError(f"{self.path}: '{full}' has shape {shapes}; does config.json belong to it?")
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self.path}: '{full}' holds {tensor.dtype}, expected floating-point numbers")
        return tensor


def to_hf_tensors(model: nn.Module, mappings: Iterable[WeightMapping], prefix: str) -> dict[str, Tensor]:
    """Return the weights of a model under their Hugging Face names; no two share memory."""
    parameters = dict(model.named_parameters())
    tensors: dict[str, Tensor] = {}
    for mapping in mappings:
        weight = parameters.pop(mapping.name).detach().cpu()
        parts = mapping.conversion.split(weight, len(mapping.hf_names))
        copies = [(name, parts[0]) for name in mapping.legacy_names]
        for name, part in [*zip(mapping.hf_names, parts, strict=True), *copies]:
            tensors[f"{prefix}{name}" if mapping.in_body else name] = part.clone(memory_format=torch.contiguous_format)
    assert not parameters, f"no mapping for {', '.join(parameters)}"
    return tensors


def _modern_name(name: str) -> str:
    for old, new in LEGACY_SUFFIXES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
