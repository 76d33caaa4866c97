"""From text files to encoders by the command line: pretrain, fill, fine-tune, classify, tag, evaluate, look."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from encoders import documents, sentences

from regard.cli import main

Regard = Callable[..., tuple[str, str]]
SMALL = [
    *("--set", "model.d_model=16", "--set", "model.n_layers=2", "--set", "model.n_heads=2", "--set", "model.d_ff=32"),
    *("--set", "train.steps=4", "--set", "train.batch_tokens=256", "--set", "train.validate_every=2"),
]
SHORT = ["--set", "train.steps=4", "--set", "train.batch_tokens=256", "--set", "train.validate_every=2"]


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "--device", "cpu"])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.fixture
def regard(capsys: pytest.CaptureFixture[str]) -> Regard:
    """A command that must succeed; gives what it says on stdout and stderr."""

    def run(*arguments: object) -> tuple[str, str]:
        code, out, err = called(capsys, *arguments)
        assert code == 0, err
        return out, err

    return run


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A command that must be refused; gives the one line it says."""

    def run(*arguments: object) -> str:
        code, out, err = called(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: "), err
        return err.splitlines()[-1].removeprefix("error: ")

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of every task."""
    path = tmp_path_factory.mktemp("encoders")
    (path / "books.txt").write_text("\n\n".join(documents(40)) + "\n")
    texts = sentences(80)
    rows = [f"{text}\t{'yes' if 'cat' in text else 'no'}" for text in texts]
    (path / "labelled.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    pairs = [f"{a}\t{b}\t{len(a) - len(b)}.5" for a, b in zip(texts[:40], texts[40:], strict=True)]
    (path / "pairs.tsv").write_text("text\tpair\tscore\n" + "\n".join(pairs) + "\n")
    words = ["\n".join(f"{w} {'I-ANI' if w in ('cat', 'dog') else 'O'}" for w in text.split()) for text in texts]
    (path / "words.conll").write_text("\n\n".join(words) + "\n")
    return path


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def bert(folder: Path) -> Path:
    """A pre-trained encoder."""
    out = folder / "bert"
    command = ["train", "pretrain", folder / "books.txt", "--out", out, *SMALL]
    with pytest.raises(SystemExit) as ended:
        main([*map(str, command), "--set", "task.length=32", "--device", "cpu"])
    assert ended.value.code == 0
    return out


def test_pretraining_says_what_matters_apart(bert: Path) -> None:
    log = [json.loads(line) for line in (bert / "log.jsonl").read_text().splitlines()]
    valid = [line for line in log if "valid_loss" in line]
    assert {"valid_perplexity", "masked_accuracy", "next_accuracy"} <= valid[-1].keys()


def test_words_for_a_mask(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    out, _ = regard("fill", bert, "the [MASK] sits on the mat", "--top", 3)
    assert len(out.splitlines()) == 3
    assert all(re.fullmatch(r"0\.\d{4}  \S+", line) for line in out.splitlines())
    found = json.loads(regard("fill", bert, "[MASK] cat [MASK]", "--json")[0])
    assert [len(words) for words in found["masks"]] == [5, 5]
    assert set(found["masks"][0][0]) == {"word", "probability", "text"}
    assert regard("fill", bert, "[MASK] cat [MASK]")[0].startswith("mask 1\n")
    assert fail("fill", bert, "the cat") == "no [MASK] in 'the cat'; put it where a word is to be found"
    assert fail("fill", bert, "[MASK]", "--top", 0) == "--top 0: expected at least 1"


def test_evaluating_on_plain_text(bert: Path, regard: Regard) -> None:
    found = json.loads(regard("evaluate", bert, "books.txt", "--json")[0])
    assert found["task"] == "pretrain"
    assert 0 <= found["masked_accuracy"] <= 1
    assert found["perplexity"] > 1
    assert json.loads(regard("evaluate", bert, "books.txt", "--json")[0]) == found


def test_classifying(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    _, err = regard("train", "classify", "labelled.tsv", "--from", bert, "--out", "cats", *SHORT)
    assert re.search(r"bert: \d+ tensors loaded, new: 2 \(heads.label.weight, heads.label.bias\), unused: \d+ \(", err)
    out, _ = regard("classify", "cats", "the cat", "a dog runs")
    assert all(re.fullmatch(r"(yes|no)\t[01]\.\d{4}", line) for line in out.splitlines())
    found = json.loads(regard("classify", "cats", "the cat", "--pair", "a dog", "--json")[0])
    assert (found["text"], found["pair"]) == ("the cat", "a dog")
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    Path("lines.txt").write_text("the cat\nthe cat\ta dog\n")
    lines = regard("classify", "cats", "--file", "lines.txt", "--json")[0].splitlines()
    assert [json.loads(line).get("pair") for line in lines] == [None, "a dog"]
    assert json.loads(lines[1])["probabilities"] == pytest.approx(found["probabilities"], rel=1e-4)
    scores = json.loads(regard("evaluate", "cats", "labelled.tsv", "--json")[0])
    assert set(scores) == {"task", "n", "accuracy", "macro_f1", "matthews", "f1"}
    assert fail("classify", "cats", "a", "b", "--pair", "c").startswith("--pair goes with one TEXT")
    assert fail("classify", "cats", "a", "--pair", " ").startswith("--pair is empty")
    Path("hole.txt").write_text("the cat\nthe cat\t\n")
    assert fail("classify", "cats", "--file", "hole.txt") == "text 2: its pair is empty; give both texts"
    Path("new.tsv").write_text("text\tlabel\ncat\tmaybe\n")
    assert fail("evaluate", "cats", "new.tsv") == "the label 'maybe' was not there in training; known: no, yes"
    assert fail("evaluate", "cats", "labelled.tsv:text,lable").startswith("labelled.tsv: no column 'lable'; ")
    assert fail("tag", "cats", "a cat") == "cats: a model for classify, which cannot tag"
    assert fail("translate", "cats", "a cat") == "cats: a model for classify, which cannot translate"
    assert fail("evaluate", "cats", "labelled.tsv", "--beam", 2) == "a classifier searches nothing; leave out: beam"


def test_scores_of_pairs_from_scratch(regard: Regard) -> None:
    regard("train", "classify", "pairs.tsv", "--out", "scores", *SMALL, "--set", "task.kind=score")
    out, _ = regard("classify", "scores", "the cat", "--pair", "a dog")
    assert re.fullmatch(r"-?\d+\.\d{4}\n", out)
    scores = json.loads(regard("evaluate", "scores", "pairs.tsv", "--json")[0])
    assert set(scores) == {"task", "n", "pearson", "spearman"}


def test_tagging(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    regard("train", "tag", "words.conll", "--from", bert, "--out", "animals", *SHORT)
    out, _ = regard("tag", "animals", "the cat sits.", "a dog")
    first, second = out.split("\n\n")
    assert [line.split("\t")[0] for line in first.splitlines()] == ["the", "cat", "sits", "."]
    assert len(second.splitlines()) == 2
    found = json.loads(regard("tag", "animals", "the cat sits.", "--json")[0])
    assert set(found) == {"text", "words", "labels", "probabilities", "offsets"}
    assert found["offsets"] == [[0, 3], [4, 7], [8, 12], [12, 13]]
    split = json.loads(regard("tag", "animals", "the cat sits.", "--json", "--split")[0])
    assert split["words"] == ["the", "cat", "sits."]
    scores = json.loads(regard("evaluate", "animals", "words.conll", "--json")[0])
    assert {"precision", "recall", "f1", "accuracy", "words"} <= scores.keys()
    Path("ragged.conll").write_text("the O\ncat\n")
    assert fail("train", "tag", "ragged.conll", "--out", "x", *SMALL).startswith("ragged.conll:2: ")
    assert fail("train", "tag", "words.conll", "--column", "9", "--out", "x", *SMALL).startswith("words.conll")


def test_what_cannot_be_fine_tuned(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    command = ["train", "classify", "labelled.tsv", "--out", "x", "--from"]
    assert fail(*command, "nowhere") == "nowhere: no such run directory; `regard train` makes one"
    assert fail(*command, bert, "--set", "model.d_model=32").endswith(
        f"model.d_model = 32, but {bert} has 16; leave it out"
    )
    assert fail(*command, bert, "--set", "tokenizer.vocabulary=99").endswith(
        f"tokenizer.vocabulary: the vocabulary is that of {bert}; leave it out"
    )
    assert fail("train", "translate", "labelled.tsv", "--out", "x", "--from", bert).endswith(
        "a model for pretrain; translate cannot start from it"
    )
    assert not Path("x").exists()


def test_looking_into_encoders(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    out, _ = regard("look", bert, "the [MASK] sits", "--view", "gradients")
    assert re.search(r"^said +\S+ \(\d+%\)$", out, re.MULTILINE)
    regard("look", bert, "the cat sits", "--pair", "a dog", "--out", "look.json")
    found = json.loads(Path("look.json").read_text())
    assert found["sides"]["encoder"][0] == "[CLS]"
    assert found["sides"]["encoder"].count("[SEP]") == 2
    assert {array["view"] for array in found["arrays"]} >= {"attention", "effective", "attribution", "gradients"}
    assert fail("look", bert, "cat", "--target", "dog") == "an encoder searches nothing; leave out: target"
    assert fail("look", bert, "[MASK] " + "cat " * 40).startswith("the text has 43 tokens, special ones included; this")
    assert fail("look", bert, "cat " * 40).startswith(
        "the text has 42 tokens, special ones included; this model takes 32"
    )
    out, _ = regard("identify", bert, "books.txt", "--sentences", 20, "--maps", "identity")
    assert "encoder" in out


def test_a_classifier_is_explained_by_its_label(bert: Path, regard: Regard) -> None:
    regard("train", "classify", "labelled.tsv", "--from", bert, "--out", "cats2", *SHORT, "--set", "task.pooling=mean")
    regard("look", "cats2", "the cat sits", "--view", "faithfulness", "--out", "faithful.json")
    found = json.loads(Path("faithful.json").read_text())
    assert found["about"]["said"].split()[0] in ("yes", "no")
    regard("look", "cats2", "the cat sits", "--view", "gradients", "--words", "--out", "gradients.json")
    arrays = json.loads(Path("gradients.json").read_text())["arrays"]
    assert arrays[0]["axes"][1]["labels"] == [found["about"]["said"].split()[0]]
