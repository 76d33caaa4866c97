"""Speed of building batches of sentence pairs: store, order, packing and batch building, in one thread.

    python bench/loader.py [--pairs 400000] [--batch-tokens 32768] [--width 128] [--batches 400] [--layers 64]

Pairs have random tokens and synthetic lengths. Prints target tokens per second, the packing efficiency of both sides
(the fraction of positions that hold a token), and the fraction of time each part takes; also the speed of verifying the
store, as a resumed run does, and of loading weights with and without their checksum.
"""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import harness
import numpy as np
import torch
from safetensors.torch import save_file
from synthetic_lengths import sample_pair_lengths
from torch import nn

from regard.data.batches import Seq2SeqBatch, build_seq2seq_batch
from regard.data.columns import EncodedChunk, TokenColumnSpec
from regard.data.order import Cursor, Order, PackedOrder
from regard.data.packing import pack
from regard.data.prefetch import Prefetcher
from regard.data.store import TokenStore
from regard.data.verification import find_damage
from regard.models.weights import collect_weights, load_model, write_tensors
from regard.text.tokenizer import EOS, PAD, SEQ2SEQ_SPECIAL_TOKENS, SOS

VOCABULARY_SIZE, CHUNK_SIZE = 32_000, 4096
SIDES = ("source", "target")
SMOKE = {"pairs": 1000, "batch_tokens": 1024, "batches": 5, "pool_sizes": [500], "layers": 1}


def sample_chunks(lengths: np.ndarray) -> Iterator[EncodedChunk]:
    """Yield chunks of pairs of random tokens."""
    rng = np.random.default_rng(0)
    for first in range(0, len(lengths), CHUNK_SIZE):
        sides = lengths[first : first + CHUNK_SIZE].T.tolist()
        yield [[rng.integers(len(SEQ2SEQ_SPECIAL_TOKENS), VOCABULARY_SIZE, n).tolist() for n in side] for side in sides]


class Stopwatch:
    """Seconds spent in each part of the work."""

    def __init__(self) -> None:
        self.seconds = {"packing": 0.0, "batch building": 0.0}

    def add_elapsed(self, part: str, start: float) -> None:
        self.seconds[part] += time.perf_counter() - start


def iterate_batches(
    store: TokenStore, order: Order, n_batches: int, stopwatch: Stopwatch
) -> Iterator[tuple[Seq2SeqBatch, Cursor]]:
    """Yield the first batches of an order, timing each part."""
    placements = order.iterate()
    for _ in range(n_batches):
        start = time.perf_counter()
        placement, cursor = next(placements)
        stopwatch.add_elapsed("packing", start)
        start = time.perf_counter()
        batch = build_seq2seq_batch(store["source"], store["target"], placement, pad_id=PAD, sos_id=SOS, eos_id=EOS)
        stopwatch.add_elapsed("batch building", start)
        yield batch, cursor


def bench_packing(pool_sizes: Sequence[int], width: int, rounds: int) -> None:
    """Time packing alone."""
    for n_pairs in pool_sizes:
        lengths = sample_pair_lengths(n_pairs, seed=1) + 1
        packing = pack(lengths, (width, width))
        speed = n_pairs / min(timeit.repeat(partial(pack, lengths, (width, width)), number=1, repeat=rounds))
        efficiencies = (lengths.sum(axis=0) / (packing.n_rows * width)).tolist()
        print(f"pack {n_pairs:>7,} pairs   {speed:>12,.0f} pairs/s    {format_packing_efficiency(efficiencies)}")


def write_store(folder: Path, lengths: np.ndarray) -> TokenStore:
    """Write the store and print the speed."""
    start = time.perf_counter()
    chunks, specs = sample_chunks(lengths), [TokenColumnSpec(side, VOCABULARY_SIZE) for side in SIDES]
    store = TokenStore.write(folder, specs, chunks, fingerprint="bench")
    speed = int(lengths.sum()) / (time.perf_counter() - start)
    print(f"write {len(store):>6,} pairs   {speed:>12,.0f} tokens/s   sampling the tokens included")
    return store


def bench_verification(store: TokenStore, rounds: int) -> None:
    """Time the comparison of all bytes of the store with its digest."""
    n_bytes = sum(file.stat().st_size for file in store.path.iterdir())
    specs = [TokenColumnSpec(side, VOCABULARY_SIZE) for side in SIDES]
    assert not find_damage(store, specs)
    seconds = min(timeit.repeat(partial(find_damage, store, specs), number=1, repeat=rounds))
    speed = n_bytes / seconds / 1e9
    print(f"verify {n_bytes / 1e6:>6,.1f} MB    {speed:>13.2f} GB/s       files in the page cache")


def bench_weights(folder: Path, n_layers: int, rounds: int) -> None:
    """Time the loading of the same weights from a file with a checksum and, in turn, from one without."""

    def build() -> nn.Module:
        return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(n_layers)))

    weights = collect_weights(build())
    paths = {"with": folder / "with.safetensors", "without": folder / "without.safetensors"}
    write_tensors(paths["with"], weights)
    save_file(weights, paths["without"])  # as other libraries write it
    n_bytes = paths["with"].stat().st_size
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(rounds):
        for name, path in paths.items():
            seconds[name].append(timeit.timeit(partial(load_model, build, path), number=1))
    speeds = ", ".join(f"{n_bytes / min(times) / 1e9:.2f} GB/s {name}" for name, times in seconds.items())
    print(f"load   {n_bytes / 1e6:>6,.1f} MB of weights   {speeds} checksum   files in the page cache")


def bench_loading(store: TokenStore, order: Order, n_batches: int) -> None:
    """Time the batches of an epoch, in this thread and through the prefetcher."""
    stopwatch = Stopwatch()
    start = time.perf_counter()
    tokens = sum(batch.n_tokens for batch, _ in iterate_batches(store, order, n_batches, stopwatch))
    total = time.perf_counter() - start
    fractions = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in stopwatch.seconds.items())
    speed, milliseconds = tokens / total, 1e3 * total / n_batches
    print(f"load {n_batches:>7,} batches {speed:>12,.0f} tokens/s   {milliseconds:.2f} ms per batch: {fractions}")
    start = time.perf_counter()
    with Prefetcher(iterate_batches(store, order, n_batches, Stopwatch()), torch.device("cpu")) as batches:
        tokens = sum(batch.n_tokens for batch, _ in batches)
    print(f"     with prefetching   {tokens / (time.perf_counter() - start):>12,.0f} tokens/s")


def format_packing_efficiency(efficiencies: Sequence[float]) -> str:
    sides = " / ".join(f"{efficiency:.2%}" for efficiency in efficiencies)
    return f"packing efficiency {sides} ({' / '.join(SIDES)})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=5, smoke=SMOKE)
    parser.add_argument("--pairs", type=int, default=400_000, help="pairs in the store")
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--width", type=int, default=128, help="tokens per packed row")
    parser.add_argument("--batches", type=int, default=400, help="batches to build")
    parser.add_argument("--pool-sizes", type=int, nargs="+", default=[8_000, 65_536], help="pairs to pack at a time")
    parser.add_argument("--layers", type=int, default=64, help="layers of 1024 x 1024 weights to load")
    options = parser.parse(arguments)
    print(f"python {sys.version.split()[0]}, numpy {np.__version__}, torch {torch.__version__}")
    bench_packing(options.pool_sizes, options.width, options.rounds)
    with TemporaryDirectory() as folder:
        store = write_store(Path(folder) / "store", sample_pair_lengths(options.pairs, seed=0))
        bench_verification(store, options.rounds)
        bench_weights(Path(folder), options.layers, options.rounds)
        lengths = store.lengths(*SIDES, n_special_tokens=1)
        order = PackedOrder(lengths, (options.width,) * 2, options.batch_tokens // options.width, seed=1)
        estimate = order.estimate()
        efficiency = format_packing_efficiency(estimate.packing_efficiency)
        print(f"epoch {estimate.n_batches:,} batches in {order.n_pools} pools   {efficiency}")
        bench_loading(store, order, options.batches)


if __name__ == "__main__":
    harness.run_script(main)
