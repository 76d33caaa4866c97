"""Tensors of theirs and of ours: each correspondence is written once and used in both directions.

A `Line` says which of their tensors make up one of ours, and how; what joins them can part them again, so nothing is
lost on the way there and back. Families (bert.py, ...) give the lines of a model; this file moves the numbers.
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
"""What the gain and the shift of a norm were called when BERT came out."""


class TensorConversion(NamedTuple):
    """How some of their tensors become one of ours, and back."""

    join: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor, int], Sequence[Tensor]]


IDENTITY = TensorConversion(lambda parts: parts[0], lambda whole, _: [whole])
CONCATENATE = TensorConversion(lambda parts: torch.cat(tuple(parts)), lambda whole, n: whole.chunk(n))
TRANSPOSE = TensorConversion(lambda parts: parts[0].T, lambda whole, _: [whole.T])
UNSQUEEZE = TensorConversion(lambda parts: parts[0][0], lambda whole, _: [whole[None]])


@dataclass(frozen=True)
class WeightMapping:
    """One tensor of ours and those of theirs that make it up.

    `copies` are further names of the very same tensor, under which it may be stored as well, or instead. `older` are
    names that other versions use instead; what else stands there is not used. `body` says that the names are those of
    the body, before which an architecture with a head puts its prefix.
    """

    name: str
    hf_names: tuple[str, ...]
    conversion: TensorConversion = IDENTITY
    tied_names: tuple[str, ...] = ()
    legacy_names: tuple[str, ...] = ()
    in_body: bool = True


ModuleMapping = Mapping[str, str | tuple[str, ...]]
"""Modules of ours and of theirs, by name; several of theirs are stacked."""


def map_weights(mapping: ModuleMapping, prefix: str = "", hf_prefix: str = "") -> Iterator[WeightMapping]:
    """The weights of modules that have nothing else."""
    for name, of in mapping.items():
        parts = (of,) if isinstance(of, str) else of
        names = tuple(f"{hf_prefix}{part}.weight" for part in parts)
        yield WeightMapping(f"{prefix}{name}.weight", names, IDENTITY if len(parts) == 1 else CONCATENATE)


def map_modules(
    mapping: ModuleMapping, prefix: str = "", hf_prefix: str = "", conversion: TensorConversion = IDENTITY
) -> Iterator[WeightMapping]:
    """The weights, each turned into ours by `way`, and the biases of modules."""
    for line in map_weights(mapping, prefix, hf_prefix):
        yield line if conversion is IDENTITY else replace(line, conversion=conversion)
        biases = tuple(f"{name.removesuffix('weight')}bias" for name in line.hf_names)
        yield replace(line, name=f"{line.name.removesuffix('weight')}bias", hf_names=biases)


class HFWeights:
    """The tensors of a directory of theirs, by their names without the prefix of the body."""

    def __init__(self, path: Path, tensors: StateDict, prefix: str) -> None:
        self.path = path
        self._stored_names = {_modern_name(name.removeprefix(prefix)): name for name in tensors}
        self._tensors = tensors
        self._used_names: set[str] = set()
        for name in tensors.keys() - self._stored_names.values():
            twice = self._stored_names[_modern_name(name.removeprefix(prefix))]
            raise CheckpointError(f"{path}: holds '{name}' and '{twice}', which are names of one tensor")

    def __contains__(self, name: object) -> bool:
        return name in self._stored_names

    def get(self, name: str) -> Tensor | None:
        """A tensor that no line takes, if it is there."""
        return self._tensors[self._stored_names[name]] if name in self._stored_names else None

    def load_into(self, model: nn.Module, mappings: Iterable[WeightMapping]) -> None:
        """Put the tensors into a model of ours; every one must be there, in its shape."""
        wanted = dict(model.named_parameters())
        with torch.no_grad():
            for line in mappings:
                weight = wanted.pop(line.name)
                shapes = [part.shape for part in line.conversion.split(weight, len(line.hf_names))]
                parts = [
                    self._take_tensor(name, line, shape) for name, shape in zip(line.hf_names, shapes, strict=True)
                ]
                weight.copy_(line.conversion.join(parts))
        assert not wanted, f"no line for {', '.join(wanted)}"

    def check_unused(self, ignored: Iterable[str], unused: Iterable[str]) -> None:
        """Refuse what was not used, but for what holds nothing; what an architecture does not need is counted."""
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
        """One tensor of a line, under whichever name it is stored; where it is stored twice, both must be equal."""
        same = [each for each in (name, *mapping.tied_names) if each in self._stored_names]
        found = same or [each for each in mapping.legacy_names if each in self._stored_names]
        if not found:
            raise CheckpointError(f"{self.path}: lacks the tensor '{name}', of shape {tuple(shape)}")
        self._used_names.update(found, mapping.legacy_names)
        tensor = self._checked_tensor(found[0], shape)
        for other in found[1:]:
            if same and not torch.equal(self._checked_tensor(other, shape), tensor):
                raise CheckpointError(
                    f"{self.path}: '{self._stored_names[other]}' differs from '{self._stored_names[found[0]]}', "
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
    """The tensors of a model of ours under their names; none shares its memory with another."""
    ours = dict(model.named_parameters())
    tensors: dict[str, Tensor] = {}
    for line in mappings:
        whole = ours.pop(line.name).detach().cpu()
        parts = line.conversion.split(whole, len(line.hf_names))
        for name, part in [*zip(line.hf_names, parts, strict=True), *((name, parts[0]) for name in line.legacy_names)]:
            tensors[f"{prefix}{name}" if line.in_body else name] = part.clone(memory_format=torch.contiguous_format)
    assert not ours, f"no line for {', '.join(ours)}"
    return tensors


def _modern_name(name: str) -> str:
    for old, new in LEGACY_SUFFIXES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
