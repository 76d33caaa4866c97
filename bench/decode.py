"""Decoding speed of translation models in tokens per second, beside `generate` of Hugging Face's Marian.

    python bench/decode.py                      Transformer base on the CPU, batch size 32 and 1, greedy and beam 4
    python bench/decode.py --device cuda

Random weights, 25 tokens in. Both sides generate exactly 30 tokens per sentence, in float32 (bfloat16 on a GPU), so the
speed is that of the best hypothesis: all beams together generate beam times as many tokens. Rounds are interleaved, the
median is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import harness
import peers
import torch
from torch import Tensor

from regard.data.batches import sentences_to_rows
from regard.generate import SpecialTokens, beam_search, generate, select_greedy_tokens
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import Seq2SeqDecoderState, TransformerSeq2Seq
from regard.text.tokenizer import EOS, PAD, SEQ2SEQ_SPECIAL_TOKENS, SOS

TOKENS_IN = 25
SMOKE = {"preset": "tiny", "vocabulary": 500, "batch_sizes": [2], "tokens": 8}

Decoder = Callable[[Tensor, int], None]
"""Decodes a batch of source sentences with a beam of some width; 1 is greedy."""


def build_regard_decoder(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> Decoder:
    """Return regard's search, with ``<eos>`` suppressed until the last token."""
    device, special = torch.device(options.device), SpecialTokens(SOS, EOS)
    model = TransformerSeq2Seq(config, options.vocabulary, options.vocabulary, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    model.eval().to(device, _inference_dtype(device))

    def step(tokens: Tensor, state: Seq2SeqDecoderState) -> Tensor:
        logits = model.step(tokens, state)
        if state.length < options.tokens:
            logits[:, EOS] = -torch.inf
        return logits

    @torch.inference_mode()
    def decode(source: Tensor, beam: int) -> None:
        rows = sentences_to_rows(source.tolist(), pad_id=PAD).to(device)
        limits = torch.full((len(source),), options.tokens, device=device)
        if beam == 1:
            hypotheses = generate(step, model.start(rows), select_greedy_tokens, limits, special, alpha=1.0)
            assert all(len(best.ids) == options.tokens for best in hypotheses)
        else:
            beam_search(step, model.start(rows), limits, special, beam_width=beam, alpha=1.0)

    return decode


def build_marian_decoder(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> Decoder:
    """Return `generate` of a MarianMTModel of the same shape."""
    device = torch.device(options.device)
    model = peers.build_marian(config, options.vocabulary)
    model.eval().to(device, _inference_dtype(device))
    model.generation_config.forced_eos_token_id = None
    lengths = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

    def decode(source: Tensor, beam: int) -> None:
        mask = torch.ones_like(source)
        out = model.generate(input_ids=source, attention_mask=mask, num_beams=beam, do_sample=False, **lengths)
        assert out.shape[1] == options.tokens + 1

    return decode


def _inference_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def bench_case(decoders: dict[str, Decoder], batch_size: int, beam: int, options: argparse.Namespace) -> None:
    """Time one batch size and beam width, and print the speeds."""
    generator = torch.Generator().manual_seed(1)
    first = len(SEQ2SEQ_SPECIAL_TOKENS)
    source = torch.randint(first, options.vocabulary, (batch_size, TOKENS_IN), generator=generator).to(options.device)

    def build_contender(decode: Decoder) -> harness.Contender:
        def run() -> int:
            decode(source, beam)
            return batch_size * options.tokens

        return run

    contenders = {name: build_contender(decode) for name, decode in decoders.items()}
    for contender in contenders.values():
        contender()  # warm-up
    rounds = harness.time_rounds(contenders, options.device, options.rounds)
    search = "greedy" if beam == 1 else f"beam {beam}"
    harness.print_speeds(f"{options.preset}, batch size {batch_size}, {search}", rounds, steps=options.tokens)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=3, smoke=SMOKE)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="1 is greedy")
    parser.add_argument("--tokens", type=int, default=30, help="tokens generated per sentence")
    options = parser.parse(arguments)
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset}))
    decoders = {"regard": build_regard_decoder(config, options)}
    if harness.is_installed("transformers"):
        decoders["Marian generate"] = build_marian_decoder(config, options)
    for batch_size in options.batch_sizes:
        for beam in options.beams:
            bench_case(decoders, batch_size, beam, options)


if __name__ == "__main__":
    harness.run_script(main)
