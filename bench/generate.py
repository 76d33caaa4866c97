"""Generation speed of language models in tokens per second, beside Hugging Face `generate`.

    python bench/generate.py                    GPT-2 small on the CPU, batch size 1 and 64
    python bench/generate.py --device cuda      --sample samples from the 50 most likely tokens

Random weights in one directory that both read, float32, a prompt of 32 tokens. Both generate exactly 256 tokens,
greedily; regard goes through `generate` of the API, which detokenizes as well. Rounds are interleaved, the median is
printed, and how many texts of the last round are identical.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness
import peers
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import regard
from regard.models.config import TransformerLMConfig, apply_preset

END_OF_TEXT = "<|endoftext|>"
PROMPT_TEXT = "The quick brown fox jumps over the lazy dog, while all the others sit and watch the sea. "
SMOKE = {"preset": "tiny", "vocabulary": 300, "batch_sizes": [2], "tokens": 8}

GenerateFunction = Callable[[list[str]], list[list[int]]]
"""Returns the token ids generated after each prompt."""


def build_tokenizer(vocabulary_size: int) -> Tokenizer:
    """Return a byte-level tokenizer, filled up with tokens that no text contains."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(f"w{i}" for i in range(vocabulary_size - len(alphabet) - 1)), END_OF_TEXT]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def save_gpt2(options: argparse.Namespace, folder: Path) -> Any:
    """Save a GPT2LMHeadModel with random weights and its tokenizer to the directory that both read; return it."""
    config = TransformerLMConfig(**apply_preset({"preset": options.preset}, TransformerLMConfig))
    torch.manual_seed(0)
    # Logits far enough from each other that rounding does not decide which token is the most likely.
    model = peers.build_gpt2(config, options.vocabulary, n_positions=1024, initializer_range=0.1)
    model.save_pretrained(folder)
    build_tokenizer(options.vocabulary).save(str(folder / "tokenizer.json"))
    return model.eval().to(options.device)


def build_hf_generator(model: Any, options: argparse.Namespace) -> GenerateFunction:
    """Return `generate` of transformers."""
    tokenizer = build_tokenizer(options.vocabulary)
    sampling = {"do_sample": True, "top_k": 50} if options.sample else {"do_sample": False}
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def generate(prompts: list[str]) -> list[list[int]]:
        ids = torch.tensor([tokenizer.encode(prompt).ids for prompt in prompts], device=options.device)
        mask = torch.ones_like(ids)
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=options.tokens, **sampling)
        generated: list[list[int]] = out[:, ids.shape[1] :].tolist()
        return generated

    return generate


def build_regard_generator(folder: Path, options: argparse.Namespace) -> GenerateFunction:
    """Return `generate` of regard's API."""
    model = regard.load(folder, device=options.device)
    sampling = {"top_k": 50} if options.sample else {"temperature": 0.0}

    def generate(prompts: list[str]) -> list[list[int]]:
        generated = model.generate(prompts, max_tokens=options.tokens, batch=len(prompts), **sampling)
        return [list(text.ids) for (text,) in generated]

    return generate


def bench_batch(generators: dict[str, GenerateFunction], batch_size: int, options: argparse.Namespace) -> None:
    """Time one batch size and print the speeds."""
    prompts = [(PROMPT_TEXT[i % len(PROMPT_TEXT) :] + PROMPT_TEXT * 9)[: options.prompt] for i in range(batch_size)]
    texts: dict[str, list[list[int]]] = {}

    def build_contender(name: str, generate: GenerateFunction) -> harness.Contender:
        def run() -> int:
            texts[name] = generate(prompts)
            assert all(len(ids) == options.tokens for ids in texts[name]), f"{name} stopped early"
            return batch_size * options.tokens

        return run

    contenders = {name: build_contender(name, generate) for name, generate in generators.items()}
    for contender in contenders.values():
        contender()  # warm-up
    rounds = harness.time_rounds(contenders, options.device, options.rounds)
    n_equal = sum(ours == theirs for ours, theirs in zip(*texts.values(), strict=True))
    agreement = "" if options.sample else f", {n_equal} of {batch_size} texts identical"
    harness.print_speeds(f"{options.preset}, batch size {batch_size}{agreement}", rounds, steps=options.tokens)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=3, smoke=SMOKE)
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--prompt", type=int, default=32, help="tokens per prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens generated per prompt")
    parser.add_argument("--sample", action="store_true")
    options = parser.parse(arguments)
    if not harness.is_installed("transformers"):  # its weights are read by both
        return
    with TemporaryDirectory() as folder:
        peer = build_hf_generator(save_gpt2(options, Path(folder)), options)
        generators = {"regard": build_regard_generator(Path(folder), options), "Hugging Face generate": peer}
        for batch_size in options.batch_sizes:
            bench_batch(generators, batch_size, options)


if __name__ == "__main__":
    harness.run_script(main)
