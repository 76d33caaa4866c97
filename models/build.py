"""Make the ready-made models again: from data sets to the directories of regard_models/.

    python models/build.py prepare              files that the recipes read, from the data sets
    python models/build.py train bert-en        runs/bert-en, by its recipe; minutes on one GPU
    python models/build.py pack bert-en         regard_models/bert-en: weights in 8 bits, card, scores, index
    python models/build.py check

Start it in the directory that holds the data sets; runs/ is made there. Several names may follow, none stands for all
of models.toml, in its order: bert-en comes before what starts from it, also when it is packed, for they share layers.
`pack` can be repeated. `check` says how large the models are, and which are missing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import sentence_pairs

from regard import cli
from regard.text.files import read_lines

MODELS = Path(__file__).resolve().parent
PACKAGE = MODELS / "regard_models"
INDEX = PACKAGE / "index.toml"
MAX_MEGABYTES = 80
"""The size of all directories together, at most."""

N_NEIGHBOURS = 400_000
CLASSES = ("negative", "positive")
HEADER = "# Written by models/build.py: the names of ready-made models, each with its directory.\n"
Table = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "train", "pack", "check"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="directories of models.toml; none for all")
    options = parser.parse_args(arguments)
    specs = read_specs()
    names = options.names or list(specs)
    if unknown := [name for name in names if name not in specs]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(specs)}")
    if options.step == "prepare":
        prepare()
    elif options.step == "check":
        check(specs)
    else:
        for name in names:
            {"train": train, "pack": pack}[options.step](name, specs[name])


def read_specs() -> dict[str, Table]:
    """Return the tables of models.toml by directory."""
    return tomllib.loads((MODELS / "models.toml").read_text(encoding="utf-8"))


def prepare() -> None:
    """Write the files that no data set has: sentences for bert-en, named labels of SST-2, pairs of sentences."""
    tables = [Path("tatoeba") / f"train.en-{language}.tsv" for language in ("fr", "de")]
    sentences = sorted({line.partition("\t")[0] for table in tables for line in read_lines(table)})
    random.Random(0).shuffle(sentences)
    Path("tatoeba-en.txt").write_text("".join(f"{each}\n\n" for each in sentences), encoding="utf-8")
    Path("sst").mkdir(exist_ok=True)
    for part in ("train", "dev"):
        rows = name_labels(read_lines(f"glue/SST-2/{part}.tsv"))
        Path("sst", f"{part}.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    sentence_pairs.write_pairs(Path("paraphrases.tsv"), sentence_pairs.paraphrases(tables), None)
    neighbours = sentence_pairs.neighbours(Path("wikipedia_en/train.txt"))
    sentence_pairs.write_pairs(Path("neighbours.tsv"), neighbours, N_NEIGHBOURS)


def name_labels(rows: Iterator[str]) -> Iterator[str]:
    """Yield rows of SST-2 with its classes by name, and `n't` and brackets as people write them."""
    next(rows)
    yield "text\tlabel"
    for row in rows:
        text, _, label = row.rpartition("\t")
        for tokens, written in ((" n't", "n't"), ("-lrb-", "("), ("-rrb-", ")")):
            text = text.replace(tokens, written)
        yield f"{text.strip()}\t{CLASSES[int(label)]}"


def train(name: str, spec: Table) -> None:
    """Train a model by its recipe, or go on with it."""
    resume = ["--resume"] if Path("runs", name, "config.toml").exists() else []
    regard("train", str(MODELS.parent / spec["recipe"]), "--out", f"runs/{name}", *resume)


def pack(name: str, spec: Table) -> None:
    """Store a trained model in the package, score it as it is stored, and write its card and the index."""
    out = PACKAGE / name
    if out.exists():
        shutil.rmtree(out)
    base = ["--base", str(PACKAGE / spec["base"])] if "base" in spec else []
    notes = ["--notes", str(MODELS / "notes" / f"{name}.md"), "--licence", spec["hub_licence"]]
    regard("export", f"runs/{name}", "--to", "regard", "--quantization", "int8", *notes, *base, "--out", str(out))
    write_index({**read_index(), **index_entries(name, spec, {})})
    results = evaluate(spec["evaluate"])
    write_index({**read_index(), **index_entries(name, spec, collect_scores(results))})
    with (out / "README.md").open("a", encoding="utf-8") as card:
        card.write(describe_scores(results))
    check(read_specs())


def evaluate(evaluations: Sequence[Table]) -> list[tuple[Table, float]]:
    """Return the scores of a packed model, which is loaded by its names; several may come from one command."""
    commands = {" ".join(command): command for command in map(evaluation_command, evaluations)}
    outputs = {text: json.loads(regard(*command, "--json")) for text, command in commands.items()}
    scores = [outputs[" ".join(evaluation_command(each))][each["key"]] for each in evaluations]
    return [(each, float(f"{score:.4g}")) for each, score in zip(evaluations, scores, strict=True)]


def evaluation_command(evaluation: Table) -> list[str]:
    return ["evaluate", evaluation["name"], *evaluation["data"]]


def collect_scores(results: Sequence[tuple[Table, float]]) -> dict[str, dict[str, float]]:
    """Return the scores of each name."""
    scores: dict[str, dict[str, float]] = {}
    for evaluation, score in results:
        scores.setdefault(evaluation["name"], {})[evaluation["score"]] = score
    return scores


def index_entries(name: str, spec: Table, scores: Mapping[str, Table]) -> dict[str, Table]:
    """Return the entries of a model in the index, one for each of its names."""
    shared = {"directory": name, "task": spec["task"], "licence": spec["licence"]}
    return {
        each: {**shared, "languages": langs, "scores": scores.get(each, {})} for each, langs in spec["names"].items()
    }


def describe_scores(results: Sequence[tuple[Table, float]]) -> str:
    """Return the section of a card on the scores of the stored model, each with the command that repeats it."""
    rows = [
        f"| {each['name']} | {each['score']} | {score:g} | `regard {' '.join(evaluation_command(each))}` |\n"
        for each, score in results
    ]
    return "\n## Scores of the stored model\n\n| name | score | | command |\n|---|---|---|---|\n" + "".join(rows)


def read_index() -> dict[str, Table]:
    return tomllib.loads(INDEX.read_text(encoding="utf-8"))


def write_index(entries: Mapping[str, Table]) -> None:
    """Write the index, in the order of models.toml."""
    order = [name for spec in read_specs().values() for name in spec["names"]]
    text = "".join(format_entry(name, entries[name]) for name in order if name in entries)
    INDEX.write_text(HEADER + text, encoding="utf-8")


def format_entry(name: str, entry: Table) -> str:
    scores = ", ".join(f"{json.dumps(key)} = {value}" for key, value in entry["scores"].items())
    lines = [f"{key} = {json.dumps(entry[key])}" for key in ("directory", "task", "languages", "licence")]
    return "\n".join(["", f"[{name}]", *lines, f"scores = {{ {scores} }}" if scores else "scores = {}", ""])


def check(specs: Mapping[str, Table]) -> None:
    """Print the size of each model, what is missing, and the size of all, which is limited."""
    total = 0.0
    for name in specs:
        directory = PACKAGE / name
        megabytes = sum(each.stat().st_size for each in directory.glob("*")) / 1e6
        total += megabytes
        print(f"{name:<20}{f'{megabytes:.1f} MB' if directory.exists() else 'not there yet'}")
    print(f"{'all':<20}{total:.1f} MB of at most {MAX_MEGABYTES}")
    if total > MAX_MEGABYTES:
        raise SystemExit(f"{total - MAX_MEGABYTES:.1f} MB too many: freeze more layers, or train smaller models")


def regard(*arguments: str) -> str:
    """Run a command of regard, which takes the models of this package; return what it prints."""
    print(f"regard {' '.join(arguments)}", file=sys.stderr)
    os.environ["REGARD_MODELS"] = str(PACKAGE)
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            cli.main(arguments)
    except SystemExit as ended:
        if ended.code:
            raise
    return output.getvalue()


if __name__ == "__main__":
    main()
