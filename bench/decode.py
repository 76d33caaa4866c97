"""Decoding speed beside Hugging Face generate: Transformer base with random weights, 25 tokens in, 30 out.

    python bench/decode.py                      on the CPU, batch 32 and 1, greedy and beam 4
    python bench/decode.py --device cuda

Both sides write exactly 30 tokens in float32 (bfloat16 on a GPU); rounds are interleaved, the median is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from train import build_marian  # bench/train.py

from regard.data.batches import sentences_to_rows
from regard.generate import SpecialTokens, beam_search, generate, select_greedy_tokens
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import Seq2SeqDecoderState, TransformerSeq2Seq
from regard.text.tokenizer import EOS, PAD, SOS

TOKENS_IN, TOKENS_OUT = 25, 30


def build_regard_decoder(model: TransformerSeq2Seq, device: torch.device) -> Callable[[Tensor, int], None]:
    """Our search, with ``<eos>`` held back until the limit forces it."""

    marks = SpecialTokens(SOS, EOS)

    def step(tokens: Tensor, state: Seq2SeqDecoderState) -> Tensor:
        logits = model.step(tokens, state)
        if state.length < TOKENS_OUT:
            logits[:, EOS] = -torch.inf
        return logits

    def decode(source: Tensor, beam: int) -> None:
        rows = sentences_to_rows(source.tolist(), pad_id=PAD).to(device)
        limits = torch.full((len(source),), TOKENS_OUT, device=device)
        with torch.inference_mode():
            if beam == 1:
                found = generate(step, model.start(rows), select_greedy_tokens, limits, marks, alpha=1.0)
                assert all(len(best.ids) == TOKENS_OUT for best in found)
            else:
                beam_search(step, model.start(rows), limits, marks, beam_width=beam, alpha=1.0)

    return decode


def build_marian_decoder(
    config: TransformerSeq2SeqConfig, vocabulary_size: int, device: torch.device
) -> Callable[[Tensor, int], None]:
    """Hugging Face Marian's generate."""
    model, _ = build_marian(config, vocabulary_size)
    model.eval().to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    model.generation_config.forced_eos_token_id = None
    lengths = {"min_new_tokens": TOKENS_OUT, "max_new_tokens": TOKENS_OUT}

    def decode(source: Tensor, beam: int) -> None:
        mask = torch.ones_like(source)
        out = model.generate(input_ids=source, attention_mask=mask, num_beams=beam, do_sample=False, **lengths)
        assert out.shape[1] == TOKENS_OUT + 1

    return decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    device = torch.device(options.device)
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset}))
    model = TransformerSeq2Seq(config, options.vocabulary, options.vocabulary, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    model.eval().to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    decoders = {
        "regard": build_regard_decoder(model, device),
        "marian": build_marian_decoder(config, options.vocabulary, device),
    }
    for batch, beam in ((32, 1), (32, 4), (1, 1), (1, 4)):
        source = torch.randint(3, options.vocabulary, (batch, TOKENS_IN), generator=torch.Generator().manual_seed(1))
        speeds: dict[str, list[float]] = {name: [] for name in decoders}
        for _ in range(options.rounds + 1):  # the first warms up
            for name, decode in decoders.items():
                began = time.perf_counter()
                decode(source.to(device), beam)
                speeds[name].append(batch * TOKENS_OUT / (time.perf_counter() - began))
        ours, theirs = (statistics.median(speeds[name][1:]) for name in ("regard", "marian"))
        search = "greedy" if beam == 1 else f"beam {beam}"
        speed = f"regard {ours:7.0f}   marian {theirs:7.0f} tokens/s   ratio {ours / theirs:.2f}"
        print(f"batch {batch:<3} {search:<7} {speed}", flush=True)


if __name__ == "__main__":
    main()
