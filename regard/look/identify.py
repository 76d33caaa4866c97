"""Token identifiability (SPEC 8.3; Brunner et al. 2020): can a token still be told from its hidden vector?

Token i is recovered at layer l if, of all input vectors x_j of its sentence, the one nearest to g_l(h_i) is x_i.
Layer 0 is what enters the layers, layer l what leaves the l-th. The maps g are those of `look/probes.py`; nearest is
by cosine and by L2. Two tokens may have the same input vector (a word that occurs twice, where positions are not added
to it): to find either is to recover both. Sentences are parted at random (`look/sentences.py`): 70 % to train the maps,
15 % to stop their training, 15 % to test them.

    accuracy   recovered tokens / tokens, in the sentences to test
    interval   95 %: Wilson's, for the number of independent tokens that would vary as much as these do from sentence
               to sentence; rough where there are only a few sentences
    chance     1 / tokens of the sentence, in the mean over the same tokens

The API makes the subjects. Every finished number is kept on disk; a call that was interrupted goes on behind it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.disk import json_text, write_json
from regard.errors import InputError, MissingExtra, did_you_mean
from regard.look.figures import Curve, Panel, curves
from regard.look.probes import MAPS, METHOD
from regard.look.sentences import Parted, Place, Sentences, number_of
from regard.look.subject import Subject
from regard.progress import bar, say

VIEW = "token identifiability"
SENTENCES = 2000
DISTANCES = {"cosine": "cosine", "l2": "L2"}
"""As they are called in a result, and as a reader calls them."""


class Unit(NamedTuple):
    """One number to be found."""

    stack: str
    layer: int
    map: str
    distance: str

    def seed(self, seed: int) -> int:
        """What is drawn for one number is drawn for it alone, whichever were found before it."""
        return number_of(" ".join(map(str, (seed, *self))))


class Recovery(NamedTuple):
    """The share of tokens recovered, and its 95 % interval."""

    unit: Unit
    accuracy: float
    low: float
    high: float

    def json(self) -> dict[str, Any]:
        return {**self.unit._asdict(), "accuracy": self.accuracy, "low": self.low, "high": self.high}


@dataclass
class Identification:
    """How many tokens can be recovered; `about` is what the caller says of it, `of` what it depends on."""

    about: Mapping[str, Any]
    of: Mapping[str, Any]
    sentences: Mapping[str, int]
    stacks: Mapping[str, Mapping[str, Any]]
    results: list[Recovery] = field(default_factory=list)

    @property
    def units(self) -> list[Unit]:
        """Every number there is to find, in order."""
        return [
            Unit(stack, layer, name, distance)
            for stack, about in self.stacks.items()
            for layer in range(about["layers"] + 1)
            for name in self.of["maps"]
            for distance in DISTANCES
        ]

    def json(self) -> dict[str, Any]:
        """What stands in identify.json; regard/cli/identify.py explains it."""
        head = {"view": VIEW, **self.about, **self.of, "sentences": self.sentences, "stacks": self.stacks}
        return {**head, "results": [each.json() for each in self.results]}

    def draw(self, path: Path) -> Path:
        """The curves over layers: a panel for each stack and distance, a line for each map."""
        panels = []
        for stack, about in self.stacks.items():
            for distance, name in DISTANCES.items():
                lines = {each: self._curve(stack, each, distance) for each in self.of["maps"]}
                panels.append(Panel(f"{stack}, {name}", lines, {"chance": 100 * about["chance"]}))
        return curves(panels, path, xlabel="layer", ylabel="tokens recovered (%)", limits=(0.0, 105.0))

    def _curve(self, stack: str, name: str, distance: str) -> Curve:
        found = [each for each in self.results if each.unit == (stack, each.unit.layer, name, distance)]
        values = ([100 * value for value in column] for column in zip(*(each[1:] for each in found), strict=True))
        return Curve([each.unit.layer for each in found], *values)


def recovered(mapped: Float[Tensor, "T D"], inputs: Float[Tensor, "T D"], distance: str) -> Bool[Tensor, " T"]:
    """Of one sentence: for which tokens is the nearest input vector their own, or equal to it?"""
    mapped, inputs = mapped.double(), inputs.double()
    if distance == "cosine":
        nearest = (F.normalize(mapped, dim=-1) @ F.normalize(inputs, dim=-1).T).argmax(-1)
    else:
        nearest = torch.cdist(mapped, inputs, compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)
    return (inputs[nearest] == inputs).all(-1)


def interval(hits: Sequence[int], sizes: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of ``sum(hits) / sum(sizes)``, where the tokens of one sentence are not independent.

    The variance of the ratio is that between sentences; ``n = p (1 - p) / variance`` independent tokens, and no more
    than there are, go into Wilson's interval, which stays within 0 and 1 and does not shrink to a point there. Where
    all tokens are recovered, or none, nothing says how alike those of a sentence are: each sentence counts once.
    """
    n_sentences, n_hits, n_tokens = len(sizes), sum(hits), sum(sizes)
    p, n = n_hits / n_tokens, float(n_tokens)
    if n_sentences == 1 or n_hits in (0, n_tokens):
        n = float(n_sentences)
    elif apart := sum((hit - p * size) ** 2 for hit, size in zip(hits, sizes, strict=True)):
        n = min(n, p * (1 - p) * n_tokens**2 * (n_sentences - 1) / n_sentences / apart)
    z = 1.959964
    centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = ((centre + side) / (1 + z**2 / n) for side in (-half, half))
    return max(0.0, min(p, low)), min(1.0, max(p, high))  # rounding must not push p out at 0 and 1


def measure(unit: Unit, vectors: Parted, seed: int, device: torch.device) -> Recovery:
    """Fit a map to a layer and count the tokens it recovers."""
    brought = MAPS[unit.map](vectors.train, vectors.valid, unit.distance, unit.seed(seed), device)
    hits = [int(recovered(brought(each.hidden), each.inputs, unit.distance).sum()) for each in vectors.test]
    sizes = [len(each.hidden) for each in vectors.test]
    return Recovery(unit, sum(hits) / sum(sizes), *interval(hits, sizes))


def check_maps(maps: Sequence[str]) -> list[str]:
    """The maps, each once; refuses one that is not there, or none at all."""
    if not maps:
        raise InputError(f"no maps to measure with; known: {', '.join(MAPS)}")
    for name in maps:
        if name not in MAPS:
            raise InputError(f"no map is called '{name}'; {did_you_mean(name, MAPS)}")
    return list(dict.fromkeys(maps))


def identify(
    subjects: Sequence[Subject],
    *,
    stacks: Sequence[str],
    maps: Sequence[str],
    seed: int,
    device: torch.device,
    about: Mapping[str, Any],
    out: Path | None = None,
) -> Identification:
    """Measure every layer of these stacks with every map; with `out`, keep the results in that directory."""
    names = check_maps(maps)
    sentences = Sentences(subjects, stacks, seed)
    of = {"seed": seed, "maps": names, "weights": _weights(sentences.model), "texts": sentences.digest}
    facts = {stack: _facts(sentences, stack) for stack in stacks}
    found = Identification(about, {**of, "method": METHOD}, sentences.n_each, facts)
    if out is not None:
        take_up(found, out)
    for units in _groups(found, sentences):
        _measure_together(found, sentences, units, device, out)
    if out is not None:
        _picture(found, out)
    return found


def _weights(model: nn.Module) -> str:
    """A digest of the weights as they are in memory, for these are measured."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)} ".encode())
        digest.update(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _facts(sentences: Sentences, stack: str) -> dict[str, Any]:
    """How many layers a stack has, how many tokens there are in each part, and what chance recovers of them."""
    tokens = {part: sum(sizes) for part, sizes in sentences.sizes(stack).items()}
    chance = sentences.n_each["test"] / tokens["test"]  # a sentence has n tokens with a chance of 1 / n
    return {"layers": sentences.subjects[0].n_layers(stack), "tokens": tokens, "chance": chance}


def _groups(found: Identification, sentences: Sentences) -> Iterator[list[Unit]]:
    """What is still to be found, as much of it together as the memory has room for vectors."""
    done = {each.unit for each in found.results}
    group: list[Unit] = []
    for unit in found.units:
        if unit not in done:
            if group and not sentences.fit(_places([*group, unit])):
                yield group
                group = []
            group.append(unit)
    if group:
        yield group


def _places(units: Iterable[Unit]) -> set[Place]:
    """What must be read for these numbers: their layers, and what entered."""
    return {Place(unit.stack, layer) for unit in units for layer in (0, unit.layer)}


def _measure_together(
    found: Identification, sentences: Sentences, units: Sequence[Unit], device: torch.device, out: Path | None
) -> None:
    """Find these numbers from one pass over the sentences."""
    read = sentences.read(_places(units))
    with bar("fitting", len(units)) as shown:
        for unit in units:
            vectors = sentences.parted(unit.stack, *(read[Place(unit.stack, layer)] for layer in (unit.layer, 0)))
            found.results.append(measure(unit, vectors, found.of["seed"], device))
            if out is not None:
                _keep(found, out)
            shown.advance()


def take_up(found: Identification, out: Path) -> None:
    """Go on from what an earlier call left in the directory; refuse what it found for something else."""
    path = out / "identify.json"
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _keep(found, out)
            return
        earlier = _parsed(path, path.read_bytes())
    now = json.loads(json_text(found.json()))
    for key in (*found.of, "stacks"):
        if earlier.get(key) != now[key]:
            raise InputError(f"{path}: {_other(key, earlier.get(key), now[key])}; choose another --out, or delete it")
    found.results += [_recovery(path, each) for each in earlier["results"]]
    say(f"{path}: {len(found.results):,} of {len(found.units):,} results are there already")


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("view") != VIEW or not isinstance(found.get("results"), list):
        raise InputError(f"{path}: not a file of regard identify; choose another --out, or move it away")
    return found


def _other(key: str, then: Any, now: Any) -> str:
    """What an earlier call had different, in words."""
    if key in ("seed", "maps", "stacks"):
        before, after = (",".join(map(str, each)) if isinstance(each, list | dict) else each for each in (then, now))
        return f"found with {key} {before}, not {after}"
    whose = {"weights": "of another model", "texts": "for other texts"}
    return f"found {whose.get(key, 'by another version of regard')}"


def _recovery(path: Path, each: Mapping[str, Any]) -> Recovery:
    try:
        unit, numbers = ([each[name] for name in names] for names in (Unit._fields, Recovery._fields[1:]))
    except (KeyError, TypeError):
        raise InputError(f"{path}: a result is damaged; choose another --out, or delete it") from None
    return Recovery(Unit(*unit), *numbers)


def _keep(found: Identification, out: Path) -> None:
    with _writing(out):
        write_json(out / "identify.json", found.json())


def _picture(found: Identification, out: Path) -> None:
    try:
        with _writing(out):
            found.draw(out / "identify.png")
    except MissingExtra as error:
        say(f"no figure: {error}")


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); make room, or choose another --out"
        raise InputError(f"{out}: {problem}") from None
