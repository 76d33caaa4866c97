"""Progress belongs to stderr, results to stdout, also while a bar is drawn in a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = """
from regard.progress import track
for number in track(range(3), "working", 3):
    print("result", number, flush=True)
"""


def test_results_beside_a_live_bar_go_to_stdout():
    terminal, its_end = pty.openpty()
    ran = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=its_end, check=True)
    os.close(its_end)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert ran.stdout.decode().splitlines() == ["result 0", "result 1", "result 2"]
    assert "working" in shown
    assert "result" not in shown


def test_without_a_terminal_no_bar_is_drawn():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True)
    assert ran.stdout.splitlines() == ["result 0", "result 1", "result 2"]
    assert ran.stderr == ""
