"""Verification of a store: every flipped bit of every file is noticed, and no id outside the vocabulary passes."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from regard.data import verification
from regard.data.columns import BytesColumnSpec, ColumnSpec, LabelColumnSpec, ScalarColumnSpec, TokenColumnSpec
from regard.data.store import TokenStore
from regard.data.verification import find_damage

SPECS: list[ColumnSpec] = [
    TokenColumnSpec("text", 300),
    LabelColumnSpec("label", "float32"),
    ScalarColumnSpec("class"),
    BytesColumnSpec("question"),
]
CHUNK = [[[1, 299], [], [7, 8, 9]], [[0.5, 1.5], [], [1, 2, 3]], [0, 1, 2], [b"a", b"", b"bc"]]


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore.write(tmp_path / "store", SPECS, [CHUNK, CHUNK], fingerprint="a")


def reopen(store: TokenStore) -> TokenStore | None:
    return TokenStore.open(store.path, "a")


def test_intact_store_has_no_damage(store: TokenStore) -> None:
    assert find_damage(store, SPECS) == ""


def test_every_flipped_bit_is_noticed(store: TokenStore) -> None:
    """Either the store does not open, or its damage is found."""
    for file in sorted(store.path.iterdir()):
        whole = file.read_bytes()
        for position in range(0, len(whole), 3 if file.suffix == ".json" else 1):
            bit = 1 << position % 8
            file.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
            reopened = reopen(store)
            assert reopened is None or find_damage(reopened, SPECS), (file.name, position)
        file.write_bytes(whole)
    assert find_damage(store, SPECS) == ""


def write_ids(store: TokenStore, *ids: int) -> None:
    (store.path / "text.ids").write_bytes(np.array(ids, dtype=np.uint16).tobytes())


def remove_from_manifest(store: TokenStore, *keys: str) -> TokenStore:
    """Return the store as an earlier version wrote it."""
    manifest = json.loads((store.path / "manifest.json").read_text())
    for key in ("checksum", "checksums", *keys):
        del manifest[key]
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    reopened = reopen(store)
    assert reopened is not None
    return reopened


def test_id_outside_the_vocabulary_is_noticed_with_or_without_a_digest(store: TokenStore) -> None:
    write_ids(store, 1, 300, 7, 8, 9, 1, 299, 7, 8, 9)
    assert find_damage(store, SPECS) == "text.ids holds id 300 of a vocabulary of 300"
    assert find_damage(remove_from_manifest(store, "digest"), SPECS) == "text.ids holds id 300 of a vocabulary of 300"


def test_store_of_an_earlier_version_must_have_its_digest(store: TokenStore) -> None:
    earlier = remove_from_manifest(store)
    assert find_damage(earlier, SPECS) == ""
    write_ids(store, 1, 298, 7, 8, 9, 1, 299, 7, 8, 9)
    assert find_damage(earlier, SPECS) == "its bytes do not have its digest"


def test_checksums_are_those_of_whole_files_however_many_parts_they_have(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "PART_BYTES", 4)
    assert find_damage(store, SPECS) == ""
    assert store.checksums == {
        file.name: f"crc32:{zlib.crc32(file.read_bytes()):08x}"
        for file in store.path.iterdir()
        if file.suffix != ".json"
    }
    write_ids(store, 1, 299, 7, 8, 9, 1, 299, 7, 8, 10)
    assert find_damage(store, SPECS) == "text.ids does not have its checksum"
    write_ids(store, 1, 299, 7, 8, 300, 1, 299, 7, 8, 9)
    assert find_damage(store, SPECS) == "text.ids holds id 300 of a vocabulary of 300"


def test_store_without_a_digest_must_have_the_expected_one(store: TokenStore) -> None:
    nameless = remove_from_manifest(store, "digest")
    assert find_damage(nameless, SPECS) == find_damage(nameless, SPECS, store.digest) == ""
    write_ids(store, 1, 298, 7, 8, 9, 1, 299, 7, 8, 9)
    assert find_damage(nameless, SPECS) == ""
    assert find_damage(nameless, SPECS, store.digest) == "its bytes do not have its digest"


@pytest.mark.parametrize("specs", [SPECS[:3], [TokenColumnSpec("text", 70_000), *SPECS[1:]]], ids=["names", "dtypes"])
def test_other_columns_are_damage(store: TokenStore, specs: list[ColumnSpec]) -> None:
    assert find_damage(store, specs) == "its columns are others"
