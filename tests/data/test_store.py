"""The token store: written ids are read back, and a damaged store counts as absent."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from regard.data.store import Column, DigestMismatchError, EncodedChunk, TokenStore

SOURCE = [[5, 6, 7], [], [8], [9, 10, 11, 12], [13]]
TARGET = [[1], [2, 3], [], [4, 5], [6, 7, 8]]
NAMES = ("source", "target")


def chunks() -> Iterator[EncodedChunk]:
    for first in range(0, len(SOURCE), 2):
        yield [SOURCE[first : first + 2], TARGET[first : first + 2]]


def write(path: Path, *, vocabulary: int = 100, mark: str = "a") -> TokenStore:
    return TokenStore.write(path, NAMES, chunks(), vocabulary_size=vocabulary, fingerprint=mark)


def content(store: TokenStore) -> list[list[list[int]]]:
    return [[store[name][i].tolist() for i in range(len(store))] for name in NAMES]


def test_written_ids_are_read_back(tmp_path: Path) -> None:
    for store in (write(tmp_path / "store"), TokenStore.open(tmp_path / "store", "a")):
        assert store is not None
        assert len(store) == 5
        assert content(store) == [SOURCE, TARGET]
        assert store["source"].ids.dtype == np.uint16
        assert store["source"].lengths.tolist() == [3, 0, 1, 4, 1]
        assert store["source"].lengths.dtype == np.int32
        assert store["target"].offsets.tolist() == [0, 1, 3, 3, 5, 8]


def test_lengths_include_special_tokens(tmp_path: Path) -> None:
    store = write(tmp_path / "store")
    assert store.lengths("source", "target", n_special_tokens=1).tolist() == [[4, 2], [1, 3], [2, 1], [5, 3], [2, 4]]
    assert store.lengths("target").tolist() == [[1], [2], [0], [2], [3]]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_ids_take_as_many_bytes_as_the_vocabulary_needs(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    top = vocabulary - 1
    given = [[[[top, 0], [top]]]]
    store = TokenStore.write(tmp_path / "s", ["text"], given, vocabulary_size=vocabulary, fingerprint="")
    assert store["text"].ids.dtype == dtype
    assert store["text"][1].tolist() == [top]


@pytest.mark.parametrize("given", [[], [[[], []]], [[[[]], [[]]]]], ids=["no chunk", "empty chunk", "no tokens"])
def test_a_store_may_be_empty(tmp_path: Path, given: list[EncodedChunk]) -> None:
    written = TokenStore.write(tmp_path / "s", NAMES, given, vocabulary_size=9, fingerprint="a")
    store = TokenStore.open(tmp_path / "s", "a")
    assert store is not None
    assert len(store) == len(written) == (1 if given and given[0][0] else 0)
    assert store["source"].ids.size == 0


def test_another_fingerprint_or_none_counts_as_absent(tmp_path: Path) -> None:
    assert TokenStore.open(tmp_path / "store", "a") is None
    write(tmp_path / "store")
    assert TokenStore.open(tmp_path / "store", "b") is None


def test_digest_depends_on_the_ids_only(tmp_path: Path) -> None:
    store = write(tmp_path / "store")
    again = TokenStore.open(tmp_path / "store", "a")
    assert again is not None
    in_one_chunk = TokenStore.write(tmp_path / "x", NAMES, [[SOURCE, TARGET]], vocabulary_size=100, fingerprint="b")
    assert store.digest == again.digest == in_one_chunk.digest != ""
    moved = [[5, 6], [7], *SOURCE[2:]]
    others = [[TARGET, SOURCE], [SOURCE[::-1], TARGET], [moved, TARGET], [SOURCE[:-1], TARGET[:-1]]]
    written = [TokenStore.write(tmp_path / "x", NAMES, [o], vocabulary_size=100, fingerprint="b") for o in others]
    assert len({store.digest, *(each.digest for each in written)}) == 5


def test_store_is_replaced_only_by_the_expected_digest(tmp_path: Path) -> None:
    kept = write(tmp_path / "store")
    with pytest.raises(DigestMismatchError):
        TokenStore.write(
            tmp_path / "store", NAMES, [[[[1]], [[2]]]], vocabulary_size=9, fingerprint="b", expected_digest=kept.digest
        )
    assert TokenStore.open(tmp_path / "store", "a") is not None
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    TokenStore.write(
        tmp_path / "store", NAMES, chunks(), vocabulary_size=100, fingerprint="b", expected_digest=kept.digest
    )
    assert TokenStore.open(tmp_path / "store", "b") is not None


def test_new_store_replaces_the_old_one(tmp_path: Path) -> None:
    old = write(tmp_path / "store")
    new = TokenStore.write(tmp_path / "store", NAMES, [[[[1]], [[2]]]], vocabulary_size=9, fingerprint="b")
    assert len(new) == 1
    assert content(old) == [SOURCE, TARGET]  # still mapped, though no longer there
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("name", ["source.ids", "target.offsets", "manifest.json"])
@pytest.mark.parametrize("damage", ["remove", "truncate", "lengthen"])
def test_a_damaged_store_counts_as_absent(tmp_path: Path, name: str, damage: str) -> None:
    write(tmp_path / "store")
    file = tmp_path / "store" / name
    data = file.read_bytes()
    file.unlink()
    if damage != "remove":
        file.write_bytes(data[:-2] if damage == "truncate" else data + b"x")  # the last byte may be a line end
    assert TokenStore.open(tmp_path / "store", "a") is None
    assert content(write(tmp_path / "store")) == [SOURCE, TARGET]


def test_offsets_that_do_not_fit_the_ids_count_as_damage(tmp_path: Path) -> None:
    write(tmp_path / "store")
    np.arange(6, dtype=np.int64).tofile(tmp_path / "store" / "source.offsets")
    assert TokenStore.open(tmp_path / "store", "a") is None


@pytest.mark.parametrize(
    "change", [{"format": 0}, {"examples": "five"}, {"examples": -1}, {"columns": ["source"]}, {"dtype": "words"}]
)
def test_inconsistent_manifest_counts_as_damage(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path / "store")
    file = tmp_path / "store" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert TokenStore.open(tmp_path / "store", "a") is None


def test_an_error_while_writing_leaves_the_old_store_and_nothing_else(tmp_path: Path) -> None:
    def failing() -> Iterator[EncodedChunk]:
        yield from chunks()
        raise RuntimeError("the tokenizer broke")

    write(tmp_path / "store")
    with pytest.raises(RuntimeError, match="tokenizer"):
        TokenStore.write(tmp_path / "store", NAMES, failing(), vocabulary_size=100, fingerprint="b")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert TokenStore.open(tmp_path / "store", "a") is not None


def test_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = [[[7] * 50_000], [[7]]]
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            TokenStore.write(tmp_path / "store", NAMES, [big], vocabulary_size=9, fingerprint="a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_stale_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    for name, age in (("dead", 7200), ("alive", 5)):
        partial = tmp_path / f".store.{name}.partial"
        partial.mkdir()
        (partial / "source.ids").write_bytes(b"12")
        for path in (partial / "source.ids", partial):
            stamp = path.stat().st_mtime - age
            os.utime(path, (stamp, stamp))
    write(tmp_path / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".store.alive.partial", "store"]


def test_an_id_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="id 9 in a vocabulary of 9"):
        TokenStore.write(tmp_path / "s", ["text"], [[[[3, 9]]]], vocabulary_size=9, fingerprint="")


def test_columns_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="unequal"):
        TokenStore.write(tmp_path / "s", NAMES, [[[[1], [2]], [[3]]]], vocabulary_size=9, fingerprint="")


def test_a_column_in_memory() -> None:
    column = Column.from_sentences(SOURCE)
    assert [column[i].tolist() for i in range(len(column))] == SOURCE
    assert len(Column.from_sentences([])) == 0
