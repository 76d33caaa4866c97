"""Training speed, useful target tokens a second, through the product's own loop beside its peers.

    python bench/train.py                          the small model on the CPU, beside Marian and torch.nn.Transformer
    python bench/train.py --device cuda --preset base --vocabulary 32000 --batch-tokens 8192 32768

Every contender trains the same shape on the same lengths (log-normal, mean about 22 tokens: --mean) with fused AdamW;
the peers get padded batches of like length, which is their best case. Rounds are interleaved; the median is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from synthetic_lengths import sample_pair_lengths
from torch import Tensor, nn

from regard.data.batches import IGNORE
from regard.data.columns import TokenColumnSpec
from regard.data.corpus import DataConfig
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.runs.recipe import RunConfig, TrainConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.text.tokenizer import EOS, PAD, SEQ2SEQ_SPECIAL_TOKENS, SOS
from regard.text.tokenizer_training import TokenizerConfig
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun

NEVER = 10**9
"""Steps until something that is not to happen."""


class StubTokenizers:
    """Stands in for the tokenizers, of which a model only asks the size."""

    joint = True

    def __init__(self, size: int) -> None:
        self.source = self.target = range(size)


def write_synthetic_store(folder: Path, n_pairs: int, vocabulary_size: int, mean_length: float) -> TokenStore:
    """Random sentences of those lengths, in a store on disk."""
    rng = np.random.default_rng(1)
    sides = [
        [rng.integers(len(SEQ2SEQ_SPECIAL_TOKENS), vocabulary_size, length).tolist() for length in side]
        for side in sample_pair_lengths(n_pairs, seed=0, mean=mean_length).T
    ]
    columns = [TokenColumnSpec(name, vocabulary_size) for name in ("source", "target")]
    return TokenStore.write(folder, columns, [sides], fingerprint="")


def run_regard_rounds(
    config: TransformerSeq2SeqConfig, store: TokenStore, options: argparse.Namespace, batch_tokens: int
) -> Iterator[int]:
    """Our own training loop over the store on disk: what a user's run does between two log lines."""
    device = torch.device(options.device)
    task = TranslationTask(TranslateConfig(), StubTokenizers(options.vocabulary))  # type: ignore[arg-type]
    model = task.build_model(config)
    initialise_weights(model, torch.Generator().manual_seed(0))
    order = PackedOrder(task.example_lengths(store), [options.width] * 2, batch_tokens // options.width, seed=0)
    gpu = device.type == "cuda"
    train = TrainConfig(
        steps=NEVER, batch_tokens=batch_tokens, learning_rate=1e-4, warmup=0, schedule="constant",
        log_every=options.steps, validate_every=NEVER, save_every=NEVER,
        precision="bfloat16" if gpu else "float32", compiled=gpu,
    )  # fmt: skip
    settings = RunConfig(
        TranslateConfig(),
        DataConfig(train=(), max_length=options.width),
        TokenizerConfig(vocabulary=options.vocabulary),
        config,
        train,
    )
    with TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder))
        prepared = PreparedRun(run, settings, task, model.to(device), order, order, store, store, device, {})
        tokens = 0
        for event in Trainer(prepared).train():
            yield event.values["tokens"] - tokens
            tokens = event.values["tokens"]


def build_padded_batches(
    store: TokenStore, batch_tokens: int, device: torch.device, n_batches: int = 32
) -> list[tuple[Tensor, Tensor]]:
    """Batches of like length, padded, on the device already: the peers' best case."""
    size = store.lengths("source", "target").max(axis=1)
    order = np.argsort(size, kind="stable")
    cuts, first = [], 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last + 1 - first) * size[order[last]] <= batch_tokens * 1.02:
            last += 1
        cuts.append(order[first:last])
        first = last
    chosen = np.random.default_rng(2).permutation(len(cuts))[:n_batches]
    return [
        (_pad_column(store, "source", cuts[i], device), _pad_column(store, "target", cuts[i], device)) for i in chosen
    ]


def _pad_column(store: TokenStore, name: str, items: np.ndarray, device: torch.device) -> Tensor:
    sentences = [torch.from_numpy(store[name][j].astype(np.int64)) for j in items]
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD).to(device)


def run_peer_rounds(
    model: nn.Module,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor],
    store: TokenStore,
    batch_tokens: int,
    options: argparse.Namespace,
) -> Iterator[int]:
    """A peer's plain loop under bfloat16 autocast on a GPU."""
    device = torch.device(options.device)
    model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    batches = build_padded_batches(store, batch_tokens, device)
    tokens = {id(target): int((target != PAD).sum()) for _, target in batches}
    seen = 0
    for step, (source, target) in enumerate(cycle(batches), start=1):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            value = loss(model, source, target)
        optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seen += tokens[id(target)]
        if step % options.steps == 0:
            yield seen
            seen = 0


def build_marian(
    config: TransformerSeq2SeqConfig, vocabulary_size: int
) -> tuple[nn.Module, Callable[[nn.Module, Tensor, Tensor], Tensor]]:
    """Hugging Face's Marian of the same shape."""
    from transformers import MarianConfig, MarianMTModel

    shape = MarianConfig(
        vocab_size=vocabulary_size, d_model=config.d_model, encoder_layers=config.n_layers,
        decoder_layers=config.n_decoder_layers, encoder_attention_heads=config.n_heads,
        decoder_attention_heads=config.n_heads, encoder_ffn_dim=config.d_ff, decoder_ffn_dim=config.d_ff,
        dropout=config.dropout, activation_function="relu", pad_token_id=PAD, eos_token_id=EOS,
        decoder_start_token_id=SOS, forced_eos_token_id=None, scale_embedding=True, max_position_embeddings=256,
    )  # fmt: skip

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        labels = target.masked_fill(target == PAD, IGNORE)
        result: Tensor = model(input_ids=source, attention_mask=source != PAD, labels=labels).loss
        return result

    return MarianMTModel(shape), loss


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings and a tied softmax."""

    def __init__(self, config: TransformerSeq2SeqConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, config.d_model)
        self.positions = nn.Embedding(256, config.d_model)
        self.body = nn.Transformer(
            config.d_model, config.n_heads, config.n_layers, config.n_decoder_layers, config.d_ff, config.dropout,
            batch_first=True,
        )  # fmt: skip

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) * self.tokens.embedding_dim**0.5 + self.positions.weight[: ids.shape[1]]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        empty = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device, dtype=torch.bool)
        out = self.body(
            self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=empty, memory_key_padding_mask=empty,
        )  # fmt: skip
        return out @ self.tokens.weight.T


def build_torch_transformer(
    config: TransformerSeq2SeqConfig, vocabulary_size: int
) -> tuple[nn.Module, Callable[..., Tensor]]:
    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        entered = torch.cat((torch.full_like(target[:, :1], SOS), target[:, :-1]), 1)
        logits = model(source, entered)
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD)

    return TorchTransformer(config, vocabulary_size), loss


def run_plain_loop(
    model: nn.Module, batches: list[dict[str, Tensor]], options: argparse.Namespace, *, compiled: bool
) -> Iterator[int]:
    """A peer of the library transformers in a loop as anybody writes it; gives the tokens of every round."""
    device = torch.device(options.device)
    model = model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if compiled else model
    tokens = 0
    for step, batch in enumerate(cycle(batches), start=1):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = run(**batch).loss
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        tokens += batch["input_ids"].numel()
        if step % options.steps == 0:
            yield tokens
            tokens = 0


def measure_speeds(
    contenders: dict[str, Iterator[int]], device: str, warmup_rounds: int, rounds: int
) -> dict[str, float]:
    """The median tokens a second of each, in interleaved rounds of some steps."""

    def sync() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for each in contenders.values():
        for _ in range(warmup_rounds):
            next(each)
    for _ in range(rounds):
        for name, each in contenders.items():
            sync()
            began = time.perf_counter()
            tokens = next(each)
            sync()
            speeds[name].append(tokens / (time.perf_counter() - began))
    return {name: statistics.median(found) for name, found in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[2048])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--mean", type=float, default=22)
    parser.add_argument("--steps", type=int, default=5, help="in a round")
    parser.add_argument("--warm", type=int, default=1, help="rounds not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="*", default=["marian", "torch"])
    parser.add_argument("--compile-peers", action="store_true")
    options = parser.parse_args()
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset}))
    with TemporaryDirectory() as folder:
        store = write_synthetic_store(Path(folder) / "store", 40_000, options.vocabulary, options.mean)
        print_speeds(config, store, options)


def print_speeds(config: TransformerSeq2SeqConfig, store: TokenStore, options: argparse.Namespace) -> None:
    """Print the speeds, for each size of batch."""
    for batch_tokens in options.batch_tokens:
        contenders = {"regard": run_regard_rounds(config, store, options, batch_tokens)}
        for name, build in (("marian", build_marian), ("torch", build_torch_transformer)):
            if name in options.peers:
                model, loss = build(config, options.vocabulary)
                model = torch.compile(model, dynamic=True) if options.compile_peers else model  # type: ignore[assignment]
                contenders[name] = run_peer_rounds(model, loss, store, batch_tokens, options)
        speeds = measure_speeds(contenders, options.device, options.warm, options.rounds)
        print(f"{options.preset}, {batch_tokens:,} tokens a batch, {options.device}")
        for name, speed in speeds.items():
            print(
                f"    {name:<10}{speed:>12,.0f} target tokens/s   regard is {speeds['regard'] / speed:.2f} times this"
            )


if __name__ == "__main__":
    main()
