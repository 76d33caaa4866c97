"""Pairs of sentences to train vectors on, from translations and from articles.

    paraphrases    sentences of one language that share a translation: two columns of a TSV of translations
    neighbours     sentences that follow each other in a paragraph: a text file with one paragraph a line

    python models/sentence_pairs.py --translations train.en-fr.tsv train.en-de.tsv --out paraphrases.tsv
    python models/sentence_pairs.py --paragraphs wikipedia_en/train.txt --limit 400000 --out neighbours.tsv
    regard train recipes/sentences-en.toml --out runs/sentences-en

The first column of a TSV is the language that is wanted, the second its translation. Each sentence is paired with the
next one of those that share its translation, in a drawn order, so a translation of n sentences gives n - 1 pairs; pairs
that differ in punctuation or case only are left out.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

from regard.text.files import read_lines

SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[\"'A-Z])")
MIN_WORDS, MAX_WORDS = 5, 60
"""Words of a sentence of a paragraph: shorter ones are abbreviations and headings, longer ones lists."""


def paraphrases(paths: list[Path], seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield distinct sentences that share a translation."""
    by_translation: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for line in read_lines(path):
            sentence, translation, *_ = line.split("\t")
            by_translation[f"{path.name} {translation}"].add(sentence)
    drawn, seen = random.Random(seed), set()
    for sentences in by_translation.values():
        shuffled = sorted(sentences)
        drawn.shuffle(shuffled)
        for first, second in pairwise(shuffled):
            if normalised(first) != normalised(second) and (first, second) not in seen:
                seen.update([(first, second), (second, first)])
                yield first, second


def normalised(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def neighbours(path: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield one drawn pair of sentences that follow each other in each paragraph."""
    drawn = random.Random(seed)
    for paragraph in read_lines(path):
        sentences = [each.strip() for each in SENTENCE_END.split(paragraph)]
        sentences = [each for each in sentences if MIN_WORDS <= len(each.split()) <= MAX_WORDS]
        if len(sentences) > 1:
            start = drawn.randrange(len(sentences) - 1)
            yield sentences[start], sentences[start + 1]


def write_pairs(path: Path, pairs: Iterator[tuple[str, str]], limit: int | None) -> int:
    """Write pairs as a table; tabs inside a sentence become spaces."""
    n_pairs = 0
    with path.open("w", encoding="utf-8") as file:
        for pair in islice(pairs, limit):
            file.write("\t".join(" ".join(text.split()) for text in pair) + "\n")
            n_pairs += 1
    return n_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translations", nargs="+", type=Path, help="TSV files: a sentence, its translation")
    parser.add_argument("--paragraphs", type=Path, help="a text file with one paragraph a line")
    parser.add_argument("--limit", type=int, help="pairs to write at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the table of pairs to write")
    options = parser.parse_args()
    if not options.out or bool(options.translations) == bool(options.paragraphs):
        parser.error("give --out, and either --translations or --paragraphs")
    pairs = (
        paraphrases(options.translations, options.seed)
        if options.translations
        else neighbours(options.paragraphs, options.seed)
    )
    print(f"{write_pairs(options.out, pairs, options.limit):,} pairs written: {options.out}")


if __name__ == "__main__":
    main()
