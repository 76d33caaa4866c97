"""Pre-training speed, useful tokens a second, through the product's own loop beside Hugging Face's BertForMaskedLM.

    python bench/pretrain.py --device cuda              BERT-base, 256 x 128 and 64 x 512, beside eager and compiled
    python bench/pretrain.py --preset tiny --batch 8    a small one on the CPU

Every text fills its row, so that no one pads; all train with fused AdamW and dropout, in bfloat16 on a GPU. The peer
scores the vocabulary at every position, as its loss does; ours at the masked ones. Its batches are on the device
already. Model FLOPs are 6 for each weight of the layers and each token, 12 n d for attention in each layer, and 6 for
each weight of the vocabulary and each masked token; utilisation is their share of --peak.
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
from torch import Tensor
from train import NEVER, measure, plain_loop

from regard.data.corpus import DataConfig
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.models.blocks import initialise
from regard.models.presets import EncoderConfig, with_preset
from regard.tasks.pretrain import Pretrain, PretrainConfig
from regard.text.tokenizer import READING, Tokenizer
from regard.text.vocabulary import TokenizerConfig
from regard.train.loop import Training
from regard.train.prepare import Prepared
from regard.train.run import RunConfig, RunDirectory, TrainConfig

IGNORE = -100


def tokenizer(size: int) -> Tokenizer:
    """A vocabulary of so many words, none of which is ever written."""
    words = {name: index for index, name in enumerate((*READING, *(f"w{i}" for i in range(size - len(READING)))))}
    rust = Rust(models.WordPiece(words, unk_token=READING[1]))
    rust.add_special_tokens(list(READING))
    return Tokenizer(rust)


def regard_rounds(config: EncoderConfig, length: int, options: argparse.Namespace) -> Iterator[int]:
    """Our own training loop over a store on disk: what a user's run does between two log lines."""
    device, rows = torch.device(options.device), options.batch * 128 // length
    gpu = device.type == "cuda"
    settings = PretrainConfig(objective="masked", length=length)
    task = Pretrain(settings, tokenizer(options.vocabulary))
    model = task.build(config)
    initialise(model, torch.Generator().manual_seed(0), config.deviation)
    train = TrainConfig(
        steps=NEVER, batch_tokens=rows * length, learning_rate=1e-4, warmup=0, schedule="constant",
        log_every=options.steps, validate_every=NEVER, save_every=NEVER,
        precision="bfloat16" if gpu else "float32", compiled=gpu,
    )  # fmt: skip
    data, words = (
        DataConfig(train=(), max_length=length),
        TokenizerConfig(kind="wordpiece", vocabulary=options.vocabulary),
    )
    with TemporaryDirectory() as folder:
        store = full_rows(Path(folder) / "store", 40 * rows, length, task)
        order = PackedOrder(task.lengths(store), [length], rows, seed=0)
        run = RunDirectory(Path(folder))
        everything = RunConfig(settings, data, words, config, train)
        prepared = Prepared(run, everything, task, model.to(device), order, order, store, store, device, {})
        tokens = 0
        for event in Training(prepared).run():
            yield event.values["tokens"] - tokens
            tokens = event.values["tokens"]


def full_rows(folder: Path, n: int, length: int, task: Pretrain) -> TokenStore:
    """Random texts that fill a row each."""
    rng = np.random.default_rng(0)
    texts = [task.frame.around(rng.integers(5, task.vocabulary, length - 2).tolist()).ids for _ in range(n)]
    columns = [texts, [[length]] * n, [[1]] * n]
    return TokenStore.write(folder, task.columns, [columns], vocabulary=task.limit, fingerprint="")


def peer_rounds(config: EncoderConfig, length: int, options: argparse.Namespace, *, compiled: bool) -> Iterator[int]:
    """BertForMaskedLM in a plain loop."""
    from transformers import BertConfig, BertForMaskedLM

    device, rows = torch.device(options.device), options.batch * 128 // length
    shape = BertConfig(
        vocab_size=options.vocabulary, hidden_size=config.d_model, num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads, intermediate_size=config.d_ff, max_position_embeddings=max(512, length),
        attn_implementation="sdpa",
    )  # fmt: skip
    batches = [_masked(rows, length, options.vocabulary, device) for _ in range(8)]
    return plain_loop(BertForMaskedLM(shape), batches, options, compiled=compiled)


def _masked(rows: int, length: int, vocabulary: int, device: torch.device) -> dict[str, Tensor]:
    ids = torch.randint(5, vocabulary, (rows, length), device=device)
    chosen = torch.rand(ids.shape, device=device) < 0.15
    return {"input_ids": ids.masked_fill(chosen, 4), "labels": ids.masked_fill(~chosen, IGNORE)}


def flops(config: EncoderConfig, length: int, vocabulary: int) -> float:
    """Of a token, forward and backward."""
    layers = config.n_layers * (4 * config.d_model**2 + 2 * config.d_model * config.d_ff)
    attention = 12 * config.n_layers * length * config.d_model
    return 6 * layers + attention + 0.15 * 6 * config.d_model * (vocabulary + config.d_model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--batch", type=int, default=256, help="rows of 128 tokens, or as many tokens in longer ones")
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--warm", type=int, default=1, help="rounds not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", type=float, default=990e12, help="operations a second")
    options = parser.parse_args()
    for length in options.lengths:
        config = EncoderConfig(
            **with_preset({"preset": options.preset, "n_positions": max(512, length)}, EncoderConfig)
        )
        contenders = {"regard": regard_rounds(config, length, options)}
        for name, compiled in (("BertForMaskedLM", False), ("compiled", True)):
            contenders[name] = peer_rounds(config, length, options, compiled=compiled)
        speeds = measure(contenders, options.device, options.warm, options.rounds)
        used = flops(config, length, options.vocabulary) * speeds["regard"] / options.peak
        print(f"{options.preset}, {options.batch * 128 // length} x {length}, {options.device}; utilisation {used:.1%}")
        for name, speed in speeds.items():
            print(f"    {name:<16}{speed:>12,.0f} tokens/s   regard is {speeds['regard'] / speed:.2f} times this")


if __name__ == "__main__":
    main()
