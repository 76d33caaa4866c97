"""Speed of skip-gram training in words per second, beside gensim's Word2Vec.

    python bench/vectors.py --file books.txt
    python bench/vectors.py --words 2000000 --threads 2 --rounds 5

Both train on the same words, with the same vocabulary, width, window, negatives and subsampling; a round is one epoch,
and words are counted before subsampling. regard's rounds include the drawing of batches, and neither's the reading of
text. Without --file, words are drawn by Zipf's law. gensim is skipped if it is not installed.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness
import torch

from regard.data.prefetch import Prefetcher
from regard.training.loop import Trainer
from regard.training.optimiser import set_learning_rate
from regard.training.prepare import PreparedRun, prepare_run

LEARNING_RATE = 0.1
WORDS_PER_DOCUMENT = 200


def write_text(path: Path, n_words: int, vocabulary_size: int) -> Path:
    """Write documents of words drawn by Zipf's law."""
    words = [f"w{number}" for number in range(vocabulary_size)]
    weights = list(accumulate(1 / rank for rank in range(1, vocabulary_size + 1)))
    drawn = random.Random(0).choices(words, cum_weights=weights, k=n_words)
    documents = (" ".join(drawn[start : start + WORDS_PER_DOCUMENT]) for start in range(0, n_words, WORDS_PER_DOCUMENT))
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


def prepare(text: Path, folder: Path, options: argparse.Namespace) -> PreparedRun:
    tables: dict[str, dict[str, Any]] = {
        "task": {"name": "vectors", "window": options.window, "negatives": options.negatives},
        "data": {"train": [str(text)]},
        "model": {"d_model": options.width},
    }
    return prepare_run(tables, folder / "run", torch.device(options.device), where="bench")


def build_regard_contender(prepared: PreparedRun) -> harness.Contender:
    """Return a function that trains one epoch, as the training loop does."""
    trainer, task = Trainer(prepared), prepared.task
    set_learning_rate(trainer.optimiser, LEARNING_RATE)

    def train_epoch() -> int:
        placements = prepared.train_order.iterate_epoch()
        batches = ((task.make_batch(prepared.train_store, placement), None) for placement in placements)
        n_words = 0
        with Prefetcher(batches, prepared.device) as prefetched:
            for batch, _ in prefetched:
                trainer.training_step([batch], batch.n_tokens)
                n_words += batch.n_input_tokens
        return n_words

    return train_epoch


def build_gensim_contender(prepared: PreparedRun, options: argparse.Namespace) -> harness.Contender:
    """Return a function that trains one epoch on the known words of the same texts."""
    from gensim.models import Word2Vec

    tokenizer, column = prepared.task.tokenizers.source, prepared.train_store["text"]
    unknown = tokenizer.special_id("unknown")
    texts = [[tokenizer.id_to_token(token) for token in column[i] if token != unknown] for i in range(len(column))]
    model = Word2Vec(
        vector_size=options.width,
        window=options.window,
        negative=options.negatives,
        sg=1,
        min_count=1,
        sample=prepared.config.task.subsample,
        workers=options.threads,
    )
    model.build_vocab(texts)
    n_words = len(column.ids) - len(column)

    def train_epoch() -> int:
        model.train(texts, total_examples=len(texts), epochs=1)
        return n_words

    return train_epoch


def build_contenders(prepared: PreparedRun, options: argparse.Namespace) -> Mapping[str, harness.Contender]:
    contenders = {"regard": build_regard_contender(prepared)}
    if harness.is_installed("gensim"):
        contenders[f"gensim, {options.threads} threads"] = build_gensim_contender(prepared, options)
    return contenders


def main() -> None:
    parser = harness.SpeedParser(
        __doc__, rounds=5, smoke={"words": 20_000, "vocabulary": 500, "width": 16, "threads": 1}
    )
    parser.add_argument("--file", help="text to train on, with blank lines between documents")
    parser.add_argument("--words", type=int, default=1_000_000, help="words drawn without --file")
    parser.add_argument("--vocabulary", type=int, default=30_000, help="words to draw from without --file")
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse()
    torch.set_num_threads(options.threads)
    with TemporaryDirectory() as folder:
        text = (
            Path(options.file) if options.file else write_text(Path(folder, "text"), options.words, options.vocabulary)
        )
        prepared = prepare(text, Path(folder), options)
        contenders = build_contenders(prepared, options)
        rounds = harness.time_rounds(contenders, options.device, options.rounds)
        n_batches = len(list(prepared.train_order.iterate_epoch()))
        title = f"skip-gram, {prepared.task.vocabulary_size:,} words, width {options.width}, {options.threads} threads"
        harness.print_speeds(title, rounds, steps=n_batches, unit="words/s")


if __name__ == "__main__":
    harness.run_script(main)
