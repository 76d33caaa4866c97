"""Stores of a resumed run: damage is noticed before it is trained on, and repaired from the same text."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import contents, ready, recipe, trained

from regard.errors import CheckpointError


def store_bytes(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (out / "store").rglob("*.*") if path.suffix in (".ids", ".offsets")}


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 1
    path.write_bytes(data)


def test_flipped_bits_are_encoded_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tables, out = recipe(tmp_path, {"train": {"steps": 1, "validate_every": 1, "save_every": 1}}), tmp_path / "run"
    trained(tables, out)
    before = store_bytes(out)
    for file, position in zip(before, cycle([9, -1]), strict=False):
        flip_bit(file, position)
        capfd.readouterr()
        ready(tables, out, resume=True)
        message = capfd.readouterr().err
        assert message.startswith(f"{file.parent}: damaged (")
        assert message.endswith("); its text is encoded again\n")
        assert message.count("\n") == 1
        assert store_bytes(out) == before


@pytest.mark.parametrize("purpose", ["train", "valid"])
def test_flipped_bits_of_the_manifest_are_written_again(tmp_path: Path, purpose: str) -> None:
    tables, out = recipe(tmp_path, {"train": {"steps": 1, "validate_every": 1, "save_every": 1}}), tmp_path / "run"
    trained(tables, out)
    before, manifest = store_bytes(out), out / "store" / purpose / "manifest.json"
    whole = manifest.read_text()
    values = json.loads(whole)
    for word in ("examples", "digest", values["digest"], "uint16", "target", values["fingerprint"]):
        flip_bit(manifest, whole.index(word))
        store = getattr(ready(tables, out, resume=True), f"{purpose}_store")
        assert store_bytes(out) == before
        assert store.digest in ("", values["digest"])
        manifest.write_text(whole)


def test_damaged_run_goes_on_as_an_undamaged_one(tmp_path: Path) -> None:
    tables, more = recipe(tmp_path), recipe(tmp_path, {"train": {"steps": 9}})
    trained(more, tmp_path / "whole")
    trained(tables, tmp_path / "run")
    flip_bit(tmp_path / "run" / "store" / "train" / "target.ids", 10)
    trained(more, tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_id_outside_the_vocabulary_never_reaches_the_embedding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tables, out = recipe(tmp_path), tmp_path / "run"
    trained(tables, out)
    before, file = store_bytes(out), out / "store" / "train" / "source.ids"
    file.write_bytes(np.full(len(before[file]) // 2, 65_000, dtype=np.uint16).tobytes())
    ready(tables, out, resume=True)
    assert store_bytes(out) == before
    assert "source.ids holds id 65,000 of a vocabulary of 266" in capfd.readouterr().err.replace("\n", " ")


def test_damaged_store_of_a_changed_text_is_refused(tmp_path: Path) -> None:
    tables, out = recipe(tmp_path), tmp_path / "run"
    trained(tables, out)
    flip_bit(out / "store" / "train" / "source.ids", 10)
    (tmp_path / "train.src").write_text((tmp_path / "train.src").read_text().replace("1", "2"))
    with pytest.raises(CheckpointError, match=r"store/train: the data, or how this version reads it, changed since"):
        ready(tables, out, resume=True)
