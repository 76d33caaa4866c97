"""Imports of inference: using a model loads nothing of training."""

from __future__ import annotations

import subprocess
import sys


def test_inference_does_not_import_training() -> None:
    script = "import regard, sys; regard.load; print(*[name for name in sys.modules if 'regard.training' in name])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
