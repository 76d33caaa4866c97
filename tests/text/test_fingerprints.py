"""Hashes, digests and fingerprints change exactly when the content does."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from regard.text.fingerprints import digest_bytes, digest_files, fingerprint_files, hash_text


def test_hash_of_a_text_is_the_same_in_every_version() -> None:
    assert hash_text("a text") == int.from_bytes(hashlib.blake2b(b"a text", digest_size=8).digest())
    assert hash_text("a text") != hash_text("another")
    assert 0 <= hash_text("\ud800") < 2**64  # a lone surrogate, which UTF-8 cannot encode


def test_digest_covers_all_chunks() -> None:
    assert digest_bytes([b"ab", b"c"]) == hashlib.sha256(b"abc").hexdigest()


def test_digest_of_files_depends_on_content_and_order_only(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"x" * (3 << 20))
    b.write_bytes(b"y")
    before = digest_files([a, b])
    os.utime(a, ns=(1, 1))
    assert digest_files([a, b]) == before != digest_files([b, a])
    a.write_bytes(b"x" * (1 << 20) + b"y" + b"x" * (2 << 20))
    assert digest_files([a, b]) != before


def test_fingerprint_changes_with_files_and_parts(tmp_path: Path) -> None:
    file = tmp_path / "text.en"
    file.write_bytes(b"x" * (3 << 20))
    first = fingerprint_files([file], "tokenizer")
    assert first == fingerprint_files([file], "tokenizer")
    seen = {
        first,
        fingerprint_files([file], "other"),
        fingerprint_files([file], "token", "izer"),
        fingerprint_files([]),
    }
    os.utime(file, ns=(1, 1))
    seen.add(fingerprint_files([file], "tokenizer"))
    file.write_bytes(b"x" * (3 << 20) + b"y")
    os.utime(file, ns=(1, 1))
    seen.add(fingerprint_files([file], "tokenizer"))
    file.write_bytes(b"x" * (3 << 20) + b"z")
    os.utime(file, ns=(1, 1))
    seen.add(fingerprint_files([file], "tokenizer"))
    shutil.copy2(file, tmp_path / "text.fr")
    seen.add(fingerprint_files([tmp_path / "text.fr"], "tokenizer"))
    assert len(seen) == 8
