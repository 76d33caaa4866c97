"""Decoding speed of translation models in tokens per second, beside CTranslate2 and `generate` of Hugging Face.

    python bench/decode.py                      Transformer base on the CPU, batch size 32 and 1, greedy and beam 4
    python bench/decode.py --threads 2 --rounds 7
    python bench/decode.py --device cuda

Random weights, 25 tokens in. Every contender generates exactly 30 tokens per sentence, so the speed is that of the best
hypothesis: all beams together generate beam times as many tokens. On a CPU every round decodes one batch for each
thread: regard by one decoder per core, CTranslate2 with as many workers as threads and again with one, of which the
faster is its speed; both in float32 and int8, with the same weights. On a GPU one batch, in bfloat16. Rounds are
interleaved, the median is printed. Peers that are not installed are skipped.
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

from regard.data.batches import sentences_to_rows
from regard.generate import SpecialTokens, beam_search, generate, select_greedy_tokens
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import Seq2SeqDecoderState, TransformerSeq2Seq
from regard.predict.worker_threads import map_batches_in_threads
from regard.runs.precision import set_precision
from regard.text.tokenizer import EOS, PAD, SEQ2SEQ_SPECIAL_TOKENS, SOS

TOKENS_IN = 25
SMOKE = {"preset": "tiny", "vocabulary": 500, "batch_sizes": [2], "tokens": 8, "threads": 2}

Decoder = Callable[[Tensor, int, int], None]
"""Decodes source sentences in batches of a size, with a beam of some width; 1 is greedy."""


def build_model(config: TransformerSeq2SeqConfig, options: argparse.Namespace) -> TransformerSeq2Seq:
    """Return a model with random weights; the same every time."""
    model = TransformerSeq2Seq(config, options.vocabulary, options.vocabulary, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    return model.eval()


def build_regard_decoder(model: TransformerSeq2Seq, options: argparse.Namespace) -> Decoder:
    """Return regard's search, one decoder per core of a CPU, with ``<eos>`` suppressed until the last token."""
    device, special = torch.device(options.device), SpecialTokens(SOS, EOS)

    def step(tokens: Tensor, state: Seq2SeqDecoderState) -> Tensor:
        logits = model.step(tokens, state)
        if state.length < options.tokens:
            logits[:, EOS] = -torch.inf
        return logits

    @torch.inference_mode()
    def decode_batch(source: Tensor, beam: int) -> None:
        rows = sentences_to_rows(source.tolist(), pad_id=PAD).to(device)
        limits = torch.full((len(source),), options.tokens, device=device)
        if beam == 1:
            hypotheses = generate(step, model.start(rows), select_greedy_tokens, limits, special, alpha=1.0)
            assert all(len(best.ids) == options.tokens for best in hypotheses)
        else:
            beam_search(step, model.start(rows), limits, special, beam_width=beam, alpha=1.0)

    def decode(source: Tensor, batch_size: int, beam: int) -> None:
        batches = torch.arange(len(source)).split(batch_size)
        chosen = [rows.tolist() for rows in batches]
        for _ in map_batches_in_threads(lambda rows: decode_batch(source[rows], beam), chosen, device):
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


def bench_case(decoders: dict[str, Decoder], batch_size: int, beam: int, options: argparse.Namespace) -> None:
    """Time one batch size and beam width, and print the speeds."""
    generator = torch.Generator().manual_seed(1)
    first = len(SEQ2SEQ_SPECIAL_TOKENS)
    n_sentences = batch_size * (options.threads if options.device == "cpu" else 1)
    source = torch.randint(first, options.vocabulary, (n_sentences, TOKENS_IN), generator=generator).to(options.device)

    def build_contender(decode: Decoder) -> harness.Contender:
        def run() -> int:
            decode(source, batch_size, beam)
            return n_sentences * options.tokens

        return run

    contenders = {name: build_contender(decode) for name, decode in decoders.items()}
    for contender in contenders.values():
        contender()  # warm-up
    rounds = harness.time_rounds(contenders, options.device, options.rounds)
    search = "greedy" if beam == 1 else f"beam {beam}"
    harness.print_speeds(f"{options.preset}, batch size {batch_size}, {search}", rounds, steps=options.tokens)


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


def bench_decoders(decoders: dict[str, Decoder], options: argparse.Namespace) -> None:
    """Time every batch size and beam width."""
    for batch_size in options.batch_sizes:
        for beam in options.beams:
            bench_case(decoders, batch_size, beam, options)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=3, smoke=SMOKE)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="1 is greedy")
    parser.add_argument("--tokens", type=int, default=30, help="tokens generated per sentence")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads on a CPU")
    parser.add_argument("--only", nargs="+", default=[""], help="contenders, by how their names begin")
    options = parser.parse(arguments)
    torch.set_num_threads(options.threads)
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": options.preset}))
    with TemporaryDirectory() as folder:
        decoders = build_decoders(config, options, Path(folder))
        chosen = {name: each for name, each in decoders.items() if name.startswith(tuple(options.only))}
        bench_decoders(chosen, options)


if __name__ == "__main__":
    harness.run_script(main)
