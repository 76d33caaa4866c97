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
from train import NEVER, measure_speeds, run_plain_loop

from regard.data.corpus import DataConfig
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerEncoderConfig, apply_preset
from regard.runs.recipe import RunConfig, TrainConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun

IGNORE = -100


def build_tokenizer(vocabulary_size: int) -> Tokenizer:
    """A vocabulary of so many words, none of which is ever written."""
    words = {
        name: index
        for index, name in enumerate(
            (*ENCODER_SPECIAL_TOKENS, *(f"w{i}" for i in range(vocabulary_size - len(ENCODER_SPECIAL_TOKENS))))
        )
    }
    rust = Rust(models.WordPiece(words, unk_token=ENCODER_SPECIAL_TOKENS[1]))
    rust.add_special_tokens(list(ENCODER_SPECIAL_TOKENS))
    return Tokenizer(rust)


def run_regard_rounds(config: TransformerEncoderConfig, length: int, options: argparse.Namespace) -> Iterator[int]:
    """Our own training loop over a store on disk: what a user's run does between two log lines."""
    device, rows = torch.device(options.device), options.batch * 128 // length
    gpu = device.type == "cuda"
    settings = PretrainConfig(objective="masked", length=length)
    task = PretrainingTask(settings, build_tokenizer(options.vocabulary))
    model = task.build_model(config)
    initialise_weights(model, torch.Generator().manual_seed(0), config.init_std)
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
        store = write_full_rows(Path(folder) / "store", 40 * rows, length, task)
        order = PackedOrder(task.example_lengths(store), [length], rows, seed=0)
        run = RunDirectory(Path(folder))
        everything = RunConfig(settings, data, words, config, train)
        prepared = PreparedRun(run, everything, task, model.to(device), order, order, store, store, device, {})
        tokens = 0
        for event in Trainer(prepared).train():
            yield event.values["tokens"] - tokens
            tokens = event.values["tokens"]


def write_full_rows(folder: Path, n_rows: int, length: int, task: PretrainingTask) -> TokenStore:
    """Random texts that fill a row each."""
    rng = np.random.default_rng(0)
    texts = [task.template.wrap(rng.integers(5, task.vocabulary_size, length - 2).tolist()).ids for _ in range(n_rows)]
    columns = [texts, [length] * n_rows, [1] * n_rows]
    return TokenStore.write(folder, task.store_columns, [columns], fingerprint="")


def run_bert_rounds(
    config: TransformerEncoderConfig, length: int, options: argparse.Namespace, *, compiled: bool
) -> Iterator[int]:
    """BertForMaskedLM in a plain loop."""
    from transformers import BertConfig, BertForMaskedLM

    device, rows = torch.device(options.device), options.batch * 128 // length
    shape = BertConfig(
        vocab_size=options.vocabulary, hidden_size=config.d_model, num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads, intermediate_size=config.d_ff, max_position_embeddings=max(512, length),
        attn_implementation="sdpa",
    )  # fmt: skip
    batches = [_sample_masked_batch(rows, length, options.vocabulary, device) for _ in range(8)]
    return run_plain_loop(BertForMaskedLM(shape), batches, options, compiled=compiled)


def _sample_masked_batch(n_rows: int, length: int, vocabulary_size: int, device: torch.device) -> dict[str, Tensor]:
    ids = torch.randint(5, vocabulary_size, (n_rows, length), device=device)
    chosen = torch.rand(ids.shape, device=device) < 0.15
    return {"input_ids": ids.masked_fill(chosen, 4), "labels": ids.masked_fill(~chosen, IGNORE)}


def flops_per_token(config: TransformerEncoderConfig, length: int, vocabulary_size: int) -> float:
    """Of a token, forward and backward."""
    layers = config.n_layers * (4 * config.d_model**2 + 2 * config.d_model * config.d_ff)
    attention = 12 * config.n_layers * length * config.d_model
    return 6 * layers + attention + 0.15 * 6 * config.d_model * (vocabulary_size + config.d_model)


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
        config = TransformerEncoderConfig(
            **apply_preset({"preset": options.preset, "n_positions": max(512, length)}, TransformerEncoderConfig)
        )
        contenders = {"regard": run_regard_rounds(config, length, options)}
        for name, compiled in (("BertForMaskedLM", False), ("compiled", True)):
            contenders[name] = run_bert_rounds(config, length, options, compiled=compiled)
        speeds = measure_speeds(contenders, options.device, options.warm, options.rounds)
        used = flops_per_token(config, length, options.vocabulary) * speeds["regard"] / options.peak
        print(f"{options.preset}, {options.batch * 128 // length} x {length}, {options.device}; utilisation {used:.1%}")
        for name, speed in speeds.items():
            print(f"    {name:<16}{speed:>12,.0f} tokens/s   regard is {speeds['regard'] / speed:.2f} times this")


if __name__ == "__main__":
    main()
