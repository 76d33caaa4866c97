"""Many texts to measure a model on: drawn from files, parted into train, valid and test, read layer by layer.

For views of a model rather than of one text (`look/identify.py`). The API reads the files and makes the subjects.
Sentences are the units: no two are alike, and each is in one part alone.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.look.probes import Examples
from regard.look.subject import Subject
from regard.nn import edit, record
from regard.progress import track, warn

PARTS = ("train", "valid", "test")

LEAST = 4
"""Sentences without which there is nothing to part."""

MEMORY = 2 << 30
"""Bytes of vectors kept at once: those that enter, and those of as many layers as fit beside them."""

Ids = list[int]


def number_of(text: str) -> int:
    """A number that looks drawn at random, the same for the same text: a seed, or a place in an order."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()) >> 1


class Drawn(NamedTuple):
    """Some of the examples there were; an example is a text, or a source and its target."""

    examples: list[tuple[str, ...]]
    n_read: int


def draw(examples: Iterable[tuple[str, ...]], most: int, seed: int) -> Drawn:
    """At most so many examples, in random order, no first text twice, however many are read.

    They are those whose first texts have the smallest hashes, so that every different text is as likely as any other.
    """
    if most < LEAST:
        raise InputError(f"sentences {most}: expected at least {LEAST}")
    kept: dict[int, tuple[str, ...]] = {}
    largest_first: list[int] = []
    n_read = 0
    for example in track(examples, "reading"):
        n_read += 1
        place = number_of(f"{seed} {example[0]}")
        if place in kept or (len(kept) == most and place > -largest_first[0]):
            continue
        kept[place] = example
        heapq.heappush(largest_first, -place)
        if len(kept) > most:
            del kept[-heapq.heappop(largest_first)]
    return Drawn([kept[place] for place in sorted(kept)], n_read)


def usable(examples: Sequence[list[Ids]], limit: int) -> list[list[Ids]]:
    """Those the model can take whole, and of which no side was there before; a warning counts the others."""
    short = [example for example in examples if max(map(len, example)) <= limit]
    kept: list[list[Ids]] = []
    seen: set[tuple[int, ...]] = set()
    for example in short:
        sides = {(place, *side) for place, side in enumerate(example)}
        if seen.isdisjoint(sides):
            kept.append(example)
            seen |= sides
    longest = max((len(side) for example in examples for side in example), default=0)
    because = {
        f"longer than {limit:,} tokens (the longest has {longest:,})": len(examples) - len(short),
        "like another on a side": len(short) - len(kept),
    }
    left_out = ", ".join(f"{n:,} {why}" for why, n in because.items() if n)
    if len(kept) < LEAST:
        found = f"{len(kept)} different sentences; expected at least {LEAST}"
        raise InputError(f"{found} (left out: {left_out})" if left_out else found)
    if left_out:
        warn(f"of {len(examples):,} sentences are left out: {left_out}")
    return kept


def split(n_sentences: int, seed: int) -> list[list[int]]:
    """The numbers of the sentences to train, to stop and to test with: 70, 15 and 15 %, one at least."""
    generator = torch.Generator().manual_seed(number_of(f"{seed} split"))
    order = torch.randperm(n_sentences, generator=generator).tolist()
    n_held = max(1, round(0.15 * n_sentences))
    return [order[2 * n_held :], order[:n_held], order[n_held : 2 * n_held]]


class Parted(NamedTuple):
    """The vectors of one layer: all tokens to train with, all to stop by, and those to test, sentence by sentence."""

    train: Examples
    valid: Examples
    test: list[Examples]


class Place(NamedTuple):
    """Where vectors are read: at layer 0 as they enter a stack, at layer l as they leave its l-th layer."""

    stack: str
    layer: int

    def tap(self, subject: Subject) -> str:
        return f"{self.stack}.{self.layer - 1}.out" if self.layer else subject.sides[self.stack].entrance


class Sentences:
    """Subjects of one model in the order of their parts, as many as the memory has room for."""

    def __init__(self, subjects: Sequence[Subject], stacks: Sequence[str], seed: int) -> None:
        self.model = subjects[0].model
        first = vectors(subjects[:1], [Place(stack, 0) for stack in stacks])
        self._bytes = {place.stack: vector[0].nbytes for place, vector in first.items()}
        n_used = min(self._room(subjects, stack) for stack in stacks)
        if n_used < len(subjects):
            many = f"{n_used:,} of {len(subjects):,} sentences"
            warn(f"{many} are used: the vectors of more would take over {MEMORY / 2**30:.3g} GiB")
        parts = split(n_used, seed)
        self.subjects = [subjects[number] for part in parts for number in part]
        self.n_each = dict(zip(PARTS, map(len, parts), strict=True))

    def _room(self, subjects: Sequence[Subject], stack: str) -> int:
        """How many sentences can be kept as they enter and as they leave one layer."""
        most = MEMORY // (2 * self._bytes[stack])
        return max(LEAST, sum(n_tokens <= most for n_tokens in accumulate(sizes_of(subjects, stack))))

    @property
    def digest(self) -> str:
        """The same for the same tokens in the same order."""
        tokens = [[side.tokens for side in subject.sides.values()] for subject in self.subjects]
        return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()

    def sizes(self, stack: str) -> dict[str, list[int]]:
        """The tokens of each sentence, part by part."""
        sizes = iter(sizes_of(self.subjects, stack))
        return {part: [next(sizes) for _ in range(n)] for part, n in self.n_each.items()}

    def fit(self, places: Iterable[Place]) -> bool:
        """Whether the vectors of all these places can be kept at once."""
        return sum(self._bytes[stack] * sum(sizes_of(self.subjects, stack)) for stack, _ in places) <= MEMORY

    def read(self, places: Collection[Place]) -> dict[Place, Float[Tensor, "N D"]]:
        """The vectors of all tokens at these places."""
        return vectors(self.subjects, places)

    def parted(self, stack: str, hidden: Float[Tensor, "N D"], inputs: Float[Tensor, "N D"]) -> Parted:
        """The vectors of all tokens of a stack, part by part."""
        sizes = self.sizes(stack)
        both = [each.split([sum(part) for part in sizes.values()]) for each in (hidden, inputs)]
        train, valid, test = (Examples(*part) for part in zip(*both, strict=True))
        by_sentence = zip(*(each.split(sizes["test"]) for each in test), strict=True)
        return Parted(train, valid, [Examples(*each) for each in by_sentence])


def sizes_of(subjects: Sequence[Subject], stack: str) -> list[int]:
    """The tokens of each subject."""
    return [len(subject.sides[stack].tokens) for subject in subjects]


@torch.no_grad()
def vectors(subjects: Sequence[Subject], places: Collection[Place]) -> dict[Place, Float[Tensor, "N D"]]:
    """What every token is at these places, one text after another."""
    ends = {place: list(accumulate(sizes_of(subjects, place.stack), initial=0)) for place in places}
    found: dict[Place, Tensor] = {}
    for number, heard in enumerate(track(_passes(subjects, places), "reading", len(subjects))):
        for place, value in heard.items():
            if not number:
                found[place] = torch.empty(ends[place][-1], value.shape[-1])
            found[place][ends[place][number] : ends[place][number + 1]] = value
    for place, value in found.items():
        if not value.isfinite().all():
            raise InputError(f"{place.tap(subjects[0])}: vectors that are not finite; is the model damaged?")
    return found


class _Enough(Exception):
    """Everything there was to hear in a pass has been heard."""


def _passes(subjects: Sequence[Subject], places: Collection[Place]) -> Iterator[dict[Place, Float[Tensor, "T D"]]]:
    """What flows through the places for each subject; a pass ends where the last of them has been reached."""
    names = {place: place.tap(subjects[0]) for place in places}
    with ExitStack() as listening:
        heard = listening.enter_context(record(subjects[0].model, *names.values()))

        def enough(flowing: Tensor) -> Tensor:
            if len(heard) == len(names):
                raise _Enough
            return flowing

        for name in names.values():
            listening.enter_context(edit(subjects[0].model, name, enough))
        for subject in subjects:
            heard.clear()
            with suppress(_Enough):
                subject.body()
            yield {place: heard[name][0] for place, name in names.items()}
