"""A tagger on running text, end to end: word segmentation learned in training, scores both ways, CoNLL-U as output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running_texts import ENGLISH
from tiny_runs import merged, ready, trained

import regard
from regard.cli import main
from regard.errors import CheckpointError
from regard.text.conllu import format_conllu
from regard.text.tagged import read_tagged_sentences
from regard.text.word_segmenter import SEGMENTER_FILE
from regard.training.plan import make_plan

RECIPE = {
    "task": {"name": "tag"},
    "tokenizer": {"vocabulary": 100},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 2, "batch_tokens": 512, "validate_every": 2},
}


def label(form: str) -> str:
    return "PUNCT" if not any(map(str.isalnum, form)) else "PART" if "'" in form else "NOUN"


def recipe(path: Path) -> dict[str, dict[str, object]]:
    return merged(RECIPE, {"data": {"train": [str(path)], "valid": [str(path)]}})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "data.conllu"
    texts = [(each.text, each.words()) for each in ENGLISH]
    path.write_text("".join(format_conllu(*each, [label(word.form) for word in each[1]], "upos") for each in texts))
    return path


@pytest.fixture(scope="module")
def run(corpus: Path) -> Path:
    trained(recipe(corpus), corpus.parent / "run")
    return corpus.parent / "run"


def test_both_scores(run: Path, corpus: Path, tmp_path: Path) -> None:
    tagger = regard.Tagger.load(run, device="cpu")
    scores = tagger.evaluate(str(corpus))
    assert scores["raw_sentences"] == scores["n"] == len(ENGLISH)
    assert scores["raw_words_precision"] == scores["raw_words_recall"] == scores["raw_words_f1"] == 1
    assert scores["raw_tags_f1"] == pytest.approx(scores["accuracy"])  # all words are found, so both are the same
    at_end = json.loads((run / "metrics.json").read_text())["raw_text"]
    assert at_end == pytest.approx({key: value for key, value in scores.items() if key.startswith("raw_")})
    without = tmp_path / "plain.conllu"
    without.write_text(
        "\n".join(line for line in corpus.read_text().splitlines() if line[:1] != "#").replace("SpaceAfter=No", "_")
        + "\n"
    )
    assert not [key for key in tagger.evaluate(str(without)) if key.startswith("raw_")]


def test_the_default_words_score_worse(run: Path, corpus: Path) -> None:
    """A directory of an earlier version has no segmenter; it works as before."""
    (run / SEGMENTER_FILE).rename(run / "kept")
    try:
        tagger = regard.Tagger.load(run, device="cpu")
        assert [word.word for word in tagger.tag("I don't.")] == ["I", "don't", "."]
        assert tagger.evaluate(str(corpus))["raw_words_f1"] < 0.9
    finally:
        (run / "kept").rename(run / SEGMENTER_FILE)


def test_a_damaged_segmenter_is_refused(run: Path) -> None:
    path = run / SEGMENTER_FILE
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1000", b"1001", 1))
    try:
        with pytest.raises(CheckpointError, match=r"segmenter\.json: damaged \(its checksum does not match\)"):
            regard.load(run, device="cpu")
    finally:
        path.write_bytes(content)


def test_the_plan_says_what_is_scored(corpus: Path, tmp_path: Path) -> None:
    lines = make_plan(ready(recipe(corpus), tmp_path / "run")).lines()
    scores = "on given words; at the end also on running text (word segmentation learned from 14 sentences"
    assert f"scores     {scores}" in "\n".join(lines)
    conll = tmp_path / "data.conll"
    words = [word.form for each in ENGLISH for word in each.words()]
    conll.write_text("".join(f"{word} {label(word)}\n\n" for word in words))
    lines = make_plan(ready(recipe(conll), tmp_path / "other")).lines()
    assert "scores     on given words; the training data has no running text" in "\n".join(lines)
    assert not (tmp_path / "other" / SEGMENTER_FILE).exists()


def test_words_and_tokens_of_a_text(run: Path) -> None:
    tagger = regard.Tagger.load(run, device="cpu")
    words = tagger.tag("They don't.")
    assert [(each.word, each.start, each.end, each.token_start, each.token_end) for each in words] == [
        *(("They", 0, 4, 0, 4), ("do", 5, 7, 5, 10), ("n't", 7, 10, 5, 10), (".", 10, 11, 10, 11)),
    ]
    assert [each.word for each in tagger.tag("They don't.", split=True)] == ["They", "don't."]
    assert tagger.look("They don't.").tokens["encoder"]


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["tag", *arguments, "--device", "cpu"])
    captured = capsys.readouterr()
    return captured.out if not ended.value.code else f"{ended.value.code} {captured.err}"


def test_conllu_as_output(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts").write_text("They don't.\n\nHe can.\n")
    written = output(capsys, str(run), "--file", str(tmp_path / "texts"), "--format", "conllu")
    (tmp_path / "out.conllu").write_text(written)
    sentences = list(read_tagged_sentences([str(tmp_path / "out.conllu")], with_text=True))
    assert [each.text and each.text.text for each in sentences] == ["They don't.", "He can."]
    assert sentences[0].words == ("They", "do", "n't", ".")
    tagger = regard.Tagger.load(run, device="cpu")
    assert list(sentences[0].labels) == [each.label for each in tagger.tag("They don't.")]
    assert "2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n" in written


def test_json_as_output(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = output(capsys, str(run), "They don't.", "--format", "json")
    assert one == output(capsys, str(run), "They don't.", "--json")
    found = json.loads(one)
    assert found["offsets"] == [[0, 4], [5, 7], [7, 10], [10, 11]]
    assert found["tokens"] == [[0, 4], [5, 10], [5, 10], [10, 11]]


def test_formats_that_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = output(capsys, str(run), "a", "--format", "conlu")
    assert message.startswith("2 ")
    assert "--format 'conlu': did you mean 'conllu'?" in message
    assert "both --json and --format conllu given; pass one of them" in output(
        capsys, str(run), "a", "--json", "--format", "conllu"
    )
