"""The token stores of a run: training and validation examples as token ids on disk.

A fresh run encodes its text. A resumed run opens the stores on disk, compares their bytes with their digests, and reads
no text if the files are unchanged. If they changed, or a store is missing or damaged, it encodes the text again, which
must give the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from regard.data.corpus import Corpus, Example, ExampleEncoder, with_set_column, write_store
from regard.data.store import DigestMismatchError, TokenStore
from regard.data.verification import find_damage
from regard.errors import CheckpointError, ConfigError
from regard.progress import print_message
from regard.runs.run_directory import RunDirectory
from regard.tasks import Task
from regard.training.checkpoint import TrainingProgress


def open_stores(
    run: RunDirectory, corpus: Corpus, task: Task, progress: TrainingProgress | None = None
) -> tuple[TokenStore, TokenStore]:
    """Return the stores of training and validation examples; with the `progress` of a run, those it was trained on."""
    fingerprint = corpus.fingerprint(task.fingerprint)
    encoder = with_set_column(task, corpus.data)

    def open_store(name: str, examples: Callable[[], Iterator[Example]], total: int | None = None) -> TokenStore:
        path = run.stores_path / name
        expected = "" if progress is None else _expected_digest(path, fingerprint, progress.data.get(name, ""))
        store = None if progress is None else _open_undamaged(path, fingerprint, encoder, expected)
        return _check_or_write_store(
            path, store, examples, encoder, fingerprint, expected, total, task.encoding_chunk_bytes
        )

    is_counted = progress is None and not (corpus.data.weights or corpus.data.has_sets)
    total = corpus.statistics.n_examples if is_counted else None
    return open_store("train", corpus.train_examples, total), open_store("valid", corpus.valid_examples)


def _expected_digest(path: Path, fingerprint: str, trained_digest: str) -> str:
    """Return the digest that the ids must have; without a record of one, the text files must be unchanged."""
    manifest = TokenStore.read_manifest(path)
    digest: str = trained_digest or manifest.get("digest", "")
    if digest or not path.exists() or manifest.get("fingerprint") == fingerprint:
        return digest
    if not manifest:
        raise CheckpointError(f"{path}: damaged; delete it, and the text will be encoded again")
    raise _data_changed_error(path)


def _open_undamaged(path: Path, fingerprint: str, encoder: ExampleEncoder, expected_digest: str) -> TokenStore | None:
    """Return the store on disk; None if there is none for this text, or if it is damaged, which a message says."""
    if TokenStore.read_manifest(path).get("fingerprint") != fingerprint:
        return None
    store = TokenStore.open(path, fingerprint)
    damage = (
        "its files are not those of its manifest"
        if store is None
        else find_damage(store, encoder.store_columns, expected_digest)
    )
    if not damage:
        return store
    print_message(f"{path}: damaged ({damage}); its text is encoded again")
    return None


def _check_or_write_store(
    path: Path,
    store: TokenStore | None,
    examples: Callable[[], Iterator[Example]],
    encoder: ExampleEncoder,
    fingerprint: str,
    expected_digest: str,
    n_examples: int | None,
    chunk_bytes: int,
) -> TokenStore:
    """Return the store on disk if it is the expected one; write it if there is none."""
    if store is not None and store.digest != expected_digest and store.digest and expected_digest:
        raise _data_changed_error(path)
    if store is None:
        try:
            store = write_store(
                path,
                examples(),
                encoder,
                fingerprint=fingerprint,
                expected_digest=expected_digest,
                total=n_examples,
                chunk_bytes=chunk_bytes,
            )
        except DigestMismatchError:
            raise _data_changed_error(path) from None
    if len(store) == 0:
        raise ConfigError(f"no examples left to {store.purpose} on; give more training data, or other files by --valid")
    return store


def _data_changed_error(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: the data, or how this version reads it, changed since the run began, so it cannot be resumed "
        "exactly; begin another run"
    )
