"""How the user may call `regard` again: what messages print must work when it is copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program_name() -> str:
    """Its name where the shell would find this very program, else its path, as in ``.venv/bin/regard``."""
    called = Path(sys.argv[0])
    if called.stem != "regard":  # python -m regard, or a program that calls it
        return f"{shlex.quote(sys.executable)} -m regard"
    found = shutil.which("regard")
    return "regard" if found and called.exists() and called.samefile(found) else shlex.quote(sys.argv[0])
