"""Corpora of a comparison: disjoint train, validation and test files that hold every text unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.compare import corpora
from regard.compare.corpora import CorpusSize, CorpusSplit
from regard.compare.experiment import ComparisonSettings
from regard.errors import DataError
from regard.text.pairs import Pair, read_pairs
from regard.text.tagged import TaggedSentence, read_tagged_sentences

AMOUNT = CorpusSize(200, 20, 30, 2)
ODD = "one\ntwo\r\nthree\tfour\u2028five"


def table(folder: Path, pairs: list[Pair]) -> ComparisonSettings:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(pair._asdict()) + "\n" for pair in pairs), encoding="utf-8")
    return ComparisonSettings(folder / "out", data=(str(path),))


def three(split: CorpusSplit) -> list[list[Pair]]:
    return [list(read_pairs(files)) for files in (split.train, split.valid, split.test)]


def test_every_pair_is_in_one_split_unchanged(tmp_path: Path) -> None:
    pairs = [Pair(f"{ODD} {n}", f"{n} {ODD}") for n in range(150)]
    split = corpora.prepare_corpus("translate", table(tmp_path, pairs), AMOUNT, tmp_path / "out")
    parts = three(split)
    assert [len(part) for part in parts] == [split.n_train, split.n_valid, split.n_test] == [120, 15, 15]
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    assert split.origin.endswith("mine.jsonl, 150 pairs")


def test_repeated_source_is_in_one_split_only(tmp_path: Path) -> None:
    pairs = [Pair(f"text {n % 150}", f"Text {n}") for n in range(400)]
    split = corpora.prepare_corpus("translate", table(tmp_path, pairs), AMOUNT, tmp_path / "out")
    sources = [pair.source for part in three(split) for pair in part]
    assert len(sources) == len(set(sources)) == 150
    assert "150 pairs (250 more repeat a source and are left out)" in split.origin


def test_repetitions_do_not_count_as_examples(tmp_path: Path) -> None:
    setting = table(tmp_path, [Pair("again", "encore")] * 300)
    with pytest.raises(DataError, match="1 examples and 299 repetitions; a comparison needs 100 at least"):
        corpora.check_data_files(setting, ["translation"])
    corpora.check_data_files(setting, ["cost", "recall"])  # which read no text


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("translate", ("source", "target")),
        ("classify", ("text", "label")),
        ("qa", ("context", "question")),
    ],
)
def test_examples_without_text_are_left_out_and_counted(
    task: str, keys: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = [{keys[0]: f"text {n}", keys[1]: f"{n % 2}", "answers": []} for n in range(120)]
    examples[7][keys[0]] = " "
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in examples), encoding="utf-8")
    settings = ComparisonSettings(tmp_path, data=(str(path),), labelled=str(path), questions=str(path))
    split = corpora.prepare_corpus(task, settings, AMOUNT, tmp_path / "out")
    assert split.n_train + split.n_valid + split.n_test == 119
    assert "left out 1 of 120 " in capsys.readouterr().err


def test_words_and_labels_are_written_unchanged(tmp_path: Path) -> None:
    sentences = [TaggedSentence(("a word", "#", str(n)), ("B-X", "I-X", "O")) for n in range(120)]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(each._asdict()) + "\n" for each in sentences), encoding="utf-8")
    split = corpora.prepare_corpus("tag", ComparisonSettings(tmp_path, tagged=str(path)), AMOUNT, tmp_path / "out")
    parts = [list(read_tagged_sentences(files)) for files in (split.train, split.valid, split.test)]
    assert sorted(each for part in parts for each in part) == sorted(sentences)
    assert "120 sentences" in split.origin


def test_synthetic_corpora_depend_on_the_seed(tmp_path: Path) -> None:
    pytest.importorskip("babel")

    def written(seed: int) -> tuple[list[list[Pair]], list[TaggedSentence]]:
        setting = ComparisonSettings(tmp_path, seed=seed)
        tagged = corpora.prepare_corpus("tag", setting, AMOUNT, tmp_path / f"tagged{seed}")
        return three(corpora.prepare_corpus("translate", setting, AMOUNT, tmp_path / f"pairs{seed}")), list(
            read_tagged_sentences(tagged.test)
        )

    (train, valid, test), sentences = written(0)
    assert (len(train), len(valid), len(test), len(sentences)) == (160, 20, 20, 20)
    assert not {pair.source for pair in train} & {pair.source for pair in (*valid, *test)}
    assert all(sentence.labels[0].startswith("B-") for sentence in sentences)
    assert written(0) == ([train, valid, test], sentences)
    assert written(1)[0] != [train, valid, test]


def test_hash_depends_on_file_contents(tmp_path: Path) -> None:
    setting = table(tmp_path, [Pair("a", "b")])
    before = corpora.hash_data_files(setting)
    Path(setting.data[0]).touch()
    assert corpora.hash_data_files(setting) == before != corpora.hash_data_files(ComparisonSettings(tmp_path))
    table(tmp_path, [Pair("a", "c")])
    assert corpora.hash_data_files(setting) != before
    with pytest.raises(DataError, match="no such file"):
        corpora.hash_data_files(ComparisonSettings(tmp_path, tagged="nowhere.conll"))
