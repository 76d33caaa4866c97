"""Decoding speed of translation models in tokens per second, beside `generate` of Hugging Face's Marian.

    python bench/decode.py                      Transformer base on the CPU, batch size 32 and 1, greedy and beam 4
    python bench/decode.py --device cuda --batch-sizes 1 64 512 --beams 1 4 5 --profile profiles

Random weights, 25 tokens in. Both sides generate exactly 30 tokens per sentence, in float32 (bfloat16 on a GPU), so the
speed is that of the best hypothesis: all beams together generate beam times as many tokens. Rounds are interleaved, the
median is printed. With --sentences more sentences than the batch size wait to be decoded.

On a GPU it is also said what fraction of the time kernels ran (the rest is waiting for launches), and how long a step
must take at least: to read the weights and caches at --bandwidth, to multiply at --peak. --profile writes, for each
case, the kernels that one round spent its time in.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import harness
import peers
import torch

from regard.generate import BeamSearchConfig
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import TransformerSeq2Seq
from regard.predict.seq2seq_batching import Seq2SeqBatching
from regard.predict.seq2seq_inputs import Seq2SeqSpecialTokens
from regard.text.tokenizer import EOS, SEQ2SEQ_SPECIAL_TOKENS

TOKENS_IN = 25
SMOKE = {"preset": "tiny", "vocabulary": 500, "batch_sizes": [2], "tokens": 8}

Sources = list[list[int]]
Decoder = Callable[[Sources, int, int], None]
"""Decodes sentences in batches of some size with a beam of some width; 1 is greedy."""


def build_regard_decoder(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> Decoder:
    """Return regard's search; the bias of ``<eos>`` keeps it from ending before it is forced to."""
    device, special_tokens = torch.device(options.device), Seq2SeqSpecialTokens()
    model = TransformerSeq2Seq(config, options.vocabulary, options.vocabulary, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    assert model.output_bias is not None
    model.output_bias.data[EOS] = -1e4
    model.eval().to(device, _inference_dtype(device))
    batching = Seq2SeqBatching(model, special_tokens, device)

    def decode(sources: Sources, batch_size: int, beam: int) -> None:
        marks = special_tokens.decoding_tokens
        search = BeamSearchConfig.greedy(marks, 1.0) if beam == 1 else BeamSearchConfig.beam(marks, beam, 1.0, 1)
        with batching.open_batcher(search, batch_size) as batcher:
            batcher.submit([source[:-1] for source in sources], [options.tokens] * len(sources))
            finished = []
            while not batcher.is_idle:
                batcher.step()
                finished += batcher.take_finished()
        assert [len(best.ids) for _, (best, *_) in finished] == [options.tokens] * len(sources)

    return decode


def build_marian_decoder(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> Decoder:
    """Return `generate` of a MarianMTModel of the same shape."""
    device = torch.device(options.device)
    model = peers.build_marian(config, options.vocabulary)
    model.eval().to(device, _inference_dtype(device))
    model.generation_config.forced_eos_token_id = None
    lengths = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

    def decode(sources: Sources, batch_size: int, beam: int) -> None:
        for first in range(0, len(sources), batch_size):
            source = torch.tensor(sources[first : first + batch_size], device=device)
            mask = torch.ones_like(source)
            out = model.generate(input_ids=source, attention_mask=mask, num_beams=beam, do_sample=False, **lengths)
            assert out.shape[1] == options.tokens + 1

    return decode


def _inference_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def bench_case(
    decoders: dict[str, Decoder],
    config: TransformerSeq2SeqConfig,
    batch_size: int,
    beam: int,
    options: argparse.Namespace,
) -> None:
    """Time one batch size and beam width, and print the speeds."""
    generator, n_sentences = torch.Generator().manual_seed(1), max(batch_size, options.sentences)
    first = len(SEQ2SEQ_SPECIAL_TOKENS)
    sources = torch.randint(first, options.vocabulary, (n_sentences, TOKENS_IN), generator=generator).tolist()

    def build_contender(decode: Decoder) -> harness.Contender:
        def run() -> int:
            decode(sources, batch_size, beam)
            return n_sentences * options.tokens

        return run

    contenders = {name: build_contender(decode) for name, decode in decoders.items()}
    for contender in contenders.values():
        contender()  # warm-up
    rounds = harness.time_rounds(contenders, options.device, options.rounds)
    search = "greedy" if beam == 1 else f"beam {beam}"
    steps = options.tokens * -(-n_sentences // batch_size)
    harness.print_speeds(f"{options.preset}, batch size {batch_size}, {search}", rounds, steps=steps)
    if options.device.startswith("cuda"):
        seconds = batch_size * options.tokens / harness.median_speed(rounds["regard"]) / options.tokens
        print(f"    {describe_limits(config, batch_size, beam, seconds, options)}")
        name = f"{options.preset}-batch{batch_size}-beam{beam}.txt"
        print(f"    {profile(contenders['regard'], name, options)}", flush=True)


def describe_limits(
    config: TransformerSeq2SeqConfig, batch_size: int, beam: int, seconds: float, options: argparse.Namespace
) -> str:
    """Return how long a step must take for its bytes and its FLOPs, and what fraction of its time that is.

    Bytes are those of the weights, of the cached keys and values of half the tokens out and of the tokens in, and of
    the logits, written and read.
    """
    d, rows = config.d_model, batch_size * beam
    weights = config.n_decoder_layers * (6 * d * d + 2 * d * config.d_ff) + options.vocabulary * d
    cached = batch_size * (beam * options.tokens / 2 + TOKENS_IN) * 2 * d * config.n_decoder_layers
    memory = 2 * (weights + cached + 2 * rows * options.vocabulary) / options.bandwidth
    compute = 2 * weights * rows / options.peak
    return (
        f"a step: {1e3 * seconds:.2f} ms; {1e3 * memory:.2f} ms for its bytes ({memory / seconds:.0%}), "
        f"{1e3 * compute:.2f} ms for its products ({compute / seconds:.0%})"
    )


def profile(contender: harness.Contender, name: str, options: argparse.Namespace) -> str:
    """Return what fraction of a round kernels ran; with ``--profile``, write what they were."""
    from torch.profiler import ProfilerActivity

    seconds = harness.measure_seconds(contender, options.device)
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiled:
        harness.measure_seconds(contender, options.device)
    kernels = profiled.key_averages()
    busy = sum(kernel.self_device_time_total for kernel in kernels) / 1e6
    if options.profile is not None:
        options.profile.mkdir(parents=True, exist_ok=True)
        table = kernels.table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=100)
        (options.profile / name).write_text(table, encoding="utf-8")
    return f"kernels ran {min(busy / seconds, 1):.0%} of the time"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=3, smoke=SMOKE)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="1 is greedy")
    parser.add_argument("--tokens", type=int, default=30, help="tokens generated per sentence")
    parser.add_argument("--sentences", type=int, default=0, help="sentences to decode, if more than the batch size")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="time Marian too")
    parser.add_argument("--peak", type=float, default=773e12, help="FLOP/s of a large bfloat16 product on the GPU")
    parser.add_argument("--bandwidth", type=float, default=4.28e12, help="bytes/s that the GPU copies")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="write the kernels of a round on a GPU here")
    options = parser.parse(arguments)
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset, "output_bias": True}))
    decoders = {"regard": build_regard_decoder(config, options)}
    if options.peers and harness.is_installed("transformers"):
        decoders["Marian generate"] = build_marian_decoder(config, options)
    for batch_size in options.batch_sizes:
        for beam in options.beams:
            bench_case(decoders, config, batch_size, beam, options)


if __name__ == "__main__":
    harness.run_script(main)
