"""Counting a corpus, holding out a part of it, and encoding it."""

from __future__ import annotations

import gzip
import lzma
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
from regard.tasks.translate import PairReader
from regard.text import files


def examples(n: int) -> list[Example]:
    return [(f"text {i}", f"texte {i} !") for i in range(n)]


def test_a_survey_counts_examples_and_words() -> None:
    counted = collect_statistics(examples(7))
    assert (counted.n_examples, counted.n_words) == (7, 7 * 5)
    assert len(set(counted.hashes.tolist())) == 7


@pytest.mark.parametrize(("n", "kept"), [(20, 1), (39, 1), (40, 2), (1000, 50)])
def test_one_in_twenty_is_held_out(n: int, kept: int) -> None:
    held = make_held_out_filter(collect_statistics(examples(n)))
    assert sum(map(held, examples(n))) == kept


def test_no_more_than_a_thousand_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_HELD_OUT", 10)
    assert sum(map(make_held_out_filter(collect_statistics(examples(1000))), examples(1000))) == 10


def test_what_is_held_out_depends_on_nothing_but_the_texts() -> None:
    held, again = (
        make_held_out_filter(collect_statistics(examples(100))),
        make_held_out_filter(collect_statistics(reversed(examples(100)))),
    )
    assert [held(e) for e in examples(100)] == [again(e) for e in examples(100)]


def test_equal_sources_are_on_the_same_side() -> None:
    every = [(f"text {i % 30}", f"texte {i}") for i in range(90)]
    held = make_held_out_filter(collect_statistics(every))
    kept = {source for source, target in every if held((source, target))}
    learned = {source for source, target in every if not held((source, target))}
    assert kept
    assert learned
    assert not kept & learned


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
def test_a_vocabulary_is_learned_from_no_more_than_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, every: int
) -> None:
    class Lines:
        unit = "lines"
        examples_have_lines = False

        @staticmethod
        def paths(data: Sequence[str]) -> list[Path]:
            return [tmp_path / "file"]

        @staticmethod
        def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
            return iter(examples(n))

    (tmp_path / "file").touch()
    monkeypatch.setattr(corpus, "MAX_TOKENIZER_EXAMPLES", 4)
    found = Corpus(Lines(), DataConfig(train=("file",), valid=("file",), max_length=8), "test")
    taken = examples(n)[::every]
    assert len(taken) <= 4
    assert list(found.train_texts(0, 1)) == [text for example in taken for text in example]


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
    found = [tuple("".join(map(chr, store[side][i])) for side in ("source", "target")) for i in range(len(store))]
    assert found == examples(7)


def test_rows_too_narrow_for_a_text() -> None:
    with pytest.raises(ConfigError, match=r"^data.max_length = 7; expected at least 8 tokens$"):
        DataConfig(train=("a", "b"), max_length=7)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_reading_shows_what_share_of_the_files_is_read(
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
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("reading: ")]
    shares = [int(line.removeprefix("reading: ").removesuffix("%")) for line in said]
    assert shares == sorted(shares)
    assert shares[0] < 50
    assert shares[-1] == 100
