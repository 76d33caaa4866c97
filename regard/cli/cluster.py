"""Cluster the lines of a file by meaning (k-means on their vectors), and draw a map of them.

One line for each text, in the same order: the number of its cluster, tab, the text. Cluster 0 is the largest. The texts
nearest to the centre of each cluster are printed on stderr. --out is a map of all texts along their first two principal
components: .html is a page to explore, .png .svg .pdf a figure, .json and .csv its numbers. --json prints an object
for each text (text, cluster, x, y), then one for each cluster (cluster, size, nearest). An empty line belongs to no
cluster: an empty line is printed for it (null in JSON), and a warning counts such lines.

    regard cluster runs/bert news.en --k 3
    regard cluster runs/bert news.en --k 3 --seed 1 --out map.png
    regard cluster runs/bert news.en --k 3 --json --out map.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.line_inputs import LinesFileArgument
from regard.cli.options import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    SeedOption,
    load_model,
    print_json,
)
from regard.cli.text_inputs import read_texts, warn_empty
from regard.errors import InputError
from regard.progress import print_message
from regard.ranges import COUNT_RANGE, SEED_RANGE, check_option

if TYPE_CHECKING:
    from regard.look.corpus.clusters import Clusters


def cluster(
    model: ModelArgument,
    file: LinesFileArgument,
    k: Annotated[int, typer.Option(help="The number of clusters.")],
    out: Annotated[str, typer.Option(help="A map of the texts: .html .png .svg .pdf .json .csv.")] = "",
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import TextEncoder
    from regard.look.render.save import check_output_path

    check_option("--k", k, COUNT_RANGE)
    check_option("--seed", seed, SEED_RANGE)
    if out:
        check_output_path(out)
    texts = [text for batch in read_texts([], file)[0] for text in batch]
    n_texts = sum(1 for text in texts if text.strip())
    if k > n_texts:
        raise InputError(f"--k {k}: {file} has only {n_texts:,} texts; ask for fewer clusters")
    warn_empty(len(texts) - n_texts, len(texts))
    clusters = load_model(TextEncoder, model, device, "cluster", precision).cluster(texts, k, seed=seed)
    path = clusters.save(out) if out else None  # before printing: the reader of a pipe may close it early
    if as_json:
        _print_clusters_json(clusters)
    else:
        for label, text in zip(clusters.labels.tolist(), texts, strict=True):
            print(f"{label}\t{text}" if label >= 0 else "")
        for line in clusters.summary_lines():
            print_message(line)
    if path:
        print_message(f"written: {path}")


def _print_clusters_json(clusters: Clusters) -> None:
    rows = zip(clusters.labels.tolist(), clusters.texts, clusters.coordinates.tolist(), strict=True)
    for label, text, (x, y) in rows:
        in_cluster = {"cluster": label, "x": x, "y": y}
        print_json({"text": text, **(in_cluster if label >= 0 else dict.fromkeys(in_cluster))})
    for label, size in enumerate(clusters.sizes):
        nearest = [clusters.texts[index] for index in clusters.nearest_indices(label)]
        print_json({"cluster": label, "size": size, "nearest": nearest})
