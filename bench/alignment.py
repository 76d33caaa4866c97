"""How well a model's cross-attention tells the word alignment, by silver links and several readings of the weights.

    python bench/alignment.py RUN train.en train.fr test.en test.fr

Silver links: IBM model 1 with a prior for the diagonal, learned both ways on the training and test pairs, and
intersected. Printed is the share of them that each reading finds, for at most 1,000 test pairs, best first.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import regard
from regard.tasks.shared.word_alignment import SMOOTHING, aggregate_word_attention, normalise_word_attention
from regard.text.pairs import Pair, read_pairs

N_EM_ITERATIONS = 6
DIAGONAL_TENSION = 4.0
"""How fast the prior falls with the distance from the diagonal."""

TokenizedTexts = Sequence[Sequence[str]]


def build_silver_links(pairs: Sequence[Pair], n_test: int) -> list[list[tuple[int, int]]]:
    """Links (source word, target word) of the last pairs, those that both directions agree on."""
    sides = [[[_normalise_word(word) for word in text.split()] for text in side] for side in zip(*pairs, strict=True)]
    there, back = align_ibm1(*sides)[-n_test:], align_ibm1(*sides[::-1])[-n_test:]
    return [[(int(s), t) for t, s in enumerate(forth) if home[s] == t] for forth, home in zip(there, back, strict=True)]


def align_ibm1(sources: TokenizedTexts, targets: TokenizedTexts) -> list[np.ndarray]:
    """For each word of each target, the source word that most likely made it."""
    source_id, target_id = (
        {word: i for i, word in enumerate(sorted({w for t in side for w in t}))} for side in (sources, targets)
    )
    shapes = [(len(target), len(source)) for source, target in zip(sources, targets, strict=True)]
    cell_source = np.concatenate(
        [np.tile([source_id[w] for w in s], len(t)) for s, t in zip(sources, targets, strict=True)]
    )
    cell_target = np.concatenate(
        [np.repeat([target_id[w] for w in t], len(s)) for s, t in zip(sources, targets, strict=True)]
    )
    prior = np.concatenate([_diagonal_prior(*shape).ravel() for shape in shapes])
    row = np.repeat(np.arange(sum(t for t, _ in shapes)), np.concatenate([np.full(t, s) for t, s in shapes]))
    pair, cell = np.unique(cell_source.astype(np.int64) * len(target_id) + cell_target, return_inverse=True)
    source_of_pair, likely = pair // len(target_id), np.ones(len(pair))
    for _ in range(N_EM_ITERATIONS):
        weight = likely[cell] * prior
        expected = np.bincount(cell, weight / np.bincount(row, weight)[row], len(pair))
        likely = expected / np.bincount(source_of_pair, expected)[source_of_pair]
    cuts = np.cumsum([t * s for t, s in shapes])[:-1]
    tables = zip(np.split(likely[cell] * prior, cuts), shapes, strict=True)
    return [table.reshape(shape).argmax(1) for table, shape in tables]


def _normalise_word(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum()) or word


def _diagonal_prior(n_target: int, n_source: int) -> np.ndarray:
    target, source = (np.arange(n_target)[:, None] + 0.5) / n_target, (np.arange(n_source) + 0.5) / n_source
    near = np.exp(-DIAGONAL_TENSION * np.abs(source - target))
    return near / near.sum(1, keepdims=True)


def candidate_word_weights(weights: Tensor, target: list, source: list) -> Iterator[tuple[str, Tensor]]:
    """Ways to make of (layers, heads, target, source) pieces a matrix between words."""
    parts = {"all layers": weights, "upper half": weights[len(weights) // 2 :]}
    parts |= {f"layer {number}": layer[None] for number, layer in enumerate(weights)}
    for name, part in parts.items():
        between = aggregate_word_attention(part.mean((0, 1)), target, source)
        yield name, between
        yield f"{name}, by source word", between / (between.sum(0) + SMOOTHING)
    for layer, heads in enumerate(weights):
        for head, one in enumerate(heads):
            yield f"layer {layer}, head {head}", aggregate_word_attention(one, target, source)
    yield "largest head", aggregate_word_attention(weights.amax((0, 1)), target, source)
    yield "what regard does", normalise_word_attention(weights, target, source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    for name in ("train_source", "train_target", "test_source", "test_target"):
        parser.add_argument(name)
    options = parser.parse_args()
    train = list(read_pairs([options.train_source, options.train_target]))
    test = list(read_pairs([options.test_source, options.test_target]))[:1000]
    links = build_silver_links([*train, *test], len(test))
    model = regard.load(options.run)
    tokenizers = model.task.tokenizers
    ids = [(tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)) for pair in test]
    found: Counter[str] = Counter()
    total = 0
    forced = model.task.force(model.network, ids, model.device)
    for pair, (source_ids, target_ids), gold, seen in zip(test, ids, links, forced, strict=True):
        target, source = tokenizers.target.words(target_ids), tokenizers.source.words(source_ids)
        if (len(source), len(target)) != (len(pair.source.split()), len(pair.target.split())):
            continue  # other words than white space makes
        total += len(gold)
        for name, between in candidate_word_weights(seen.attention.to(torch.float32), target, source):
            best = between.argmax(1).tolist()
            found[name] += sum(best[t] == s for s, t in gold)
    for name, hits in found.most_common():
        print(f"{hits / total:6.1%}  {name}")


if __name__ == "__main__":
    main()
