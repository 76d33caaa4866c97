"""Limits on the memory that one line or value of a file may take, however small the file is on disk.

A few hundred kilobytes of .xz may hold a line of gigabytes. Readers stop at the limit while they decompress, and their
error names ``REGARD_MAX_LINE_BYTES``, which raises it. Called by files.py, tables.py, json_values.py, parquet.py and
data/word_vectors.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from regard.errors import ConfigError, DataError

LIMIT_VARIABLE = "REGARD_MAX_LINE_BYTES"
"""The environment variable that sets the limit."""
DEFAULT_MAX_LINE_BYTES = 1 << 24
"""Bytes of a line, of a CSV record, and of a value in Parquet, at most."""
JSON_FACTOR = 4
"""The limit on one entry of a JSON file, such as an article of SQuAD, in units of that on a line."""
BLOCK_FACTOR = 16
"""The limit on the smallest unit that a format decompresses, such as a page of Parquet, in the same units."""


def max_line_bytes() -> int:
    """Return the limit: that of the environment, or the default."""
    setting = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not setting:
        return DEFAULT_MAX_LINE_BYTES
    if not (setting.isascii() and setting.isdigit() and len(setting) < 16 and int(setting) > 0):
        raise ConfigError(f"{LIMIT_VARIABLE}={setting[:40]}: expected a number of bytes, as in {1 << 26}")
    return int(setting)


def too_large_error(path: str | Path, name: str, fix: str, *, factor: int = 1, line: int | None = None) -> DataError:
    """Return the error about something larger than `factor` times the limit."""
    limit = max_line_bytes()
    problem = f"{name} of more than {factor * limit:,} bytes"
    return DataError(path, f"{problem}; {fix}, or set {LIMIT_VARIABLE} to more than {limit}", line)
