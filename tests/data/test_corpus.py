"""A corpus: its validation split, source weights, text for tokenizers, and encoding."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from regard import progress
from regard.data import corpus
from regard.data.columns import TokenColumnSpec
from regard.data.corpus import (
    Corpus,
    DataConfig,
    Example,
    chunk_examples,
    sample_evenly,
    slice_lines,
    write_store,
)
from regard.errors import ConfigError
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.tasks.translate import PairReader
from regard.text import files


def examples(n: int) -> list[Example]:
    return [(f"text {i}", f"texte {i} !") for i in range(n)]


@pytest.mark.parametrize("boundary", range(8))
def test_lines_before_and_after_a_boundary_are_all_lines(boundary: int) -> None:
    documents = [("a\nb\nc",), ("d",), ("e\nf\ng",)]
    parts = [*slice_lines(documents, 0, boundary), *slice_lines(documents, boundary)]
    assert "\n".join(text for (text,) in parts).split("\n") == list("abcdefg")
    assert sum(text.count("\n") + 1 for (text,) in slice_lines(documents, 0, boundary)) == min(boundary, 7)


def test_whole_text_is_sampled_below_the_limit() -> None:
    assert list(sample_evenly(iter(examples(9)), 1.0)) == examples(9)


@pytest.mark.parametrize("sizes", [[5] * 100, [1, 50] * 50, [50, 1] * 50, [400, *[1] * 400]])
@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.9])
def test_sample_has_its_fraction_of_every_part_of_the_text(sizes: list[int], fraction: float) -> None:
    """Whatever the order of long and short texts: after each, the fraction, give or take one text."""
    every = [("x" * size, str(number)) for number, size in enumerate(sizes)]
    sample = list(sample_evenly(every, fraction))
    chosen = {number for _, number in sample}
    assert [example for example in every if example[1] in chosen] == sample
    n_read = n_sampled = 0
    for text, number in every:
        size = len(text) + len(number)
        n_read, n_sampled = n_read + size, n_sampled + size * (number in chosen)
        assert abs(n_sampled - fraction * n_read) <= max(sizes) + len(number)


def test_tokenizer_is_trained_on_a_sample_of_stated_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, side in (("a.en", 0), ("a.fr", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in examples(400)))
    files = tuple(str(tmp_path / name) for name in ("a.en", "a.fr"))
    data = DataConfig(train=files, valid=files, max_length=8)
    whole = list(Corpus(PairReader(), data, "test").train_texts(0, 1))
    assert whole == [text for example in examples(400) for text in example]
    assert "vocabulary" not in capfd.readouterr().err
    monkeypatch.setattr(corpus, "MAX_TOKENIZER_BYTES", 2000)
    sampled = Corpus(PairReader(), data, "test")
    sample = list(sampled.train_texts(0, 1))
    assert sample == list(sampled.train_texts(0, 1))
    assert 1900 < sum(map(len, sample)) < 2100
    assert capfd.readouterr().err.count("the vocabulary is learned from 0 of 0 MB of text, spread evenly") == 1


def test_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "ENCODING_CHUNK_SIZE", 3)
    assert [len(chunk) for chunk in chunk_examples(examples(7))] == [3, 3, 1]
    assert list(chunk_examples([])) == []


def test_chunks_are_bounded_by_bytes() -> None:
    every = [("é" * size,) for size in (3, 3, 3, 30, 1, 1)]
    assert [len(chunk) for chunk in chunk_examples(every, 12)] == [2, 2, 2]


class Letters:
    store_columns = (TokenColumnSpec("source", 128), TokenColumnSpec("target", 128))

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        return [[[ord(letter) for letter in example[side]] for example in examples] for side in (0, 1)]


def test_a_store_holds_every_example_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "ENCODING_CHUNK_SIZE", 3)
    store = write_store(tmp_path / "s", examples(7), Letters(), fingerprint="a")
    stored = [tuple("".join(map(chr, store[side][i])) for side in ("source", "target")) for i in range(len(store))]
    assert stored == examples(7)


def weighted_corpus(directory: Path, weights: tuple[int, ...], valid: tuple[str, ...] = ()) -> Corpus:
    """Forty pairs of lines in two files, and twenty in a table."""
    for name, side in (("a.en", 0), ("a.fr", 1)):
        (directory / name).write_text("".join(f"{pair[side]}\n" for pair in examples(40)))
    (directory / "b.tsv").write_text("".join(f"row {i}\trang {i}\n" for i in range(20)))
    train = tuple(str(directory / name) for name in ("a.en", "a.fr", "b.tsv"))
    return Corpus(PairReader(), DataConfig(train=train, valid=valid, weights=weights, max_length=8), "recipe")


@pytest.mark.parametrize(
    ("weights", "n_lines", "n_table"), [((), 1, 1), ((1, 3), 1, 3), ((4, 6), 2, 3), ((5, 5), 1, 1)]
)
def test_examples_occur_as_often_as_their_source_weighs(
    weights: tuple[int, ...], n_lines: int, n_table: int, tmp_path: Path
) -> None:
    weighted = weighted_corpus(tmp_path, weights)
    counts = Counter(weighted.train_examples())
    held_out = list(weighted.valid_examples())
    assert len(held_out) == 3
    assert not counts.keys() & set(held_out)
    assert len(counts) + len(held_out) == 60
    assert {counts[pair] for pair in examples(40)} - {0} == {n_lines}
    assert {count for pair, count in counts.items() if pair[0].startswith("row")} == {n_table}


def test_weights_leave_validation_and_tokenizer_texts_alone(tmp_path: Path) -> None:
    plain, weighted = weighted_corpus(tmp_path, ()), weighted_corpus(tmp_path, (1, 9))
    assert list(weighted.valid_examples()) == list(plain.valid_examples())
    assert list(weighted.train_texts(0, 1)) == list(plain.train_texts(0, 1))
    assert weighted.statistics.n_examples == plain.statistics.n_examples
    assert weighted.fingerprint() != plain.fingerprint()


def test_held_out_text_of_a_weighted_document_is_not_trained_on(tmp_path: Path) -> None:
    """A small file read alone is split into shorter chunks than together with a large one."""
    (tmp_path / "large").write_text("\n\n".join(f"document {i}" for i in range(60)))
    (tmp_path / "small").write_text(" ".join(map(str, range(300))))
    data = DataConfig(train=(str(tmp_path / "large"), str(tmp_path / "small")), weights=(1, 3), max_length=8)
    weighted = Corpus(LanguageModelTask.make_reader(LmConfig(), data), data, "recipe")
    counts, held_out = Counter(weighted.train_examples()), set(weighted.valid_examples())
    assert held_out
    assert not counts.keys() & held_out
    assert len(counts) + len(held_out) == weighted.statistics.n_examples
    assert set(counts.values()) == {1, 3}


def test_weights_of_another_number_than_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^recipe: 3 data.weights for 2 sources \(.*a.en\+.*a.fr, .*b.tsv\); "):
        weighted_corpus(tmp_path, (1, 1, 2))


@pytest.mark.parametrize("weights", [(0, 1), (1, -2)])
def test_weights_below_one_are_refused(weights: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data.weights = .*; expected at least 1 and at most 10,000$"):
        weighted_corpus(tmp_path, weights)


def test_too_narrow_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^data.max_length = 7; expected at least 8 and at most 1,048,576$"):
        DataConfig(train=("a", "b"), max_length=7)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_reading_shows_the_fraction_of_the_files_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import pyarrow

    monkeypatch.setattr(progress, "LOG_INTERVAL_SECONDS", -1.0)
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 10)
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        text = "\n".join(map(str, generator.integers(0, 1 << 62, 20_000).tolist())).encode()
        pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": pyarrow.Codec("zstd").compress}[suffix]
        (tmp_path / f"{name}{suffix}").write_bytes(pack(text))
    monkeypatch.chdir(tmp_path)
    data = DataConfig(train=(f"./a{suffix}", f"b{suffix}"), max_length=8)
    assert Corpus(PairReader(), data, "test").statistics.n_examples == 20_000
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("reading: ")]
    percentages = [int(line.removeprefix("reading: ").removesuffix("%")) for line in lines]
    assert percentages == sorted(percentages)
    assert percentages[0] < 50
    assert percentages[-1] == 100
