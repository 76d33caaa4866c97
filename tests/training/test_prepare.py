"""Preparation of a run from a recipe or none: chosen settings, token stores, held-out examples, resuming, errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import contents, digits, merged, ready, recipe, trained, write_pairs

from regard import config
from regard.data.corpus import Corpus
from regard.data.store import TokenStore
from regard.errors import CheckpointError, ConfigError, DataError, InputError, RegardError
from regard.models.weights import read_tensors, write_tensors
from regard.runs.run_directory import RunDirectory
from regard.tasks.translate import PairReader, TranslationTask
from regard.training.prepare import PreparedRun


def texts(prepared: PreparedRun, store: TokenStore, column: str = "source") -> list[str]:
    tokenizer = getattr(prepared.task.tokenizers, column)
    return [tokenizer.decode(store[column][i].tolist()) for i in range(len(store))]


def fault(tables: config.Tables, out: Path, kind: type[RegardError] = ConfigError, *, resume: bool = False) -> str:
    with pytest.raises(kind) as caught:
        ready(tables, out, resume=resume)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def minimal_recipe(folder: Path, n_pairs: int = 100) -> config.Tables:
    """A recipe with only a task and its files."""
    files = write_pairs(folder, "all", digits(n_pairs, seed=1))
    return {"task": {"name": "translate"}, "data": {"train": tuple(files)}}


def test_without_a_recipe_all_settings_are_chosen_saved_and_named(tmp_path: Path) -> None:
    prepared = ready(minimal_recipe(tmp_path), tmp_path / "run")
    settings = RunDirectory(tmp_path / "run").read_config()
    assert settings == prepared.config
    assert prepared.config.model.preset == "tiny"
    assert 259 < prepared.config.tokenizer.vocabulary <= 512
    assert prepared.config.data.max_length == 64
    assert prepared.chosen_settings["train.steps"] == prepared.config.train.steps
    assert prepared.chosen_settings.keys() > {
        "tokenizer.vocabulary",
        "model.d_model",
        "train.batch_tokens",
        "data.max_length",
    }
    assert not prepared.chosen_settings.keys() & {"task.name", "data.train"}


LABELLED = "".join(f"{text}\t{'even' if number % 2 else 'odd'}\n" for number, (text, _) in enumerate(digits(60)))
PLAIN = "\n\n".join(" ".join(source for source, _ in digits(20, seed=seed)) for seed in range(30))
TAGGED = "\n".join(f"{source[0]} A\n{source[2]} B\n" for source, _ in digits(60))
SAMPLE_TEXTS = {"lm": PLAIN, "pretrain": PLAIN, "classify": f"text\tlabel\n{LABELLED}", "tag": TAGGED}
"""Text for the tasks that read one file."""


def one_file(folder: Path, name: str, *changes: config.Tables) -> config.Tables:
    path = folder / ("text.tsv" if name == "classify" else "text.txt")
    path.write_text(SAMPLE_TEXTS[name])
    return merged({"task": {"name": name}, "data": {"train": [str(path)]}}, *changes)


@pytest.mark.parametrize(
    ("name", "model"),
    [*((name, {}) for name in SAMPLE_TEXTS), *((name, {"architecture": "rnn"}) for name in ("lm", "classify", "tag"))],
    ids=str,
)
def test_chosen_settings_are_all_that_differ_from_their_default(tmp_path: Path, name: str, model: config.Table) -> None:
    """Settings that the user did not give and that are not the documented defaults."""
    prepared = ready(one_file(tmp_path, name, {"model": model}), tmp_path / "run")
    tables = prepared.config.tables()
    kinds = {name: type(table) for name, table in vars(prepared.config).items()}
    given = {"task.name", "data.train", *(f"model.{key}" for key in model)}
    differing = {
        f"{name}.{key}": value
        for name, table in tables.items()
        for key, value in table.items()
        if key not in (known := config.defaults(kinds[name])) or known[key] != value
    }
    assert prepared.chosen_settings == {key: value for key, value in differing.items() if key not in given}
    assert prepared.chosen_settings.keys() >= {"train.schedule", "train.weight_decay", "train.average"}
    assert ("task.pooling" in prepared.chosen_settings) == (name == "classify" and bool(model))
    assert ("task.length" in prepared.chosen_settings) == (name == "lm")


@pytest.mark.parametrize("name", SAMPLE_TEXTS)
def test_intervals_follow_the_steps_of_the_recipe(tmp_path: Path, name: str) -> None:
    train = ready(one_file(tmp_path, name, {"train": {"steps": 10}}), tmp_path / "run").config.train
    assert (train.steps, train.validate_every, train.save_every, train.log_every) == (10, 10, 10, 1)
    assert train.warmup <= 5


@pytest.mark.parametrize("changes", [{}, {"tokenizer": {"joint": False, "vocabulary": 262}}], ids=["joint", "separate"])
def test_saved_recipe_reproduces_the_run(tmp_path: Path, changes: config.Tables) -> None:
    trained(recipe(tmp_path, changes), tmp_path / "run")
    trained(config.read(tmp_path / "run" / "config.toml"), tmp_path / "again")
    assert contents(tmp_path / "run") == contents(tmp_path / "again")


def test_failed_preparation_leaves_no_files(tmp_path: Path) -> None:
    """The error comes after tokenizer and stores are written: the batch is too small."""
    small = recipe(tmp_path, {"train": {"batch_tokens": 8}})
    with pytest.raises(ConfigError, match="is less than one row"):
        ready(small, tmp_path / "new" / "deep" / "run")
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine" / "pictures").mkdir(parents=True)
    (tmp_path / "mine" / "notes.txt").touch()
    for out in (tmp_path / "mine", tmp_path / "mine" / "run"):
        with pytest.raises(ConfigError, match="is less than one row"):
            ready(small, out)
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["notes.txt", "pictures"]


def test_resuming_without_a_run_warns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ready(recipe(tmp_path), tmp_path / "run", resume=True)
    assert f"{tmp_path / 'run'}: no run to resume; a new one begins" in capfd.readouterr().err


def test_chosen_recipe_resolves_to_itself(tmp_path: Path) -> None:
    first = ready(minimal_recipe(tmp_path), tmp_path / "run")
    again = ready(config.read(tmp_path / "run" / "config.toml"), tmp_path / "again")
    assert (tmp_path / "run" / "config.toml").read_bytes() == (tmp_path / "again" / "config.toml").read_bytes()
    assert again.config == first.config
    assert again.chosen_settings == {}


def test_held_out_examples_are_disjoint_from_training_and_stable(tmp_path: Path) -> None:
    pairs = digits(60, seed=2)
    files = write_pairs(tmp_path, "double", [*pairs, *((source, f"{target} again") for source, target in pairs)])
    tables = merged(recipe(tmp_path, n_valid=0), {"data": {"train": files}})
    one, two = (ready(tables, tmp_path / name) for name in ("one", "two"))
    train, valid = texts(one, one.train_store), texts(one, one.valid_store)
    assert len(train) + len(valid) == 120
    assert 6 <= len(valid) <= 8  # one in twenty; equal sources stay together, so a pair may come along
    assert not set(train) & set(valid)
    assert sorted({*train, *valid}) == sorted(source for source, _ in pairs)
    assert valid == texts(two, two.valid_store)
    assert train == texts(two, two.train_store)


def test_stores_hold_the_pairs_in_order(tmp_path: Path) -> None:
    prepared = ready(recipe(tmp_path), tmp_path / "run")
    pairs = digits(28)
    for store, expected in ((prepared.train_store, pairs[4:]), (prepared.valid_store, pairs[:4])):
        stored_pairs = zip(texts(prepared, store, "source"), texts(prepared, store, "target"), strict=True)
        assert list(stored_pairs) == expected


def test_weighted_sources_are_stored_as_often_as_they_weigh_and_resume_exactly(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    other = write_pairs(tmp_path, "other", digits(5, seed=9))
    data = {"train": [*tables["data"]["train"], *other], "weights": [1, 3]}
    prepared = ready(merged(tables, {"data": data}), tmp_path / "run")
    assert len(prepared.train_store) == 24 + 3 * 5
    assert len(prepared.valid_store) == 4
    again = ready(config.read(tmp_path / "run" / "config.toml"), tmp_path / "run", resume=True)
    assert again.config.data.weights == (1, 3)
    assert again.train_store.digest == prepared.train_store.digest
    items = [placement.items.tolist() for placement in prepared.train_order.iterate_epoch(1)]
    assert [placement.items.tolist() for placement in again.train_order.iterate_epoch(1)] == items
    assert "data.weights" in fault(merged(tables, {"data": {**data, "weights": [1, 2]}}), tmp_path / "run", resume=True)


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_unchanged_stores_are_reused(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    ready(tables, tmp_path / "run")
    before = times(tmp_path / "run" / "store")
    assert len(before) == 10
    ready(tables, tmp_path / "run", resume=True)
    ready(config.read(tmp_path / "run" / "config.toml"), tmp_path / "run", resume=True)
    assert times(tmp_path / "run" / "store") == before


@pytest.mark.parametrize("n_valid", [0, 4], ids=["held out", "files of its own"])
def test_resuming_reads_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_valid: int) -> None:
    """Unless a store is missing; it is then written again, with the same ids."""
    tables = recipe(tmp_path, {"train": {"steps": 3}}, n_valid=n_valid)
    whole = ready(tables, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "store").rglob("*.ids")}
    shutil.copytree(tmp_path / "run", tmp_path / "lacking")
    shutil.rmtree(tmp_path / "lacking" / "store" / "valid")
    again = ready(tables, tmp_path / "lacking", resume=True)
    assert texts(again, again.valid_store) == texts(whole, whole.valid_store)

    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("text is read")

    monkeypatch.setattr(PairReader, "read_examples", staticmethod(read))
    assert trained(tables, tmp_path / "run", resume=True)[-1].step == 3
    assert before == {path: path.read_bytes() for path in (tmp_path / "run" / "store").rglob("*.ids")}


def test_resuming_without_the_files_is_refused(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    ready(tables, tmp_path / "run")
    (tmp_path / "train.tgt").unlink()
    assert fault(tables, tmp_path / "run", DataError, resume=True).startswith(f"{tmp_path}/train.tgt: no such file")


def test_resuming_with_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = recipe(tmp_path)
    ready(tables, tmp_path / "run")
    plain = Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == "train.tgt":
            raise PermissionError(13, "Permission denied")  # root may read everything
        return plain(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    message = fault(tables, tmp_path / "run", DataError, resume=True)
    assert message == f"{tmp_path}/train.tgt: no permission to read it; see: ls -l"


CHANGED = (
    "the data, or how this version reads it, changed since the run began, so it cannot be resumed exactly; "
    "begin another run"
)


def store_files(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (out / "store").rglob("*") if path.is_file()}


def ids(out: Path) -> dict[Path, bytes]:
    return {path: held for path, held in store_files(out).items() if path.suffix in (".ids", ".offsets")}


@pytest.mark.parametrize("name", ["train.src", "valid.tgt"])
@pytest.mark.parametrize("left", ["stores and checkpoint", "stores", "checkpoint"])
def test_changed_data_is_refused_when_resuming(tmp_path: Path, name: str, left: str) -> None:
    tables, out = recipe(tmp_path), tmp_path / "run"
    (trained if "checkpoint" in left else ready)(tables, out)
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text.replace("1", "2"))
    if "stores" not in left:
        shutil.rmtree(out / "store")
    before = store_files(out)
    message = fault(tables, out, CheckpointError, resume=True)
    assert message == f"{out}/store/{name.partition('.')[0]}: {CHANGED}"
    changed_store = out / "store" / name.partition(".")[0]
    assert {path: held for path, held in store_files(out).items() if changed_store in path.parents} == {
        path: held for path, held in before.items() if changed_store in path.parents
    }
    (tmp_path / name).write_text(text)
    assert trained(merged(tables, {"train": {"steps": 7}}), out, resume=True)[-1].step == 7


def test_resuming_with_changed_modification_times(tmp_path: Path) -> None:
    tables, more, out = recipe(tmp_path), recipe(tmp_path, {"train": {"steps": 9}}), tmp_path / "run"
    trained(more, tmp_path / "whole")
    trained(tables, out)
    before = ids(out)
    os.utime(tmp_path / "train.src", (1, 1))
    trained(more, out, resume=True)
    assert contents(out) == contents(tmp_path / "whole")
    assert ids(out) == before


@pytest.mark.parametrize("name", ["train/source.ids", "valid/target.offsets", "train/manifest.json"])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_damaged_store_is_written_again(tmp_path: Path, name: str, checkpoint: bool) -> None:
    tables, out = recipe(tmp_path), tmp_path / "run"
    (trained if checkpoint else ready)(tables, out)
    before = ids(out)
    file = out / "store" / name
    file.write_bytes(file.read_bytes()[:-4])
    if file.suffix == ".json" and not checkpoint:
        damaged = f"{file.parent}: damaged; delete it, and the text will be encoded again"
        assert fault(tables, out, CheckpointError, resume=True) == damaged
        shutil.rmtree(file.parent)
    ready(tables, out, resume=True)
    assert ids(out) == before


def test_store_other_than_the_one_trained_on_is_refused(tmp_path: Path) -> None:
    tables, out = recipe(tmp_path), tmp_path / "run"
    trained(tables, out)
    text, file = (tmp_path / "train.src").read_text(), tmp_path / "train.src"
    file.write_text(text.replace("1", "2"))
    prepared = ready(tables, out / "other")
    shutil.rmtree(out / "store" / "train")
    shutil.copytree(prepared.train_store.path, out / "store" / "train")
    manifest = out / "store" / "train" / "manifest.json"
    fingerprint = Corpus(PairReader(), prepared.config.data, "test").fingerprint(
        TranslationTask.load(prepared.task.config, prepared.config.tokenizer, out).fingerprint
    )
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"fingerprint": fingerprint}))
    assert fault(tables, out, CheckpointError, resume=True) == f"{out}/store/train: {CHANGED}"


def test_run_without_recorded_digests(tmp_path: Path) -> None:
    """It is resumed if the files are unchanged or the stores are missing, and refused if the files changed."""
    tables, out = recipe(tmp_path), tmp_path / "run"
    trained(tables, out)
    tensors, header = read_tensors(out / "train.safetensors")
    progress = {key: value for key, value in json.loads(header["progress"]).items() if key != "data"}
    write_tensors(out / "train.safetensors", tensors, {"progress": json.dumps(progress)})
    for path in out.glob("store/*/manifest.json"):
        manifest = json.loads(path.read_text())
        del manifest["digest"]
        path.write_text(json.dumps(manifest))
    ready(tables, out, resume=True)
    cut = out / "store" / "train" / "source.ids"
    held = cut.read_bytes()
    cut.write_bytes(held[:-2])
    shutil.copytree(out, tmp_path / "cut")
    ready(tables, tmp_path / "cut", resume=True)
    assert (tmp_path / "cut" / "store" / "train" / "source.ids").read_bytes() == held
    os.utime(tmp_path / "train.src", (1, 1))
    assert fault(tables, out, CheckpointError, resume=True) == f"{out}/store/train: {CHANGED}"
    shutil.rmtree(out / "store")
    assert trained(merged(tables, {"train": {"steps": 7}}), out, resume=True)[-1].step == 7
    assert json.loads((out / "train.json").read_text())["data"].keys() == {"train", "valid"}


def test_resuming_without_a_run_is_a_fresh_start(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    trained(tables, tmp_path / "resumed", resume=True)
    trained(tables, tmp_path / "fresh")
    assert contents(tmp_path / "resumed") == contents(tmp_path / "fresh")


def test_directory_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    ready(tables, tmp_path / "run")
    before = times(tmp_path / "run")
    assert fault(tables, tmp_path / "run") == (
        f"{tmp_path}/run: already holds a run; pass --resume to continue it, or choose another --out"
    )
    assert times(tmp_path / "run") == before


def test_only_the_train_table_may_change_when_resuming(tmp_path: Path) -> None:
    ready(recipe(tmp_path), tmp_path / "run")
    message = fault(recipe(tmp_path, {"model": {"d_model": 32}}), tmp_path / "run", resume=True)
    assert message == (
        f"test: model.d_model = 32, but the run in {tmp_path}/run has 16; leave it out, or begin another run"
    )
    trained({"task": {"name": "translate"}, "train": {"steps": 9}}, tmp_path / "run", resume=True)
    assert RunDirectory(tmp_path / "run").read_config().train.steps == 9


def test_too_long_examples_are_left_out_and_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = " ".join("7" * 60)
    write_pairs(tmp_path, "long", [*digits(24), (long, "1 2"), ("1 2", long)])
    tables = merged(recipe(tmp_path), {"data": {"train": [f"{tmp_path}/long.src", f"{tmp_path}/long.tgt"]}})
    capsys.readouterr()
    events = trained(tables, tmp_path / "run")
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "warning: 2 of 26 examples to train on are longer than data.max_length = 32 tokens and are left out (the longe"
    )
    assert events[-1].step == 6


def test_too_long_validation_examples_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs(tmp_path, "long", [*digits(3), (" ".join("7" * 3000), "1 2")])
    tables = merged(recipe(tmp_path), {"data": {"valid": [f"{tmp_path}/long.src", f"{tmp_path}/long.tgt"]}})
    capsys.readouterr()
    trained(tables, tmp_path / "run")
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert "1 of 4 examples to validate on" in warnings[0]


def test_no_example_fits(tmp_path: Path) -> None:
    long = write_pairs(tmp_path, "long", digits(24, least=9, most=12))
    message = fault(recipe(tmp_path, {"data": {"max_length": 8, "train": long}}), tmp_path / "run")
    assert message.startswith("data.max_length = 8: not one example to train on is that short; the longest takes ")


def test_learned_positions_limit_the_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = recipe(tmp_path, {"model": {"positions": "learned", "n_positions": 9}})
    write_pairs(tmp_path, "long", digits(24, least=3, most=12))
    tables["data"]["train"] = [f"{tmp_path}/long.src", f"{tmp_path}/long.tgt"]
    trained(tables, tmp_path / "run")
    assert "are longer than model.n_positions = 9 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer": {"kind": "unigram", "vocabulary": 259}},
        {"model": {"positions": "rotary", "norm": "post", "activation": "gated-silu", "tied": False}},
        {"model": {"positions": "relative-values", "n_heads": 1, "n_layers": 2}},
        {"task": {"r_drop": 1.0, "source_lang": "en"}, "train": {"schedule": "cosine", "weight_decay": 0.1}},
    ],
    ids=["unigram", "rotary post gated", "relative", "r-drop"],
)
def test_other_shapes_train_and_load(tmp_path: Path, changes: config.Tables) -> None:
    trained(recipe(tmp_path, changes, {"train": {"steps": 3}}), tmp_path / "run")
    settings, task, model = RunDirectory(tmp_path / "run").load()
    for name, table in changes.items():
        for key, value in table.items():
            assert getattr(getattr(settings, name), key) == value
    assert not model.training
    assert task.name == "translate"


def test_table_columns_by_name(tmp_path: Path) -> None:
    rows = "".join(f"{i}\t{target}\t{source}\n" for i, (source, target) in enumerate(digits(30)))
    (tmp_path / "corpus.tsv").write_text("number\tfr\ten\n" + rows)
    tables = merged(recipe(tmp_path, n_valid=0), {"data": {"train": "x", "columns": ["en", "fr"]}})
    prepared = ready(merged(tables, {"data": {"train": f"{tmp_path}/corpus.tsv"}}), tmp_path / "run")
    assert len(prepared.train_store) + len(prepared.valid_store) == 30
    assert set(texts(prepared, prepared.train_store)) < {source for source, _ in digits(30)}
    ready(config.read(tmp_path / "run" / "config.toml"), tmp_path / "run", resume=True)


def test_vocabulary_larger_than_the_text_gives_is_refused(tmp_path: Path) -> None:
    message = fault(recipe(tmp_path, {"tokenizer": {"vocabulary": 5000}}), tmp_path / "run")
    assert message == (
        "tokenizer.vocabulary: 5,000 requested, but this text gives at most 269 subwords; "
        "ask for 269 or fewer, or leave it out"
    )


def test_separate_vocabularies_of_unequal_size_are_reproduced_from_the_saved_recipe(tmp_path: Path) -> None:
    pairs = [(source, "a b") for source, _ in digits(200, seed=1, least=6, most=9)]
    tables = {"task": {"name": "translate"}, "data": {"train": write_pairs(tmp_path, "all", pairs)}}
    first = ready({**tables, "tokenizer": {"joint": False}}, tmp_path / "one")
    again = ready(config.read(tmp_path / "one" / "config.toml"), tmp_path / "two")
    sizes = [len(first.task.tokenizers.source), len(first.task.tokenizers.target)]
    assert sizes[0] > sizes[1]
    assert [len(again.task.tokenizers.source), len(again.task.tokenizers.target)] == sizes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": {"vocabulary": 100}}, "tokenizer.vocabulary = 100; the least is 259: 256 bytes and 3 special"),
        ({"model": {"n_heads": 3}}, "model.n_heads = 3 does not divide model.d_model = 16"),
        ({"model": {"preset": "tinny"}}, "model.preset = 'tinny' is unknown; did you mean 'tiny'?"),
        ({"train": {"steps": 0}}, "test: train.steps = 0; expected at least 1"),
        ({"train": {"learning_rate": float("nan")}}, "test: train.learning_rate = nan; expected more than 0"),
        ({"train": {"seed": -1}}, "test: train.seed = -1; expected 0 or more"),
        ({"train": {"stops": 5}}, "test: unknown key 'train.stops'; did you mean 'train.steps'?"),
        ({"train": {"steps": "many"}}, "test: train.steps = 'many'; expected a whole number, found a text"),
        ({"trian": {}}, "test: unknown table 'trian'; did you mean 'train'?"),
        ({"task": {"name": "translat"}}, "test: task.name = 'translat' is unknown; did you mean 'translate'?"),
        ({"task": {"name": 3}}, "test: task.name = 3 is unknown; known: translate"),
        ({"data": {"train": []}}, 'test: no training data; give files, or add train = ["..."] under [data]'),
        ({"data": {"train": ["-", "x"]}}, "test: training reads its data several times, so not from standard input"),
        ({"data": {"columns": ["1"]}}, "columns: expected two, source and target, found 1: 1"),
    ],
)
def test_invalid_recipes_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert fault(recipe(tmp_path, changes), tmp_path / "run").startswith(message)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_no_task(tmp_path: Path) -> None:
    assert fault({}, tmp_path / "run").startswith(
        'test: no task; add name = "translate" under [task]; known: translate, '
    )


def test_missing_files_are_reported_before_any_work(tmp_path: Path) -> None:
    for part in ("train", "valid"):
        tables = recipe(tmp_path, {"data": {part: [f"{tmp_path}/train.src", f"{tmp_path}/trian.tgt"]}})
        assert fault(tables, tmp_path / "run", DataError) == (
            f"{tmp_path}/trian.tgt: no such file; did you mean 'train.tgt'?"
        )
    assert not (tmp_path / "run").exists()


def test_too_little_text(tmp_path: Path) -> None:
    one = write_pairs(tmp_path, "one", [("1 2", "2 1")])
    tables = merged(recipe(tmp_path, n_valid=0), {"data": {"train": one}})
    assert fault(tables, tmp_path / "run").startswith("pairs: only 1, too few to hold some out for validation; ")
    same = write_pairs(tmp_path, "same", [("1 2", f"{i}") for i in range(50)])
    del tables["tokenizer"]
    assert fault(merged(tables, {"data": {"train": same}}), tmp_path / "run") == (
        "no examples left to train on; give more training data, or other files by --valid"
    )


def test_one_pair_is_enough_with_validation_files(tmp_path: Path) -> None:
    one = write_pairs(tmp_path, "one", [("1 2 1 2 1 2", "2 1")])
    tables = merged(recipe(tmp_path), {"data": {"train": one}, "tokenizer": {"vocabulary": 260}})
    assert trained(tables, tmp_path / "run")[-1].step == 6


def test_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    file, inside = tmp_path / "file", tmp_path / "file" / "run"
    assert fault(recipe(tmp_path), file, InputError) == f"{file}: not a directory; choose another --out"
    assert fault(recipe(tmp_path), inside, InputError).startswith(f"{inside}: cannot be written (")


def test_store_of_format_1_is_encoded_again(tmp_path: Path) -> None:
    """Runs that version 0.1 left unfinished go on: the token ids, and so the digest, are the same."""
    tables = recipe(tmp_path)
    before = ready(tables, tmp_path / "run")
    digest = before.train_store.digest
    for path in (tmp_path / "run").glob("store/*/manifest.json"):
        manifest = json.loads(path.read_text())
        sizes = {name: entry["values"] for name, entry in manifest["columns"].items()}
        path.write_text(json.dumps(manifest | {"format": 1, "dtype": "uint16", "columns": sizes}))
    again = ready(tables, tmp_path / "run", resume=True)
    assert again.train_store.digest == digest
    assert texts(again, again.train_store) == texts(before, before.train_store)
    assert TokenStore.read_manifest(again.train_store.path)["format"] == 2


MEASURE_MEMORY = """
import resource, sys
from pathlib import Path
import torch
from regard.training.prepare import prepare_run

def peak_megabytes(text):
    tables = {"task": {"name": "lm"}, "data": {"train": (text,)}, "tokenizer": {"kind": "characters"}}
    prepare_run(tables, Path(text + ".run"), torch.device("cpu"), where="test")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

print(*map(peak_megabytes, sys.argv[1:]))
"""


def test_memory_of_preparing_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """One document on lines of its own; the peak of a larger text is that of a smaller one, and not a copy more."""
    for name, n_lines in (("small", 60_000), ("large", 180_000)):
        (tmp_path / name).write_text("a line of some fifty letters, of which many are here\n" * n_lines)
    texts = [str(tmp_path / name) for name in ("small", "large")]
    ran = subprocess.run([sys.executable, "-c", MEASURE_MEMORY, *texts], capture_output=True, text=True, check=True)
    small, large = map(int, ran.stdout.split())
    assert large - small < 150, (small, large)
