"""How fast batches of pairs are made: store, order, packing and laying, on synthetic lengths, in one thread.

    python bench/loader.py [--pairs 400000] [--batch-tokens 32768] [--width 128] [--batches 400]

Prints target tokens a second, the share of positions that hold a token, and where the time goes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from synthetic_lengths import sample_pair_lengths

from regard.data.batches import Seq2SeqBatch, build_seq2seq_batch
from regard.data.columns import EncodedChunk, TokenColumnSpec
from regard.data.order import Cursor, Order, PackedOrder
from regard.data.packing import pack
from regard.data.prefetch import Prefetcher
from regard.data.store import TokenStore
from regard.text.tokenizer import EOS, PAD, SEQ2SEQ_SPECIAL_TOKENS, SOS

VOCABULARY_SIZE, CHUNK_SIZE = 32_000, 4096


def sample_chunks(lengths: np.ndarray) -> Iterator[EncodedChunk]:
    generator = np.random.default_rng(0)
    for first in range(0, len(lengths), CHUNK_SIZE):
        sides = lengths[first : first + CHUNK_SIZE].T.tolist()
        yield [
            [generator.integers(len(SEQ2SEQ_SPECIAL_TOKENS), VOCABULARY_SIZE, n).tolist() for n in side]
            for side in sides
        ]


class Stopwatch:
    """Seconds spent in each part of the work."""

    def __init__(self) -> None:
        self.seconds = {"packing": 0.0, "laying": 0.0}

    def add_elapsed(self, part: str, start: float) -> None:
        self.seconds[part] += time.perf_counter() - start


def iterate_batches(
    store: TokenStore, order: Order, n_batches: int, stopwatch: Stopwatch
) -> Iterator[tuple[Seq2SeqBatch, Cursor]]:
    placements = order.iterate()
    for _ in range(n_batches):
        start = time.perf_counter()
        placement, after = next(placements)
        stopwatch.add_elapsed("packing", start)
        start = time.perf_counter()
        batch = build_seq2seq_batch(store, placement, pad_id=PAD, sos_id=SOS, eos_id=EOS)
        stopwatch.add_elapsed("laying", start)
        yield batch, after


def bench_packing(width: int) -> None:
    for n_pairs in (8_000, 65_536):
        lengths = sample_pair_lengths(n_pairs, seed=1) + 1
        packing = pack(lengths, (width, width))
        speed = n_pairs / min(timeit.repeat(partial(pack, lengths, (width, width)), number=1, repeat=5))
        fills = tuple((lengths.sum(axis=0) / (packing.n_rows * width)).tolist())
        print(f"pack {n_pairs:>7,} pairs   {speed:>12,.0f} pairs/s   {format_packing_efficiency(fills)}")


def bench_loading(store: TokenStore, order: Order, n_batches: int) -> None:
    clock = Stopwatch()
    start = time.perf_counter()
    tokens = sum(batch.n_tokens for batch, _ in iterate_batches(store, order, n_batches, clock))
    total = time.perf_counter() - start
    parts = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in clock.seconds.items())
    print(
        f"load {n_batches:>7,} batches {tokens / total:>12,.0f} tokens/s  {1e3 * total / n_batches:.2f} ms a batch: {parts}"
    )
    start = time.perf_counter()
    with Prefetcher(iterate_batches(store, order, n_batches, Stopwatch()), torch.device("cpu")) as ahead:
        tokens = sum(batch.n_tokens for batch, _ in ahead)
    print(f"     through Prefetch   {tokens / (time.perf_counter() - start):>12,.0f} tokens/s")


def format_packing_efficiency(efficiencies: tuple[float, ...]) -> str:
    return "fill " + " / ".join(f"{share:.2%}" for share in efficiencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400_000)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batches", type=int, default=400)
    options = parser.parse_args()
    print(f"python {sys.version.split()[0]}, numpy {np.__version__}, torch {torch.__version__}")
    bench_packing(options.width)
    lengths = sample_pair_lengths(options.pairs, seed=0)
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        path, columns = Path(directory) / "store", ("source", "target")
        specs = [TokenColumnSpec(name, VOCABULARY_SIZE) for name in columns]
        store = TokenStore.write(path, specs, sample_chunks(lengths), fingerprint="bench")
        written = int(lengths.sum()) / (time.perf_counter() - start)
        print(f"write {len(store):,} pairs     {written:>12,.0f} tokens/s, drawing them included")
        taken = store.lengths(*columns, n_special_tokens=1)
        order = PackedOrder(taken, (options.width,) * 2, options.batch_tokens // options.width, seed=1)
        estimate = order.estimate()
        print(
            f"epoch {estimate.n_batches:,} batches in {order.n_pools} pools   {format_packing_efficiency(estimate.packing_efficiency)}"
        )
        bench_loading(store, order, options.batches)


if __name__ == "__main__":
    main()
