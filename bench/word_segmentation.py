"""Word segmentation of running text: the default rule, and a segmenter learned from an annotated corpus.

python bench/word_segmentation.py TRAIN.conllu DEV.conllu [--errors 30]     words F1 of both, and seconds
python bench/word_segmentation.py --smoke                                   the same on six made-up sentences
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import harness

from regard.text.running_text import RunningText
from regard.text.segmentation_scores import SegmentationCounts
from regard.text.segmenter_training import train_segmenter
from regard.text.tagged import read_tagged_sentences
from regard.text.words import TextWord, WordSplitter, split_words

SMOKE_ROWS = (("1-2", "don't"), ("1", "do"), ("2", "n't"), ("3", "go"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", nargs="?")
    parser.add_argument("dev", nargs="?")
    parser.add_argument("--errors", type=int, default=0, help="print at most so many texts with differences")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "smoke.conllu"
            rows = "".join(f"{number}\t{form}" + "\t_" * 8 + "\n" for number, form in SMOKE_ROWS)
            path.write_text(f"# text = don't go\n{rows}\n" * 6)
            measure(str(path), str(path), 0)
    elif options.train and options.dev:
        measure(options.train, options.dev, options.errors)
    else:
        parser.error("name TRAIN and DEV, or pass --smoke")


def measure(train: str, dev: str, n_errors: int) -> None:
    texts, dev_texts = read(train), read(dev)
    start = time.process_time()
    segmenter = train_segmenter(lambda: iter(texts))
    if segmenter is None:
        raise SystemExit(f"{train}: no running text")
    print(f"learned from {len(texts):,} sentences in {time.process_time() - start:.1f} s")
    score("default", split_words, dev_texts, 0)
    score("learned", segmenter, dev_texts, n_errors)


def read(path: str) -> list[RunningText]:
    sentences = read_tagged_sentences([path], "form", with_text=True)
    return [sentence.text for sentence in sentences if sentence.text is not None]


def score(name: str, splitter: WordSplitter, texts: Sequence[RunningText], n_errors: int) -> None:
    start, counts = time.process_time(), SegmentationCounts()
    predicted = [splitter(text.text) for text in texts]
    seconds = time.process_time() - start
    for text, words in zip(texts, predicted, strict=True):
        reference = text.words()
        counts.add(reference, [""] * len(reference), words, [""] * len(words))
    n = counts.n_aligned
    scores = f"precision {counts.precision(n):.4f}  recall {counts.recall(n):.4f}  F1 {counts.f1(n):.4f}"
    print(f"{name:<10}{scores}  {counts.n_found:,} words in {seconds:.2f} s")
    wrong = [(text, words) for text, words in zip(texts, predicted, strict=True) if words != text.words()]
    for text, words in wrong[:n_errors]:
        print(f"    {show(words)}\n    {show(text.words())}\n")


def show(words: Sequence[TextWord]) -> str:
    return " ".join(word.form.replace(" ", "_") for word in words)


if __name__ == "__main__":
    harness.run_script(main)
