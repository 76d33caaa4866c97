"""A teacher's translations of source texts, as the pairs that a student learns from (Kim and Rush 2016).

    distilled/chunks/00000000.jsonl    while it translates: the translations of so many texts, written whole
    distilled/train.jsonl              in the end: all usable ones, as {"source", "target"}
    distilled/train.en-fr.jsonl, ...   the same by direction, where the teacher has several
    distilled/left-out.jsonl           the others, with the problem of each

A chunk begins with the checksum of its lines; a damaged one is translated again. distillation.py calls this, and knows
which texts there are and with which settings they are translated.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from regard.disk import check_checksum, compute_checksum, json_text, remove_temporary_directories, write_atomically
from regard.disk import write_text as write_text_atomically
from regard.errors import CheckpointError
from regard.generate import DecodingConfig, Hypothesis
from regard.metrics import sentence_bleu
from regard.predict.translation import TranslationPredictor
from regard.text.sources import SourceExample

DISTILLED_FOLDER = "distilled"
"""The folder of a run directory that holds its teacher's translations."""

LEFT_OUT = "left out"
"""The key of the file of unusable translations, beside the directions."""

LENGTH_SLACK = 10
"""Tokens added to both sides before the ratio of their lengths is taken: two words may well be translated by eight."""

PROBLEMS = ("too long", "truncated", "empty", "length ratio")
"""Reasons to leave a translation out: the text does not fit the teacher, the translation reached the maximal length or
is blank, or its length and that of the text differ too much."""


class TeacherPair(NamedTuple):
    """A text with the teacher's translation of it, the problem for which it is left out, and its direction, if any."""

    source: str
    target: str
    problem: str = ""
    direction: str = ""

    def to_json(self) -> str:
        values = {key: value for key, value in self._asdict().items() if value or key in ("source", "target")}
        return f"{json_text(values)}\n"


def length_ratio(n_source: int, n_target: int) -> float:
    """Return the number of tokens of the longer side over that of the shorter one, each with some slack."""
    short, long = sorted((n_source + LENGTH_SLACK, n_target + LENGTH_SLACK))
    return long / short


def translate_chunk(
    predictor: TranslationPredictor,
    examples: Sequence[SourceExample],
    decoding: DecodingConfig,
    *,
    max_ratio: float,
    interpolate: bool,
) -> Iterator[TeacherPair]:
    """Yield every text with the teacher's translation: the best, or to `interpolate` that nearest to the reference."""
    limit = predictor.model.config.n_positions - 1 - len(predictor.special_tokens.prefix_ids)
    sources = predictor.encode_sources([each.text for each in examples], [each.direction for each in examples])
    searched = predictor.generate([ids for ids in sources if len(ids) <= limit], decoding)
    results = iter(searched)
    for example, ids in zip(examples, sources, strict=True):
        if len(ids) > limit:
            yield TeacherPair(example.text, "", "too long", example.direction)
            continue
        pairs = [judge_translation(predictor, example, ids, each, max_ratio) for each in next(results)]
        usable = [pair for pair in pairs if not pair.problem] or pairs[:1]
        yield max(usable, key=lambda pair: sentence_bleu(pair.target, example.reference)) if interpolate else usable[0]


def judge_translation(
    predictor: TranslationPredictor,
    example: SourceExample,
    source_ids: Sequence[int],
    hypothesis: Hypothesis,
    max_ratio: float,
) -> TeacherPair:
    """Return a text and one translation of it, with its problem, if any."""
    target = predictor.tokenizers.target.decode(hypothesis.ids)
    problem = ""
    if hypothesis.is_truncated:
        problem = "truncated"
    elif not target.strip():
        problem = "empty"
    elif length_ratio(len(source_ids), len(hypothesis.ids) - 1) > max_ratio:
        problem = "length ratio"
    return TeacherPair(example.text, target, problem, example.direction)


class TranslationFiles:
    """The files of a teacher's translations in a run directory."""

    def __init__(self, run_path: Path, directions: Sequence[str] = ()) -> None:
        self.folder = run_path / DISTILLED_FOLDER
        names = [f"train.{each}.jsonl" for each in directions] or ["train.jsonl"]
        self.train_paths = {each: self.folder / name for each, name in zip(directions or [""], names, strict=True)}
        self.left_out_path = self.folder / "left-out.jsonl"
        self._chunks = self.folder / "chunks"

    def prepare(self) -> None:
        """Create the folders, and remove what killed processes left half written; only with the lock of the run."""
        self._chunks.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, self._chunks):
            remove_temporary_directories(folder)

    def _chunk_path(self, number: int) -> Path:
        return self._chunks / f"{number:08d}.jsonl"

    def write_chunk(self, number: int, pairs: Sequence[TeacherPair]) -> None:
        """Write a chunk, whole or not at all."""
        lines = "".join(pair.to_json() for pair in pairs)
        header = {"pairs": len(pairs), "checksum": compute_checksum([lines.encode()])}
        write_text_atomically(self._chunk_path(number), f"{json_text(header)}\n{lines}")

    def read_chunk(self, number: int) -> list[TeacherPair]:
        """Return the pairs of a chunk; a damaged or missing one is an error."""
        path = self._chunk_path(number)
        try:
            header, _, lines = path.read_bytes().partition(b"\n")
            check_checksum(path, [lines], str(json.loads(header)["checksum"]))
            values = [json.loads(line) for line in lines.splitlines()]
        except (FileNotFoundError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"{path}: damaged or missing ({error}); run the command again") from None
        return [TeacherPair(**each) for each in values]

    def has_chunk(self, number: int) -> bool:
        """Return True if a chunk is there, undamaged."""
        try:
            self.read_chunk(number)
        except CheckpointError:
            return False
        return True

    def merge_chunks(self, n_chunks: int) -> Counter[str]:
        """Write the usable translations of all chunks to one file and the others to another; return their counts."""
        counts = Counter(pair.problem or "usable" for number in range(n_chunks) for pair in self.read_chunk(number))
        left_out = {LEFT_OUT: self.left_out_path} if counts.total() > counts["usable"] else {}
        self._write_pairs(n_chunks, [*left_out.items(), *self.train_paths.items()], {})
        return counts

    def _write_pairs(self, n_chunks: int, paths: Sequence[tuple[str, Path]], files: Mapping[str, TextIO]) -> None:
        """Write the pairs of all chunks to their files, once all are open; each appears whole or not at all."""
        if not paths:
            for number in range(n_chunks):
                for pair in self.read_chunk(number):
                    files[LEFT_OUT if pair.problem else pair.direction].write(pair.to_json())
            return
        (key, path), *others = paths

        def write(temporary_path: Path) -> None:
            with temporary_path.open("w", encoding="utf-8") as file:
                self._write_pairs(n_chunks, others, {**files, key: file})

        write_atomically(path, write)

    def remove_chunks(self) -> None:
        """Remove the chunks, which the merged files replace."""
        shutil.rmtree(self._chunks, ignore_errors=True)


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return one line on the translations: how many are usable, and how many were left out for which reason."""
    names = {"duplicates": "duplicates", "blank": "blank"} | {problem: problem for problem in PROBLEMS}
    left_out = [f"{counts[key]:,} {name}" for key, name in names.items() if counts.get(key)]
    return f"{counts.get('usable', 0):,} of {counts['texts']:,} texts" + (
        f"; left out: {', '.join(left_out)}" if left_out else ""
    )
