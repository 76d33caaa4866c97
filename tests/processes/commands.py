"""What `forks` and `shell` share: a process that has imported everything, and a forked child that becomes a command."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory


def skip_flushing() -> None:
    """Let fsync do no more than refuse what is no open file.

    No test outlives a power failure; what was written survives the end of a process, and is read back, without it.
    """
    os.fsync = os.fstat  # type: ignore[assignment]


def restore_flushing(fsync: Callable[[int], None] = os.fsync) -> None:
    """Let fsync flush again."""
    os.fsync = fsync  # type: ignore[assignment]


def warm_up() -> None:
    """Train once, in silence: whatever is imported on the way, no child imports again."""
    from regard.cli import main
    from regard.demo import cldr_corpus as cldr

    skip_flushing()
    sizes = ["tokenizer.vocabulary=300", "model.d_model=16", "train.steps=1", "train.batch_tokens=64"]
    settings = [part for size in sizes for part in ("--set", size)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        cldr.write_corpus(folder, 100, 5)
        files = [f"{folder}/train.en", f"{folder}/train.fr"]
        silence = (folder / "silence").open("w", encoding="utf-8")
        with silence, redirect_stdout(silence), redirect_stderr(silence), suppress(SystemExit):
            main(["train", "translate", *files, "--out", f"{folder}/run", "--device", "cpu", *settings])
    gc.freeze()


def status_of(command: Callable[[], object]) -> int:
    """Run a command to its end, all it says written out; gives the exit status a process of its own would have."""
    status = 0
    try:
        command()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status
