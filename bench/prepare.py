"""Speed and peak memory of preparing text for training, beside the library ``tokenizers`` alone.

    python bench/prepare.py [--text FILE] [--megabytes 100 300] [--task lm] [--vocabulary 16000]

Text of each size is FILE repeated, or else random words whose frequencies follow Zipf's law. "regard" prepares a run:
reads and checks the text, holds some out, learns the vocabulary, and writes the token stores. "tokenizers" learns a
vocabulary of the same size from as much text and encodes all of it, line by line, keeping nothing. Each is measured in
a process of its own; its peak includes the libraries it imports, which are those of a process that prepares nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import harness
import numpy as np

SMOKE = {"megabytes": [0.2], "vocabulary": 600}
BLOCK_WORDS, LINE_WORDS, LINES_PER_DOCUMENT = 1 << 16, 20, 12
BATCH_BYTES = 1 << 20


class PreparationResult(NamedTuple):
    """Time and peak memory of one process."""

    seconds: float
    peak_bytes: int


def generate_words(seed: int = 0) -> Iterator[str]:
    """Yield documents of random words without end."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, length)) for length in rng.integers(2, 12, 50_000)])
    while True:
        drawn = words[np.minimum(rng.zipf(1.2, BLOCK_WORDS), len(words)) - 1]
        lines = [" ".join(line) for line in drawn[: BLOCK_WORDS // LINE_WORDS * LINE_WORDS].reshape(-1, LINE_WORDS)]
        for start in range(0, len(lines), LINES_PER_DOCUMENT):
            yield "\n".join(lines[start : start + LINES_PER_DOCUMENT]) + "\n\n"


def repeat_file(path: Path) -> Iterator[str]:
    """Yield the text of a file in blocks, again and again."""
    while True:
        with path.open(encoding="utf-8") as file:
            while block := file.read(BATCH_BYTES):
                yield block


def write_text(path: Path, blocks: Iterator[str], n_bytes: int) -> None:
    """Write a file of that many bytes, or a few more."""
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < n_bytes:
            file.write(next(blocks))


def prepare_with_regard(text: Path, task: str, vocabulary: int, directory: Path) -> None:
    """Prepare a run."""
    import torch

    from regard.training.prepare import prepare_run

    tables = {"task": {"name": task}, "data": {"train": (str(text),)}, "tokenizer": {"vocabulary": vocabulary}}
    prepare_run(tables, directory / "run", torch.device("cpu"), where="bench")


def prepare_with_tokenizers(text: Path, task: str, vocabulary: int, directory: Path) -> None:
    """Learn a vocabulary from evenly spread lines, and encode all lines."""
    import tokenizers

    from regard.data.corpus import MAX_TOKENIZER_BYTES
    from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

    every = -(-text.stat().st_size // MAX_TOKENIZER_BYTES)
    kind = {"lm": "bpe", "pretrain": "wordpiece", "vectors": "words"}[task]
    with text.open(encoding="utf-8") as lines:
        sample = [line for number, line in enumerate(lines) if number % every == 0]
    config = TokenizerConfig(kind=kind, vocabulary=vocabulary)  # type: ignore[arg-type]
    backend = tokenizers.Tokenizer.from_str(train_tokenizer(sample, config).to_json())
    with text.open(encoding="utf-8") as lines:
        while batch := lines.readlines(BATCH_BYTES):
            backend.encode_batch_fast(batch, add_special_tokens=False)


CONTENDERS: dict[str, Callable[[Path, str, int, Path], None]] = {
    "regard": prepare_with_regard,
    "tokenizers": prepare_with_tokenizers,
}


def run_job(name: str, text: str, task: str, vocabulary: int, directory: str) -> None:
    """Run one contender in this process and print what it took."""
    start = time.perf_counter()
    CONTENDERS[name](Path(text), task, vocabulary, Path(directory))
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def measure(name: str, text: Path, options: argparse.Namespace) -> PreparationResult:
    """Run one contender in a process of its own."""
    with TemporaryDirectory(dir=text.parent) as directory:
        job = json.dumps([name, str(text), options.task, options.vocabulary, directory])
        command = [sys.executable, __file__, "--job", job]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return PreparationResult(*json.loads(output.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke=SMOKE)
    parser.add_argument("--text", type=Path, help="a file of plain text")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[100, 300], help="sizes of the text")
    parser.add_argument("--task", choices=["lm", "pretrain", "vectors"], default="lm")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse(arguments)
    if options.job:
        run_job(*json.loads(options.job))
        return
    print(f"{options.task}, {options.vocabulary:,} tokens")
    print(f"    {'':<14}{'MB of text':>12}{'seconds':>12}{'MB/s':>10}{'peak MB':>12}")
    with TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        for megabytes in options.megabytes:
            write_text(text, repeat_file(options.text) if options.text else generate_words(), int(1e6 * megabytes))
            for name in options.contenders:
                result = measure(name, text, options)
                cells = f"{megabytes:>12,.1f}{result.seconds:>12.1f}{megabytes / result.seconds:>10.2f}"
                print(f"    {name:<14}{cells}{result.peak_bytes / 1e6:>12,.0f}", flush=True)


if __name__ == "__main__":
    harness.run_script(main)
