"""The texts that models are trained and tested on: the user's own, or made up; written down as files.

What is tested on is drawn by the seed and never trained on; so is what training validates on. They are JSONL, which
holds any text as it is, line ends too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from regard.compare.experiment import ComparisonSettings
from regard.disk import json_text
from regard.errors import DataError
from regard.text.fingerprints import digest_files
from regard.text.pairs import Pair, pair_paths, read_pairs
from regard.text.tagged import TaggedSentence, read_tagged_sentences

MIN_EXAMPLES = 100
"""Examples that a corpus must have."""

Example = TypeVar("Example", Pair, TaggedSentence)


class CorpusSize(NamedTuple):
    """Examples to make, and of these how many are kept to validate on and how many to test on; facts in a list."""

    n_examples: int
    n_valid: int
    n_test: int
    max_facts: int


class CorpusSplit(NamedTuple):
    """The files of a corpus by what they are for, where it comes from, and how many examples are in each."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    origin: str
    n_train: int
    n_valid: int
    n_test: int


def hash_data_files(settings: ComparisonSettings) -> str:
    """A hash of what the user's files hold: numbers of other text must not stand beside these."""
    return digest_files([*pair_paths(settings.data), *([Path(settings.tagged)] if settings.tagged else [])])


def check_data_files(settings: ComparisonSettings, experiments: Sequence[str]) -> None:
    """Read the user's files once, so that a fault in them is found before the work, not after minutes of it."""
    translates, tags = "translation" in experiments or "positions" in experiments, "positions" in experiments
    if translates and settings.data:
        _read_user_pairs(settings)
    if tags and settings.tagged:
        _read_user_tagged(settings)
    if (translates and not settings.data) or (tags and not settings.tagged):
        import regard.compare.synthetic  # noqa: F401  says what to install where it cannot be made


def prepare_pairs(settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path) -> CorpusSplit:
    """Pairs of texts."""
    if settings.data:
        return _write_split(*_read_user_pairs(settings), settings, corpus_size, folder)
    from regard.compare import synthetic as made_up

    what = f"made-up lists of one to {corpus_size.max_facts} dates, times, amounts and quantities, English to French"
    found = made_up.generate_pairs(corpus_size.n_examples, corpus_size.max_facts, settings.seed)
    return _write_split(found, f"{len(found):,} {what}", settings, corpus_size, folder)


def prepare_tagged(settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path) -> CorpusSplit:
    """Sentences of tagged words."""
    if settings.tagged:
        return _write_split(*_read_user_tagged(settings), settings, corpus_size, folder)
    from regard.compare import synthetic as made_up

    what = f"made-up lists of one to {corpus_size.max_facts} facts, every word tagged by the kind of fact it stands in"
    found = made_up.generate_tagged(corpus_size.n_examples, corpus_size.max_facts, settings.seed)
    return _write_split(found, f"{len(found):,} {what}", settings, corpus_size, folder)


def _read_user_pairs(settings: ComparisonSettings) -> tuple[list[Pair], str]:
    return _deduplicate(read_pairs(settings.data, skip_empty=True), settings.data, "pairs")


def _read_user_tagged(settings: ComparisonSettings) -> tuple[list[TaggedSentence], str]:
    return _deduplicate(read_tagged_sentences([settings.tagged]), [settings.tagged], "sentences")


def _deduplicate(examples: Iterable[Example], data: Sequence[str], unit: str) -> tuple[list[Example], str]:
    """The examples whose source occurs for the first time, and where they come from.

    The others go: one of them would be tested on after it was trained on.
    """
    every = list(examples)
    first: dict[Any, Example] = {}
    for each in every:
        first.setdefault(each[0], each)
    repeated = len(every) - len(first)
    if len(first) < MIN_EXAMPLES:
        more = f" and {repeated:,} repetitions" if repeated else ""
        raise DataError(" ".join(data), f"{len(first)} examples{more}; a comparison needs {MIN_EXAMPLES} at least")
    left_out = f" ({repeated:,} more repeat a source and are left out)" if repeated else ""
    return list(first.values()), f"{' and '.join(data)}, {len(first):,} {unit}{left_out}"


def _write_split(
    examples: Sequence[Example], origin: str, settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path
) -> CorpusSplit:
    """Draw what is tested and validated on, and write all three parts; of a small corpus, at most a tenth each."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Random(settings.seed).sample(examples, len(examples))
    n_test, n_valid = (min(n, len(drawn) // 10) for n in (corpus_size.n_test, corpus_size.n_valid))
    parts = {"test": drawn[:n_test], "valid": drawn[n_test : n_test + n_valid], "train": drawn[n_test + n_valid :]}
    files = {name: (_write_jsonl(folder / f"{name}.jsonl", part),) for name, part in parts.items()}
    return CorpusSplit(**files, origin=origin, n_train=len(parts["train"]), n_valid=n_valid, n_test=n_test)


def _write_jsonl(path: Path, examples: Sequence[Example]) -> str:
    lines = [f"{json_text(each._asdict())}\n" for each in examples]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return str(path)
