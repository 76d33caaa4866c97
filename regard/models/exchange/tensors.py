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

Tensors = Mapping[str, Tensor]

OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}
"""What the gain and the shift of a norm were called when BERT came out."""


class Way(NamedTuple):
    """How some of their tensors become one of ours, and back."""

    join: Callable[[Sequence[Tensor]], Tensor]
    part: Callable[[Tensor, int], Sequence[Tensor]]


SAME = Way(lambda parts: parts[0], lambda whole, _: [whole])
STACKED = Way(lambda parts: torch.cat(tuple(parts)), lambda whole, n: whole.chunk(n))
TURNED = Way(lambda parts: parts[0].T, lambda whole, _: [whole.T])
IN_A_ROW = Way(lambda parts: parts[0][0], lambda whole, _: [whole[None]])


@dataclass(frozen=True)
class Line:
    """One tensor of ours and those of theirs that make it up.

    `copies` are further names of the very same tensor, under which it may be stored as well, or instead. `older` are
    names that other versions use instead; what else stands there is not used. `body` says that the names are those of
    the body, before which an architecture with a head puts its prefix.
    """

    ours: str
    theirs: tuple[str, ...]
    way: Way = SAME
    copies: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    body: bool = True


Table = Mapping[str, str | tuple[str, ...]]
"""Modules of ours and of theirs, by name; several of theirs are stacked."""


def weights(table: Table, ours: str = "", theirs: str = "") -> Iterator[Line]:
    """The weights of modules that have nothing else."""
    for name, of in table.items():
        parts = (of,) if isinstance(of, str) else of
        names = tuple(f"{theirs}{part}.weight" for part in parts)
        yield Line(f"{ours}{name}.weight", names, SAME if len(parts) == 1 else STACKED)


def modules(table: Table, ours: str = "", theirs: str = "", way: Way = SAME) -> Iterator[Line]:
    """The weights, each turned into ours by `way`, and the biases of modules."""
    for line in weights(table, ours, theirs):
        yield line if way is SAME else replace(line, way=way)
        biases = tuple(f"{name.removesuffix('weight')}bias" for name in line.theirs)
        yield replace(line, ours=f"{line.ours.removesuffix('weight')}bias", theirs=biases)


class File:
    """The tensors of a directory of theirs, by their names without the prefix of the body."""

    def __init__(self, where: Path, tensors: Tensors, prefix: str) -> None:
        self.where = where
        self._full = {_today(name.removeprefix(prefix)): name for name in tensors}
        self._tensors = tensors
        self._used: set[str] = set()
        for name in tensors.keys() - self._full.values():
            twice = self._full[_today(name.removeprefix(prefix))]
            raise CheckpointError(f"{where}: holds '{name}' and '{twice}', which are names of one tensor")

    def __contains__(self, name: object) -> bool:
        return name in self._full

    def get(self, name: str) -> Tensor | None:
        """A tensor that no line takes, if it is there."""
        return self._tensors[self._full[name]] if name in self._full else None

    def fill(self, model: nn.Module, lines: Iterable[Line]) -> None:
        """Put the tensors into a model of ours; every one must be there, in its shape."""
        wanted = dict(model.named_parameters())
        with torch.no_grad():
            for line in lines:
                weight = wanted.pop(line.ours)
                shapes = [part.shape for part in line.way.part(weight, len(line.theirs))]
                parts = [self._take(name, line, shape) for name, shape in zip(line.theirs, shapes, strict=True)]
                weight.copy_(line.way.join(parts))
        assert not wanted, f"no line for {', '.join(wanted)}"

    def finish(self, empty: Iterable[str], unneeded: Iterable[str]) -> None:
        """Refuse what was not used, but for what holds nothing; what an architecture does not need is counted."""
        left = [name for name in self._full if name not in self._used and not _matches(name, empty)]
        for name in left:
            if not _matches(name, unneeded):
                raise CheckpointError(f"{self.where}: holds a tensor '{self._full[name]}' this model does not have")
        if left:
            names = ", ".join(self._full[name] for name in left)
            warn(f"{self.where}: left out {len(left)} tensors that this architecture does not use: {names}")

    def _take(self, name: str, line: Line, shape: torch.Size) -> Tensor:
        """One tensor of a line, under whichever name it is stored; where it is stored twice, both must be equal."""
        same = [each for each in (name, *line.copies) if each in self._full]
        found = same or [each for each in line.older if each in self._full]
        if not found:
            raise CheckpointError(f"{self.where}: lacks the tensor '{name}', of shape {tuple(shape)}")
        self._used.update(found, line.older)
        tensor = self._checked(found[0], shape)
        for other in found[1:]:
            if same and not torch.equal(self._checked(other, shape), tensor):
                raise CheckpointError(
                    f"{self.where}: '{self._full[other]}' differs from '{self._full[found[0]]}', "
                    "but config.json says that they are one (tie_word_embeddings)"
                )
        return tensor

    def _checked(self, name: str, shape: torch.Size) -> Tensor:
        full, tensor = self._full[name], self._tensors[self._full[name]]
        if tensor.shape != shape:
            shapes = f"{tuple(tensor.shape)}, expected {tuple(shape)}"
            raise CheckpointError(f"{self.where}: '{full}' has shape {shapes}; does config.json belong to it?")
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self.where}: '{full}' holds {tensor.dtype}, expected floating-point numbers")
        return tensor


def written(model: nn.Module, lines: Iterable[Line], prefix: str) -> dict[str, Tensor]:
    """The tensors of a model of ours under their names; none shares its memory with another."""
    ours = dict(model.named_parameters())
    tensors: dict[str, Tensor] = {}
    for line in lines:
        whole = ours.pop(line.ours).detach().cpu()
        parts = line.way.part(whole, len(line.theirs))
        for name, part in [*zip(line.theirs, parts, strict=True), *((name, parts[0]) for name in line.older)]:
            tensors[f"{prefix}{name}" if line.body else name] = part.clone(memory_format=torch.contiguous_format)
    assert not ours, f"no line for {', '.join(ours)}"
    return tensors


def _today(name: str) -> str:
    for old, new in OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
