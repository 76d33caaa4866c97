"""Readers of translation pairs: of one direction, or rows of texts in several languages. The task makes these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.corpus import Example, ExampleReader
from regard.text.languages import Direction
from regard.text.multilingual import read_multilingual_rows
from regard.text.pairs import group_pair_files, pair_paths, read_pairs


class PairReader(ExampleReader):
    """Reader of parallel texts."""

    unit = "pairs"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return pair_paths(data)

    def group_sources(self, data: Sequence[str]) -> list[list[str]]:
        """Return tables alone and files of lines in pairs."""
        return group_pair_files(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return read_pairs(data, columns, skip_empty=skip_empty)


class MultilingualReader(PairReader):
    """Reader of parallel texts in several languages: an example is a row of them, the tag of its languages last."""

    unit = "rows"

    def __init__(self, default: Direction | None) -> None:
        self._default = default

    def read_examples(  # type: ignore[override]
        self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool
    ) -> Iterator[Example]:
        return read_multilingual_rows(data, columns, self._default, skip_empty=skip_empty)
