"""Sentences to measure a model on: sampled from files, split into train, valid and test, read layer by layer.

For views of a model rather than of one text (look/corpus/identify.py). The API reads the files and builds the look
targets. No two sentences are equal, and each is in one split only.
"""

from __future__ import annotations

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
from regard.look.compute.look_target import LookTarget
from regard.look.compute.probes import ProbeExamples
from regard.nn import edit, record
from regard.progress import track, warn
from regard.ranges import Range, check_option
from regard.text.fingerprints import digest_bytes, hash_text

SPLITS = ("train", "valid", "test")

MIN_SENTENCES = 4
"""The fewest sentences that can be split."""

MAX_VECTOR_BYTES = 2 << 30
"""Bytes of hidden states held at once: the inputs, and as many layers as fit beside them."""

TokenIds = list[int]


def hash_to_int(text: str) -> int:
    """Return a 63-bit hash of a text: a seed, or a key to sort by."""
    return hash_text(text) >> 1


class SampledExamples(NamedTuple):
    """A sample of examples (a text, or a source and its target) and the number of examples read."""

    examples: list[tuple[str, ...]]
    n_examples_read: int


def sample_examples(examples: Iterable[tuple[str, ...]], max_examples: int, seed: int) -> SampledExamples:
    """Sample at most `max_examples` examples with different first texts, in one pass and random order.

    Those whose first texts have the smallest hashes are chosen, so that every distinct text is equally likely.
    """
    check_option("sentences", max_examples, Range(MIN_SENTENCES, 10**9))
    sample: dict[int, tuple[str, ...]] = {}
    largest_first: list[int] = []
    n_read = 0
    for example in track(examples, "reading"):
        n_read += 1
        key = hash_to_int(f"{seed} {example[0]}")
        if key in sample or (len(sample) == max_examples and key > -largest_first[0]):
            continue
        sample[key] = example
        heapq.heappush(largest_first, -key)
        if len(sample) > max_examples:
            del sample[-heapq.heappop(largest_first)]
    return SampledExamples([sample[key] for key in sorted(sample)], n_read)


def filter_examples(examples: Sequence[list[TokenIds]], max_tokens: int) -> list[list[TokenIds]]:
    """Return the examples that fit the model and repeat no side of an earlier one; a warning counts the others."""
    short = [example for example in examples if max(map(len, example)) <= max_tokens]
    kept: list[list[TokenIds]] = []
    seen: set[tuple[int, ...]] = set()
    for example in short:
        sides = {(side_index, *side) for side_index, side in enumerate(example)}
        if seen.isdisjoint(sides):
            kept.append(example)
            seen |= sides
    longest = max((len(side) for example in examples for side in example), default=0)
    because = {
        f"longer than {max_tokens:,} tokens (the longest has {longest:,})": len(examples) - len(short),
        "like another on a side": len(short) - len(kept),
    }
    left_out = ", ".join(f"{n:,} {why}" for why, n in because.items() if n)
    if len(kept) < MIN_SENTENCES:
        problem = f"{len(kept)} different sentences; expected at least {MIN_SENTENCES}"
        raise InputError(f"{problem} (left out: {left_out})" if left_out else problem)
    if left_out:
        warn(f"of {len(examples):,} sentences are left out: {left_out}")
    return kept


def split_sentences(n_sentences: int, seed: int) -> list[list[int]]:
    """Return sentence indices for train, valid and test: 70, 15 and 15 %, at least one each."""
    generator = torch.Generator().manual_seed(hash_to_int(f"{seed} split"))
    order = torch.randperm(n_sentences, generator=generator).tolist()
    n_held = max(1, round(0.15 * n_sentences))
    return [order[2 * n_held :], order[:n_held], order[n_held : 2 * n_held]]


class SplitVectors(NamedTuple):
    """The vectors of one layer: train and valid tokens, and test tokens by sentence."""

    train: ProbeExamples
    valid: ProbeExamples
    test: list[ProbeExamples]


class LayerRef(NamedTuple):
    """A place to read hidden states: layer 0 is the input of a stack, layer l the output of its l-th layer."""

    stack: str
    layer: int

    def tap_name(self, look_target: LookTarget) -> str:
        return f"{self.stack}.{self.layer - 1}.out" if self.layer else look_target.sides[self.stack].input_tap


class SentenceSet:
    """Look targets of one model in the order of their splits, as many as fit in memory."""

    def __init__(self, look_targets: Sequence[LookTarget], stacks: Sequence[str], seed: int) -> None:
        self.model = look_targets[0].model
        first = collect_hidden_states(look_targets[:1], [LayerRef(stack, 0) for stack in stacks])
        self._bytes_per_token = {layer_ref.stack: vector[0].nbytes for layer_ref, vector in first.items()}
        n_used = min(self._n_fitting(look_targets, stack) for stack in stacks)
        if n_used < len(look_targets):
            many = f"{n_used:,} of {len(look_targets):,} sentences"
            warn(f"{many} are used: more would take over {MAX_VECTOR_BYTES / 2**30:.3g} GiB")
        parts = split_sentences(n_used, seed)
        self.look_targets = [look_targets[number] for part in parts for number in part]
        self.split_sizes = dict(zip(SPLITS, map(len, parts), strict=True))

    def _n_fitting(self, look_targets: Sequence[LookTarget], stack: str) -> int:
        """Return the number of sentences whose inputs and one layer fit in memory."""
        most = MAX_VECTOR_BYTES // (2 * self._bytes_per_token[stack])
        return max(MIN_SENTENCES, sum(n_tokens <= most for n_tokens in accumulate(count_tokens(look_targets, stack))))

    @property
    def digest(self) -> str:
        """Return a digest of the tokens in order."""
        tokens = [[side.tokens for side in subject.sides.values()] for subject in self.look_targets]
        return digest_bytes([json.dumps(tokens).encode()])

    def token_counts_by_split(self, stack: str) -> dict[str, list[int]]:
        """Return the number of tokens of each sentence, by split."""
        sizes = iter(count_tokens(self.look_targets, stack))
        return {part: [next(sizes) for _ in range(n)] for part, n in self.split_sizes.items()}

    def fits_in_memory(self, layers: Iterable[LayerRef]) -> bool:
        """Return True if the hidden states of all these layers fit in memory."""
        return (
            sum(self._bytes_per_token[stack] * sum(count_tokens(self.look_targets, stack)) for stack, _ in layers)
            <= MAX_VECTOR_BYTES
        )

    def read_hidden_states(self, layers: Collection[LayerRef]) -> dict[LayerRef, Float[Tensor, "N D"]]:
        """Return the hidden states of all tokens at these layers."""
        return collect_hidden_states(self.look_targets, layers)

    def split_vectors(self, stack: str, hidden: Float[Tensor, "N D"], inputs: Float[Tensor, "N D"]) -> SplitVectors:
        """Split the vectors of all tokens of a stack into train, valid and test."""
        sizes = self.token_counts_by_split(stack)
        both = [each.split([sum(part) for part in sizes.values()]) for each in (hidden, inputs)]
        train, valid, test = (ProbeExamples(*part) for part in zip(*both, strict=True))
        by_sentence = zip(*(each.split(sizes["test"]) for each in test), strict=True)
        return SplitVectors(train, valid, [ProbeExamples(*each) for each in by_sentence])


def count_tokens(look_targets: Sequence[LookTarget], stack: str) -> list[int]:
    """Return the number of tokens of each look target."""
    return [len(subject.sides[stack].tokens) for subject in look_targets]


@torch.no_grad()
def collect_hidden_states(
    look_targets: Sequence[LookTarget], layers: Collection[LayerRef]
) -> dict[LayerRef, Float[Tensor, "N D"]]:
    """Return the hidden states of every token at these layers, one text after another."""
    ends = {layer_ref: list(accumulate(count_tokens(look_targets, layer_ref.stack), initial=0)) for layer_ref in layers}
    hidden_states: dict[LayerRef, Tensor] = {}
    for number, recorded in enumerate(track(_iterate_passes(look_targets, layers), "reading", len(look_targets))):
        for layer_ref, value in recorded.items():
            if not number:
                hidden_states[layer_ref] = torch.empty(ends[layer_ref][-1], value.shape[-1])
            hidden_states[layer_ref][ends[layer_ref][number] : ends[layer_ref][number + 1]] = value
    for layer_ref, value in hidden_states.items():
        if not value.isfinite().all():
            raise InputError(
                f"{layer_ref.tap_name(look_targets[0])}: vectors that are not finite; is the model damaged?"
            )
    return hidden_states


class _StopForward(Exception):
    """Raised once every requested layer has been recorded."""


def _iterate_passes(
    look_targets: Sequence[LookTarget], layers: Collection[LayerRef]
) -> Iterator[dict[LayerRef, Float[Tensor, "T D"]]]:
    """Yield the hidden states of each look target; a pass ends at the last requested layer."""
    names = {layer_ref: layer_ref.tap_name(look_targets[0]) for layer_ref in layers}
    for look_target in look_targets:
        recorded = _record_until_complete(look_target, list(names.values()))
        yield {layer_ref: recorded[name][0] for layer_ref, name in names.items()}


def _record_until_complete(look_target: LookTarget, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the values of taps; the pass ends as soon as all are recorded."""
    with suppress(_StopForward), ExitStack() as hooks:
        recorded = hooks.enter_context(record(look_target.model, *names))

        def stop_if_complete(x: Tensor) -> Tensor:
            if len(recorded) == len(names):
                raise _StopForward
            return x

        for name in names:
            hooks.enter_context(edit(look_target.model, name, stop_if_complete))
        look_target.run_layers()
    return recorded
