"""Distillation: a student learns what its teacher says; a command killed at any moment goes on to the same files."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import Ended, Forks
from tiny_runs import (
    CPU,
    EIGHT,
    TINY,
    TO_LEARN,
    contents,
    digits,
    learned,
    merged,
    recipe,
    trained,
    write_pairs,
    written,
)

from regard import config
from regard.api import Translator, distill
from regard.disk import write_json_with_checksum
from regard.errors import CheckpointError, ConfigError, DataError, RegardError
from regard.generate import make_hypothesis
from regard.runs.run_directory import RunDirectory
from regard.text.sources import SourceExample
from regard.training.distillation import Distillation, DistillationConfig
from regard.training.teacher_translations import (
    TeacherPair,
    TranslationFiles,
    describe_counts,
    judge_translation,
    length_ratio,
    translate_chunk,
)

SOURCES = [source for source, _ in EIGHT]
STUDENT: config.Tables = {name: table for name, table in TINY.items() if name in ("task", "model", "train")}
KILLED: config.Tables = merged(STUDENT, {"train": {"steps": 2, "validate_every": 2, "save_every": 1}})
"""The recipe of a student: without data and vocabulary."""


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator that knows the reversal of eight strings of digits."""
    return learned(tmp_path_factory.mktemp("teacher"))


def write_lines(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def distilled_files(out: Path) -> dict[str, Any]:
    """Return what equal distillations share: the student, the translations, what is noted of them."""
    files = {path.name: path.read_bytes() for path in out.glob("distilled/**/*") if path.is_file()}
    left = {str(path) for pattern in (".lock", "*.partial", "chunks") for path in out.rglob(pattern)}
    return {**contents(out), **files, "manifest": (out / "distillation.json").read_bytes(), "left": left}


def test_student_learns_what_its_teacher_says(teacher: Path, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text", SOURCES)
    valid = write_pairs(tmp_path, "valid", EIGHT)
    run = distill(
        teacher, text, out=tmp_path / "run", recipe=merged(STUDENT, TO_LEARN), valid=valid, beam=2, device="cpu"
    )
    assert [(each["source"], each["target"]) for each in read_jsonl(tmp_path / "run/distilled/train.jsonl")] == EIGHT
    student = Translator.load(run.path, device="cpu")
    assert [best[0].text for best in student.translate(SOURCES)] == [target for _, target in EIGHT]
    assert student.info()["distilled_from"] == str(teacher)
    assert student.config.tokenizer.start == str(teacher)
    assert (run.path / "tokenizer.json").read_bytes() == (teacher / "tokenizer.json").read_bytes()


def test_teacher_is_believed_not_the_references(teacher: Path, tmp_path: Path) -> None:
    wrong = write_pairs(tmp_path, "wrong", [(source, "0 0 0") for source in SOURCES])
    options: dict[str, Any] = {"recipe": STUDENT, "valid": wrong, "device": "cpu"}
    distill(teacher, wrong, out=tmp_path / "sources", pairs=True, **options)
    assert [each["target"] for each in read_jsonl(tmp_path / "sources/distilled/train.jsonl")] == [t for _, t in EIGHT]
    both = distill(teacher, wrong, out=tmp_path / "both", references=True, **options)
    assert len(both.prepared.train_store) == 2 * len(EIGHT)
    examples = {both.prepared.task.example_text(both.prepared.train_store, i) for i in range(2 * len(EIGHT))}
    assert examples == {f"{s}\t{t}" for s, t in EIGHT} | {f"{s}\t0 0 0" for s in SOURCES}


def test_interpolation_takes_the_hypothesis_nearest_to_the_reference(teacher: Path, tmp_path: Path) -> None:
    n_best = Translator.load(teacher, device="cpu").translate(SOURCES[0], n_best=4)
    other = next(each.text for each in n_best[1:] if len(each.tokens) < 20)
    assert other != EIGHT[0][1]
    pairs = write_pairs(tmp_path, "pairs", [(SOURCES[0], other), *EIGHT[1:]])
    distill(teacher, pairs, out=tmp_path / "run", recipe=STUDENT, interpolate=True, valid=pairs, device="cpu")
    assert [each["target"] for each in read_jsonl(tmp_path / "run/distilled/train.jsonl")] == [
        other,
        *(target for _, target in EIGHT[1:]),
    ]
    assert json.loads((tmp_path / "run/distillation.json").read_text())["settings"]["interpolate"]


def test_blank_texts_duplicates_and_texts_too_long_are_counted(
    teacher: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A text is in the student's data once, however often it occurs, and in the order of its first occurrence."""
    text = write_lines(tmp_path / "text", [*SOURCES[:5], "", "7 " * 40, *SOURCES, " "])
    distill(teacher, text, out=tmp_path / "run", recipe=STUDENT, valid=write_pairs(tmp_path, "v", EIGHT), device="cpu")
    pairs = read_jsonl(tmp_path / "run/distilled/train.jsonl")
    assert [(each["source"], each["target"]) for each in pairs] == EIGHT
    left_out = read_jsonl(tmp_path / "run/distilled/left-out.jsonl")
    assert left_out == [{"source": "7 " * 40, "target": "", "problem": "too long"}]
    counts = json.loads((tmp_path / "run/distillation.json").read_text())["counts"]
    assert counts == {"texts": 16, "usable": 8, "blank": 2, "duplicates": 5, "too long": 1}
    line = "distilled  8 of 16 texts; left out: 5 duplicates, 2 blank, 1 too long"
    assert line in capfd.readouterr().err.splitlines()


def test_problem_of_a_translation(teacher: Path) -> None:
    predictor = Translator.load(teacher, device="cpu").predictor
    encode = predictor.tokenizers.target.encode

    def problem(text: str, *, n_source: int = 12, is_truncated: bool = False) -> str:
        ids = [*encode(text), predictor.special_tokens.eos_id]
        hypothesis = make_hypothesis(ids, [0.0] * len(ids), 0.6, is_truncated=is_truncated)
        return judge_translation(predictor, SourceExample("x"), [5] * n_source, hypothesis, 3.0).problem

    assert problem("1 2 3") == ""
    assert problem("1 2 3", is_truncated=True) == "truncated"
    assert problem("") == "empty"
    assert problem("1 2 3", n_source=60) == "length ratio"
    assert problem("1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9", n_source=1) == "length ratio"


def test_length_ratio_is_lenient_with_short_texts() -> None:
    assert length_ratio(2, 8) == length_ratio(8, 2) == 1.5
    assert length_ratio(20, 20) == 1.0
    assert length_ratio(100, 20) == pytest.approx(110 / 30)


def test_best_hypothesis_is_taken_also_where_it_is_nearest_to_the_reference(teacher: Path) -> None:
    predictor = Translator.load(teacher, device="cpu").predictor
    decoding = DistillationConfig(texts=("x",), beam=4, interpolate=True).decoding_config(4)
    examples = [SourceExample(source, target) for source, target in EIGHT]
    for interpolate in (True, False):
        pairs = list(translate_chunk(predictor, examples, decoding, max_ratio=3.0, interpolate=interpolate))
        assert [(pair.source, pair.target, pair.problem) for pair in pairs] == [(s, t, "") for s, t in EIGHT]


def test_counts_in_one_line() -> None:
    counts = {"texts": 2000, "usable": 1990, "truncated": 4, "length ratio": 6}
    assert describe_counts(counts) == "1,990 of 2,000 texts; left out: 4 truncated, 6 length ratio"
    assert describe_counts({"texts": 1, "usable": 1}) == "1 of 1 texts"


class Killable:
    """A distillation of forty texts in two chunks by a command, always into the same directory."""

    def __init__(self, forks: Forks, teacher: Path, folder: Path) -> None:
        self.forks, self.out = forks, folder / "run"
        text = write_lines(folder / "text", [source for source, _ in digits(40, seed=9)])
        valid = write_pairs(folder, "valid", EIGHT[:2])
        student = written(folder, KILLED)
        self.command = ["distill", teacher, text, "--recipe", student, "--batch", 1, "--beam", 1, "--max-ratio", 999]
        self.command += ["--valid", valid[0], "--valid", valid[1], "--device", "cpu", "--out", self.out]

    def run(self, *arguments: object, **order: object) -> Ended:
        return self.forks.run(*self.command, *arguments, **order)

    def expected(self) -> dict[str, Any]:
        """Return the files of a distillation that is never killed."""
        ended = self.run()
        assert ended.status == 0, ended.err
        files = distilled_files(self.out)
        assert files["left"] == set()
        shutil.rmtree(self.out)
        return files


def test_killed_at_a_change_of_a_file(forks: Forks, teacher: Path, tmp_path: Path) -> None:
    """From the first file to the first of the student's checkpoints, every fourth one."""
    killable = Killable(forks, teacher, tmp_path)
    whole = killable.expected()
    phases = set()
    for moment in count(5, 4):
        killed = killable.run(kill_at=moment, within=killable.out)
        assert killed.status == -signal.SIGKILL, killed.err
        n_chunks = len(list(killable.out.glob("distilled/chunks/*.jsonl")))
        begun = RunDirectory(killable.out).exists()
        phases.add("training" if begun else "merged" if (killable.out / "distilled/train.jsonl").exists() else n_chunks)
        ended = killable.run("--resume")
        assert ended.status == 0, f"killed before change {moment}: {ended.err}"
        assert distilled_files(killable.out) == whole, f"killed before change {moment}"
        shutil.rmtree(killable.out)
        if begun:
            break
    assert phases >= {0, "merged", "training"}
    assert phases & {1, 2}


def test_killed_repeatedly_while_it_translates_and_trains(forks: Forks, teacher: Path, tmp_path: Path) -> None:
    killable = Killable(forks, teacher, tmp_path)
    whole = killable.expected()
    for times in count():
        ended = killable.run("--resume", kill_at=27, within=killable.out)
        if ended.status == 0:
            break
        assert ended.status == -signal.SIGKILL
        assert times < 12
    assert times > 1
    assert distilled_files(killable.out) == whole


def test_translated_chunk_is_kept_and_a_damaged_one_translated_again(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_lines(tmp_path / "text", [source for source, _ in digits(70, seed=9)])
    settings = DistillationConfig(texts=(text,), beam=1, batch=1, max_ratio=999.0)
    predictor = Translator.load(teacher, device="cpu").predictor
    whole, again = (Distillation(RunDirectory(tmp_path / name), str(teacher), settings) for name in ("a", "b"))
    monkeypatch.setattr(TranslationFiles, "remove_chunks", lambda _: None)
    for each in (whole, again):
        each.run.path.mkdir()
        each.begin(CPU)
    whole.translate(predictor, CPU)
    chunks = tmp_path / "a/distilled/chunks"
    shutil.copytree(chunks, tmp_path / "b/distilled/chunks")
    intact, damaged = (tmp_path / f"b/distilled/chunks/0000000{number}.jsonl" for number in (0, 1))
    before = intact.stat().st_mtime_ns, intact.stat().st_ino
    for change in (lambda held: held[:-9], lambda held: held.replace(b"source", b"sourcf", 1), lambda held: b"", None):
        if change is None:
            damaged.unlink()
        else:
            damaged.write_bytes(change(damaged.read_bytes()))
        again.translate(predictor, CPU)
        assert damaged.read_bytes() == (chunks / damaged.name).read_bytes()
        assert (tmp_path / "b/distilled/train.jsonl").read_bytes() == (whole.files.train_paths[""]).read_bytes()
    assert (intact.stat().st_mtime_ns, intact.stat().st_ino) == before


def test_chunk_that_vanishes_while_chunks_are_merged(tmp_path: Path) -> None:
    files = TranslationFiles(tmp_path)
    files.prepare()
    files.write_chunk(0, [TeacherPair("a", "b"), TeacherPair("c", "", "empty")])
    assert files.read_chunk(0) == [TeacherPair("a", "b"), TeacherPair("c", "", "empty")]
    assert dict(files.merge_chunks(1)) == {"usable": 1, "empty": 1}
    assert read_jsonl(files.train_paths[""]) == [{"source": "a", "target": "b"}]
    with pytest.raises(CheckpointError, match=r"00000001\.jsonl: damaged or missing"):
        files.merge_chunks(2)


def test_student_goes_on_as_an_ordinary_run(teacher: Path, tmp_path: Path) -> None:
    """Also where the teacher is gone, by either command; more steps may be asked for."""
    shutil.copytree(teacher, tmp_path / "teacher")
    text = write_lines(tmp_path / "text", SOURCES)
    valid = write_pairs(tmp_path, "valid", EIGHT)
    options: dict[str, Any] = {"out": tmp_path / "run", "recipe": STUDENT, "valid": valid, "device": "cpu"}
    distill(tmp_path / "teacher", text, **options).close()
    shutil.rmtree(tmp_path / "teacher")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run = distill(tmp_path / "teacher", text, resume=True, **options)
    assert run.path == tmp_path / "run"
    resumed = contents(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "copy").rename(tmp_path / "run")
    trained({"task": {"name": "translate"}}, tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == resumed
    longer = distill(tmp_path / "teacher", text, resume=True, overrides=["train.steps=8"], **options)
    assert list(longer)[-1].step == 8


def test_default_student_has_a_preset_and_languages_of_the_teacher(tmp_path: Path) -> None:
    tables = recipe(tmp_path, TO_LEARN, {"task": {"source_lang": "digits", "target_lang": "reversed"}})
    pairs = write_pairs(tmp_path, "eight", EIGHT)
    trained(merged(tables, {"data": {"train": pairs, "valid": pairs}}), tmp_path / "teacher")
    text = write_lines(tmp_path / "text", SOURCES)
    options: dict[str, Any] = {"valid": pairs, "device": "cpu", "overrides": ["train.steps=1"]}
    student = distill(tmp_path / "teacher", text, out=tmp_path / "b", **options).prepared.config
    assert (student.task.source_lang, student.task.target_lang) == ("digits", "reversed")
    assert (student.model.preset, student.model.n_layers, student.model.n_decoder_layers) == ("small-6+2", 6, 2)
    named = distill(tmp_path / "teacher", text, out=tmp_path / "c", preset="tiny", **options).prepared.config
    assert named.model.preset == "tiny"


class Refused:
    """Distillations that are refused, of eight texts by one teacher."""

    def __init__(self, teacher: Path, folder: Path) -> None:
        self.teacher, self.folder = teacher, folder
        self.text = write_lines(folder / "text", SOURCES)
        self.valid = write_pairs(folder, "valid", EIGHT)

    def __call__(self, text: str | list[str] = "", *, error: type[RegardError], **options: Any) -> str:
        given = {"out": self.folder / "run", "recipe": STUDENT, "valid": self.valid, "device": "cpu", **options}
        with pytest.raises(error) as raised:
            distill(given.pop("teacher", self.teacher), text or self.text, **given)
        return str(raised.value)


@pytest.fixture
def refused(teacher: Path, tmp_path: Path) -> Refused:
    return Refused(teacher, tmp_path)


def test_directory_in_use_is_refused(refused: Refused, tmp_path: Path) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    message = refused(error=ConfigError)
    assert message == (f"{tmp_path}/run: already holds a run, whose student was not distilled; choose another --out")
    assert refused(error=ConfigError, resume=True) == f"{message}, or go on by regard train"
    distill(
        refused.teacher, refused.text, out=tmp_path / "d", recipe=STUDENT, valid=refused.valid, device="cpu"
    ).close()
    assert refused(error=ConfigError, out=tmp_path / "d") == (
        f"{tmp_path}/d: already holds a distillation; pass --resume to go on with it, or choose another --out"
    )


@pytest.mark.parametrize("complete", [True, False], ids=["translated", "not translated"])
def test_other_settings_texts_or_teacher_are_refused(refused: Refused, tmp_path: Path, complete: bool) -> None:
    settings = DistillationConfig(texts=(refused.text,))
    if complete:
        options: dict[str, Any] = {"recipe": STUDENT, "valid": refused.valid, "device": "cpu"}
        distill(refused.teacher, refused.text, out=tmp_path / "run", **options).close()
    else:
        (tmp_path / "run").mkdir()
        Distillation(RunDirectory(tmp_path / "run"), str(refused.teacher), settings).begin(CPU)
    begun = "but this distillation began with"
    fix = "give that again, or choose another --out"
    assert refused(error=ConfigError, resume=True, beam=2) == f"{tmp_path}/run: beam = 2, {begun} None; {fix}"
    other = write_lines(tmp_path / "other", SOURCES)
    assert refused(other, error=ConfigError, resume=True) == (
        f"{tmp_path}/run: texts = {other}, {begun} {refused.text}; {fix}"
    )
    if complete:
        return
    write_lines(tmp_path / "text", SOURCES[::-1])
    assert refused(error=CheckpointError, resume=True) == (
        f"{tmp_path}/run: the texts changed since this began; choose another --out"
    )
    write_lines(tmp_path / "text", SOURCES)


def test_changed_teacher_is_refused(refused: Refused, tmp_path: Path) -> None:
    shutil.copytree(refused.teacher, tmp_path / "teacher")
    (tmp_path / "run").mkdir()
    settings = DistillationConfig(texts=(refused.text,))
    Distillation(RunDirectory(tmp_path / "run"), str(tmp_path / "teacher"), settings).begin(CPU)
    trained(recipe(tmp_path), tmp_path / "run2")
    shutil.copy(tmp_path / "run2/model.safetensors", tmp_path / "teacher")
    shutil.copy(tmp_path / "run2/config.toml", tmp_path / "teacher")
    shutil.copy(tmp_path / "run2/tokenizer.json", tmp_path / "teacher")
    message = refused(error=CheckpointError, resume=True, teacher=tmp_path / "teacher")
    assert message == (
        f"{tmp_path}/run: {tmp_path}/teacher is not the teacher, or not as it was, when this began; "
        "name that one, or choose another --out"
    )


def test_faults_are_refused_before_anything_is_written(refused: Refused, tmp_path: Path) -> None:
    no_lines, spaces = write_lines(tmp_path / "empty", []), write_lines(tmp_path / "blank", ["", " "])
    for text in (no_lines, spaces):
        assert refused(text, error=DataError) == f"{text}: no text; give one text per line"
    message = refused(error=ConfigError, recipe={"data": {"train": ["x"]}})
    assert message == "recipe: data.train of a student is given by TEXT; leave it out of the recipe"
    message = refused(error=ConfigError, recipe={"task": {"name": "lm"}})
    assert message == "recipe: task.name = 'lm'; a student translates, as its teacher does"
    message = refused(error=ConfigError, overrides=[f"tokenizer.start={refused.teacher}", "tokenizer.vocabulary=300"])
    assert message == (
        f"recipe: tokenizer.vocabulary = 300, but the vocabulary of tokenizer.start has 266 ({refused.teacher}); "
        "leave one of the two out"
    )
    assert "model.preset = 'smal'" in refused(error=ConfigError, recipe={}, preset="smal")
    assert "no such file" in refused(error=DataError, valid=["nowhere.a", "nowhere.b"])
    assert "max-ratio 0.5: expected more than 1" in refused(error=RegardError, max_ratio=0.5)
    assert "beam 0: expected" in refused(error=RegardError, beam=0)
    assert "interpolate chooses among" in refused(refused.valid, error=ConfigError, interpolate=True, beam=1)
    assert "two sides of pairs" in refused(
        [write_lines(tmp_path / "a.en", SOURCES), write_lines(tmp_path / "a.fr", SOURCES)], error=ConfigError
    )
    assert not (tmp_path / "run").exists()


def test_only_a_translator_can_teach(refused: Refused, tmp_path: Path) -> None:
    lm: config.Tables = {
        "task": {"name": "lm", "length": 16},
        "data": {"train": [refused.text]},
        "tokenizer": {"kind": "characters"},
        "model": {"preset": "tiny", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16},
        "train": {"steps": 1, "batch_tokens": 64},
    }
    trained(merged(lm, {"data": {"train": [write_lines(tmp_path / "long", SOURCES * 20)]}}), tmp_path / "lm")
    message = refused(error=RegardError, teacher=tmp_path / "lm")
    assert message == (f"{tmp_path}/lm: a LanguageModel, not a translator; name a model as the teacher that translates")
    assert not (tmp_path / "run").exists()


def test_manifest_of_something_else_is_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_json_with_checksum(tmp_path / "run/distillation.json", {"teacher": "x"})
    assert refused(error=CheckpointError, resume=True).endswith("not of a distillation; choose another --out")


def test_teacher_that_translates_nothing_usably_is_refused(refused: Refused, tmp_path: Path) -> None:
    long = write_lines(tmp_path / "long", ["7 " * 40, "8 " * 40])
    assert refused(long, error=DataError) == (
        f"{long}: the teacher translates nothing usably: 0 of 2 texts; left out: 2 too long"
    )


def test_number_of_threads_is_that_of_the_beginning(teacher: Path, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text", SOURCES)
    (tmp_path / "run").mkdir()
    distillation = Distillation(RunDirectory(tmp_path / "run"), str(teacher), DistillationConfig(texts=(text,)))
    distillation.begin(CPU)
    assert json.loads((tmp_path / "run/distillation.json").read_text())["threads"] == torch.get_num_threads()
