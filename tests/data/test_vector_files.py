"""Vector files: written incrementally and atomically, read back unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from regard.data.vector_files import TEXT_VECTOR_COLUMNS, check_vector_path, open_vector_file
from regard.errors import InputError

VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
WORDS = ("line", "place", "word")
ROWS = [(1, 0, "a"), (1, 1, "tab\there"), (2, 0, "\\"), (3, 0, "é"), (3, 1, "line\nend")]


@pytest.mark.parametrize("parts", [[], [5], [2, 0, 3]])
def test_array_is_written_incrementally(parts: list[int], tmp_path: Path) -> None:
    path, done = tmp_path / "v.npy", 0
    with open_vector_file(path, 3, TEXT_VECTOR_COLUMNS) as file:
        for count in parts:
            some = slice(done, done + count)
            file.write([(number, "text") for number in range(count)], VECTORS[some])
            done += count
    array = np.load(path)
    assert (array.dtype, array.shape) == (np.float32, (done, 3))
    np.testing.assert_array_equal(array, VECTORS[:done])
    assert [each.name for each in tmp_path.iterdir()] == ["v.npy"]


def test_array_of_words_has_an_index_file(tmp_path: Path) -> None:
    with open_vector_file(tmp_path / "w.npy", 3, WORDS) as file:
        file.write(ROWS[:2], VECTORS[:2])
        file.write(ROWS[2:], VECTORS[2:])
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), VECTORS)
    head, *lines = (tmp_path / "w.tsv").read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == list(WORDS)
    assert [line.split("\t") for line in lines] == [
        *(["1", "0", "a"], ["1", "1", "tab\\there"], ["2", "0", "\\\\"], ["3", "0", "é"], ["3", "1", "line\\nend"]),
    ]


def test_parquet_table(tmp_path: Path) -> None:
    with open_vector_file(tmp_path / "w.parquet", 3, WORDS) as file:
        file.write(ROWS[:2], VECTORS[:2])
        file.write([], VECTORS[:0])
        file.write(ROWS[2:], VECTORS[2:])
    table = pq.read_table(tmp_path / "w.parquet")
    assert table.column_names == [*WORDS, "vector"]
    assert list(zip(*(table[name].to_pylist() for name in WORDS), strict=True)) == ROWS
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), dtype=np.float32), VECTORS)
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[3]"


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_interrupted_writing_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("before")

    def write() -> None:
        with open_vector_file(path, 3, WORDS) as file:
            file.write(ROWS, VECTORS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_text() == "before"


def test_unwritable_paths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.npy").mkdir()
    messages = {
        "v.txt": "v.txt: unknown suffix '.txt'; known: .npy, .parquet",
        "v": "v: no suffix; known: .npy, .parquet",
        "no/v.npy": "no/v.npy: cannot be written: no directory no; make it first",
        "folder.npy": "folder.npy: cannot be written: is a directory; name a file in it",
    }
    for name, message in messages.items():
        with pytest.raises(InputError) as refused:
            check_vector_path(name)
        assert str(refused.value) == message
    assert check_vector_path("V.NPY") == Path("V.NPY")


def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regard.data.vector_files.fsync_path", full)
    expected = r"v.npy: cannot be written \(No space left on device\); make room, or choose another path"
    with (
        pytest.raises(InputError, match=expected),
        open_vector_file(tmp_path / "v.npy", 3, TEXT_VECTOR_COLUMNS) as file,
    ):
        file.write([(1, "a")], VECTORS[:1])
    assert not list(tmp_path.iterdir())
