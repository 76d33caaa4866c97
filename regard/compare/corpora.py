"""The texts that models are trained and tested on: the user's own, or made up; written down as files.

What is tested on is drawn by the seed and never trained on; so is what training validates on. They are JSONL, which
holds any text as it is, line ends too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from regard.compare.part import Setting
from regard.disk import json_text
from regard.errors import DataError
from regard.text.files import require
from regard.text.pairs import Pair, paths_of, read_pairs
from regard.text.tagged import Tagged, read_tagged

LEAST = 100
"""Examples that a corpus must have."""

Example = TypeVar("Example", Pair, Tagged)


class Amount(NamedTuple):
    """Examples to make, and of these how many are kept to validate on and how many to test on; facts in a list."""

    examples: int
    valid: int
    test: int
    facts: int


class Split(NamedTuple):
    """The files of a corpus by what they are for, where it comes from, and how many examples are in each."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    origin: str
    n_train: int
    n_valid: int
    n_test: int


def content(setting: Setting) -> str:
    """A hash of what the user's files hold: numbers of other text must not stand beside these."""
    whole = hashlib.sha256()
    for path in [*paths_of(setting.data), *([Path(setting.tagged)] if setting.tagged else [])]:
        require(path)
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def check(setting: Setting, parts: Sequence[str]) -> None:
    """Read the user's files once, so that a fault in them is found before the work, not after minutes of it."""
    translates, tags = "translation" in parts or "positions" in parts, "positions" in parts
    if translates and setting.data:
        _own_pairs(setting)
    if tags and setting.tagged:
        _own_tagged(setting)
    if (translates and not setting.data) or (tags and not setting.tagged):
        import regard.compare.made_up  # noqa: F401  says what to install where it cannot be made


def pairs(setting: Setting, amount: Amount, folder: Path) -> Split:
    """Pairs of texts."""
    if setting.data:
        return _split(*_own_pairs(setting), setting, amount, folder)
    from regard.compare import made_up

    what = f"made-up lists of one to {amount.facts} dates, times, amounts and quantities, English to French"
    found = made_up.pairs(amount.examples, amount.facts, setting.seed)
    return _split(found, f"{len(found):,} {what}", setting, amount, folder)


def tagged(setting: Setting, amount: Amount, folder: Path) -> Split:
    """Sentences of tagged words."""
    if setting.tagged:
        return _split(*_own_tagged(setting), setting, amount, folder)
    from regard.compare import made_up

    what = f"made-up lists of one to {amount.facts} facts, every word tagged by the kind of fact it stands in"
    found = made_up.tagged(amount.examples, amount.facts, setting.seed)
    return _split(found, f"{len(found):,} {what}", setting, amount, folder)


def _own_pairs(setting: Setting) -> tuple[list[Pair], str]:
    return _distinct(read_pairs(setting.data, skip_empty=True), setting.data, "pairs")


def _own_tagged(setting: Setting) -> tuple[list[Tagged], str]:
    return _distinct(read_tagged([setting.tagged]), [setting.tagged], "sentences")


def _distinct(examples: Iterable[Example], data: Sequence[str], what: str) -> tuple[list[Example], str]:
    """The examples whose source occurs for the first time, and where they come from.

    The others go: one of them would be tested on after it was trained on.
    """
    every = list(examples)
    first: dict[Any, Example] = {}
    for each in every:
        first.setdefault(each[0], each)
    repeated = len(every) - len(first)
    if len(first) < LEAST:
        more = f" and {repeated:,} repetitions" if repeated else ""
        raise DataError(" ".join(data), f"{len(first)} examples{more}; a comparison needs {LEAST} at least")
    left_out = f" ({repeated:,} more repeat a source and are left out)" if repeated else ""
    return list(first.values()), f"{' and '.join(data)}, {len(first):,} {what}{left_out}"


def _split(found: Sequence[Example], origin: str, setting: Setting, amount: Amount, folder: Path) -> Split:
    """Draw what is tested and validated on, and write all three parts; of a small corpus, at most a tenth each."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Random(setting.seed).sample(found, len(found))
    n_test, n_valid = (min(n, len(drawn) // 10) for n in (amount.test, amount.valid))
    parts = {"test": drawn[:n_test], "valid": drawn[n_test : n_test + n_valid], "train": drawn[n_test + n_valid :]}
    files = {name: (_write(folder / f"{name}.jsonl", part),) for name, part in parts.items()}
    return Split(**files, origin=origin, n_train=len(parts["train"]), n_valid=n_valid, n_test=n_test)


def _write(path: Path, examples: Sequence[Example]) -> str:
    lines = [f"{json_text(each._asdict())}\n" for each in examples]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return str(path)
