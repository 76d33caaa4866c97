"""Speed of sentence vectors beside transformers, sentence-transformers and CTranslate2, on the CPU, in float32.

    python bench/embed.py DIR                        a Hugging Face directory such as all-MiniLM-L6-v2
    python bench/embed.py DIR --file texts.txt --sentences 512 --rounds 7

Every side gets the same texts in random order, tokenises them, and gives unit vectors in that order. "in order" takes
batches of 32 as they come; the others sort by length. Rounds are interleaved, and the best of each is printed, with the
smallest cosine against transformers. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import regard

BATCH_SIZE = 32
Embedder = Callable[[Sequence[str]], np.ndarray]


def sample_texts(directory: str, count: int) -> list[str]:
    """Texts of drawn words of the vocabulary, as long as sentences are: 12 words in the middle, a few over 60.

    None is longer than the peers take, who cut off the rest where regard reads on.
    """
    reading = regard.load(directory, device="cpu").reading
    words = [piece for piece in map(reading.tokenizer.name, range(len(reading.tokenizer))) if piece.isalpha()]
    draw = random.Random(0)
    return [" ".join(draw.choices(words, k=min(120, 3 + int(draw.lognormvariate(2.2, 0.9))))) for _ in range(count)]


def read_texts(path: str, count: int) -> list[str]:
    """Lines of a file, in random order."""
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    random.Random(0).shuffle(lines)
    return lines[:count]


def build_regard_embedder(directory: str) -> Embedder:
    model = regard.load(directory, device="cpu")
    return lambda texts: model.embed(texts, pooling="mean", normalised=True)


def embed_in_batches(texts: Sequence[str], d_model: int, sort_by_length: bool, embed_batch: Embedder) -> np.ndarray:
    """The vectors of all texts, by batches of them in their order or sorted."""
    order = (
        sorted(range(len(texts)), key=lambda number: -len(texts[number])) if sort_by_length else list(range(len(texts)))
    )
    found = np.zeros((len(texts), d_model), dtype=np.float32)
    for start in range(0, len(order), BATCH_SIZE):
        chosen = order[start : start + BATCH_SIZE]
        found[chosen] = embed_batch([texts[number] for number in chosen])
    return found


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    there = mask[..., None].to(hidden.dtype)
    vectors: np.ndarray = torch.nn.functional.normalize((hidden * there).sum(1) / there.sum(1), dim=-1).numpy()
    return vectors


def build_transformers_embedder(directory: str, sort_by_length: bool) -> Embedder:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, attn_implementation="sdpa").eval()

    def one(texts: Sequence[str]) -> np.ndarray:
        batch = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            return mean_pool(model(**batch).last_hidden_state, batch["attention_mask"])

    width = model.config.hidden_size
    return lambda texts: embed_in_batches(texts, width, sort_by_length, one)


def build_sentence_transformers_embedder(directory: str) -> Embedder:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(directory, device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=BATCH_SIZE, normalize_embeddings=True)


def build_ctranslate2_embedder(directory: str, sort_by_length: bool, n_threads: int, converted_path: Path) -> Embedder:
    import ctranslate2
    from transformers import AutoTokenizer

    if not converted_path.exists():
        ctranslate2.converters.TransformersConverter(directory).convert(str(converted_path))
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = ctranslate2.Encoder(str(converted_path), compute_type="float32", intra_threads=n_threads, inter_threads=1)

    def one(texts: Sequence[str]) -> np.ndarray:
        ids = tokenizer(list(texts), truncation=True, max_length=256)["input_ids"]
        hidden = torch.from_numpy(np.array(model.forward_batch(ids).last_hidden_state))
        mask = torch.arange(hidden.shape[1]) < torch.tensor([len(each) for each in ids])[:, None]
        return mean_pool(hidden, mask)

    width = regard.load(directory, device="cpu").network.config.d_model
    return lambda texts: embed_in_batches(texts, width, sort_by_length, one)


def build_embedders(directory: str, n_threads: int, folder: Path) -> dict[str, Embedder]:
    """All that are installed, ours first."""

    def there(name: str) -> bool:
        return importlib.util.find_spec(name) is not None

    found: dict[str, Embedder] = {"regard": build_regard_embedder(directory)}
    if there("transformers"):
        found["transformers sdpa, in order"] = build_transformers_embedder(directory, sort_by_length=False)
        found["transformers sdpa, sorted"] = build_transformers_embedder(directory, sort_by_length=True)
    if there("sentence_transformers"):
        found["sentence-transformers"] = build_sentence_transformers_embedder(directory)
    if there("ctranslate2") and there("transformers"):
        for name, by_length in {"in order": False, "sorted": True}.items():
            found[f"CTranslate2, {name}"] = build_ctranslate2_embedder(
                directory, by_length, n_threads, folder / "converted"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory")
    parser.add_argument("--file", help="texts, one a line; else they are made up")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    texts = (
        read_texts(options.file, options.sentences) if options.file else sample_texts(options.model, options.sentences)
    )
    with TemporaryDirectory() as folder:
        every = build_embedders(options.model, options.threads, Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in every}
        vectors = {name: embed(texts) for name, embed in every.items()}  # this warms up
        for _ in range(options.rounds):
            for name, embed in every.items():
                began = time.perf_counter()
                embed(texts)
                seconds[name].append(time.perf_counter() - began)
    truth = vectors.get("transformers sdpa, in order", vectors["regard"])
    print(f"{len(texts)} texts, {options.threads} threads, best of {options.rounds}")
    print(f"{'':<28}{'sentences/s':>12}{'regard is':>12}{'least cosine':>14}")
    for name, spent in seconds.items():
        ratio = min(spent) / min(seconds["regard"])
        cosine = float((vectors[name] * truth).sum(-1).min())
        print(f"{name:<28}{len(texts) / min(spent):>12.0f}{ratio:>11.2f}x{cosine:>14.6f}")


if __name__ == "__main__":
    main()
