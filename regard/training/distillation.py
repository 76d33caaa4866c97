"""Sequence-level knowledge distillation (Kim and Rush 2016): a teacher translates the texts that a student learns from.

    distillation.json     what is translated, by which teacher and how; in the end also the counts
    distilled/            the translations: teacher_translations.py
    config.toml, ...      the student's run, an ordinary one, begun once all texts are translated

All is a function of the texts, the teacher and the settings, so a command that was killed goes on to the same files.
`regard.distill` (api/distillation.py) calls this, and prepares the student's run afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch

from regard import config
from regard.data.corpus_statistics import collect_statistics
from regard.data.duplicates import TextHashSet
from regard.disk import read_json_with_checksum, write_json_with_checksum
from regard.errors import CheckpointError, ConfigError, DataError
from regard.generate import DecodingConfig
from regard.generate.config import BEAM_WIDTHS
from regard.predict.translation import TranslationPredictor
from regard.progress import print_message, progress_bar, warn
from regard.ranges import Range, check_option, check_options
from regard.runs.model_loading import digest_model_files
from regard.runs.ready_made import locate_model
from regard.runs.run_directory import RunDirectory
from regard.text.files import file_format
from regard.text.fingerprints import fingerprint_files
from regard.text.languages import ONE_WAY, parse_direction
from regard.text.sources import SourceExample, read_sources, source_paths
from regard.training.teacher_translations import TranslationFiles, describe_counts, translate_chunk
from regard.training.thread_count import use_threads

MANIFEST_FILE = "distillation.json"

MAX_RATIOS = Range(1.0, 1000.0, excludes="least")
BATCHES_PER_CHUNK = 32
"""Batches of a chunk, whose texts are sorted by length: what is lost at most when the command is killed."""

MANY_LEFT_OUT = 0.1
"""The fraction of texts without a usable translation from which on a warning says so."""

DEFAULT_BATCH = {"cpu": 32, "cuda": 256}
"""Texts translated at a time, by the kind of device."""


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """The texts and how the teacher translates them.

    With `pairs` the texts are those of pairs, whose references the student also learns (`references`), or of which the
    nearest hypothesis is taken (`interpolate`). Translations are left out if the lengths of both sides have a ratio
    over `max_ratio`. `directions` are those of a teacher of several that the texts are translated in.
    """

    texts: tuple[str, ...]
    columns: tuple[str, ...] = ()
    pairs: bool = False
    references: bool = False
    interpolate: bool = False
    skip_empty: bool = False
    directions: tuple[str, ...] = ()
    beam: int | None = None
    alpha: float = DecodingConfig.alpha
    batch: int | None = None
    max_ratio: Annotated[float, MAX_RATIOS] = 3.0
    precision: str = "auto"

    def __post_init__(self) -> None:
        check_options(self)
        if self.interpolate and self.beam == 1:
            raise ConfigError("interpolate chooses among the hypotheses of a beam; give --beam 2 or more")
        self.decoding_config(1)

    @property
    def reads_pairs(self) -> bool:
        return self.pairs or self.references or self.interpolate

    def decoding_config(self, batch: int) -> DecodingConfig:
        """Return the search: the best translation, or all that `interpolate` chooses from."""
        beam = DecodingConfig(beam=self.beam).beam_width
        check_option("beam", beam, BEAM_WIDTHS)
        n_best = beam if self.interpolate else 1
        return DecodingConfig(beam=beam, alpha=self.alpha, batch=batch, n_best=n_best)

    def paths(self) -> list[Path]:
        """Return the files of the texts, all of which can be read."""
        return source_paths(self.texts, pairs=self.reads_pairs)

    def read(self) -> Iterator[SourceExample]:
        """Yield the texts, with their references where there are any."""
        return read_sources(
            self.texts,
            self.columns,
            pairs=self.reads_pairs,
            skip_empty=self.skip_empty,
            directions=self.directions,
        )


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    """The description of the translations in a directory; `counts` is empty until all are there."""

    teacher: str
    teacher_digest: str
    texts_fingerprint: str
    settings: dict[str, Any]
    batch: int
    threads: int
    device: str
    n_texts: int
    counts: dict[str, int]


class Distillation:
    """The translation of texts by a teacher into a run directory, which its caller holds the lock of."""

    def __init__(self, run: RunDirectory, teacher: str, distillation_config: DistillationConfig) -> None:
        self.run, self.teacher, self.config = run, teacher, distillation_config
        self.files = TranslationFiles(run.path, distillation_config.directions)
        self._manifest_path = run.path / MANIFEST_FILE
        self._manifest = self._read_manifest()

    @property
    def is_begun(self) -> bool:
        """True if it is noted what is to be translated."""
        return self._manifest is not None

    @property
    def is_complete(self) -> bool:
        """True if all texts are translated."""
        return self._manifest is not None and bool(self._manifest.counts)

    def check_directory(self, *, resume: bool) -> None:
        """Refuse a directory that is in use, or whose translations are not those that are asked for now."""
        path = self.run.path
        if self._manifest is None and self.run.exists():
            problem = f"{path}: already holds a run, whose student was not distilled"
            raise ConfigError(f"{problem}; choose another --out" + ("" if not resume else ", or go on by regard train"))
        if self._manifest is None:
            if resume:
                warn(f"{path}: nothing to resume; a new distillation begins")
            return
        if not resume:
            problem = f"{path}: already holds a distillation"
            raise ConfigError(f"{problem}; pass --resume to go on with it, or choose another --out")
        self._check_settings(self._manifest)

    def _check_settings(self, manifest: _Manifest) -> None:
        """Refuse other texts or another search than those that the directory was begun with."""
        for key, value in self._settings().items():
            if key == "batch" and value is None:
                continue
            before = manifest.settings.get(key, [] if key == "directions" else None)
            if before != value:
                now, then = (" ".join(each) if isinstance(each, list) else each for each in (value, before))
                problem = f"{key.replace('_', '-')} = {now}, but this distillation began with {then}"
                raise ConfigError(f"{self.run.path}: {problem}; give that again, or choose another --out")

    def _settings(self) -> dict[str, Any]:
        """Return the settings as JSON has them."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self.config).items()}

    def begin(self, device: torch.device) -> None:
        """Read all texts once, which raises every error in them, and note what is to be translated."""
        paths = self.config.paths()
        sizes = {path: path.stat().st_size for path in paths if file_format(path) != "parquet"}
        texts = ((example.text,) for example in self.config.read())
        statistics = collect_statistics(texts, sizes if len(sizes) == len(set(paths)) else None)
        if statistics.n_words == 0:
            raise DataError(paths[0], "no text; give one text per line")
        threads = torch.get_num_threads() if device.type == "cpu" else 0
        manifest = _Manifest(
            teacher=self.teacher,
            teacher_digest=digest_model_files(locate_model(self.teacher)),
            texts_fingerprint=fingerprint_files(paths),
            settings=self._settings(),
            batch=self.config.batch or DEFAULT_BATCH.get(device.type, DEFAULT_BATCH["cpu"]),
            threads=threads,
            device=device.type,
            n_texts=statistics.n_examples,
            counts={},
        )
        self._write_manifest(manifest)

    def translate(self, teacher: TranslationPredictor, device: torch.device) -> None:
        """Translate the texts that are not translated yet, and merge all translations."""
        manifest = self._manifest
        assert manifest is not None, "begin comes first"
        self._check_unchanged(manifest, device)
        self.files.prepare()
        counts: Counter[str] = Counter()
        n_chunks = 0
        decoding = self.config.decoding_config(manifest.batch)
        with use_threads(manifest.threads), progress_bar("translating", manifest.n_texts) as bar:
            for number, examples in enumerate(self._iterate_chunks(manifest, counts)):
                if not self.files.has_chunk(number):
                    pairs = translate_chunk(
                        teacher,
                        examples,
                        decoding,
                        max_ratio=self.config.max_ratio,
                        interpolate=self.config.interpolate,
                    )
                    self.files.write_chunk(number, list(pairs))
                n_chunks = number + 1
                bar.set_done(counts["texts"])
        self._finish(manifest, dict(counts + self.files.merge_chunks(n_chunks)))

    def _check_unchanged(self, manifest: _Manifest, device: torch.device) -> None:
        """Refuse to mix translations of other texts, or by another teacher."""
        if manifest.texts_fingerprint != fingerprint_files(self.config.paths()):
            raise CheckpointError(f"{self.run.path}: the texts changed since this began; choose another --out")
        if manifest.teacher_digest != digest_model_files(locate_model(self.teacher)):
            problem = f"{self.run.path}: {self.teacher} is not the teacher, or not as it was, when this began"
            raise CheckpointError(f"{problem}; name that one, or choose another --out")
        if manifest.device != device.type:
            warn(f"texts were translated on {manifest.device} before, now on {device.type}: other bits may come out")

    def _iterate_chunks(self, manifest: _Manifest, counts: Counter[str]) -> Iterator[list[SourceExample]]:
        """Yield the texts without blank ones and duplicates, so many at a time; count them all on the way."""
        distinct = self._iterate_distinct(manifest, counts)
        while chunk := list(islice(distinct, BATCHES_PER_CHUNK * manifest.batch)):
            yield chunk

    def _iterate_distinct(self, manifest: _Manifest, counts: Counter[str]) -> Iterator[SourceExample]:
        seen = TextHashSet(self.run.path, manifest.n_texts)
        for example in self.config.read():
            counts["texts"] += 1
            key = "\t".join(example if self.config.interpolate else (example.text, example.direction))
            if not example.text.strip():
                counts["blank"] += 1
            elif seen.add(key):
                yield example
            else:
                counts["duplicates"] += 1

    def _finish(self, manifest: _Manifest, counts: dict[str, int]) -> None:
        """Note the counts, which completes the translations, and print them."""
        if not counts.get("usable"):
            raise DataError(self.config.paths()[0], f"the teacher translates nothing usably: {describe_counts(counts)}")
        self._write_manifest(_Manifest(**{**vars(manifest), "counts": counts}))
        self.files.remove_chunks()
        print_message(f"distilled  {describe_counts(counts)}")
        n_distinct = counts["texts"] - counts.get("blank", 0) - counts.get("duplicates", 0)
        if counts["usable"] < (1 - MANY_LEFT_OUT) * n_distinct:
            warn(f"much is left out: is this teacher for such texts? see {self.files.left_out_path}")

    def clean_up(self) -> None:
        """Remove what a process that was killed at the end of the translations left behind."""
        self.files.remove_chunks()

    def _read_manifest(self) -> _Manifest | None:
        values = read_json_with_checksum(self._manifest_path)
        if not values:
            return None
        if values.keys() != {field.name for field in fields(_Manifest)}:
            raise CheckpointError(f"{self._manifest_path}: not of a distillation; choose another --out")
        return _Manifest(**values)

    def _write_manifest(self, manifest: _Manifest) -> None:
        write_json_with_checksum(self._manifest_path, asdict(manifest))
        self._manifest = manifest


def make_student_recipe(
    tables: config.Tables, distillation: Distillation, languages: dict[str, str], default_preset: str
) -> config.Tables:
    """Return a student's recipe with its data and, unless it has them, the teacher's vocabulary and a preset."""
    settings, model = distillation.config, tables.get("model", {})
    columns = tuple(settings.columns)
    task = {"name": "translate", **{key: value for key, value in languages.items() if value}, **tables.get("task", {})}
    data: config.Table = {"train": tuple(_train_entries(distillation.files, has_columns=bool(columns)))}
    if settings.references:
        data["train"] += settings.texts
    if columns:
        data["columns"] = columns
    if settings.skip_empty:
        data["skip_empty"] = True
    takes_vocabulary = not tables.get("tokenizer") and not model.get("start")
    has_preset = bool(model.keys() & {"preset", "start"}) or model.get("architecture", "transformer") != "transformer"
    return {
        **tables,
        "task": task,
        "data": {**data, **tables.get("data", {})},
        "tokenizer": {"start": distillation.teacher} if takes_vocabulary else tables.get("tokenizer", {}),
        "model": model if has_preset else {"preset": default_preset, **model},
    }


def _train_entries(files: TranslationFiles, *, has_columns: bool) -> Iterator[str]:
    """Yield the entries of the translations: with the columns of each language where there are several directions."""
    for direction, path in files.train_paths.items():
        if direction:
            source, target = parse_direction(direction)
            yield f"{path}:{source}=source{ONE_WAY}{target}=target"
        else:
            yield f"{path}:source,target" if has_columns else str(path)
