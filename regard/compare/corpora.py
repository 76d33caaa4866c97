"""The texts that models are trained and tested on: the user's own, or made up; written down as files.

What is tested on is drawn by the seed and never trained on; so is what training validates on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from regard.compare.part import Setting
from regard.errors import DataError
from regard.text.pairs import Pair, read_pairs
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
    """The files of a corpus by what they are for, and where it comes from."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    origin: str
    n_train: int
    n_test: int


def check(setting: Setting, parts: Sequence[str]) -> None:
    """Read the user's files once, so that a fault in them is found before the work, not after minutes of it."""
    if setting.data and {"translation", "positions"} & set(parts):
        _enough(list(read_pairs(setting.data, skip_empty=True)), setting.data)
    if setting.tagged and "positions" in parts:
        _enough(list(read_tagged([setting.tagged])), [setting.tagged])
    made_up = {"translation"} & set(parts) and not setting.data
    if made_up or ("positions" in parts and not (setting.data and setting.tagged)):
        import regard.compare.made_up  # noqa: F401  says what to install where it cannot be made


def pairs(setting: Setting, amount: Amount, folder: Path) -> Split:
    """Pairs of texts."""
    if setting.data:
        found = _enough(list(read_pairs(setting.data, skip_empty=True)), setting.data)
        origin = f"{' and '.join(setting.data)}, {len(found):,} pairs"
    else:
        from regard.compare import made_up

        found = made_up.pairs(amount.examples, amount.facts, setting.seed)
        what = "dates, times, amounts and quantities, English to French"
        origin = f"{len(found):,} made-up lists of one to {amount.facts} {what}"

    def write(name: str, part: Sequence[Pair]) -> tuple[str, ...]:
        paths = tuple(folder / f"{name}.{side}" for side in Pair._fields)
        for path, side in zip(paths, zip(*part, strict=True), strict=True):
            _write(path, side)
        return tuple(map(str, paths))

    return _split(found, setting, amount, folder, origin, write)


def tagged(setting: Setting, amount: Amount, folder: Path) -> Split:
    """Sentences of tagged words."""
    if setting.tagged:
        found = _enough(list(read_tagged([setting.tagged])), [setting.tagged])
        origin = f"{setting.tagged}, {len(found):,} sentences"
    else:
        from regard.compare import made_up

        found = made_up.tagged(amount.examples, amount.facts, setting.seed)
        what = "every word tagged by the kind of fact it stands in"
        origin = f"{len(found):,} made-up lists of one to {amount.facts} facts, {what}"

    def write(name: str, part: Sequence[Tagged]) -> tuple[str, ...]:
        path = folder / f"{name}.conll"
        blocks = ("\n".join(f"{word}\t{label}" for word, label in zip(*each, strict=True)) for each in part)
        _write(path, [f"{block}\n" for block in blocks])
        return (str(path),)

    return _split(found, setting, amount, folder, origin, write)


def _split(
    found: list[Example],
    setting: Setting,
    amount: Amount,
    folder: Path,
    origin: str,
    write: Callable[[str, Sequence[Example]], tuple[str, ...]],
) -> Split:
    """Draw what is tested and validated on, and write all three parts; of a small corpus, at most a tenth each."""
    folder.mkdir(parents=True, exist_ok=True)
    Random(setting.seed).shuffle(found)
    n_test, n_valid = (min(n, len(found) // 10) for n in (amount.test, amount.valid))
    parts = {"test": found[:n_test], "valid": found[n_test : n_test + n_valid], "train": found[n_test + n_valid :]}
    files = {name: write(name, part) for name, part in parts.items()}
    return Split(**files, origin=origin, n_train=len(parts["train"]), n_test=n_test)


def _enough(found: list[Example], data: Sequence[str]) -> list[Example]:
    if len(found) < LEAST:
        raise DataError(" ".join(data), f"{len(found)} examples; a comparison needs {LEAST} at least")
    return found


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
