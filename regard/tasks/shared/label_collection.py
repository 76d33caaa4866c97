"""Labels collected from the training files: classes with their weights, or the scale of scores.

classify.py and tag.py collect them before training; data/labels.py saves them with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.corpus import Corpus, DataConfig
from regard.data.labels import Labels, ScoreScaler
from regard.errors import ConfigError, DataError
from regard.nn import Linear
from regard.tasks.shared.encoder_task import MIN_EXAMPLES_FOR_LABEL_WARNING, check_labels
from regard.text.labelled import (
    LabelledExample,
    LabelValidator,
    choose_columns,
    labelled_paths,
    read_labelled_examples,
    suggest_swapped_columns,
)

MAX_NUMERIC_CLASSES = 100
"""The largest number of different numeric labels that are classes; more are a scale."""

MIN_TEXT_RATIO = 0.9
"""The ratio of different labels to examples from which labels are taken for texts, read from the wrong column."""

MAX_SCORE = float(np.finfo(np.float32).max)
"""Larger scores would not be finite as they are stored."""


def collect_labels(corpus: Corpus, *, is_regression: bool) -> Labels:
    """Return the labels of all training files, held-out examples included; refuse others in validation files."""

    def read(data: Sequence[str], problem: LabelValidator) -> Iterator[LabelledExample]:
        return read_labelled_examples(
            data, corpus.data.columns, skip_empty=corpus.data.skip_empty, validate_label=problem
        )

    counted, paired = Counter[str](), False
    for each in read(corpus.data.train, describe_invalid_score if is_regression else lambda _: ""):
        counted[each.label] += 1
        paired = bool(each.pair)
    if not is_regression:
        _refuse_unique_labels(counted, corpus.data)
    labels = make_score_labels(counted, paired) if is_regression else make_class_labels(counted, paired)
    if corpus.data.valid:
        for _ in read(corpus.data.valid, describe_invalid_score if is_regression else labels.describe_unknown):
            pass
    return labels


def _refuse_unique_labels(counts: Counter[str], data: DataConfig) -> None:
    """Refuse labels that nearly all occur only once: they are texts. Numbers may be a scale."""
    n_examples, item = counts.total(), data.train[0]
    are_texts = len(counts) >= MIN_TEXT_RATIO * n_examples and not all(map(_is_number, counts))
    if n_examples > MIN_EXAMPLES_FOR_LABEL_WARNING and are_texts:
        chosen = choose_columns(item, data.columns)
        roles = "text and label" if len(chosen) == 2 else "text, pair and label"
        problem = (
            f"{len(counts):,} different labels in {n_examples:,} examples, with columns {','.join(chosen)} as {roles}"
        )
        raise DataError(
            labelled_paths([item])[0], f"{problem}; to swap them: {suggest_swapped_columns(item, data.columns)}"
        )


def make_class_labels(counts: Counter[str], paired: bool | None = None) -> Labels:
    """Return the classes that occur; refuse what looks like a scale, or like another column."""
    labels = Labels.from_occurrences(counts, paired=paired)
    if len(labels) > MAX_NUMERIC_CLASSES and all(map(_is_number, labels.names)):
        raise ConfigError(f"{len(labels)} different numbers as labels; for a scale pass --set task.kind=score")
    check_labels(labels)
    return labels


def make_score_labels(counts: Counter[str], paired: bool | None = None) -> Labels:
    """Return the scale of the scores that occur; refuse scores that are all the same."""
    scores = Counter[float]()
    for label, times in counts.items():
        scores[float(label)] += times
    scale = ScoreScaler.from_counts(scores)
    if scale.deviation == 0:
        raise ConfigError(f"every score is {next(iter(counts))}: nothing to tell apart; is it the right column?")
    return Labels(paired=paired, scale=scale)


def describe_invalid_score(label: str) -> str:
    """Return the problem with a label that is not a finite number; the empty string for a score."""
    if _is_number(label):
        return ""
    return f"the label '{label[:40]}' is not a finite number, but task.kind is score; correct it, or drop the line"


def _is_number(label: str) -> bool:
    try:
        return abs(float(label)) <= MAX_SCORE
    except ValueError:
        return False


def fold_scale_into(layer: Linear, scale: ScoreScaler) -> None:
    """Make a layer that predicts standardised scores predict scores, for libraries that know no scale."""
    with torch.no_grad():
        layer.weight.mul_(scale.deviation)
        layer.bias.copy_(scale.unstandardise(layer.bias))


def compute_class_weights(scheme: str, labels: Labels) -> Float[Tensor, " C"]:
    """Return the weight of each class; "balanced" weights are inverse to frequency, 1 on average over texts."""
    if scheme == "equal":
        return torch.ones(len(labels))
    if scheme == "balanced":
        counts = torch.tensor(labels.counts or [1.0] * len(labels)).float()
        return counts.sum() / (len(labels) * counts)
    weights = torch.ones(len(labels))
    for part in scheme.split(","):
        name, _, value = part.rpartition("=")
        if name not in labels.names or not _is_number(value) or float(value) <= 0:
            accepted = f"equal, balanced, or LABEL=WEIGHT,... for {labels.format_names()}"
            raise ConfigError(f"task.class_weights: '{part}'; accepted: {accepted}")
        weights[labels.index(name)] = float(value)
    return weights
