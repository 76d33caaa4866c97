"""User errors of word vectors, layers and freezing, by the command line: one line, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Fail = Callable[..., str]


@pytest.fixture
def labelled() -> str:
    Path("texts.tsv").write_text("text\tlabel\n" + "the cat\tyes\na dog\tno\n" * 30)
    return "texts.tsv"


def test_vectors_of_unequal_width(fail: Fail, labelled: str) -> None:
    Path("vectors.txt").write_text("cat 1 2 3\ndog 1 2\n")
    message = "vectors.txt:2: 2 numbers for 'dog', but the first line has 3"
    assert fail("train", "classify", labelled, "--from", "vectors.txt", "--out", "run") == message
    assert fail("match", "vectors.txt", "cat") == message
    Path("vectors.txt").write_text("cat 1 2 3\ndog 1 2 4\n")
    assert fail(
        "train", "classify", labelled, "--from", "vectors.txt", "--set", "model.d_model=16", "--out", "run"
    ) == ("train classify: model.d_model = 16, but the vectors of vectors.txt have 3 numbers; leave it out")
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["task.layers=first"], "train classify: task.layers = 'first'; accepted: last, last4-sum, last4-concat, mix"),
        (
            ["task.layers=last4-sum", "model.n_layers=2"],
            'task.layers = "last4-sum" needs a model of at least 4 layers, this one has 2; choose "last" or another '
            "model",
        ),
        (["train.freeze=3", "model.n_layers=2"], "train.freeze = 3: this model has 2 layers; freeze at most that many"),
        (
            ["train.freeze=all"],
            "train classify: train.freeze = 'all'; expected one of none, embeddings, encoder or a whole number, found "
            "a text",
        ),
        (
            ["train.freeze=encoder", "train.unfreeze=epoch"],
            'train.freeze = "encoder" leaves no layer for train.unfreeze; leave one of them out',
        ),
    ],
)
def test_layers_and_freezing(fail: Fail, labelled: str, settings: list[str], message: str) -> None:
    options = [word for setting in settings for word in ("--set", setting)]
    assert fail("train", "classify", labelled, "--set", "model.preset=tiny", *options, "--out", "run") == message
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("lm", 'train.freeze = "encoder": this model has no encoder; accepted: embeddings, or a number of layers'),
        ("vectors", "train vectors: train.freeze = encoder; word vectors take none only"),
    ],
)
def test_freezing_everything(fail: Fail, task: str, message: str) -> None:
    Path("text.txt").write_text("".join(f"the cat sees {number} dogs\n\n" for number in range(60)))
    assert fail("train", task, "text.txt", "--set", "train.freeze=encoder", "--set", "model.preset=tiny") == message
