"""Writing speed of language models beside Hugging Face generate: GPT-2 small, random weights, 32 tokens in, 256 out.

    python bench/generate.py                    on the CPU, batch 1 and 64
    python bench/generate.py --device cuda      a GPU; --sample draws from the 50 most likely tokens

One directory of weights is read by both, in float32; both write exactly 256 tokens, the most likely each time. Ours
are written by `generate` of the API, which turns them into text as well. Rounds are interleaved, medians are printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import regard
from regard.models.config import TransformerLMConfig, apply_preset

END_OF_TEXT = "<|endoftext|>"
PROMPT_TEXT = "The quick brown fox jumps over the lazy dog, while all the others sit and watch the sea. "

GenerateFunction = Callable[[list[str]], list[list[int]]]
"""The tokens that follow each prompt."""


def build_tokenizer(vocabulary_size: int) -> Tokenizer:
    """A token for every byte, and words that no text has."""
    known = [
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *(f"w{i}" for i in range(vocabulary_size - 257)),
        END_OF_TEXT,
    ]
    found = Tokenizer(models.BPE({name: index for index, name in enumerate(known)}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens([END_OF_TEXT])
    return found


def build_gpt2(options: argparse.Namespace, folder: Path) -> Any:
    """A peer with random weights, and the directory that both read."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = TransformerLMConfig(**apply_preset({"preset": options.preset}, TransformerLMConfig))
    end = options.vocabulary - 1
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=options.vocabulary, n_embd=config.d_model, n_layer=config.n_layers, n_head=config.n_heads,
            n_inner=config.d_ff, n_positions=1024, bos_token_id=end, eos_token_id=end,
            initializer_range=0.1,  # so far apart that rounding does not decide which token comes next
        )
    )  # fmt: skip
    model.save_pretrained(folder)
    build_tokenizer(options.vocabulary).save(str(folder / "tokenizer.json"))
    return model.eval().to(options.device)


def build_hf_generator(model: Any, options: argparse.Namespace) -> GenerateFunction:
    words = build_tokenizer(options.vocabulary)
    drawn = {"do_sample": True, "top_k": 50} if options.sample else {"do_sample": False}
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def write(prompts: list[str]) -> list[list[int]]:
        ids = torch.tensor([words.encode(prompt).ids for prompt in prompts], device=options.device)
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=options.tokens, **drawn)
        found: list[list[int]] = out[:, ids.shape[1] :].tolist()
        return found

    return write


def build_regard_generator(folder: Path, options: argparse.Namespace) -> GenerateFunction:
    model = regard.load(folder, device=options.device)
    drawn = {"top_k": 50} if options.sample else {"temperature": 0}

    def write(prompts: list[str]) -> list[list[int]]:
        found = model.generate(prompts, max_tokens=options.tokens, batch=len(prompts), **drawn)
        return [list(one.ids) for (one,) in found]

    return write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens written behind it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        peer = build_hf_generator(build_gpt2(options, Path(folder)), options)
        writers = {"regard": build_regard_generator(Path(folder), options), "generate": peer}
        for batch in options.batches:
            print_speeds(writers, batch, options)


def print_speeds(generators: dict[str, GenerateFunction], batch_size: int, options: argparse.Namespace) -> None:
    prompts = [(PROMPT_TEXT[i % len(PROMPT_TEXT) :] + PROMPT_TEXT * 9)[: options.prompt] for i in range(batch_size)]
    speeds: dict[str, list[float]] = {name: [] for name in generators}
    for _ in range(options.rounds + 1):  # the first warms up
        written = {}
        for name, write in generators.items():
            began = time.perf_counter()
            written[name] = write(prompts)
            speeds[name].append(batch_size * options.tokens / (time.perf_counter() - began))
            assert all(len(each) == options.tokens for each in written[name]), f"{name} stopped early"
    ours, theirs = (statistics.median(speeds[name][1:]) for name in generators)
    same = sum(a == b for a, b in zip(*written.values(), strict=True))
    agree = "" if options.sample else f"   the same text {same} times of {batch_size}"
    print(
        f"batch {batch_size:<3} regard {ours:8,.0f}   generate {theirs:8,.0f} tokens/s   ratio {ours / theirs:.2f}{agree}"
    )


if __name__ == "__main__":
    main()
