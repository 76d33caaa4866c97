"""The set of hashes on disk agrees with a set in memory, also where slots collide, and leaves no file behind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from regard.data import duplicates
from regard.data.duplicates import TextHashSet


def test_agrees_with_a_set(tmp_path: Path) -> None:
    generator = random.Random(0)
    texts = [str(generator.randrange(700)) for _ in range(1000)]
    hashes, seen = TextHashSet(tmp_path, len(texts)), set[str]()
    for text in texts:
        assert hashes.add(text) == (text not in seen)
        seen.add(text)
    assert 400 < len(seen) < 700


@pytest.mark.parametrize("hashed", [0, 1, 1023, 2**64 - 1])
def test_texts_whose_slots_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: int) -> None:
    """The search goes on with the next slot, past the last one to the first; a hash of 0 is no empty slot."""
    monkeypatch.setattr(duplicates, "hash_text", lambda text: (hashed + 1024 * int(text)) % 2**64)
    hashes = TextHashSet(tmp_path, 1)
    assert [hashes.add(text) for text in ("0", "1", "0", "2", "1", "2")] == [True, True, False, True, False, False]


def test_file_has_no_name_and_room_for_all_texts(tmp_path: Path) -> None:
    hashes = TextHashSet(tmp_path, 5000)
    assert all(hashes.add(str(number)) for number in range(5000))
    assert list(tmp_path.iterdir()) == []
