"""What a figure is of, in words over it: the text, what the model made of it, or how many texts there are.

a man is asleep                 one line for each text, shortened where it is long
/ somebody sleeps               a second text
→ cosine 0.6145                 what the model made of it: a translation, a class, a word, a cosine
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from unicodedata import east_asian_width

CAPTION_CHARACTERS_PER_INCH = 12.5
"""Letters of a caption on an inch."""

CAPTION_LINE_HEIGHT = 0.19
"""Inches of a line."""

MAX_TEXT_LINES = 2
"""Lines of one text; what does not fit is left out."""

ELLIPSIS = " …"
"""After a text of which something is left out."""

CAPTION_TEMPLATES = {
    ("text",): "{}",
    ("pair",): "/ {}",
    ("target",): "→ {}",
    ("said",): "→ {}",
    ("word", "occurrences"): "“{}” occurs {:,} times",
    ("texts", "k"): "{:,} texts in {:,} clusters",
    ("map_share",): "the map shows {:.0%} of how they differ",
}
"""How the facts about a sheet are said; others are not."""


def build_caption(about: Mapping[str, object], width: float) -> list[str]:
    """The lines over a figure of so many inches."""
    said = [
        form.format(*map(about.get, facts)) for facts, form in CAPTION_TEMPLATES.items() if about.keys() >= set(facts)
    ]
    return [line for text in said for line in _wrap_text(text, max(20, int(CAPTION_CHARACTERS_PER_INCH * width)))]


def _wrap_text(text: str, n_characters: int) -> list[str]:
    """A text in lines of so many letters, of which Chinese ones are twice as wide; what is too long ends in dots."""
    line = " ".join(text.split())
    wide = sum(east_asian_width(letter) in "WF" for letter in line) / max(1, len(line))
    width = int(n_characters / (1 + wide))
    lines = textwrap.wrap(line, width, break_on_hyphens=False)
    if len(lines) <= MAX_TEXT_LINES:
        return lines
    # Not by `max_lines`: of a last line without blanks that leaves nothing but the dots.
    last = textwrap.wrap(lines[MAX_TEXT_LINES - 1], width - len(ELLIPSIS), break_on_hyphens=False)[0]
    return [*lines[: MAX_TEXT_LINES - 1], last + ELLIPSIS]
