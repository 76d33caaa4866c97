"""Delete each kernel in turn from a copy of the project, file and line, and run the tests of what uses kernels.

Called by test_dispatch.py with the folder of the copy. Each deletion is tried in a fork: torch is imported once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

TESTS = ("tests/nn/test_linear.py", "tests/nn/test_loss.py", "tests/nn/test_multihead.py", "tests/nn/kernels")
CHOSEN = "linear or plain or operation or table or in_use or without_triton or chunks or limits or triple"


def passes_without(file: str, room: Path) -> bool:
    """Run the tests in a fork of this process, without a kernel and its line."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    table = room / "dispatch.py"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    left = [line for line in lines if f'"{file}", "c' not in line]
    assert len(left) == len(lines) - 1, f"{file} has no line of its own"
    table.write_text("".join(left), encoding="utf-8")
    (room / f"{file}.py").unlink()
    options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", f"({CHOSEN}) and not deleted")
    os._exit(pytest.main([*TESTS, *options]))


def main(project: Path) -> None:
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    os.chdir(project)
    sys.path.insert(0, str(project))
    room = project / "regard/nn/kernels"
    kept = {path: path.read_text(encoding="utf-8") for path in room.glob("*.py")}
    rows = [line.split('"')[1::2] for line in kept[room / "dispatch.py"].splitlines() if line.endswith('"),')]
    files = [row[1] for row in rows if len(row) == 3]
    for file in files:
        if not passes_without(file, room):
            sys.exit(f"without {file} tests fail")
        for path, text in kept.items():
            path.write_text(text, encoding="utf-8")
    print(f"deleted in turn: {', '.join(files)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
