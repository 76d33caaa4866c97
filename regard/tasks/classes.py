"""What labelled texts are labelled with: classes and how much each counts, or scores on a scale.

classify.py learns these from its files before it learns anything else; labels.py keeps them with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.corpus import Corpus
from regard.errors import ConfigError
from regard.tasks.labels import Labels, Scale
from regard.tasks.reading import check_labels
from regard.text.labelled import Labelled, Problem, read_labelled

MANY = 100
"""Different labels that are all numbers: more are a scale, not classes."""

LARGEST = float(np.finfo(np.float32).max)
"""Scores beyond it are not finite where they are stored."""


def learned_labels(corpus: Corpus, *, score: bool) -> Labels:
    """The labels of all training files, those of examples that are held out too; other files may have no others."""

    def read(data: Sequence[str], problem: Problem) -> Iterator[Labelled]:
        return read_labelled(data, corpus.data.columns, skip_empty=corpus.data.skip_empty, problem=problem)

    counted, paired = Counter[str](), False
    for each in read(corpus.data.train, no_score if score else lambda _: ""):
        counted[each.label] += 1
        paired = bool(each.pair)
    labels = _scores(counted, paired) if score else _classes(counted, paired)
    if corpus.data.valid:
        for _ in read(corpus.data.valid, no_score if score else labels.problem):
            pass
    return labels


def _classes(counted: Counter[str], paired: bool) -> Labels:
    labels = Labels.of(counted, paired=paired)
    if len(labels) > MANY and all(map(_is_number, labels.names)):
        raise ConfigError(f"{len(labels)} different numbers as labels; for a scale pass --set task.kind=score")
    check_labels(labels)
    return labels


def _scores(counted: Counter[str], paired: bool) -> Labels:
    scores = Counter[float]()
    for label, times in counted.items():
        scores[float(label)] += times
    scale = Scale.of(scores)
    if scale.deviation == 0:
        raise ConfigError(f"every text has the score {next(iter(counted))}: nothing to tell apart; the right column?")
    return Labels(paired=paired, scale=scale)


def no_score(label: str) -> str:
    """What to say of a label that is no score; nothing of one that is."""
    if _is_number(label):
        return ""
    return f"the label '{label[:40]}' is no finite number, but task.kind is score; correct it, or drop the line"


def _is_number(label: str) -> bool:
    try:
        return abs(float(label)) <= LARGEST
    except ValueError:
        return False


def class_weights(asked: str, labels: Labels) -> Float[Tensor, " C"]:
    """How much each class counts; where "balanced", on average over the training texts 1, and all classes alike."""
    if asked == "equal":
        return torch.ones(len(labels))
    if asked == "balanced":
        counts = torch.tensor(labels.counts or [1.0] * len(labels)).float()
        return counts.sum() / (len(labels) * counts)
    weights = torch.ones(len(labels))
    for part in asked.split(","):
        name, _, value = part.rpartition("=")
        if name not in labels.names or not _is_number(value) or float(value) <= 0:
            raise ConfigError(
                f"task.class_weights: '{part}'; accepted: equal, balanced, or LABEL=WEIGHT,... for {labels.shown()}"
            )
        weights[labels.number(name)] = float(value)
    return weights
