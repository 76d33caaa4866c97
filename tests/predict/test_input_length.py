"""Inputs longer than a model are refused with one line."""

from __future__ import annotations

import pytest

from regard.errors import InputError
from regard.predict.input_length import check_fits


def test_input_of_the_maximum_length_fits() -> None:
    check_fits(512, 512)


def test_longer_input_is_refused_by_name_with_both_lengths() -> None:
    message = "^the context has 1,025 tokens; this model takes at most 1,024; cut it$"
    with pytest.raises(InputError, match=message):
        check_fits(1025, 1024, text="the context", fix="cut it")
