"""Masked pre-training speed in tokens per second, beside BertForMaskedLM, eager and compiled.

    python bench/pretrain.py --device cuda              BERT-base, 256 x 128 and 64 x 512
    python bench/pretrain.py --preset tiny --batch 8    a small one on the CPU

regard runs its own training loop over a store on disk. Every text fills a row, so there is no padding; all train with
fused AdamW and dropout, in bfloat16 on a GPU; the peer's batches are on the device already. The peer computes logits at
every position, as its loss does, regard at the masked ones. Model FLOPs are 6 per parameter of the layers and token,
12 n d per layer for attention over n tokens, and 6 per parameter of the vocabulary and masked token; utilisation is
their fraction of --peak.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import harness
import numpy as np
import peers
import torch
from regard_training import build_tokenizer, train_regard, write_store

from regard.data.store import TokenStore
from regard.models.config import TransformerEncoderConfig, apply_preset
from regard.nn import IGNORE
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS

MASK_ID, P_MASKED = ENCODER_SPECIAL_TOKENS.index("[MASK]"), 0.15
SMOKE = {"preset": "tiny", "vocabulary": 500, "lengths": [32], "batch": 1}


def write_full_rows(folder: Path, task: PretrainingTask, n_rows: int, length: int) -> TokenStore:
    """Write random texts that fill a row each."""
    rng = np.random.default_rng(0)
    first = len(ENCODER_SPECIAL_TOKENS)
    texts = [
        task.template.wrap(rng.integers(first, task.vocabulary_size, length - 2).tolist()).ids for _ in range(n_rows)
    ]
    return write_store(folder, task, [texts, [length] * n_rows, [1] * n_rows])


def sample_masked_batch(n_rows: int, length: int, vocabulary_size: int, device: str) -> peers.PeerBatch:
    """Return a batch of random tokens for the peer, 15 % of them masked."""
    ids = torch.randint(len(ENCODER_SPECIAL_TOKENS), vocabulary_size, (n_rows, length), device=device)
    masked = torch.rand(ids.shape, device=device) < P_MASKED
    inputs = {"input_ids": ids.masked_fill(masked, MASK_ID), "labels": ids.masked_fill(~masked, IGNORE)}
    return peers.PeerBatch(inputs, ids.numel())


def flops_per_token(config: TransformerEncoderConfig, length: int, vocabulary_size: int) -> float:
    """Return the model FLOPs of the forward and backward pass of one token."""
    layers = config.n_layers * (4 * config.d_model**2 + 2 * config.d_model * config.d_ff)
    attention = 12 * config.n_layers * length * config.d_model
    return 6 * layers + attention + P_MASKED * 6 * config.d_model * (vocabulary_size + config.d_model)


def build_contenders(
    config: TransformerEncoderConfig, folder: Path, length: int, n_rows: int, options: argparse.Namespace
) -> dict[str, harness.Contender]:
    """Return regard and the peer, eager and compiled."""
    tokenizer = build_tokenizer(ENCODER_SPECIAL_TOKENS, options.vocabulary)
    task = PretrainingTask(PretrainConfig(objective="masked", length=length), tokenizer)
    store = write_full_rows(folder, task, 40 * n_rows, length)
    regard = train_regard(task, config, store, options, n_rows=n_rows, length=length)
    contenders: dict[str, harness.Contender] = {"regard": regard.__next__}
    batches = [
        sample_masked_batch(n_rows, length, options.vocabulary, options.device)
        for _ in range(2 if options.smoke else 8)
    ]
    for mode in harness.compile_modes(options) if harness.is_installed("transformers") else ():
        model = peers.build_bert(config, options.vocabulary)
        contenders[f"BertForMaskedLM, {mode}"] = peers.train_peer(model, batches, options, mode).__next__
    return contenders


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=5, smoke=SMOKE)
    parser.add_training_options(steps=20)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512], help="tokens per row")
    parser.add_argument("--batch", type=int, default=256, help="rows of 128 tokens; longer rows are fewer")
    parser.add_argument("--peak", type=float, default=990e12, help="peak FLOP/s of the GPU")
    options = parser.parse(arguments)
    layers = harness.layer_settings(options, "n_layers")
    for length in options.lengths:
        shape = {"preset": options.preset, "n_positions": max(512, length), **layers}
        config = TransformerEncoderConfig(**apply_preset(shape, TransformerEncoderConfig))
        n_rows = max(1, options.batch * 128 // length)
        with TemporaryDirectory() as folder:
            contenders = build_contenders(config, Path(folder), length, n_rows, options)
            rounds = harness.time_warm_rounds(contenders, options)
        notes = harness.utilisation(rounds, flops_per_token(config, length, options.vocabulary), options)
        title = f"{options.preset}, {n_rows} x {length}, {options.device}, median of {options.rounds} rounds"
        harness.print_speeds(title, rounds, steps=options.steps, notes=notes)


if __name__ == "__main__":
    harness.run_script(main)
