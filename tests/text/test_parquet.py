"""Parquet files that hold far more than their size: refused by their metadata, or read a few rows at a time.

What is read from ordinary files is tested with the other tables, in test_tables.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.errors import DataError
from regard.text.limits import LIMIT_VARIABLE
from regard.text.tables import read_objects, read_rows

LIMIT = 10_000


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, str(LIMIT))


def write(path: Path, column: Any, **options: Any) -> Path:
    pq.write_table(pa.table({"text": column}), path, compression="zstd", **options)
    return path


def repeated(value: str, n_rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * n_rows, pa.int32()), pa.array([value]))


def fault(path: Path) -> str:
    assert path.stat().st_size < 5000
    with pytest.raises(DataError) as caught:
        list(read_rows(path, ["text"]))
    return str(caught.value).removeprefix(f"{path}: ")


def test_values_over_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = f", or set {LIMIT_VARIABLE} to more than {LIMIT}"
    path = write(tmp_path / "x.parquet", ["a" * (LIMIT + 1)])
    assert fault(path) == f"column 'text': a value of more than 10,000 bytes; split it{raised}"
    path = write(tmp_path / "y.parquet", ["short"] * 20 + ["a" * (LIMIT + 1)])
    assert fault(path) == f"{path}:21: column 'text': a value of more than 10,000 bytes; split it{raised}"
    monkeypatch.setenv(LIMIT_VARIABLE, str(LIMIT + 1))
    assert len(list(read_rows(path, ["text"]))) == 21


def test_pages_that_decompress_to_more_than_the_limit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", ["a" * 9000] * 20, use_dictionary=False)
    assert fault(path).startswith("column 'text': a page of more than 160,000 bytes; write smaller ones, or set")


def test_dictionaries_over_the_limit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", repeated("a" * 50_000, 1000))
    assert fault(path).startswith("column 'text': a dictionary of more than 40,000 bytes; write plain pages, or set")


def test_lists_of_many_values_are_refused(tmp_path: Path) -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 200_000], pa.int32()), repeated("a", 200_000))
    with pytest.raises(DataError, match=r"'text.list.element': 200,000 values in 1 rows; at most 65,536 a row"):
        list(read_objects(write(tmp_path / "x.parquet", lists)))


@pytest.mark.parametrize(("size", "most"), [(9000, 4), (2000, 20), (1, 1024)])
def test_repeated_values_are_read_a_few_rows_at_a_time(
    size: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.parquet", repeated("a" * size, 3000))
    batch_sizes = []
    plain = pq.ParquetFile.iter_batches

    def iterate(self: pq.ParquetFile, batch_size: int, columns: list[str]) -> Any:
        batch_sizes.append(batch_size)
        return plain(self, batch_size=batch_size, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iterate)
    assert sum(len(row.values[0]) for row in read_rows(path, ["text"])) == 3000 * size
    assert batch_sizes == [pytest.approx(most, abs=1)]
