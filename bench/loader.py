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
from lengths import pair_lengths

from regard.data.batches import PairBatch, pair_batch
from regard.data.order import Cursor, Order, PackedOrder
from regard.data.packing import pack
from regard.data.prefetch import Prefetch
from regard.data.store import Chunk, TokenStore
from regard.text.tokenizer import EOS, PAD, SOS, SPECIALS

VOCABULARY, CHUNK = 32_000, 4096


def chunks(lengths: np.ndarray) -> Iterator[Chunk]:
    generator = np.random.default_rng(0)
    for first in range(0, len(lengths), CHUNK):
        sides = lengths[first : first + CHUNK].T.tolist()
        yield [[generator.integers(len(SPECIALS), VOCABULARY, n).tolist() for n in side] for side in sides]


class Clock:
    """Seconds spent in each part of the work."""

    def __init__(self) -> None:
        self.seconds = {"packing": 0.0, "laying": 0.0}

    def timed(self, part: str, start: float) -> None:
        self.seconds[part] += time.perf_counter() - start


def batches(store: TokenStore, order: Order, count: int, clock: Clock) -> Iterator[tuple[PairBatch, Cursor]]:
    placements = order.iterate()
    for _ in range(count):
        start = time.perf_counter()
        placement, after = next(placements)
        clock.timed("packing", start)
        start = time.perf_counter()
        batch = pair_batch(store, placement, pad=PAD, sos=SOS, eos=EOS)
        clock.timed("laying", start)
        yield batch, after


def bench_packing(width: int) -> None:
    for n_pairs in (8_000, 65_536):
        lengths = pair_lengths(n_pairs, seed=1) + 1
        packing = pack(lengths, (width, width))
        speed = n_pairs / min(timeit.repeat(partial(pack, lengths, (width, width)), number=1, repeat=5))
        fills = tuple((lengths.sum(axis=0) / (packing.n_rows * width)).tolist())
        print(f"pack {n_pairs:>7,} pairs   {speed:>12,.0f} pairs/s   {shares(fills)}")


def bench_loading(store: TokenStore, order: Order, count: int) -> None:
    clock = Clock()
    start = time.perf_counter()
    tokens = sum(batch.n_tokens for batch, _ in batches(store, order, count, clock))
    total = time.perf_counter() - start
    parts = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in clock.seconds.items())
    print(f"load {count:>7,} batches {tokens / total:>12,.0f} tokens/s  {1e3 * total / count:.2f} ms a batch: {parts}")
    start = time.perf_counter()
    with Prefetch(batches(store, order, count, Clock()), torch.device("cpu")) as ahead:
        tokens = sum(batch.n_tokens for batch, _ in ahead)
    print(f"     through Prefetch   {tokens / (time.perf_counter() - start):>12,.0f} tokens/s")


def shares(fills: tuple[float, ...]) -> str:
    return "fill " + " / ".join(f"{share:.2%}" for share in fills)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400_000)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batches", type=int, default=400)
    options = parser.parse_args()
    print(f"python {sys.version.split()[0]}, numpy {np.__version__}, torch {torch.__version__}")
    bench_packing(options.width)
    lengths = pair_lengths(options.pairs, seed=0)
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        path, columns = Path(directory) / "store", ("source", "target")
        store = TokenStore.write(path, columns, chunks(lengths), vocabulary=VOCABULARY, fingerprint="bench")
        written = int(lengths.sum()) / (time.perf_counter() - start)
        print(f"write {len(store):,} pairs     {written:>12,.0f} tokens/s, drawing them included")
        taken = store.lengths(*columns, extra=1)
        order = PackedOrder(taken, (options.width,) * 2, options.batch_tokens // options.width, seed=1)
        estimate = order.estimate()
        print(f"epoch {estimate.batches:,} batches in {order.n_pools} pools   {shares(estimate.fill)}")
        bench_loading(store, order, options.batches)


if __name__ == "__main__":
    main()
