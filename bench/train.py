"""Training speed of translation models in target tokens per second, beside Marian and torch.nn.Transformer.

    python bench/train.py                          the small model on the CPU, peers eager and compiled
    python bench/train.py --device cuda --preset base --vocabulary 32000 --batch-tokens 8192 32768

regard runs its own training loop over a store on disk. Every contender trains the same shape on the same lengths
(log-normal, mean about 22 tokens: --mean) with fused AdamW; the peers get padded batches of similar lengths that are on
the device already, which is their best case. Only target tokens count, padding does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness
import numpy as np
import peers
import torch
from regard_training import build_tokenizer, train_regard, write_store
from synthetic_lengths import sample_pair_lengths
from torch import Tensor, nn

from regard.data.store import TokenStore
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.text.tokenizer import PAD, SEQ2SEQ_SPECIAL_TOKENS, TokenizerPair

SMOKE = {"preset": "tiny", "vocabulary": 500, "batch_tokens": [512], "pairs": 400, "peer_batches": 1}


class Peer(NamedTuple):
    """A peer: its name in the table, the package it needs, its model of a shape, and its loss on a batch."""

    title: str
    package: str
    build: Callable[[TransformerSeq2SeqConfig, int], Any]
    loss: Callable[[Callable[..., Any], Mapping[str, Tensor]], Tensor]


PEERS = {
    "marian": Peer("Marian", "transformers", peers.build_marian, peers.marian_loss),
    "torch": Peer("nn.Transformer", "torch", peers.TorchTransformer, peers.torch_loss),
}


def build_task(vocabulary_size: int) -> TranslationTask:
    """Return a translation task with one vocabulary for both languages."""
    tokenizer = build_tokenizer(SEQ2SEQ_SPECIAL_TOKENS, vocabulary_size)
    return TranslationTask(TranslateConfig(), TokenizerPair(tokenizer, tokenizer))


def sample_sentences(n_pairs: int, vocabulary_size: int, mean_length: float) -> list[list[list[int]]]:
    """Return random sentences of synthetic lengths: those of the source, then those of the target."""
    rng = np.random.default_rng(1)
    return [
        [rng.integers(len(SEQ2SEQ_SPECIAL_TOKENS), vocabulary_size, length).tolist() for length in side]
        for side in sample_pair_lengths(n_pairs, seed=0, mean=mean_length).T
    ]


def build_padded_batches(
    store: TokenStore, batch_tokens: int, n_batches: int, device: torch.device
) -> list[peers.PeerBatch]:
    """Return random batches of pairs of similar lengths, padded, of about `batch_tokens` positions each."""
    size = store.lengths("source", "target").max(axis=1)
    order = np.argsort(size, kind="stable")
    batches, first = [], 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last + 1 - first) * size[order[last]] <= batch_tokens * 1.02:
            last += 1
        batches.append(order[first:last])
        first = last
    chosen = np.random.default_rng(2).permutation(len(batches))[:n_batches]
    return [_pad_batch(store, batches[i], device) for i in chosen]


def _pad_batch(store: TokenStore, pairs: np.ndarray, device: torch.device) -> peers.PeerBatch:
    padded = {name: _pad_column(store, name, pairs).to(device) for name in ("source", "target")}
    return peers.PeerBatch(padded, int((padded["target"] != PAD).sum()))


def _pad_column(store: TokenStore, name: str, pairs: np.ndarray) -> Tensor:
    sentences = [torch.from_numpy(store[name][pair].astype(np.int64)) for pair in pairs.tolist()]
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD)


def build_contenders(
    config: TransformerSeq2SeqConfig, task: TranslationTask, store: TokenStore, options: argparse.Namespace, size: int
) -> dict[str, harness.Contender]:
    """Return regard and the peers, eager and compiled, with batches of `size` tokens."""
    regard = train_regard(task, config, store, options, n_rows=size // options.width, length=options.width)
    contenders: dict[str, harness.Contender] = {"regard": regard.__next__}
    batches = build_padded_batches(store, size, options.peer_batches, torch.device(options.device))
    modes, dynamic = harness.compile_modes(options), len(batches) > 1 or None
    for name in options.peers:
        peer = PEERS[name]
        for mode in modes if harness.is_installed(peer.package) else ():
            model = peer.build(config, options.vocabulary)
            rounds = peers.train_peer(model, batches, options, mode, loss=peer.loss, dynamic=dynamic)
            contenders[f"{peer.title}, {mode}"] = rounds.__next__
    return contenders


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=5, smoke=SMOKE)
    parser.add_training_options(steps=5)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[2048])
    parser.add_argument("--width", type=int, default=128, help="tokens per packed row")
    parser.add_argument("--mean", type=float, default=22, help="mean length of a sentence")
    parser.add_argument("--pairs", type=int, default=40_000, help="pairs in the store")
    parser.add_argument("--peer-batches", type=int, default=32, help="different batches of the peers")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    options = parser.parse(arguments)
    layers = harness.layer_settings(options, "n_layers", "n_decoder_layers")
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset, **layers}))
    task = build_task(options.vocabulary)
    sentences = sample_sentences(options.pairs, options.vocabulary, options.mean)
    with TemporaryDirectory() as folder:
        store = write_store(Path(folder), task, sentences)
        for size in options.batch_tokens:
            rounds = harness.time_warm_rounds(build_contenders(config, task, store, options, size), options)
            title = f"{options.preset}, {size:,} tokens per batch, {options.device}, median of {options.rounds} rounds"
            harness.print_speeds(title, rounds, steps=options.steps, unit="target tokens/s")


if __name__ == "__main__":
    harness.run_script(main)
