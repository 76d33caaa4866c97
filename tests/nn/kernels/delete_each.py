"""Delete each kernel in turn from a copy of the project, file and line, and run the tests of the table without it.

Called by test_dispatch.py with the folder of the copy. Each deletion is tried in a fork, which has imported already
what it need not import again, and without pytest and checked shapes: these would take several seconds each.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
import torch


def check(file: str, folder: Path) -> None:
    """Run the tests of all operations and of the table; the kernel's own are skipped as soon as they are imported."""
    table = folder / "dispatch.py"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    left = [line for line in lines if f'"{file}", "c' not in line]
    assert len(left) == len(lines) - 1, f"{file} has no line of its own"
    table.write_text("".join(left), encoding="utf-8")
    (folder / f"{file}.py").unlink()
    tests = import_module("test_dispatch")
    assert tests.kernels.__file__ == str(folder / "__init__.py")
    assert file not in tests.FILES
    tests.test_the_table_names_every_kernel_file_and_every_line_an_operation()
    for operation in tests.dispatch.OPERATIONS:
        tests.test_every_operation_gives_what_plain_pytorch_gives(operation)
    if (folder.parents[2] / f"tests/nn/kernels/test_{file}.py").exists():
        with suppress(pytest.skip.Exception):
            import_module(f"test_{file}")


def passes(file: str, folder: Path) -> bool:
    """Check in a fork of this process, which ends with it."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        check(file, folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(project: Path) -> None:
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(project), str(project / "tests/nn/kernels")]
    torch.set_num_threads(1)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # which imports hundreds of modules
    import_module("jaxtyping")  # nothing of regard: every fork imports the kernels anew
    with suppress(ImportError):
        import_module("triton.language")
    folder = project / "regard/nn/kernels"
    rows = [
        line.split('"')[1::2] for line in (folder / "dispatch.py").read_text().splitlines() if line.startswith('    ("')
    ]
    files = [row[1] for row in rows if len(row) == 3]
    for file in files:
        kept = {path: path.read_text(encoding="utf-8") for path in (folder / "dispatch.py", folder / f"{file}.py")}
        if not passes(file, folder):
            sys.exit(f"without {file} tests fail")
        for path, text in kept.items():
            path.write_text(text, encoding="utf-8")
    print(f"deleted in turn: {', '.join(files)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
