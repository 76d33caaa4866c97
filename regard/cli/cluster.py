"""Cluster the lines of a file into K groups of similar meaning (k-means), and draw a map of them.

One line per text, in the same order: its group, from 0, the largest, and the text. The texts nearest to the centre of
each group are printed on stderr. --out is a map of all texts along their first two principal components: .html is a
page to explore, .png .svg .pdf a figure, .json and .csv its numbers. With --json there is an object per text (text,
cluster, x, y), then one per group (cluster, size, nearest).

    regard cluster runs/bert news.en --k 3
    regard cluster runs/bert news.en --k 3 --seed 1 --out map.png
    regard cluster runs/bert news.en --k 3 --json --out map.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.line_inputs import LinesFileArgument, SkipEmptyLinesOption, read_numbered_lines
from regard.cli.options import DeviceOption, JsonOption, ModelArgument, SeedOption, print_json
from regard.errors import InputError
from regard.progress import print_message

if TYPE_CHECKING:
    from regard.look.corpus.clusters import Clusters


def cluster(
    model: ModelArgument,
    file: LinesFileArgument,
    k: Annotated[int, typer.Option(help="Number of groups.")],
    out: Annotated[str, typer.Option(help="A map of the texts: .html .png .svg .pdf .json .csv.")] = "",
    skip_empty: SkipEmptyLinesOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import load_as
    from regard.api.encoders import TextEncoder
    from regard.look.render.save import check_output_path

    if k < 1:
        raise InputError(f"--k {k}: expected at least 1 group")
    if out:
        check_output_path(out)
    buffers, _ = read_numbered_lines(file, skip_empty=skip_empty)
    texts = [text for buffer in buffers for _, text in buffer]
    if k > len(texts):
        raise InputError(f"--k {k}: {file} has only {len(texts):,} texts; ask for fewer groups")
    found = load_as(TextEncoder, model, device, "cluster").cluster(texts, k, seed=seed)
    written = found.save(out) if out else None  # before any line: the reader of a pipe may close it early
    if as_json:
        _print_clusters_json(found)
    else:
        for label, text in zip(found.labels.tolist(), texts, strict=True):
            print(f"{label}\t{text}")
        for line in found.summary_lines():
            print_message(line)
    if written:
        print_message(f"written: {written}")


def _print_clusters_json(clusters: Clusters) -> None:
    for label, text, (x, y) in zip(
        clusters.labels.tolist(), clusters.texts, clusters.coordinates.tolist(), strict=True
    ):
        print_json({"text": text, "cluster": label, "x": x, "y": y})
    for cluster, size in enumerate(clusters.sizes):
        print_json(
            {
                "cluster": cluster,
                "size": size,
                "nearest": [clusters.texts[i] for i in clusters.nearest_indices(cluster)],
            }
        )
