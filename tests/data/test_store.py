"""The token store: it returns what was written, and counts as absent when it is damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from regard.data import store as store_module
from regard.data.columns import Column, EncodedChunk, LabelColumnSpec, ScalarColumnSpec, TokenColumnSpec
from regard.data.store import DigestMismatchError, TokenStore
from regard.errors import CheckpointError

SOURCE = [[5, 6, 7], [], [8], [9, 10, 11, 12], [13]]
TARGET = [[1], [2, 3], [], [4, 5], [6, 7, 8]]
NAMES = ("source", "target")


def specs(*names: str, vocabulary_size: int = 100) -> list[TokenColumnSpec]:
    return [TokenColumnSpec(name, vocabulary_size) for name in names or NAMES]


def chunks() -> Iterator[EncodedChunk]:
    for first in range(0, len(SOURCE), 2):
        yield [SOURCE[first : first + 2], TARGET[first : first + 2]]


def write(path: Path, *, fingerprint: str = "a") -> TokenStore:
    return TokenStore.write(path, specs(), chunks(), fingerprint=fingerprint)


def content(store: TokenStore) -> list[list[list[int]]]:
    return [[store[name][i].tolist() for i in range(len(store))] for name in NAMES]


def test_store_returns_what_was_written(tmp_path: Path) -> None:
    for store in (write(tmp_path / "store"), TokenStore.open(tmp_path / "store", "a")):
        assert store is not None
        assert len(store) == 5
        assert content(store) == [SOURCE, TARGET]
        assert store["source"].ids.dtype == np.uint16
        assert store["source"].lengths.tolist() == [3, 0, 1, 4, 1]
        assert store["source"].lengths.dtype == np.int32
        assert store["target"].offsets.tolist() == [0, 1, 3, 3, 5, 8]


def test_lengths_count_special_tokens(tmp_path: Path) -> None:
    store = write(tmp_path / "store")
    assert store.lengths("source", "target", n_special_tokens=1).tolist() == [[4, 2], [1, 3], [2, 1], [5, 3], [2, 4]]
    assert store.lengths("target").tolist() == [[1], [2], [0], [2], [3]]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_token_dtype_follows_the_vocabulary_size(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    top = vocabulary - 1
    given = [[[[top, 0], [top]]]]
    store = TokenStore.write(tmp_path / "s", specs("text", vocabulary_size=vocabulary), given, fingerprint="")
    assert store["text"].ids.dtype == dtype
    assert store["text"][1].tolist() == [top]


@pytest.mark.parametrize("given", [[], [[[], []]], [[[[]], [[]]]]], ids=["no chunk", "empty chunk", "no tokens"])
def test_store_may_be_empty(tmp_path: Path, given: list[EncodedChunk]) -> None:
    written = TokenStore.write(tmp_path / "s", specs(), given, fingerprint="a")
    store = TokenStore.open(tmp_path / "s", "a")
    assert store is not None
    assert len(store) == len(written) == (1 if given and given[0][0] else 0)
    assert store["source"].ids.size == 0


def test_store_of_another_fingerprint_counts_as_absent(tmp_path: Path) -> None:
    assert TokenStore.open(tmp_path / "store", "a") is None
    write(tmp_path / "store")
    assert TokenStore.open(tmp_path / "store", "b") is None


def test_digest_depends_on_the_data_alone(tmp_path: Path) -> None:
    store = write(tmp_path / "store")
    again = TokenStore.open(tmp_path / "store", "a")
    assert again is not None
    in_one_chunk = TokenStore.write(tmp_path / "x", specs(), [[SOURCE, TARGET]], fingerprint="b")
    assert store.digest == again.digest == in_one_chunk.digest != ""
    moved = [[5, 6], [7], *SOURCE[2:]]
    others = [[TARGET, SOURCE], [SOURCE[::-1], TARGET], [moved, TARGET], [SOURCE[:-1], TARGET[:-1]]]
    written = [TokenStore.write(tmp_path / "x", specs(), [o], fingerprint="b") for o in others]
    assert len({store.digest, *(each.digest for each in written)}) == 5


def test_store_of_another_digest_than_expected_is_not_written(tmp_path: Path) -> None:
    kept = write(tmp_path / "store")
    with pytest.raises(DigestMismatchError):
        TokenStore.write(tmp_path / "store", specs(), [[[[1]], [[2]]]], fingerprint="b", expected_digest=kept.digest)
    assert TokenStore.open(tmp_path / "store", "a") is not None
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    TokenStore.write(tmp_path / "store", specs(), chunks(), fingerprint="b", expected_digest=kept.digest)
    assert TokenStore.open(tmp_path / "store", "b") is not None


def test_new_store_replaces_the_old_one(tmp_path: Path) -> None:
    old = write(tmp_path / "store")
    new = TokenStore.write(tmp_path / "store", specs(), [[[[1]], [[2]]]], fingerprint="b")
    assert len(new) == 1
    assert content(old) == [SOURCE, TARGET]  # still mapped, though no longer there
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("name", ["source.ids", "target.offsets", "manifest.json"])
@pytest.mark.parametrize("damage", ["remove", "truncate", "lengthen"])
def test_damaged_store_counts_as_absent(tmp_path: Path, name: str, damage: str) -> None:
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
    "change",
    [
        {"format": 1},
        {"examples": "five"},
        {"examples": -1},
        {"columns": ["source"]},
        {"columns": {"source": 9}},
        {"columns": {"source": {"kind": "tokens", "dtype": "words", "values": 9}}},
        {"columns": {"source": {"kind": "scalars", "dtype": "uint16", "values": 9}}},
    ],
)
def test_manifest_that_does_not_fit_the_files_counts_as_damage(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path / "store")
    file = tmp_path / "store" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert TokenStore.open(tmp_path / "store", "a") is None


def test_error_while_writing_keeps_the_old_store(tmp_path: Path) -> None:
    def failing() -> Iterator[EncodedChunk]:
        yield from chunks()
        raise RuntimeError("the tokenizer broke")

    write(tmp_path / "store")
    with pytest.raises(RuntimeError, match="tokenizer"):
        TokenStore.write(tmp_path / "store", specs(), failing(), fingerprint="b")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert TokenStore.open(tmp_path / "store", "a") is not None


def test_full_disk_raises_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = [[[7] * 50_000], [[7]]]
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            TokenStore.write(tmp_path / "store", specs(), [big], fingerprint="a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_store_that_cannot_be_read_again_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails between writing and reading, as when the system call openat returns EIO."""
    opened = store_module.map_column

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store_module, "map_column", fail)
    with pytest.raises(CheckpointError, match=r"store: written, but cannot be read again; see whether the disk fails"):
        write(tmp_path / "store")
    monkeypatch.setattr(store_module, "map_column", opened)
    assert TokenStore.open(tmp_path / "store", "a") is not None


def test_every_file_is_flushed_before_the_store_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    write(tmp_path / "store")
    files = {path.stat().st_ino for path in (tmp_path / "store").iterdir()}
    assert files <= set(flushed)
    assert flushed[-1] == tmp_path.stat().st_ino


def test_stale_temporary_directories_are_removed(tmp_path: Path) -> None:
    for name, age in (("dead", 7200), ("alive", 5)):
        partial = tmp_path / f".store.{name}.partial"
        partial.mkdir()
        (partial / "source.ids").write_bytes(b"12")
        for path in (partial / "source.ids", partial):
            stamp = path.stat().st_mtime - age
            os.utime(path, (stamp, stamp))
    write(tmp_path / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".store.alive.partial", "store"]


def test_id_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="text: id 9 in a vocabulary of 9"):
        TokenStore.write(tmp_path / "s", specs("text", vocabulary_size=9), [[[[3, 9]]]], fingerprint="")


def test_columns_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="unequal"):
        TokenStore.write(tmp_path / "s", specs(), [[[[1], [2]], [[3]]]], fingerprint="")


def test_column_in_memory() -> None:
    column = Column.from_sentences(SOURCE)
    assert [column[i].tolist() for i in range(len(column))] == SOURCE
    assert len(Column.from_sentences([])) == 0


def test_labels_and_scalars_keep_their_types(tmp_path: Path) -> None:
    """Labels may be negative and scores real: neither is stored as token ids."""
    columns = [
        TokenColumnSpec("text", 100),
        LabelColumnSpec("label"),
        ScalarColumnSpec("score", "float32"),
        ScalarColumnSpec("is_random_next", "uint8"),
    ]
    chunk: list[EncodedChunk] = [
        [[[5, 6, 7], [8]], [[-100, 2, 70_000], [0]], [0.1, -3.5e30], [1, 0]],
        [[[9]], [[1]], [2.5], [1]],
    ]
    TokenStore.write(tmp_path / "s", columns, chunk, fingerprint="a")
    store = TokenStore.open(tmp_path / "s", "a")
    assert store is not None
    assert [store["label"][i].tolist() for i in range(3)] == [[-100, 2, 70_000], [0], [1]]
    assert (store["text"].ids.dtype, store["label"].ids.dtype) == (np.uint16, np.int32)
    assert (store.values("score").dtype, store.values("is_random_next").dtype) == (np.float32, np.uint8)
    assert store.values("score").tolist() == np.array([0.1, -3.5e30, 2.5], dtype=np.float32).tolist()
    assert store.values("is_random_next")[np.array([0, 2])].tolist() == [1, 1]
    files = {path.name for path in (tmp_path / "s").iterdir()}
    assert {"label.values", "label.offsets", "score.values"} < files
    assert "score.offsets" not in files


@pytest.mark.parametrize("damage", ["remove", "truncate"])
def test_damaged_scalar_column_counts_as_absent(tmp_path: Path, damage: str) -> None:
    columns = [TokenColumnSpec("text", 9), ScalarColumnSpec("label")]
    TokenStore.write(tmp_path / "s", columns, [[[[1], [2]], [0, 1]]], fingerprint="a")
    file = tmp_path / "s" / "label.values"
    data = file.read_bytes()
    file.unlink()
    if damage == "truncate":
        file.write_bytes(data[:-4])
    assert TokenStore.open(tmp_path / "s", "a") is None


def test_digest_of_token_columns_is_that_of_format_1(tmp_path: Path) -> None:
    """Unfinished runs of version 0.1 go on with stores encoded again: their digest must be the same."""
    hashes = [hashlib.blake2b(digest_size=16) for _ in range(4)]
    for side, sentences in enumerate((SOURCE, TARGET)):
        column = Column.from_sentences(sentences, "uint16")
        hashes[2 * side].update(column.ids.data)
        hashes[2 * side + 1].update(column.offsets[1:].copy().data)
    expected = hashlib.blake2b(b"".join(each.digest() for each in hashes), digest_size=16).hexdigest()
    assert write(tmp_path / "store").digest == expected
