"""Training speed of language models, tokens a second, through the product's own loop beside GPT2LMHeadModel.

    python bench/lm.py --device cuda                        gpt2-small, 32 x 1024, beside eager and compiled
    python bench/lm.py --preset tiny --rows 4 --length 64   a small one on the CPU

Every text fills its row, so that no one pads, or with --texts N a part of it, where the peer's tokens see each other
across texts; all train with fused AdamW and dropout, in bfloat16 on a GPU. Batches of the peer are on the device
already. Model FLOPs are 6 for each weight of the layers and of the vocabulary and each token, and 6 n d for causal
attention in each layer (as if texts filled their rows); utilisation is their share of --peak.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from tokenizers import Tokenizer as Rust
from tokenizers import models
from train import NEVER, measure_speeds, run_plain_loop

from regard.data.corpus import DataConfig
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerLMConfig, apply_preset
from regard.runs.recipe import RunConfig, TrainConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.text.tokenizer import LM_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun


def build_tokenizer(vocabulary_size: int) -> Tokenizer:
    """A vocabulary of so many words."""
    words = {
        name: index
        for index, name in enumerate(
            (*LM_SPECIAL_TOKENS, *(f"w{i}" for i in range(vocabulary_size - len(LM_SPECIAL_TOKENS))))
        )
    }
    rust = Rust(models.WordLevel(words, unk_token="w0"))
    rust.add_special_tokens(list(LM_SPECIAL_TOKENS))
    return Tokenizer(rust)


def run_regard_rounds(config: TransformerLMConfig, options: argparse.Namespace) -> Iterator[int]:
    """Our own training loop over a store on disk: what a user's run does between two log lines."""
    device, length = torch.device(options.device), options.length
    gpu = device.type == "cuda"
    settings = LmConfig(length=length)
    task = LanguageModelTask(settings, build_tokenizer(options.vocabulary))
    model = task.build_model(config)
    initialise_weights(model, torch.Generator().manual_seed(0), config.init_std)
    train = TrainConfig(
        steps=NEVER, batch_tokens=options.rows * length, learning_rate=1e-4, warmup=0, schedule="constant",
        log_every=options.steps, validate_every=NEVER, save_every=NEVER,
        precision="bfloat16" if gpu else "float32", compiled=gpu,
    )  # fmt: skip
    everything = RunConfig(
        settings,
        DataConfig(train=(), max_length=length),
        TokenizerConfig(vocabulary=options.vocabulary),
        config,
        train,
    )
    with TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        n_texts, n_tokens = 40 * options.rows * options.texts, length // options.texts + 1
        texts = [rng.integers(1, options.vocabulary, n_tokens).tolist() for _ in range(n_texts)]
        store = TokenStore.write(Path(folder) / "store", task.store_columns, [[texts]], fingerprint="")
        order = PackedOrder(task.example_lengths(store), [length], options.rows, seed=0)
        prepared = PreparedRun(
            RunDirectory(Path(folder)), everything, task, model.to(device), order, order, store, store, device, {}
        )
        tokens = 0
        for event in Trainer(prepared).train():
            yield event.values["tokens"] - tokens
            tokens = event.values["tokens"]


def run_gpt2_rounds(config: TransformerLMConfig, options: argparse.Namespace, *, compiled: bool) -> Iterator[int]:
    """GPT2LMHeadModel in a plain loop."""
    from transformers import GPT2Config, GPT2LMHeadModel

    device = torch.device(options.device)
    shape = GPT2Config(
        vocab_size=options.vocabulary, n_embd=config.d_model, n_layer=config.n_layers, n_head=config.n_heads,
        n_inner=config.d_ff, n_positions=config.n_positions, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    drawn = [torch.randint(1, options.vocabulary, (options.rows, options.length), device=device) for _ in range(8)]
    batches = [{"input_ids": ids, "labels": ids} for ids in drawn]
    return run_plain_loop(GPT2LMHeadModel(shape), batches, options, compiled=compiled)


def flops_per_token(config: TransformerLMConfig, length: int, vocabulary_size: int) -> float:
    """Of a token, forward and backward."""
    layers = config.n_layers * (4 * config.d_model**2 + 2 * config.d_model * config.d_ff)
    return 6 * (layers + vocabulary_size * config.d_model + config.n_layers * length * config.d_model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--texts", type=int, default=1, help="in a row")
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--warm", type=int, default=1, help="rounds not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", type=float, default=990e12, help="operations a second")
    options = parser.parse_args()
    shape = apply_preset({"preset": options.preset, "n_positions": options.length}, TransformerLMConfig)
    config = TransformerLMConfig(**shape)
    contenders = {"regard": run_regard_rounds(config, options)}
    for name, compiled in (("GPT2LMHeadModel", False), ("compiled", True)):
        contenders[name] = run_gpt2_rounds(config, options, compiled=compiled)
    speeds = measure_speeds(contenders, options.device, options.warm, options.rounds)
    used = flops_per_token(config, options.length, options.vocabulary) * speeds["regard"] / options.peak
    print(f"{options.preset}, {options.rows} x {options.length}, {options.device}; utilisation {used:.1%}")
    for name, speed in speeds.items():
        print(f"    {name:<16}{speed:>12,.0f} tokens/s   regard is {speeds['regard'] / speed:.2f} times this")


if __name__ == "__main__":
    main()
