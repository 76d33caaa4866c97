"""Hashes and digests of texts and files, equal in every process and on every machine.

A hash is a number to seed or sample by; a digest tells whether content is the same; a fingerprint tells, without
reading a file to its end, whether the file has changed. The digest of encoded ids is data/store.py's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from regard.text.files import open_bytes

FINGERPRINT_BYTES = 1 << 20
"""Bytes read from each end of a file for its fingerprint."""


def hash_text(text: str) -> int:
    """Return the 64-bit hash of a text: a seed, or a key to sort and sample by."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def digest_bytes(chunks: Iterable[bytes]) -> str:
    """Return the SHA-256 digest of the concatenated chunks."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def digest_files(files: Iterable[Path]) -> str:
    """Return the digest of everything the files contain, in this order."""

    def digests() -> Iterable[bytes]:
        for path in files:
            with open_bytes(path) as file:
                yield hashlib.file_digest(file, "sha256").digest()

    return digest_bytes(digests())


def fingerprint_files(files: Iterable[Path], *parts: str) -> str:
    """Return a digest that changes when a file (name, size, time, first and last MiB) or a part does."""
    digest = hashlib.sha256()
    for path in files:
        with open_bytes(path) as file:
            stat = os.fstat(file.fileno())
            digest.update(json.dumps([path.name, stat.st_size, stat.st_mtime_ns]).encode())
            digest.update(file.read(FINGERPRINT_BYTES))
            file.seek(max(0, stat.st_size - FINGERPRINT_BYTES))
            digest.update(file.read(FINGERPRINT_BYTES))
    digest.update(json.dumps(parts).encode())
    return digest.hexdigest()
