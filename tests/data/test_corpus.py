"""Statistics of a corpus, its validation split, source weights, and encoding."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
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
    collect_statistics,
    make_held_out_filter,
    slice_lines,
    write_store,
)
from regard.errors import ConfigError
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.tasks.translate import PairReader
from regard.text import files


def examples(n: int) -> list[Example]:
    return [(f"text {i}", f"texte {i} !") for i in range(n)]


def test_statistics_count_examples_and_words() -> None:
    counted = collect_statistics(examples(7))
    assert (counted.n_examples, counted.n_words) == (7, 7 * 5)
    assert len(set(counted.hashes.tolist())) == 7


@pytest.mark.parametrize(("n", "n_held_out"), [(20, 1), (39, 1), (40, 2), (1000, 50)])
def test_one_in_twenty_is_held_out(n: int, n_held_out: int) -> None:
    held = make_held_out_filter(collect_statistics(examples(n)))
    assert sum(map(held, examples(n))) == n_held_out


def test_no_more_than_a_thousand_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_HELD_OUT", 10)
    assert sum(map(make_held_out_filter(collect_statistics(examples(1000))), examples(1000))) == 10


def test_held_out_examples_depend_on_the_texts_only() -> None:
    held, again = (
        make_held_out_filter(collect_statistics(examples(100))),
        make_held_out_filter(collect_statistics(reversed(examples(100)))),
    )
    assert [held(e) for e in examples(100)] == [again(e) for e in examples(100)]


def test_equal_sources_are_in_the_same_split() -> None:
    every = [(f"text {i % 30}", f"texte {i}") for i in range(90)]
    held = make_held_out_filter(collect_statistics(every))
    held_out = {source for source, target in every if held((source, target))}
    learned = {source for source, target in every if not held((source, target))}
    assert held_out
    assert learned
    assert not held_out & learned


@pytest.mark.parametrize("n", [0, 1, 19])
def test_too_few_to_hold_some_out(n: int) -> None:
    with pytest.raises(ConfigError, match=rf"^examples: only {n}, .* pass --valid with files$"):
        make_held_out_filter(collect_statistics(examples(n)))


@pytest.mark.parametrize("boundary", range(8))
def test_lines_before_and_after_a_boundary_are_all_lines(boundary: int) -> None:
    documents = [("a\nb\nc",), ("d",), ("e\nf\ng",)]
    parts = [*slice_lines(documents, 0, boundary), *slice_lines(documents, boundary)]
    assert "\n".join(text for (text,) in parts).split("\n") == list("abcdefg")
    assert sum(text.count("\n") + 1 for (text,) in slice_lines(documents, 0, boundary)) == min(boundary, 7)


@pytest.mark.parametrize(("n", "every"), [(4, 1), (5, 2), (7, 2), (8, 2), (9, 3)])
def test_tokenizer_is_trained_on_a_limited_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, every: int
) -> None:
    class Lines:
        unit = "lines"
        examples_have_lines = False

        @staticmethod
        def paths(data: Sequence[str]) -> list[Path]:
            return [tmp_path / "file"]

        @staticmethod
        def group_sources(data: Sequence[str]) -> list[list[str]]:
            return [list(data)]

        @staticmethod
        def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
            return iter(examples(n))

    (tmp_path / "file").touch()
    monkeypatch.setattr(corpus, "MAX_TOKENIZER_EXAMPLES", 4)
    lines_corpus = Corpus(Lines(), DataConfig(train=("file",), valid=("file",), max_length=8), "test")
    sample = examples(n)[::every]
    assert len(sample) <= 4
    assert list(lines_corpus.train_texts(0, 1)) == [text for example in sample for text in example]


def test_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "ENCODING_CHUNK_SIZE", 3)
    assert [len(chunk) for chunk in chunk_examples(examples(7))] == [3, 3, 1]
    assert list(chunk_examples([])) == []


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
    with pytest.raises(ConfigError, match=r"^data.weights = \[.*\]; expected whole numbers of at least 1$"):
        weighted_corpus(tmp_path, weights)


def test_too_narrow_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^data.max_length = 7; expected at least 8 tokens$"):
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
