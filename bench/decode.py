"""Decoding speed of translation models in tokens per second, beside CTranslate2 and `generate` of Hugging Face.

    python bench/decode.py                      Transformer base on the CPU, batch size 32 and 1, greedy and beam 4
    python bench/decode.py --threads 2 --rounds 7
    python bench/decode.py --device cuda --batch-sizes 1 64 512 --beams 1 4 5 --profile profiles

Random weights, 25 tokens in. Every contender generates exactly 30 tokens per sentence, so the speed is that of the best
hypothesis: all beams together generate beam times as many tokens. On a CPU every round decodes one batch for each
thread: regard by one decoder per core, CTranslate2 with as many workers as threads and again with one, of which the
faster is its speed; both in float32 and int8, with the same weights. On a GPU one batch, in bfloat16. Rounds are
interleaved, the median is printed. Peers that are not installed are skipped.

On a GPU it is also said what fraction of the time kernels ran (the rest is waiting for launches), and how long a step
must take at least: to read the weights and caches at --bandwidth, to multiply at --peak. --profile writes, for each
case, the kernels that one round spent its time in. With --sentences more than a batch wait to be decoded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import harness
import peers
import torch
from ctranslate2_peer import build_ctranslate2_decoder, save_converted
from torch import Tensor

from regard.generate import BeamSearchConfig
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import TransformerSeq2Seq
from regard.predict.seq2seq_batching import Seq2SeqBatching
from regard.predict.seq2seq_inputs import Seq2SeqSpecialTokens
from regard.predict.worker_threads import map_batches_in_threads
from regard.runs.precision import set_precision
from regard.text.tokenizer import EOS, SEQ2SEQ_SPECIAL_TOKENS

TOKENS_IN = 25
UNLIKELY = -1e4
"""The logit of what is not to be written."""

SMOKE = {"preset": "tiny", "vocabulary": 500, "batch_sizes": [2], "tokens": 8, "threads": 2}

Decoder = Callable[[Tensor, int, int], None]
"""Decodes source sentences in batches of a size, with a beam of some width; 1 is greedy."""


def build_model(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> TransformerSeq2Seq:
    """Return a model with random weights, the same every time; its bias keeps ``<eos>`` from being generated."""
    model = TransformerSeq2Seq(config, options.vocabulary, options.vocabulary, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    assert model.output_bias is not None
    model.output_bias.data[EOS] = UNLIKELY
    return model.eval()


def build_regard_decoder(model: TransformerSeq2Seq, options: argparse.Namespace) -> Decoder:
    """Return regard's search, one decoder per core of a CPU; its tokens of a sentence end at the limit alone."""
    device, special_tokens = torch.device(options.device), Seq2SeqSpecialTokens()
    batching = Seq2SeqBatching(model, special_tokens, device)
    marks = special_tokens.decoding_tokens

    def decode_group(sources: list[list[int]], batch_size: int, beam: int) -> None:
        search = BeamSearchConfig.greedy(marks, 1.0) if beam == 1 else BeamSearchConfig.beam(marks, beam, 1.0, 1)
        with batching.open_batcher(search, batch_size) as batcher:
            batcher.submit([ids[:-1] for ids in sources], [options.tokens] * len(sources))
            finished = []
            while not batcher.is_idle:
                batcher.step()
                finished += batcher.take_finished()
        assert [len(best.ids) for _, (best, *_) in finished] == [options.tokens] * len(sources)

    def decode(source: Tensor, batch_size: int, beam: int) -> None:
        sources = source.tolist()
        group_size = batch_size if device.type == "cpu" else len(sources)
        groups = [rows.tolist() for rows in torch.arange(len(sources)).split(group_size)]
        for _ in map_batches_in_threads(
            lambda rows: decode_group([sources[i] for i in rows], batch_size, beam), groups, device
        ):
            pass

    return decode


def build_ctranslate2_decoders(
    model: TransformerSeq2Seq, options: argparse.Namespace, folder: Path
) -> dict[str, Decoder]:
    """Return CTranslate2 with the weights of a model, in float32 and int8, in each layout of the threads."""
    save_converted(model, options.vocabulary, folder / "converted")
    decoders: dict[str, Decoder] = {}
    for compute_type in ("float32", "int8"):
        for n_workers in sorted({1, options.threads}):
            name = f"CTranslate2 {compute_type}, {n_workers} x {options.threads // n_workers}"
            search = build_ctranslate2_decoder(
                folder / "converted", compute_type, options.threads, n_workers, options.tokens
            )
            decoders[name] = lambda source, batch_size, beam, search=search: search(source.tolist(), batch_size, beam)
    return decoders


def build_marian_decoder(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> Decoder:
    """Return `generate` of a MarianMTModel of the same shape."""
    device = torch.device(options.device)
    model = peers.build_marian(config, options.vocabulary)
    model.eval().to(device, _inference_dtype(device))
    model.generation_config.forced_eos_token_id = None
    lengths = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

    def decode(source: Tensor, batch_size: int, beam: int) -> None:
        for batch in source.split(batch_size):
            mask = torch.ones_like(batch)
            out = model.generate(input_ids=batch, attention_mask=mask, num_beams=beam, do_sample=False, **lengths)
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
    generator = torch.Generator().manual_seed(1)
    first = len(SEQ2SEQ_SPECIAL_TOKENS)
    n_concurrent = batch_size * (options.threads if options.device == "cpu" else 1)
    n_sentences = max(n_concurrent, options.sentences)
    source = torch.randint(first, options.vocabulary, (n_sentences, TOKENS_IN), generator=generator).to(options.device)

    def build_contender(decode: Decoder) -> harness.Contender:
        def run() -> int:
            torch.set_num_threads(options.threads)  # CTranslate2 changes the number of the whole process
            decode(source, batch_size, beam)
            return n_sentences * options.tokens

        return run

    contenders = {name: build_contender(decode) for name, decode in decoders.items()}
    for contender in contenders.values():
        contender()  # warm-up
    rounds = harness.time_rounds(contenders, options.device, options.rounds)
    search = "greedy" if beam == 1 else f"beam {beam}"
    harness.print_speeds(
        f"{options.preset}, batch size {batch_size}, {search}",
        rounds,
        steps=options.tokens * -(-n_sentences // n_concurrent),
    )
    if options.device.startswith("cuda") and "regard" in contenders:
        seconds = batch_size / harness.median_speed(rounds["regard"])
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
    kernel_seconds = sum(kernel.self_device_time_total for kernel in kernels) / 1e6
    if options.profile is not None:
        options.profile.mkdir(parents=True, exist_ok=True)
        table = kernels.table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=100)
        (options.profile / name).write_text(table, encoding="utf-8")
    return f"kernels ran {min(kernel_seconds / seconds, 1):.0%} of the time"


def build_decoders(config: TransformerSeq2SeqConfig, options: argparse.Namespace, folder: Path) -> dict[str, Decoder]:
    """Return regard and the peers that are installed."""
    device = torch.device(options.device)
    models = [build_model(config, options).to(device, _inference_dtype(device))]
    decoders = {"regard": build_regard_decoder(models[0], options)}
    if options.device == "cpu":
        models.append(build_model(config, options))
        set_precision(models[1], "int8")
        decoders["regard int8"] = build_regard_decoder(models[1], options)
        if harness.is_installed("ctranslate2"):
            decoders |= build_ctranslate2_decoders(models[0], options, folder)
    if harness.is_installed("transformers"):
        decoders["Marian generate"] = build_marian_decoder(config, options)
    return decoders


def bench_decoders(decoders: dict[str, Decoder], config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> None:
    """Time every batch size and beam width."""
    for batch_size in options.batch_sizes:
        for beam in options.beams:
            bench_case(decoders, config, batch_size, beam, options)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=3, smoke=SMOKE)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="1 is greedy")
    parser.add_argument("--tokens", type=int, default=30, help="tokens generated per sentence")
    parser.add_argument("--sentences", type=int, default=0, help="sentences to decode, if more than the batch size")
    parser.add_argument("--peak", type=float, default=773e12, help="FLOP/s of a large bfloat16 product on the GPU")
    parser.add_argument("--bandwidth", type=float, default=4.28e12, help="bytes/s that the GPU copies")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="write the kernels of a round on a GPU here")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads on a CPU")
    parser.add_argument("--only", nargs="+", default=[""], help="contenders, by the beginning of their names")
    options = parser.parse(arguments)
    torch.set_num_threads(options.threads)
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset, "output_bias": True}))
    with TemporaryDirectory() as folder:
        decoders = build_decoders(config, options, Path(folder))
        chosen = {name: each for name, each in decoders.items() if name.startswith(tuple(options.only))}
        bench_decoders(chosen, config, options)


if __name__ == "__main__":
    harness.run_script(main)
