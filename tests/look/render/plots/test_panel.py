"""What panels of figures share."""

from __future__ import annotations

import pytest

from regard.look.render.plots.panel import truncate


@pytest.mark.parametrize(
    ("text", "max_length", "shown"), [("four", 4, "four"), ("fives", 4, "fiv…"), ("", 4, ""), ("four", 3, "fo…")]
)
def test_truncated_text_is_never_longer_than_it_may_be(text: str, max_length: int, shown: str) -> None:
    assert truncate(text, max_length) == shown
