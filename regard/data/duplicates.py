"""Removal of duplicate texts: a set of their hashes on disk, so that memory does not grow with their number.

training/distillation.py filters a teacher's source texts with it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from tempfile import TemporaryFile

from regard.text.fingerprints import hash_text

MIN_SLOTS = 1 << 10
"""Slots of the smallest set."""
SLOTS_PER_TEXT = 2
"""Slots for every text at least; the fuller a set, the longer the search for a slot."""
SLOT_BYTES = 8
ZERO_BLOCK = bytes(1 << 20)


class TextHashSet:
    """A set of up to `max_texts` texts, as 64-bit hashes in a temporary file in `directory`.

    Two of a hundred million different texts have the same hash once in four thousand times. The file is a table with
    linear probing, has no name, and is gone with the process, however that ends.
    """

    def __init__(self, directory: Path, max_texts: int) -> None:
        n_slots = max(MIN_SLOTS, 1 << (SLOTS_PER_TEXT * max_texts).bit_length())
        self._mask = n_slots - 1
        with TemporaryFile(dir=directory) as file:
            for start in range(0, n_slots * SLOT_BYTES, len(ZERO_BLOCK)):  # a full disk is an error now, not later
                file.write(ZERO_BLOCK[: n_slots * SLOT_BYTES - start])
            file.flush()
            self._slots = memoryview(mmap.mmap(file.fileno(), n_slots * SLOT_BYTES)).cast("Q")

    def add(self, text: str) -> bool:
        """Add a text; return False if it was in the set."""
        value = hash_text(text) or 1  # 0 is an empty slot
        slot = value & self._mask
        while self._slots[slot] not in (0, value):
            slot = (slot + 1) & self._mask
        is_new = self._slots[slot] == 0
        self._slots[slot] = value
        return is_new
