"""Train, validation and test files of the experiments, from the user's own text or from synthetic text.

Test and validation examples are sampled by the seed and never trained on. Files are JSONL, which holds any text
unchanged, line breaks included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from regard.compare.experiment import ComparisonSettings
from regard.disk import json_text
from regard.errors import DataError
from regard.text.fingerprints import digest_files
from regard.text.labelled import LabelledExample, labelled_paths, read_labelled_examples
from regard.text.pairs import Pair, pair_paths, read_pairs
from regard.text.squad import QuestionExample, question_paths, read_questions
from regard.text.tagged import TaggedSentence, read_tagged_sentences

MIN_EXAMPLES = 100
"""Smallest number of examples that can be split."""

Example = TypeVar("Example", Pair, TaggedSentence, LabelledExample, QuestionExample)


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


class UserCorpus(NamedTuple):
    """The reader of a user's files for a task, and a description of what they contain."""

    read: Callable[[Sequence[str]], Iterable[Any]]
    unit: str


USER_CORPORA = {
    "translate": UserCorpus(partial(read_pairs, skip_empty=True), "pairs"),
    "tag": UserCorpus(read_tagged_sentences, "sentences"),
    "classify": UserCorpus(partial(read_labelled_examples, skip_empty=True), "labelled texts"),
    "qa": UserCorpus(partial(read_questions, skip_empty=True), "questions"),
}
"""Readers of the user's files by task."""


def user_files(settings: ComparisonSettings, task: str) -> list[str]:
    """Return the files that the user has given for a task."""
    given = {
        "translate": settings.data,
        "tag": (settings.tagged,),
        "classify": (settings.labelled,),
        "qa": (settings.questions,),
    }
    return [file for file in given[task] if file]


def hash_data_files(settings: ComparisonSettings) -> str:
    """Return a hash of the user's files, so that measurements on other text are not mixed with these."""
    pairs, labelled, questions = (user_files(settings, task) for task in ("translate", "classify", "qa"))
    tagged = map(Path, user_files(settings, "tag"))
    return digest_files([*pair_paths(pairs), *tagged, *labelled_paths(labelled), *question_paths(questions)])


def check_data_files(settings: ComparisonSettings, experiments: Sequence[str]) -> None:
    """Read the user's files once, so that an error in them is reported before minutes of work, not after."""
    tasks = {"translate"} if "translation" in experiments else set()
    tasks |= set(USER_CORPORA) if "positions" in experiments else set()
    for task in USER_CORPORA:
        if task in tasks and user_files(settings, task):
            _read_user_corpus(settings, task)
    if not all(user_files(settings, task) for task in tasks):
        import regard.compare.synthetic  # noqa: F401  raises MissingExtra without babel


def prepare_corpus(task: str, settings: ComparisonSettings, corpus_size: CorpusSize, folder: Path) -> CorpusSplit:
    """Write the split of the user's corpus for a task, or of a synthetic one."""
    if user_files(settings, task):
        return _write_split(*_read_user_corpus(settings, task), settings, corpus_size, folder)
    from regard.compare.synthetic import SYNTHETIC_CORPORA

    corpus = SYNTHETIC_CORPORA[task]
    examples = corpus.generate(corpus_size.n_examples, corpus_size.max_facts, settings.seed)
    kind = corpus.description.format(max_facts=corpus_size.max_facts)
    return _write_split(examples, f"{len(examples):,} synthetic {kind}", settings, corpus_size, folder)


def _read_user_corpus(settings: ComparisonSettings, task: str) -> tuple[list[Any], str]:
    """Return the user's examples and their origin; one question of each context, so that none is in two parts."""
    files, corpus = user_files(settings, task), USER_CORPORA[task]
    return _deduplicate(corpus.read(files), files, corpus.unit)


def _deduplicate(examples: Iterable[Example], data: Sequence[str], unit: str) -> tuple[list[Example], str]:
    """Return the first example of each source, and the origin of all in words.

    The others are dropped: a test example must not have been trained on.
    """
    all_examples = list(examples)
    unique: dict[Any, Example] = {}
    for each in all_examples:
        unique.setdefault(_source(each), each)
    repeated = len(all_examples) - len(unique)
    if len(unique) < MIN_EXAMPLES:
        more = f" and {repeated:,} repetitions" if repeated else ""
        raise DataError(" ".join(data), f"{len(unique)} examples{more}; a comparison needs {MIN_EXAMPLES} at least")
    dropped = f" ({repeated:,} more repeat a source and are left out)" if repeated else ""
    return list(unique.values()), f"{' and '.join(data)}, {len(unique):,} {unit}{dropped}"


def _source(example: Example) -> object:
    """Return what must not be trained on and tested: the context of a question, both texts of a pair, or the text."""
    if isinstance(example, QuestionExample):
        return example.context
    return example[:2] if isinstance(example, LabelledExample) else example[0]


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
    lines = [f"{json_text(_to_json(each))}\n" for each in examples]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return str(path)


def _to_json(example: Example) -> dict[str, Any]:
    """Return an example in the form in which its reader expects a line of JSONL."""
    values = example._asdict()
    if isinstance(example, QuestionExample):
        del values["question_id"]
        values["answers"] = [{"text": each.text, "answer_start": each.start} for each in example.answers]
    elif isinstance(example, LabelledExample) and not example.pair:
        del values["pair"]
    return values
