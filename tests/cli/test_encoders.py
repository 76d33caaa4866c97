"""Encoders by the command line: pretrain, fill, fine-tune, classify, tag, evaluate, look."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from encoders import documents, sentences

from regard.api import Classifier
from regard.cli import main

Called = Callable[..., tuple[int, str, str]]
Regard = Callable[..., tuple[str, str]]
SMALL = [
    *("--set", "model.d_model=16", "--set", "model.n_layers=2", "--set", "model.n_heads=2", "--set", "model.d_ff=32"),
    *("--set", "train.steps=4", "--set", "train.batch_tokens=256", "--set", "train.validate_every=2"),
]
SHORT = ["--set", "train.steps=4", "--set", "train.batch_tokens=256", "--set", "train.validate_every=2"]


@pytest.fixture
def fail(called: Called) -> Callable[..., str]:
    """Run a command that must be refused; return its one line."""

    def run(*arguments: object) -> str:
        code, out, err = called(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: "), err
        return err.splitlines()[-1].removeprefix("error: ")

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data for every task."""
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


def test_pretraining_logs_both_objectives(bert: Path) -> None:
    log = [json.loads(line) for line in (bert / "log.jsonl").read_text().splitlines()]
    valid = [line for line in log if "valid_loss" in line]
    assert {"valid_perplexity", "masked_accuracy", "next_accuracy"} <= valid[-1].keys()


def test_fill(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    out, _ = regard("fill", bert, "the [MASK] sits on the mat", "--top", 3)
    assert re.fullmatch(r"\S+ 0\.\d{4}\t\S+ 0\.\d{4}\t\S+ 0\.\d{4}\n", out)
    found = json.loads(regard("fill", bert, "[MASK] cat [MASK]", "--json")[0])
    assert [len(words) for words in found["masks"]] == [5, 5]
    assert set(found["masks"][0][0]) == {"word", "probability", "text"}
    own = json.loads(regard("fill", bert, "The  RED [MASK], Sits.", "--json")[0])
    assert own["text"] == "The  RED [MASK], Sits."
    assert all(re.fullmatch(r"The  RED ?[^ ]+, Sits\.", each["text"]) for each in own["masks"][0])
    both = regard("fill", bert, "[MASK] cat [MASK]")[0].rstrip("\n").split("\t|\t")
    assert [each.split("\t")[0].split()[0] for each in both] == [words[0]["word"] for words in found["masks"]]
    missing = "no [MASK] in 'the cat'; put it where a word is to be predicted"
    assert fail("fill", bert, "the cat") == f"text 1: {missing}"
    assert fail("fill", bert, "[MASK]", "--top", 0) == "--top 0: expected at least 1 and at most 1,000,000,000"
    Path("empty.txt").touch()
    assert fail("fill", bert, "--file", "empty.txt") == "empty.txt: no texts; give one per line"


def test_fill_lines_of_a_file(bert: Path, regard: Regard, called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the [MASK] sits", "[MASK] cat [MASK]", "a red [MASK]"]
    one_by_one = [regard("fill", bert, text)[0] for text in texts]
    assert regard("fill", bert, *texts)[0].splitlines(keepends=True) == one_by_one
    Path("masks.txt").write_text("\n".join(texts))
    assert regard("fill", bert, "--file", "masks.txt")[0].splitlines(keepends=True) == one_by_one
    for given in (["-"], [], ["--file", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
        assert regard("fill", bert, *given)[0].splitlines(keepends=True) == one_by_one
    lines = regard("fill", bert, "--file", "masks.txt", "--json", "--top", 2)[0].splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts
    Path("masks.txt").write_text("a [MASK]\nthe cat\n")
    code, out, err = called("fill", bert, "--file", "masks.txt")
    assert (code, len(out.splitlines())) == (2, 1)
    assert err == "error: masks.txt: text 2: no [MASK] in 'the cat'; put it where a word is to be predicted\n"


def test_evaluate_on_plain_text(bert: Path, regard: Regard) -> None:
    found = json.loads(regard("evaluate", bert, "books.txt", "--json")[0])
    assert found["task"] == "pretrain"
    assert 0 <= found["masked_accuracy"] <= 1
    assert found["perplexity"] > 1
    assert json.loads(regard("evaluate", bert, "books.txt", "--json")[0]) == found


def test_classify(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    _, err = regard("train", "classify", "labelled.tsv", "--from", bert, "--out", "cats", *SHORT)
    assert re.search(r"bert: \d+ tensors loaded, new: 2 \(heads.label.weight, heads.label.bias\), unused: \d+ \(", err)
    out, _ = regard("classify", "cats", "the cat", "a dog runs")
    assert all(re.fullmatch(r"(yes|no)\t[01]\.\d{4}", line) for line in out.splitlines())
    found = json.loads(regard("classify", "cats", "the cat", "--json")[0])
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    Path("lines.txt").write_text("a dog\nthe cat\n")
    lines = regard("classify", "cats", "--file", "lines.txt", "--json")[0].splitlines()
    assert json.loads(lines[1])["probabilities"] == pytest.approx(found["probabilities"], rel=1e-4)
    has_a_pair = "'the cat' has a pair, but this model was trained on single texts; leave it out"
    assert fail("classify", "cats", "the cat", "--pair", "a dog") == has_a_pair
    assert fail("look", "cats", "the cat", "--pair", "a dog") == has_a_pair
    assert fail("evaluate", "cats", "pairs.tsv", "--columns", "text,pair,score").startswith("pairs.tsv:2: the label ")
    scores = json.loads(regard("evaluate", "cats", "labelled.tsv", "--json")[0])
    assert set(scores) == {"task", "n", "accuracy", "macro_f1", "matthews", "f1"}
    assert fail("classify", "cats", "a", "b", "--pair", "c").startswith("--pair goes with one TEXT")
    assert fail("classify", "cats", "a", "--pair", " ").startswith("--pair is empty")
    Path("empty.txt").touch()
    assert fail("classify", "cats", "--file", "empty.txt") == "empty.txt: no texts; give one per line"
    Path("hole.txt").write_text("the cat\nthe cat\t\n")
    assert fail("classify", "cats", "--file", "hole.txt") == "text 2: its pair is empty; give both texts"
    Path("new.tsv").write_text("text\tlabel\ncat\tmaybe\n")
    unknown = (
        "the label 'maybe' does not occur in the training data; known: no, yes; correct it, leave it out, or train with"
    )
    assert fail("evaluate", "cats", "new.tsv") == f"new.tsv:2: {unknown} examples of it"
    assert fail("evaluate", "cats", "labelled.tsv:text,lable").startswith("labelled.tsv: no column 'lable'; ")
    kind, use = "cats: a model for classify, which cannot", "use it with: regard classify"
    assert fail("tag", "cats", "a cat") == f"{kind} tag; {use}"
    assert fail("translate", "cats", "a cat") == f"{kind} translate; {use}"
    assert fail("evaluate", "cats", "labelled.tsv", "--beam", 2) == (
        "cats: a model for classify does not take --beam; leave it out"
    )


def test_empty_lines_give_empty_results(bert: Path, regard: Regard) -> None:
    regard("train", "classify", "labelled.tsv", "--from", bert, "--out", "holes", *SHORT)
    Path("holes.txt").write_text("the cat\n\n a dog\n")
    out, err = regard("classify", "holes", "--file", "holes.txt")
    assert [bool(line) for line in out.split("\n")] == [True, False, True, False]
    assert err == "warning: 1 of 3 texts are empty; so are their results\n"
    lines = [json.loads(line) for line in regard("classify", "holes", "--file", "holes.txt", "--json")[0].splitlines()]
    assert lines[1] == {"text": "", "label": None, "probability": None, "probabilities": None}
    Path("masks.txt").write_text("the [MASK]\n\n")
    out, err = regard("fill", bert, "--file", "masks.txt")
    assert [bool(line) for line in out.split("\n")] == [True, False, False]
    assert err == "warning: 1 of 2 texts are empty; so are their results\n"
    regard("train", "tag", "words.conll", "--from", bert, "--out", "tagged-holes", *SHORT)
    Path("holes.txt").write_text("the cat\n\n\n a dog\n")
    out, err = regard("tag", "tagged-holes", "--file", "holes.txt")
    assert [bool(line) for line in out.split("\n")] == [True, False, False, True, False]
    assert err == "warning: 2 of 4 texts are empty; so are their results\n"
    classifier = Classifier.load("holes", device="cpu")
    labels = [each.label for each in classifier.classify(["the cat", "", "a dog"])]
    assert labels[1] == ""
    assert labels[::2] == [classifier.classify("the cat").label, classifier.classify("a dog").label]


def test_classify_a_column_of_a_table(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    regard("train", "classify", "labelled.tsv", "--from", bert, "--out", "columns", *SHORT)
    Path("news.tsv").write_text("id\theadline\n1\tthe cat\n2\ta dog\n")
    out, _ = regard("classify", "columns", "--file", "news.tsv", "--columns", "headline")
    assert out == regard("classify", "columns", "the cat", "a dog")[0]
    assert regard("classify", "columns", "--file", "news.tsv", "--columns", "2")[0].splitlines()[1:] == out.splitlines()
    assert fail("classify", "columns", "--file", "news.tsv", "--columns", "a,b,c").startswith(
        "--columns a,b,c: expected"
    )
    assert fail("classify", "columns", "the cat", "--columns", "headline").startswith("--columns goes with a table")


def test_regression_on_pairs_from_scratch(regard: Regard, fail: Callable[..., str]) -> None:
    _, err = regard("train", "classify", "pairs.tsv", "--out", "scores", *SMALL, "--set", "task.kind=score")
    assert "perplexity" not in err
    out, _ = regard("classify", "scores", "the cat", "--pair", "a dog")
    assert re.fullmatch(r"-?\d+\.\d{4}\n", out)
    found = json.loads(regard("classify", "scores", "the cat", "--pair", "a dog", "--json")[0])
    assert (found["text"], found["pair"]) == ("the cat", "a dog")
    Path("tabs.txt").write_text("a dog\tthe cat\nthe cat\ta dog\n")
    lines = regard("classify", "scores", "--file", "tabs.txt", "--json")[0].splitlines()
    assert json.loads(lines[1])["score"] == pytest.approx(found["score"], rel=1e-4)
    alone = (
        "'the cat' stands alone, but this model was trained on pairs of texts; give the second text too, with --pair"
    )
    assert fail("classify", "scores", "the cat") == f"{alone} or after a tab"
    assert fail("look", "scores", "the cat") == f"{alone} or after a tab"
    regard("look", "scores", "the cat", "--pair", "a dog", "--view", "gradients", "--out", "scores.json")
    assert float(json.loads(Path("scores.json").read_text())["about"]["prediction"]) == pytest.approx(
        found["score"], abs=1e-3
    )
    scores = json.loads(regard("evaluate", "scores", "pairs.tsv", "--json")[0])
    assert set(scores) == {"task", "n", "pearson", "spearman", "mse"}


def test_tag(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    regard("train", "tag", "words.conll", "--from", bert, "--out", "animals", *SHORT)
    out, _ = regard("tag", "animals", "the cat sits.", "a dog")
    assert [[word.rpartition("/")[0] for word in line.split(" ")] for line in out.splitlines()] == [
        ["the", "cat", "sits", "."],
        ["a", "dog"],
    ]
    assert {word.rpartition("/")[2] for word in out.split()} <= {"B-ANI", "I-ANI", "O"}
    found = json.loads(regard("tag", "animals", "the cat sits.", "--json")[0])
    assert set(found) == {"text", "words", "labels", "probabilities", "offsets"}
    assert found["offsets"] == [[0, 3], [4, 7], [8, 12], [12, 13]]
    for text in ("मैं हिन्दी पढ़ता हूँ।", unicodedata.normalize("NFD", "l'été, déjà")):
        found = json.loads(regard("tag", "animals", text, "--json")[0])
        assert [text[start:end] for start, end in found["offsets"]] == found["words"]
        assert len(found["words"]) == (5 if text.startswith("म") else 3)
    split = json.loads(regard("tag", "animals", "the cat sits.", "--json", "--split")[0])
    assert split["words"] == ["the", "cat", "sits."]
    scores = json.loads(regard("evaluate", "animals", "words.conll", "--json")[0])
    assert {"precision", "recall", "f1", "accuracy", "words"} <= scores.keys()
    Path("empty.txt").touch()
    assert fail("tag", "animals", "--file", "empty.txt") == "empty.txt: no texts; give one per line"
    Path("ragged.conll").write_text("the O\ncat\n")
    assert fail("train", "tag", "ragged.conll", "--out", "x", *SMALL).startswith("ragged.conll:2: ")
    assert fail("train", "tag", "words.conll", "--column", "9", "--out", "x", *SMALL).startswith("words.conll")
    assert fail("train", "tag", "labelled.tsv", "--out", "x", *SMALL) == (
        "labelled.tsv:1: a header, 'text', 'label', where a word and its label were expected; CoNLL has none, and one "
        "word a line: drop the line, or learn labels of whole texts with classify"
    )
    Path("nothing.conll").write_text("\n\n".join("the O\ncat O" for _ in range(30)))
    only = "only one label, 'O': nothing to tell apart; is it the right column?"
    assert fail("train", "tag", "nothing.conll", "--out", "y", *SMALL) == only
    both = "both --column and --columns given; tag takes --column, all others --columns"
    assert fail("train", "tag", "words.conll", "--column", "2", "--columns", "2", "--out", "y") == both
    none = "columns: text: plain text is read here, which has none; leave them out"
    assert fail("train", "pretrain", "books.txt", "--columns", "text", "--out", "y", *SMALL) == none


def test_files_not_in_conll_format(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    """Tables of texts and plain prose are refused with the line and the expected format."""
    regard("train", "tag", "words.conll", "--from", bert, "--out", "tagger", *SHORT)
    train, evaluate = ["train", "tag", "--out", "x", *SMALL], ["evaluate", "tagger"]
    expected = "expected one word a line and its label after a tab or a space, with an empty line after each sentence"
    rows = (f"{text}\t{'yes' if 'cat' in text else 'no'}" for text in sentences(80, least=4))
    Path("texts.tsv").write_text("\n".join(rows))
    Path("prose.txt").write_text("It was a dark night.\nHe came.\n")
    for command in (train, evaluate):
        found = fail(*command, "texts.tsv")
        assert found.startswith("texts.tsv:1: ")
        assert f" where a single word was expected; {expected}; " in found
        assert (
            fail(*command, "prose.txt") == f"prose.txt:2: 2 columns, but line 1 has 5, separated by spaces; {expected}"
        )
    Path("prose.txt").write_text("It was dark.\nHe came home.\n" * 9)
    assert fail(*train, "prose.txt").startswith(
        "sentences (one word and its label a line, an empty line after each sentence): only 1, too few to hold some out"
    )
    assert fail(*evaluate, "prose.txt").endswith(", or name another --column")
    assert not Path("x").exists()


def test_evaluate_remembers_the_columns_of_a_classifier(bert: Path, regard: Regard) -> None:
    rows = [f"{'yes' if 'cat' in text else 'no'}\t{text}" for text in sentences(40)]
    Path("reversed.tsv").write_text("\n".join(rows) + "\n")
    regard("train", "classify", "reversed.tsv", "--columns", "2,1", "--from", bert, "--out", "swapped", *SHORT)
    scores = regard("evaluate", "swapped", "reversed.tsv", "--json")[0]
    assert json.loads(scores)["n"] == 40
    assert regard("evaluate", "swapped", "reversed.tsv", "--columns", "2,1", "--json")[0] == scores


def test_evaluate_remembers_the_column_of_a_tagger(
    folder: Path, bert: Path, regard: Regard, fail: Callable[..., str]
) -> None:
    """The labels of the two columns differ, so using the wrong one is detected."""

    def line(place: int, word: str) -> str:
        return "\t".join([str(place), word, "_", "_", "NN" if word in ("cat", "dog") else "XX", *"_____"])

    texts = ["\n".join(line(place, word) for place, word in enumerate(text.split(), 1)) for text in sentences(40)]
    Path("words.conllu").write_text("\n\n".join(texts) + "\n")
    regard("train", "tag", "words.conllu", "--column", "xpos", "--from", bert, "--out", "pos", *SHORT)
    scores = regard("evaluate", "pos", "words.conllu", "--json")[0]
    assert regard("evaluate", "pos", "words.conllu", "--column", "xpos", "--json")[0] == scores
    assert fail("evaluate", "pos", "words.conllu", "--column", "upos").startswith("words.conllu:1: empty label; ")
    assert fail("evaluate", "pos", "words.conll") == (
        "words.conll: no column 'xpos'; the columns of CoNLL have numbers, counted from 1: pass one with --column"
    )
    assert fail("evaluate", "pos", "words.conll", "--column", "2").startswith("words.conll:1: the label 'O' does not ")


def test_invalid_fine_tuning(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    command = ["train", "classify", "labelled.tsv", "--out", "x", "--from"]
    assert fail(*command, "nowhere") == "nowhere: no such run directory; `regard train` makes one"
    assert fail(*command, bert, "--set", "model.d_model=32").endswith(
        f"model.d_model = 32, but {bert} has 16; leave it out"
    )
    assert fail(*command, bert, "--set", "tokenizer.vocabulary=99").endswith(
        f"tokenizer.vocabulary: the vocabulary is that of {bert}; leave it out"
    )
    assert fail(*command, bert, "--set", "task.length=64").endswith(
        f"task.length = 64, but {bert} has learned 32 positions; give task.length=32 or less, or leave it out"
    )
    assert fail("train", "pretrain", "books.txt", "--out", "x", "--from", bert, "--set", "task.length=64").endswith(
        f"task.length = 64, but {bert} has learned 32 positions; give task.length=32 or less, or leave it out"
    )
    assert fail("train", "translate", "labelled.tsv", "--out", "x", "--from", bert).endswith(
        "a model for pretrain; translate cannot start from it; leave out --from, or name another model"
    )
    assert not Path("x").exists()


def test_look_into_encoders(bert: Path, regard: Regard, fail: Callable[..., str]) -> None:
    out, _ = regard("look", bert, "the [MASK] sits", "--view", "gradients")
    assert re.search(r"^prediction +\S+ \(\d+%\)$", out, re.MULTILINE)
    regard("look", bert, "the cat sits", "--pair", "a dog", "--out", "look.json")
    found = json.loads(Path("look.json").read_text())
    assert found["sides"]["encoder"][0] == "[CLS]"
    assert found["sides"]["encoder"].count("[SEP]") == 2
    assert {array["view"] for array in found["arrays"]} >= {"attention", "effective", "attribution", "gradients"}
    assert (
        fail("look", bert, "cat", "--target", "dog")
        == f"{bert}: a model for pretrain does not take --target; leave it out"
    )
    assert fail("look", bert, "[MASK] " + "cat " * 40).startswith(
        "the text with its special tokens has 43 tokens; this"
    )
    assert fail("look", bert, "cat " * 40).startswith(
        "the text with its special tokens has 42 tokens; this model takes at most 32"
    )
    out, _ = regard("identify", bert, "books.txt", "--sentences", 20, "--maps", "identity")
    assert "encoder" in out


def test_look_explains_the_label_of_a_classifier(bert: Path, regard: Regard) -> None:
    regard("train", "classify", "labelled.tsv", "--from", bert, "--out", "cats2", *SHORT, "--set", "task.pooling=mean")
    regard("look", "cats2", "the cat sits", "--view", "faithfulness", "--out", "faithful.json")
    found = json.loads(Path("faithful.json").read_text())
    assert found["about"]["prediction"].split()[0] in ("yes", "no")
    regard("look", "cats2", "the cat sits", "--view", "gradients", "--words", "--out", "gradients.json")
    arrays = json.loads(Path("gradients.json").read_text())["arrays"]
    assert arrays[0]["axes"][1]["labels"] == [found["about"]["prediction"].split()[0]]
