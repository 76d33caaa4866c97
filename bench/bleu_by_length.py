"""Translations of several models by the length of sentences: a table of BLEU and a figure.

    python bench/bleu_by_length.py test.en test.de --out by-length.png additive=additive.de transformer=transformer.de

Each NAME=FILE has the translations of the source, line by line. Sentences go into buckets of about one size by the
words of their source, as `regard compare` does it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.compare.translation import bucket_edges, plot, score_buckets
from regard.metrics import translation_score
from regard.text.files import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("translations", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--buckets", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("by-length.png"))
    options = parser.parse_args()
    source, reference = list(read_lines(options.source)), list(read_lines(options.reference))
    edges = bucket_edges([len(line.split()) for line in source], options.buckets)
    models = []
    for name, _, path in (each.partition("=") for each in options.translations):
        written = list(read_lines(path))
        if not len(written) == len(source) == len(reference):
            parser.error(
                f"{path}: {len(written)} lines, {len(source)} of the source, {len(reference)} of the reference"
            )
        models.append({"name": name, "buckets": score_buckets(source, written, reference, edges)})
        scores = "".join(f"{bucket['bleu']:8.1f}" for bucket in models[-1]["buckets"])
        print(f"{name:<20}{scores}   all {translation_score(written, reference).bleu:.2f}")
    words = "".join(f"{bucket['from']:>5}-{bucket['to']:<2}" for bucket in models[0]["buckets"])
    print(f"{'words':<20}{words}   figure: {plot({'models': models}, options.out)}")


if __name__ == "__main__":
    main()
