"""BLEU of the translations of several models by sentence length: a table and a figure.

    python bench/bleu_by_length.py test.en test.de --out by-length.png additive=additive.de transformer=transformer.de

Each NAME=FILE holds the translations of the source, line by line. Sentences are divided into buckets of about equal
size by the number of words of their source, as `regard compare` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import harness

from regard.compare.translation import bucket_edges, plot, score_buckets
from regard.metrics import translation_score
from regard.text.files import read_lines


def write_smoke_files(folder: Path) -> list[str]:
    """Write synthetic sentences of 1 to 20 words and two translations of them; return the arguments that read these."""
    lines = [" ".join(f"w{i * n % 7}" for i in range(n)) for n in range(1, 21)]
    texts = {"source": lines, "reference": lines, "right": lines, "reversed": [line[::-1] for line in lines]}
    for name, text in texts.items():
        (folder / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    translations = [f"{name}={folder / name}" for name in ("right", "reversed")]
    return [str(folder / "source"), str(folder / "reference"), *translations, "--out", str(folder / "figure.png")]


def build_parser() -> harness.Parser:
    parser = harness.Parser(__doc__, smoke={})
    parser.add_argument("source", nargs="?")
    parser.add_argument("reference", nargs="?")
    parser.add_argument("translations", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--buckets", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("by-length.png"))
    return parser


def print_scores(parser: harness.Parser, options: argparse.Namespace) -> None:
    """Print the BLEU of each model and bucket, and save the figure."""
    source, reference = list(read_lines(options.source)), list(read_lines(options.reference))
    edges = bucket_edges([len(line.split()) for line in source], options.buckets)
    models = []
    for name, _, path in (each.partition("=") for each in options.translations):
        hypotheses = list(read_lines(path))
        if not len(hypotheses) == len(source) == len(reference):
            counts = f"{len(hypotheses)} lines, but {len(source)} of the source and {len(reference)} of the reference"
            parser.error(f"{path}: {counts}")
        models.append({"name": name, "buckets": score_buckets(source, hypotheses, reference, edges)})
        scores = "".join(f"{bucket['bleu']:8.1f}" for bucket in models[-1]["buckets"])
        print(f"{name:<20}{scores}   all {translation_score(hypotheses, reference).bleu:.2f}")
    words = "".join(f"{bucket['from']:>5}-{bucket['to']:<2}" for bucket in models[0]["buckets"])
    print(f"{'words':<20}{words}")
    if harness.is_installed("matplotlib"):
        print(f"figure: {plot({'models': models}, options.out)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser()
    options = parser.parse(arguments)
    if options.smoke and not options.translations:
        with TemporaryDirectory() as folder:
            print_scores(parser, parser.parse(write_smoke_files(Path(folder))))
    elif options.translations:
        print_scores(parser, options)
    else:
        parser.error("no translations; give a source, a reference and one or more NAME=FILE, or --smoke")


if __name__ == "__main__":
    harness.run_script(main)
