"""The caption over a figure: the text, the prediction, or the number of texts.

a man is asleep                 one line for each text, shortened where it is long
/ somebody sleeps               a second text
→ cosine 0.6145                 what the model made of it: a translation, a class, a word, a cosine
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from unicodedata import east_asian_width

CAPTION_CHARACTERS_PER_INCH = 12.5
"""Characters of a caption per inch."""

CAPTION_LINE_HEIGHT = 0.19
"""Inches per line."""

MAX_TEXT_LINES = 2
"""Lines of one text, at most."""

ELLIPSIS = " …"
"""The end of a shortened text."""

CAPTION_TEMPLATES = {
    ("text",): "{}",
    ("pair",): "/ {}",
    ("target",): "→ {}",
    ("prediction",): "→ {}",
    ("word", "occurrences"): "“{}” occurs {:,} times",
    ("texts", "k"): "{:,} texts in {:,} clusters",
    ("map_share",): "the map shows {:.0%} of the variance",
}
"""The templates of the facts that a caption shows."""


def build_caption(about: Mapping[str, object], width: float) -> list[str]:
    """Return the caption lines of a figure `width` inches wide."""
    parts = [
        form.format(*map(about.get, facts)) for facts, form in CAPTION_TEMPLATES.items() if about.keys() >= set(facts)
    ]
    return [line for text in parts for line in _wrap_text(text, max(20, int(CAPTION_CHARACTERS_PER_INCH * width)))]


def _wrap_text(text: str, n_characters: int) -> list[str]:
    """Wrap a text, counting East Asian characters twice; a text that is too long ends in dots."""
    line = " ".join(text.split())
    wide = sum(east_asian_width(letter) in "WF" for letter in line) / max(1, len(line))
    width = int(n_characters / (1 + wide))
    lines = textwrap.wrap(line, width, break_on_hyphens=False)
    if len(lines) <= MAX_TEXT_LINES:
        return lines
    # Not `max_lines`: it would drop a last line without spaces and leave only the dots.
    last = textwrap.wrap(lines[MAX_TEXT_LINES - 1], width - len(ELLIPSIS), break_on_hyphens=False)[0]
    return [*lines[: MAX_TEXT_LINES - 1], last + ELLIPSIS]
