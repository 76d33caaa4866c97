"""Word alignment by cross-attention: the recall of silver links by several ways to aggregate layers and heads.

    python bench/alignment.py RUN train.en train.fr test.en test.fr

Silver links: IBM model 1 (Brown et al. 1993) with a prior for the diagonal, trained in both directions on the training
and test pairs, intersected. Prints the fraction of links that each aggregation finds on at most 1,000 test pairs, best
first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness
import numpy as np
import torch
from torch import Tensor

import regard
from regard.predict.word_alignment import SMOOTHING, aggregate_word_attention, normalise_word_attention
from regard.text.pairs import Pair, read_pairs
from regard.text.subwords import Word

N_EM_ITERATIONS = 6
DIAGONAL_TENSION = 4.0
"""Rate at which the prior falls with the distance from the diagonal (Dyer et al. 2013)."""

TokenizedTexts = Sequence[Sequence[str]]


def build_silver_links(pairs: Sequence[Pair], n_test: int) -> list[list[tuple[int, int]]]:
    """Return the links (source word, target word) of the last `n_test` pairs on which both directions agree."""
    sides = [[[_normalise_word(word) for word in text.split()] for text in side] for side in zip(*pairs, strict=True)]
    forward, backward = align_ibm1(*sides)[-n_test:], align_ibm1(*sides[::-1])[-n_test:]
    return [
        [(int(s), t) for t, s in enumerate(sources) if targets[s] == t]
        for sources, targets in zip(forward, backward, strict=True)
    ]


def align_ibm1(sources: TokenizedTexts, targets: TokenizedTexts) -> list[np.ndarray]:
    """Return, for each word of each target, the index of its most likely source word."""
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
    source_of_pair, probability = pair // len(target_id), np.ones(len(pair))
    for _ in range(N_EM_ITERATIONS):
        weight = probability[cell] * prior
        expected = np.bincount(cell, weight / np.bincount(row, weight)[row], len(pair))
        probability = expected / np.bincount(source_of_pair, expected)[source_of_pair]
    cuts = np.cumsum([t * s for t, s in shapes])[:-1]
    tables = zip(np.split(probability[cell] * prior, cuts), shapes, strict=True)
    return [table.reshape(shape).argmax(1) for table, shape in tables]


def _normalise_word(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum()) or word


def _diagonal_prior(n_target: int, n_source: int) -> np.ndarray:
    target, source = (np.arange(n_target)[:, None] + 0.5) / n_target, (np.arange(n_source) + 0.5) / n_source
    prior = np.exp(-DIAGONAL_TENSION * np.abs(source - target))
    return prior / prior.sum(1, keepdims=True)


def candidate_word_weights(weights: Tensor, target: list[Word], source: list[Word]) -> Iterator[tuple[str, Tensor]]:
    """Yield aggregations of token weights (layers, heads, target, source) to word weights, each with its name."""
    parts = {"all layers": weights, "upper half": weights[len(weights) // 2 :]}
    parts |= {f"layer {number}": layer[None] for number, layer in enumerate(weights)}
    for name, part in parts.items():
        by_word = aggregate_word_attention(part.mean((0, 1)), target, source)
        yield name, by_word
        yield f"{name}, normalised by source word", by_word / (by_word.sum(0) + SMOOTHING)
    for layer, heads in enumerate(weights):
        for head, head_weights in enumerate(heads):
            yield f"layer {layer}, head {head}", aggregate_word_attention(head_weights, target, source)
    yield "maximum over heads", aggregate_word_attention(weights.amax((0, 1)), target, source)
    yield "regard", normalise_word_attention(weights, target, source)


def print_recall(model: Any, train: Sequence[Pair], test: Sequence[Pair]) -> None:
    """Print the fraction of silver links that each aggregation finds."""
    links = build_silver_links([*train, *test], len(test))
    tokenizers = model.task.tokenizers
    ids = [(tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)) for pair in test]
    n_correct: Counter[str] = Counter()
    n_links = 0
    decodings = model.predictor.force_decode(ids)
    for pair, (source_ids, target_ids), gold, decoding in zip(test, ids, links, decodings, strict=True):
        target, source = tokenizers.target.words(target_ids), tokenizers.source.words(source_ids)
        if (len(source), len(target)) != (len(pair.source.split()), len(pair.target.split())):
            continue  # the tokenizer splits words differently from white space
        n_links += len(gold)
        for name, weights in candidate_word_weights(decoding.attention.to(torch.float32), target, source):
            aligned = weights.argmax(1).tolist()
            n_correct[name] += sum(aligned[t] == s for s, t in gold)
    print(f"{n_links:,} silver links of {len(test):,} pairs; fraction found")
    for name, count in n_correct.most_common():
        print(f"{count / max(1, n_links):6.1%}  {name}")


def train_smoke_model(folder: Path) -> list[str]:
    """Train a tiny model for one step on word-by-word translations of numbers; return the arguments that read it."""
    rng = random.Random(0)
    numbers = [[rng.randrange(10) for _ in range(rng.randint(2, 6))] for _ in range(40)]
    paths = {"en": folder / "text.en", "fr": folder / "text.fr"}
    for language, path in paths.items():
        lines = (" ".join(f"{language}{number}" for number in line) for line in numbers)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = [str(path) for path in paths.values()]
    recipe = {
        "task": {"name": "translate"},
        "data": {"train": data, "valid": data},
        "model": {"preset": "tiny", "n_layers": 1, "n_decoder_layers": 1},
        "train": {"steps": 1, "batch_tokens": 256},
    }
    return [str(regard.train(recipe, out=folder / "run", device="cpu").path), *data, *data]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke={})
    parser.add_argument("run", nargs="?", help="run directory of a translation model")
    for name in ("train_source", "train_target", "test_source", "test_target"):
        parser.add_argument(name, nargs="?")
    options = parser.parse(arguments)
    with TemporaryDirectory() as folder:
        if options.smoke and options.run is None:
            options = parser.parse(train_smoke_model(Path(folder)))
        if options.test_target is None:
            parser.error("give a run directory and the source and target files for training and testing, or --smoke")
        train = list(read_pairs([options.train_source, options.train_target]))
        test = list(read_pairs([options.test_source, options.test_target]))[:1000]
        print_recall(regard.load(options.run), train, test)


if __name__ == "__main__":
    harness.run_script(main)
