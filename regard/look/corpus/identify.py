"""Token identifiability (Brunner et al. 2020, section 4): the fraction of tokens recovered from hidden vectors.

Token i is recovered at layer l if, of all input vectors x_j of its sentence, the one nearest to g_l(h_i) is x_i.
Layer 0 is the input of the layers, layer l the output of the l-th. The probes g are those of look/compute/probes.py;
nearest is by cosine and by L2. Two tokens may have the same input vector (a word that occurs twice, where positions are
not added to it): finding either recovers both. Sentences are split at random (look/corpus/sentences.py): 70 % to train
the probes, 15 % for early stopping, 15 % to test.

    accuracy   recovered tokens / tokens, in the test sentences
    interval   95 %, Wilson's, for the effective number of independent tokens, given the variance between sentences;
               rough where there are only a few sentences
    chance     1 / tokens of the sentence, averaged over the same tokens

The API builds the look targets. Every finished result is saved; an interrupted call resumes after the last one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.disk import convert_write_errors, json_text, write_json
from regard.errors import InputError, MissingExtra, did_you_mean
from regard.look.compute.look_target import LookTarget
from regard.look.compute.probes import PROBE_FITTERS, PROBE_HYPERPARAMETERS
from regard.look.corpus.sentences import LayerRef, SentenceSet, SplitVectors, hash_to_int
from regard.look.render.figures import Curve, CurvePanel, draw_curves
from regard.progress import print_message, progress_bar
from regard.runs.directory_lock import DirectoryLock
from regard.text.fingerprints import digest_bytes

VIEW_NAME = "token identifiability"
DEFAULT_N_SENTENCES = 2000
DISTANCE_NAMES = {"cosine": "cosine", "l2": "L2"}
"""Distances by their name in results, with their display name."""


class ProbeSpec(NamedTuple):
    """One accuracy to measure: a stack, a layer, a probe and a distance."""

    stack: str
    layer: int
    map: str
    distance: str

    def derive_seed(self, seed: int) -> int:
        """Return the seed of this probe, independent of the order of measurement."""
        return hash_to_int(" ".join(map(str, (seed, *self))))


class RecoveryResult(NamedTuple):
    """The fraction of tokens recovered, with its 95 % interval."""

    spec: ProbeSpec
    accuracy: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        return {**self.spec._asdict(), "accuracy": self.accuracy, "low": self.low, "high": self.high}


@dataclass
class TokenIdentifiability:
    """Recovery results; `about` holds facts from the caller, `settings` everything the results depend on."""

    about: Mapping[str, Any]
    settings: Mapping[str, Any]
    sentences: Mapping[str, int]
    stacks: Mapping[str, Mapping[str, Any]]
    results: list[RecoveryResult] = field(default_factory=list)

    @property
    def specs(self) -> list[ProbeSpec]:
        """Return everything to measure, in order."""
        return [
            ProbeSpec(stack, layer, name, distance)
            for stack, about in self.stacks.items()
            for layer in range(about["layers"] + 1)
            for name in self.settings["maps"]
            for distance in DISTANCE_NAMES
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of identify.json; regard/cli/identify.py explains it."""
        head = {"view": VIEW_NAME, **self.about, **self.settings, "sentences": self.sentences, "stacks": self.stacks}
        return {**head, "results": [each.to_dict() for each in self.results]}

    def draw(self, path: Path) -> Path:
        """Draw accuracy over layers: a panel per stack and distance, a line per probe."""
        panels = []
        for stack, about in self.stacks.items():
            for distance, name in DISTANCE_NAMES.items():
                lines = {each: self._build_curve(stack, each, distance) for each in self.settings["maps"]}
                panels.append(CurvePanel(f"{stack}, {name}", lines, {"chance": 100 * about["chance"]}))
        return draw_curves(panels, path, xlabel="layer", ylabel="tokens recovered (%)", limits=(0.0, 105.0))

    def _build_curve(self, stack: str, name: str, distance: str) -> Curve:
        recoveries = [each for each in self.results if each.spec == (stack, each.spec.layer, name, distance)]
        values = ([100 * value for value in column] for column in zip(*(each[1:] for each in recoveries), strict=True))
        return Curve([each.spec.layer for each in recoveries], *values)


def is_token_recovered(mapped: Float[Tensor, "T D"], inputs: Float[Tensor, "T D"], distance: str) -> Bool[Tensor, " T"]:
    """Return True for each token of a sentence whose nearest input vector is its own, or equal to it."""
    mapped, inputs = mapped.double(), inputs.double()
    if distance == "cosine":
        nearest = (F.normalize(mapped, dim=-1) @ F.normalize(inputs, dim=-1).T).argmax(-1)
    else:
        nearest = torch.cdist(mapped, inputs, compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)
    return (inputs[nearest] == inputs).all(-1)


def wilson_interval(hits: Sequence[int], sizes: Sequence[int]) -> tuple[float, float]:
    """Return the 95 % interval of ``sum(hits) / sum(sizes)``, where the tokens of a sentence are not independent.

    The variance of the ratio is that between sentences; ``n = p (1 - p) / variance`` independent tokens, and no more
    than there are, go into Wilson's interval, which stays within 0 and 1 and does not shrink to a point there. Where
    all tokens are recovered, or none, nothing says how alike those of a sentence are: each sentence counts once.
    """
    n_sentences, n_hits, n_tokens = len(sizes), sum(hits), sum(sizes)
    p, n = n_hits / n_tokens, float(n_tokens)
    if n_sentences == 1 or n_hits in (0, n_tokens):
        n = float(n_sentences)
    elif squared_deviations := sum((hit - p * size) ** 2 for hit, size in zip(hits, sizes, strict=True)):
        n = min(n, p * (1 - p) * n_tokens**2 * (n_sentences - 1) / n_sentences / squared_deviations)
    z = 1.959964
    centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = ((centre + side) / (1 + z**2 / n) for side in (-half, half))
    return max(0.0, min(p, low)), min(1.0, max(p, high))  # rounding must not push p out at 0 and 1


def measure_recovery(spec: ProbeSpec, vectors: SplitVectors, seed: int, device: torch.device) -> RecoveryResult:
    """Fit a probe to a layer and count the tokens it recovers."""
    probe = PROBE_FITTERS[spec.map](vectors.train, vectors.valid, spec.distance, spec.derive_seed(seed), device)
    hits = [int(is_token_recovered(probe(each.hidden), each.inputs, spec.distance).sum()) for each in vectors.test]
    sizes = [len(each.hidden) for each in vectors.test]
    return RecoveryResult(spec, sum(hits) / sum(sizes), *wilson_interval(hits, sizes))


def check_probe_names(maps: Sequence[str]) -> list[str]:
    """Return the probe names without repetition; refuse an unknown one, or none."""
    if not maps:
        raise InputError(f"no maps to measure with; known: {', '.join(PROBE_FITTERS)}")
    for name in maps:
        if name not in PROBE_FITTERS:
            raise InputError(f"unknown map '{name}'; {did_you_mean(name, PROBE_FITTERS)}")
    return list(dict.fromkeys(maps))


def measure_token_identifiability(
    look_targets: Sequence[LookTarget],
    *,
    stacks: Sequence[str],
    maps: Sequence[str],
    seed: int,
    device: torch.device,
    about: Mapping[str, Any],
    out: Path | None = None,
) -> TokenIdentifiability:
    """Measure every layer of these stacks with every probe; with `out`, save the results in that directory."""
    names = check_probe_names(maps)
    sentences = SentenceSet(look_targets, stacks, seed)
    of = {"seed": seed, "maps": names, "weights": _digest_weights(sentences.model), "texts": sentences.digest}
    facts = {stack: _describe_stack(sentences, stack) for stack in stacks}
    result = TokenIdentifiability(about, {**of, "method": PROBE_HYPERPARAMETERS}, sentences.split_sizes, facts)
    with nullcontext() if out is None else DirectoryLock(out):
        if out is not None:
            resume_results(result, out)
        for units in _group_pending_specs(result, sentences):
            _measure_group(result, sentences, units, device, out)
        if out is not None:
            _save_figure(result, out)
    return result


def _digest_weights(model: nn.Module) -> str:
    """Return the digest of the weights in memory, which are those measured."""

    def chunks() -> Iterator[bytes]:
        for name, weight in model.named_parameters():
            yield f"{name} {tuple(weight.shape)} ".encode()
            yield weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()

    return digest_bytes(chunks())


def _describe_stack(sentences: SentenceSet, stack: str) -> dict[str, Any]:
    """Return the number of layers of a stack, its tokens in each split, and the accuracy of chance."""
    tokens = {part: sum(sizes) for part, sizes in sentences.token_counts_by_split(stack).items()}
    chance = sentences.split_sizes["test"] / tokens["test"]  # each of the n tokens of a sentence has a chance of 1 / n
    return {"layers": sentences.look_targets[0].n_layers(stack), "tokens": tokens, "chance": chance}


def _group_pending_specs(result: TokenIdentifiability, sentences: SentenceSet) -> Iterator[list[ProbeSpec]]:
    """Yield groups of unmeasured specs whose hidden states fit in memory together."""
    done = {each.spec for each in result.results}
    group: list[ProbeSpec] = []
    for unit in result.specs:
        if unit not in done:
            if group and not sentences.fits_in_memory(_layers_to_read([*group, unit])):
                yield group
                group = []
            group.append(unit)
    if group:
        yield group


def _layers_to_read(specs: Iterable[ProbeSpec]) -> set[LayerRef]:
    """Return the layers to read for these specs: their own and the inputs."""
    return {LayerRef(unit.stack, layer) for unit in specs for layer in (0, unit.layer)}


def _measure_group(
    result: TokenIdentifiability,
    sentences: SentenceSet,
    specs: Sequence[ProbeSpec],
    device: torch.device,
    out: Path | None,
) -> None:
    """Measure these specs from one pass over the sentences."""
    read = sentences.read_hidden_states(_layers_to_read(specs))
    with progress_bar("fitting", len(specs)) as progress:
        for unit in specs:
            vectors = sentences.split_vectors(
                unit.stack, *(read[LayerRef(unit.stack, layer)] for layer in (unit.layer, 0))
            )
            result.results.append(measure_recovery(unit, vectors, result.settings["seed"], device))
            if out is not None:
                _save_results(result, out)
            progress.advance()


def resume_results(result: TokenIdentifiability, out: Path) -> None:
    """Resume from the results of an earlier call; refuse those of other settings."""
    path = out / "identify.json"
    with convert_write_errors(out):
        if not path.exists():
            _save_results(result, out)
            return
        earlier = _parse_results(path, path.read_bytes())
    now = json.loads(json_text(result.to_dict()))
    for key in (*result.settings, "stacks"):
        if earlier.get(key) != now[key]:
            raise InputError(
                f"{path}: {_describe_mismatch(key, earlier.get(key), now[key])}; choose another --out, or delete it"
            )
    result.results += [_parse_recovery(path, each) for each in earlier["results"]]
    print_message(f"{path}: {len(result.results):,} of {len(result.specs):,} results already exist")


def _parse_results(path: Path, text: bytes) -> dict[str, Any]:
    try:
        earlier = json.loads(text)
    except ValueError:
        earlier = None
    if (
        not isinstance(earlier, dict)
        or earlier.get("view") != VIEW_NAME
        or not isinstance(earlier.get("results"), list)
    ):
        raise InputError(f"{path}: not a file of regard identify; choose another --out, or move it away")
    return earlier


def _describe_mismatch(key: str, earlier: Any, current: Any) -> str:
    """Describe the setting in which an earlier call differs."""
    if key in ("seed", "maps", "stacks"):
        before, after = (
            ",".join(map(str, each)) if isinstance(each, list | dict) else each for each in (earlier, current)
        )
        return f"found with {key} {before}, not {after}"
    whose = {"weights": "of another model", "texts": "for other texts"}
    return f"found {whose.get(key, 'by another version of regard')}"


def _parse_recovery(path: Path, entry: Mapping[str, Any]) -> RecoveryResult:
    try:
        unit, numbers = ([entry[name] for name in names] for names in (ProbeSpec._fields, RecoveryResult._fields[1:]))
    except (KeyError, TypeError):
        raise InputError(f"{path}: a result is damaged; choose another --out, or delete it") from None
    return RecoveryResult(ProbeSpec(*unit), *numbers)


def _save_results(result: TokenIdentifiability, out: Path) -> None:
    with convert_write_errors(out):
        write_json(out / "identify.json", result.to_dict())


def _save_figure(result: TokenIdentifiability, out: Path) -> None:
    try:
        with convert_write_errors(out):
            result.draw(out / "identify.png")
    except MissingExtra as error:
        print_message(f"no figure: {error}")
