"""Peers of the training benchmarks: models of transformers and torch.nn of a given shape, in a plain training loop."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.models.config import TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig
from regard.nn import IGNORE
from regard.text.tokenizer import EOS, PAD, SOS


class PeerBatch(NamedTuple):
    """The arguments of a model and the number of tokens counted."""

    inputs: Mapping[str, Tensor]
    n_tokens: int


def output_loss(model: Callable[..., Any], inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the loss that a model of transformers computes from its labels."""
    loss: Tensor = model(**inputs).loss
    return loss


def train_peer(
    model: nn.Module,
    batches: Sequence[PeerBatch],
    options: argparse.Namespace,
    mode: str,
    *,
    loss: Callable[[Callable[..., Any], Mapping[str, Tensor]], Tensor] = output_loss,
    dynamic: bool | None = None,
) -> Iterator[int]:
    """Train in a plain loop, under bfloat16 autocast on a GPU; yield the tokens of every `options.steps` steps.

    The first round takes every batch once, so that all shapes have been compiled after it.
    """
    device = torch.device(options.device)
    model = model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    run = torch.compile(model, backend=options.compile_backend, dynamic=dynamic) if mode == "compiled" else model
    pending, n_steps = 0, -len(batches)
    for batch in chain(batches, cycle(batches)):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            value = loss(run, batch.inputs)
        optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        pending, n_steps = pending + batch.n_tokens, n_steps + 1
        if n_steps >= 0 and n_steps % options.steps == 0:
            yield pending
            pending = 0


def build_marian(config: TransformerSeq2SeqConfig, vocabulary_size: int) -> Any:
    """Return a MarianMTModel of the same shape."""
    from transformers import MarianConfig, MarianMTModel

    shape = MarianConfig(
        vocab_size=vocabulary_size, d_model=config.d_model, encoder_layers=config.n_layers,
        decoder_layers=config.n_decoder_layers, encoder_attention_heads=config.n_heads,
        decoder_attention_heads=config.n_heads, encoder_ffn_dim=config.d_ff, decoder_ffn_dim=config.d_ff,
        dropout=config.dropout, activation_function="relu", pad_token_id=PAD, eos_token_id=EOS,
        decoder_start_token_id=SOS, forced_eos_token_id=None, scale_embedding=True, max_position_embeddings=256,
    )  # fmt: skip
    return MarianMTModel(shape)


def marian_loss(model: Callable[..., Any], inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the mean loss over the target tokens that are not padding."""
    source, target = inputs["source"], inputs["target"]
    labels = target.masked_fill(target == PAD, IGNORE)
    return output_loss(model, {"input_ids": source, "attention_mask": source != PAD, "labels": labels})


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with learned positions and tied embeddings."""

    def __init__(self, config: TransformerSeq2SeqConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, config.d_model)
        self.positions = nn.Embedding(256, config.d_model)
        self.transformer = nn.Transformer(
            config.d_model, config.n_heads, config.n_layers, config.n_decoder_layers, config.d_ff, config.dropout,
            batch_first=True,
        )  # fmt: skip

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) * self.tokens.embedding_dim**0.5 + self.positions.weight[: ids.shape[1]]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device, dtype=torch.bool)
        out = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return out @ self.tokens.weight.T


def torch_loss(model: Callable[..., Any], inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the mean cross-entropy over the target tokens that are not padding."""
    target = inputs["target"]
    target_in = torch.cat((torch.full_like(target[:, :1], SOS), target[:, :-1]), 1)
    logits = model(inputs["source"], target_in)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD)


def build_gpt2(config: TransformerLMConfig, vocabulary_size: int, **more: Any) -> Any:
    """Return a GPT2LMHeadModel of the same shape."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = GPT2Config(
        vocab_size=vocabulary_size, n_embd=config.d_model, n_layer=config.n_layers, n_head=config.n_heads,
        n_inner=config.d_ff, bos_token_id=vocabulary_size - 1, eos_token_id=vocabulary_size - 1,
        attn_implementation="sdpa", **more,
    )  # fmt: skip
    return GPT2LMHeadModel(shape)


def build_bert(config: TransformerEncoderConfig, vocabulary_size: int) -> Any:
    """Return a BertForMaskedLM of the same shape."""
    from transformers import BertConfig, BertForMaskedLM

    shape = BertConfig(
        vocab_size=vocabulary_size, hidden_size=config.d_model, num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads, intermediate_size=config.d_ff, max_position_embeddings=config.n_positions,
        attn_implementation="sdpa",
    )  # fmt: skip
    return BertForMaskedLM(shape)
