"""The run directory: a model and everything needed to use it, to resume its training and to know how it was made.

    config.toml         the resolved recipe                  log.jsonl       training and validation metrics by step
    tokenizer.json      and the other files of the task      metrics.json    final scores and training time
    model.safetensors   the best weights so far              train.safetensors, train.json, snapshots/: checkpoint.py

Every file is written under a temporary name, flushed and renamed, except log.jsonl, which is appended to and truncated
to the length that the checkpoint stores, and curve.png, which can be drawn again. Nothing is ever unpickled.

Every file but curve.png has a checksum, in the file itself or, where that must not change after the run began or
belongs to another library's format, in the comments that config.toml begins with; the log's is in the checkpoint.
Further comments are notes on where the run comes from, which are no part of the recipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from torch import nn

from regard import config
from regard.data.labels import LABELS_FILE
from regard.disk import (
    CHECKSUM_TYPE,
    RESTORE,
    check_checksum,
    compute_checksum,
    damage_error,
    read_bytes,
    read_json_with_checksum,
    remove_temporary_directories,
    write_text,
)
from regard.errors import CheckpointError
from regard.models.weights import load_model
from regard.runs.directory_lock import DirectoryLock
from regard.runs.recipe import RunConfig, build_run_config
from regard.tasks import TASKS, Task
from regard.text.tokenizer import TOKENIZER_FILE, TokenizerPair
from regard.text.word_segmenter import SEGMENTER_FILE

CONFIG_FILE = "config.toml"
TASK_FILES = (TOKENIZER_FILE, TokenizerPair.TARGET_FILE, LABELS_FILE, SEGMENTER_FILE)
"""Files of tasks, which are written before config.toml and then never change."""

CHECKPOINT_FILE = "train.safetensors"

_OWN_NAME = f"{CONFIG_FILE} (delete this line to edit the file)"
_CHECKSUM_COMMENT = re.compile(
    rf"# ({CHECKSUM_TYPE}[0-9a-f]{{8}}) ({'|'.join(map(re.escape, (_OWN_NAME, *TASK_FILES)))})"
)

IMPORTED_FROM = "imported from"
"""The note on the library that a model was imported from."""
STARTED_IN = "started in"
"""The note on the directory that a run was started in, which relative paths of its recipe are relative to."""
DISTILLED_FROM = "distilled from"
"""The note on the teacher of a model."""

_NOTE_COMMENT = re.compile(rf'# ({IMPORTED_FROM}|{STARTED_IN}|{DISTILLED_FROM}) (".*")')


class RunDirectory:
    """The paths of a run's files, and how to read them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.toml"
        self.weights_path = path / "model.safetensors"
        self.start_path = path / "start.safetensors"
        self.log_path = path / "log.jsonl"
        self.metrics_path = path / "metrics.json"
        self.progress_path = path / "train.json"
        self.stores_path = path / "store"
        self.checkpoint_path = path / CHECKPOINT_FILE
        self.snapshots_path = path / "snapshots"
        self.lock = DirectoryLock(path)

    def acquire_lock(self) -> None:
        """Take the lock that training holds, and remove what killed processes left half written."""
        if not self.lock.is_held:
            self.lock.acquire()
            for directory in (self.path, self.snapshots_path):
                remove_temporary_directories(directory)
            remove_temporary_directories(self.stores_path, prefix=".")

    def exists(self) -> bool:
        """Return True if a run was begun here."""
        return self.config_path.exists()

    def read_config(self) -> RunConfig:
        """Return the resolved recipe of this run."""
        if not self.path.is_dir():
            raise CheckpointError(f"{self.path}: no such run directory; `regard train` makes one")
        if not self.config_path.exists():
            problem = f"{self.path}: not a run directory: it has no config.toml"
            raise CheckpointError(f"{problem}; name one that `regard train` or `regard import` made")
        self._read_checksums()
        return build_run_config(config.read(self.config_path), str(self.config_path))

    def write_config(self, run_config: RunConfig, notes: Mapping[str, str] | None = None) -> None:
        """Write the resolved recipe, after comments: checksums of the task's files and of the lines below, and notes.

        The notes of the config that is replaced are kept.
        """
        paths = [path for name in TASK_FILES if (path := self.path / name).exists()]
        comments = [f"# {compute_checksum([path.read_bytes()])} {path.name}\n" for path in paths]
        comments += [f"# {name} {json.dumps(text)}\n" for name, text in {**self.read_notes(), **(notes or {})}.items()]
        lines = "".join([*comments, "\n", config.dump(run_config.tables())])
        write_text(self.config_path, f"# {compute_checksum([lines.encode()])} {_OWN_NAME}\n{lines}")

    def read_notes(self) -> dict[str, str]:
        """Return the notes in the comments of config.toml by name; those of earlier versions have none."""
        lines = self.config_path.read_text(encoding="utf-8").splitlines() if self.exists() else []
        return {match[1]: json.loads(match[2]) for line in lines if (match := _NOTE_COMMENT.fullmatch(line))}

    def _read_checksums(self) -> dict[str, str]:
        """Check the first line of config.toml, and return the checksums of the task's files by name.

        Earlier versions wrote no checksums, and a user who edits the file deletes them.
        """
        fix = f"if you edited it, delete its first line; otherwise {RESTORE}"
        content = read_bytes(self.config_path)
        checksums: dict[str, str] = {}
        for line in takewhile(lambda line: line.startswith("#"), content.decode(errors="replace").split("\n")):
            if match := _CHECKSUM_COMMENT.fullmatch(line):
                checksums[match[2]] = match[1]
            elif not _NOTE_COMMENT.fullmatch(line) and (CHECKSUM_TYPE in line or CONFIG_FILE in line):
                raise damage_error(self.config_path, fix)
        if _OWN_NAME in checksums:
            check_checksum(self.config_path, [content.partition(b"\n")[2]], checksums.pop(_OWN_NAME), fix=fix)
        return checksums

    def check_task_files(self) -> None:
        """Raise an error if a file of the task is not the one that the run began with."""
        fix = f"{RESTORE}; if you replaced it yourself, delete the lines of {CONFIG_FILE} that begin with #"
        for name, expected in self._read_checksums().items():
            if (path := self.path / name).exists():
                check_checksum(path, [read_bytes(path)], expected, fix=fix)

    def read_metrics(self) -> dict[str, Any]:
        """Return the final scores and times; nothing before training has finished."""
        return read_json_with_checksum(self.metrics_path, fix="delete it; `regard evaluate` measures the scores again")

    def read_progress(self) -> dict[str, Any]:
        """Return the progress of the last checkpoint as plain JSON; nothing before the first one."""
        return read_json_with_checksum(
            self.progress_path, fix=f"delete it; it is a copy of what {CHECKPOINT_FILE} says"
        )

    def load(self) -> tuple[RunConfig, Task, nn.Module]:
        """Return the config, the task and the model with its best weights, in eval mode."""
        run_config = self.read_config()
        self.check_task_files()
        task = TASKS[run_config.task.name].load(run_config.task, run_config.tokenizer, self.path)
        model = load_model(partial(task.build_model, run_config.model), self.weights_path, fix=self.weights_fix)
        return run_config, task, model.eval()

    @property
    def weights_fix(self) -> str:
        """The end of a message about damaged weights."""
        if not self.checkpoint_path.exists():
            return RESTORE
        return f"{RESTORE}, or delete it and resume the training, which replaces it by those of its last checkpoint"
