"""The command that calls this program again: commands printed in messages must work when copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program_name() -> str:
    """Return ``regard`` where the shell finds this very program by that name, else its path (``.venv/bin/regard``)."""
    called = Path(sys.argv[0])
    if called.stem != "regard":  # python -m regard, or a program that calls it
        return f"{shlex.quote(sys.executable)} -m regard"
    executable = shutil.which("regard")
    return "regard" if executable and called.exists() and called.samefile(executable) else shlex.quote(sys.argv[0])
