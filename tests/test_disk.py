"""Write errors of the operating system become one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.disk import convert_write_errors
from regard.errors import InputError, TrainingError


def test_write_error_names_path_cause_and_fix() -> None:
    message = r"^out: cannot be written \(No space left on device\); make room, or choose another path$"
    with pytest.raises(InputError, match=message), convert_write_errors(Path("out")):
        raise OSError(28, "No space left on device")


def test_write_error_has_the_given_type_and_fix() -> None:
    with (
        pytest.raises(TrainingError, match=r"^out: cannot be written \(broken\); try again$"),
        convert_write_errors(Path("out"), fix="try again", error_type=TrainingError),
    ):
        raise OSError("broken")


def test_other_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="other"), convert_write_errors(Path("out")):
        raise ValueError("other")
