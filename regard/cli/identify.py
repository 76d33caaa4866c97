"""Measure the fraction of tokens that can be recovered from their hidden vectors, by layer (Brunner et al. 2020).

A token is recovered at a layer if, of all input vectors of its sentence, its own is the nearest (by cosine, by L2) to
the output of a map of its hidden vector. The maps are the identity, a linear one, and one with a hidden layer; each is
trained on 70 % of the sentences, stopped early by 15 %, and tested on 15 %. Layer 0 is the input of the layers.
Intervals are 95 % and account for the variance between sentences; at 0 and 100 %, each sentence counts once.

DATA is a file with one text per line, for the encoder alone, or pairs, for the decoder as well: two files of lines
(test.en test.fr) or a table (test.tsv, .csv, .jsonl, .parquet); all also .gz .xz .zst. Too long, empty and repeated
texts are skipped and counted.

    regard identify runs/en-fr test.en
    regard identify runs/en-fr test.en test.fr --stack decoder --maps identity,linear --out identified

With --out, every result is saved as soon as it is measured, and the same command resumes where it was stopped.

--json and DIR/identify.json hold one object: model, data, read (texts in the data), seed, maps, weights and texts
(digests of what was measured), method (the hyperparameters of the maps), sentences (in train, valid and test), stacks
(for each: layers, tokens in train, valid and test, chance), and results, each with stack, layer, map, distance (cosine
or l2), accuracy, low and high, as fractions of 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    SeedOption,
    ToOption,
    drop_none,
    load_network,
    print_json,
    refuse_reduced,
    split_commas,
)
from regard.progress import print_message

if TYPE_CHECKING:
    from regard.look.corpus.identify import RecoveryResult, TokenIdentifiability


def identify(
    model: ModelArgument,
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Texts, or parallel files or tables.")],
    stack: Annotated[str, typer.Option(help="What to measure: encoder, decoder or all.")] = "all",
    sentences: Annotated[int | None, typer.Option(help="Sentences to sample from DATA; 2000 by default.")] = None,
    to: ToOption = "",
    maps: Annotated[str, typer.Option(help="The maps to measure with.")] = "identity,linear,mlp",
    out: Annotated[str | None, typer.Option(help="A directory for identify.json and identify.png.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    refuse_reduced(precision, "identify")
    try:
        result = load_network(model, device, "identify tokens", to=to).identify(
            data, stack=stack, maps=split_commas(maps), seed=seed, out=out, **drop_none(sentences=sentences)
        )
    except KeyboardInterrupt:
        if out and Path(out, "identify.json").exists():
            print_message(f"stopped; the results so far are in {out}/identify.json; the same command resumes")
        raise
    if as_json:
        print_json(result.to_dict())
        return
    for line in _format_table(result):
        print(line)


def _format_table(identification: TokenIdentifiability) -> Iterator[str]:
    """Yield the facts, then a table with a row per layer and map."""
    parts = identification.sentences
    used = f"{sum(parts.values()):,} of {identification.about['read']:,}, by seed {identification.settings['seed']}"
    split = f"{parts['train']:,} to train the maps, {parts['valid']:,} to stop, {parts['test']:,} to test"
    yield f"model      {identification.about['model']}"
    yield f"sentences  {used}: {split}"
    for stack, about in identification.stacks.items():
        tokens = about["tokens"]
        counts = f"{tokens['train']:,}, {tokens['valid']:,} and {tokens['test']:,} tokens"
        yield f"{stack:<11}{counts}, chance {about['chance']:.1%}"
    yield f"\n{'stack':<10}{'layer':>5}  {'map':<10}{'cosine %':<24}L2 %"
    rows: dict[tuple[str, int, str], list[RecoveryResult]] = {}
    for each in identification.results:
        rows.setdefault(each.spec[:3], []).append(each)
    for (stack, layer, name), (cosine, l2) in rows.items():
        yield f"{stack:<10}{layer:>5}  {name:<10}{_format_interval(cosine):<24}{_format_interval(l2)}"


def _format_interval(recovery: RecoveryResult) -> str:
    return f"{100 * recovery.accuracy:5.1f} [{100 * recovery.low:.1f}, {100 * recovery.high:.1f}]"
