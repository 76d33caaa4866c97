"""Training speed of language models in tokens per second, beside GPT2LMHeadModel, eager and compiled.

    python bench/lm.py --device cuda                        gpt2-small, 32 x 1024
    python bench/lm.py --preset tiny --rows 4 --length 64   a small one on the CPU

regard runs its own training loop over a store on disk. Every text fills a row, so there is no padding; with --texts N
a row holds N texts, between which the peer's tokens attend to each other. All train with fused AdamW and dropout, in
bfloat16 on a GPU; the peer's batches are on the device already. Model FLOPs are 6 per parameter (of the layers and the
vocabulary) and token, plus 6 n d per layer for causal attention over n tokens; utilisation is their fraction of --peak.
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
from regard.models.config import TransformerLMConfig, apply_preset
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.text.tokenizer import LM_SPECIAL_TOKENS

SMOKE = {"preset": "tiny", "vocabulary": 500, "rows": 4, "length": 64}


def write_full_rows(folder: Path, task: LanguageModelTask, options: argparse.Namespace) -> TokenStore:
    """Write random texts, `options.texts` of which fill a row."""
    rng = np.random.default_rng(0)
    n_texts, n_tokens = 40 * options.rows * options.texts, options.length // options.texts + 1
    texts = [rng.integers(1, options.vocabulary, n_tokens).tolist() for _ in range(n_texts)]
    return write_store(folder, task, [texts])


def sample_batch(options: argparse.Namespace) -> peers.PeerBatch:
    """Return a batch of random tokens for the peer."""
    ids = torch.randint(1, options.vocabulary, (options.rows, options.length), device=options.device)
    return peers.PeerBatch({"input_ids": ids, "labels": ids}, ids.numel())


def flops_per_token(config: TransformerLMConfig, length: int, vocabulary_size: int) -> float:
    """Return the model FLOPs of the forward and backward pass of one token."""
    layers = config.n_layers * (4 * config.d_model**2 + 2 * config.d_model * config.d_ff)
    return 6 * (layers + vocabulary_size * config.d_model + config.n_layers * length * config.d_model)


def build_contenders(
    config: TransformerLMConfig, task: LanguageModelTask, store: TokenStore, options: argparse.Namespace
) -> dict[str, harness.Contender]:
    """Return regard and the peer, eager and compiled."""
    regard = train_regard(task, config, store, options, n_rows=options.rows, length=options.length)
    contenders: dict[str, harness.Contender] = {"regard": regard.__next__}
    batches = [sample_batch(options) for _ in range(2 if options.smoke else 8)]
    for mode in harness.compile_modes(options) if harness.is_installed("transformers") else ():
        model = peers.build_gpt2(config, options.vocabulary, n_positions=config.n_positions, use_cache=False)
        contenders[f"GPT2LMHeadModel, {mode}"] = peers.train_peer(model, batches, options, mode).__next__
    return contenders


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=5, smoke=SMOKE)
    parser.add_training_options(steps=20)
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024, help="tokens per row")
    parser.add_argument("--texts", type=int, default=1, help="texts per row")
    parser.add_argument("--peak", type=float, default=990e12, help="peak FLOP/s of the GPU")
    options = parser.parse(arguments)
    shape = {"preset": options.preset, "n_positions": options.length, **harness.layer_settings(options, "n_layers")}
    config = TransformerLMConfig(**apply_preset(shape, TransformerLMConfig))
    task = LanguageModelTask(LmConfig(length=options.length), build_tokenizer(LM_SPECIAL_TOKENS, options.vocabulary))
    with TemporaryDirectory() as folder:
        store = write_full_rows(Path(folder), task, options)
        rounds = harness.time_warm_rounds(build_contenders(config, task, store, options), options)
    flops = flops_per_token(config, options.length, options.vocabulary)
    title = f"{options.preset}, {options.rows} x {options.length}, {options.device}, median of {options.rounds} rounds"
    harness.print_speeds(title, rounds, steps=options.steps, notes=harness.utilisation(rounds, flops, options))


if __name__ == "__main__":
    harness.run_script(main)
