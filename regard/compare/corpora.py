"""Train, validation and test files of the experiments, from the user's own text or from synthetic text.

Test and validation examples are sampled by the seed and never trained on. Files are JSONL, which holds any text
unchanged, line breaks included.
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
"""Smallest number of examples that can be split."""

Example = TypeVar("Example", Pair, TaggedSentence)


class CorpusSize(NamedTuple):
    """Number of synthetic, validation and test examples, and the most facts in a synthetic list."""

    n_examples: int
    n_valid: int
    n_test: int
    max_facts: int


class CorpusSplit(NamedTuple):
    """Files of a corpus, its origin in words, and the number of examples in each part."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    origin: str
    n_train: int
    n_valid: int
    n_test: int


def hash_data_files(settings: ComparisonSettings) -> str:
    """Return a hash of the user's files, so that measurements on other text are not mixed with these."""
    return digest_files([*pair_paths(settings.data), *([Path(settings.tagged)] if settings.tagged else [])])


def check_data_files(settings: ComparisonSettings, experiments: Sequence[str]) -> None:
    """Read the user's files once, so that an error in them is reported before minutes of work, not after."""
    translates, tags = "translation" in experiments or "positions" in experiments, "positions" in experiments
    if translates and settings.data:
        _read_user_pairs(settings)
    if tags and settings.tagged:
        _read_user_tagged(settings)
    if (translates and not settings.data) or (tags and not settings.tagged):
        import regard.compare.synthetic  # noqa: F401  raises MissingExtra without babel


def prepare_pairs(settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path) -> CorpusSplit:
    """Write the split of a corpus of sentence pairs."""
    if settings.data:
        return _write_split(*_read_user_pairs(settings), settings, corpus_size, folder)
    from regard.compare import synthetic

    kind = f"synthetic lists of one to {corpus_size.max_facts} dates, times, amounts and quantities, English to French"
    pairs = synthetic.generate_pairs(corpus_size.n_examples, corpus_size.max_facts, settings.seed)
    return _write_split(pairs, f"{len(pairs):,} {kind}", settings, corpus_size, folder)


def prepare_tagged(settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path) -> CorpusSplit:
    """Write the split of a corpus of tagged sentences."""
    if settings.tagged:
        return _write_split(*_read_user_tagged(settings), settings, corpus_size, folder)
    from regard.compare import synthetic

    kind = f"synthetic lists of one to {corpus_size.max_facts} facts, every word tagged with the kind of its fact"
    sentences = synthetic.generate_tagged(corpus_size.n_examples, corpus_size.max_facts, settings.seed)
    return _write_split(sentences, f"{len(sentences):,} {kind}", settings, corpus_size, folder)


def _read_user_pairs(settings: ComparisonSettings) -> tuple[list[Pair], str]:
    return _deduplicate(read_pairs(settings.data, skip_empty=True), settings.data, "pairs")


def _read_user_tagged(settings: ComparisonSettings) -> tuple[list[TaggedSentence], str]:
    return _deduplicate(read_tagged_sentences([settings.tagged]), [settings.tagged], "sentences")


def _deduplicate(examples: Iterable[Example], data: Sequence[str], unit: str) -> tuple[list[Example], str]:
    """Return the first example of each source, and the origin of all in words.

    The others are dropped: a test example must not have been trained on.
    """
    all_examples = list(examples)
    unique: dict[Any, Example] = {}
    for each in all_examples:
        unique.setdefault(each[0], each)
    repeated = len(all_examples) - len(unique)
    if len(unique) < MIN_EXAMPLES:
        more = f" and {repeated:,} repetitions" if repeated else ""
        raise DataError(" ".join(data), f"{len(unique)} examples{more}; a comparison needs {MIN_EXAMPLES} at least")
    dropped = f" ({repeated:,} more repeat a source and are left out)" if repeated else ""
    return list(unique.values()), f"{' and '.join(data)}, {len(unique):,} {unit}{dropped}"


def _write_split(
    examples: Sequence[Example], origin: str, settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path
) -> CorpusSplit:
    """Sample the test and validation examples, at most a tenth of the corpus each, and write all three parts."""
    folder.mkdir(parents=True, exist_ok=True)
    shuffled = Random(settings.seed).sample(examples, len(examples))
    n_test, n_valid = (min(n, len(shuffled) // 10) for n in (corpus_size.n_test, corpus_size.n_valid))
    train_start = n_test + n_valid
    parts = {"test": shuffled[:n_test], "valid": shuffled[n_test:train_start], "train": shuffled[train_start:]}
    files = {name: (_write_jsonl(folder / f"{name}.jsonl", part),) for name, part in parts.items()}
    return CorpusSplit(**files, origin=origin, n_train=len(parts["train"]), n_valid=n_valid, n_test=n_test)


def _write_jsonl(path: Path, examples: Sequence[Example]) -> str:
    lines = [f"{json_text(each._asdict())}\n" for each in examples]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return str(path)
