"""Language models: every token is predicted once, and a run resumes exactly."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import CPU, documents, sentences
from language_models import BYTES, DOCUMENTS, LETTERS, small, task
from tiny_runs import contents, merged, ready, trained

from regard import config
from regard.data import corpus
from regard.data.batches import sentences_to_rows
from regard.data.corpus import DataConfig, write_store
from regard.data.lm_windows import cut_windows
from regard.data.order import BucketOrder, PackedOrder, Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.generate import GenerationConfig
from regard.nn import IGNORE
from regard.runs.run_directory import RunDirectory
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.tasks.task import TrainingScale
from regard.text import documents as reading
from regard.text.documents import DocumentChunk, read_document_chunks
from regard.training.loop import Trainer

END = BYTES.special_id("end")


def write(folder: Path, text: str, name: str = "text.txt") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def store_of(of: LanguageModelTask, folder: Path, texts: list[str] = DOCUMENTS) -> TokenStore:
    examples = [DocumentChunk(text) for text in texts]
    return write_store(folder / "store", examples, of, fingerprint="")


def order_of(of: LanguageModelTask, store: TokenStore, *, packed: bool) -> PackedOrder | BucketOrder:
    lengths = of.example_lengths(store)
    return PackedOrder(lengths, [32], 4, seed=0) if packed else BucketOrder(lengths, 128, seed=0)


class TestWhatIsRead:
    @pytest.mark.parametrize("length", [8, 9, 16, 300])
    @pytest.mark.parametrize("tokenizer", [BYTES, LETTERS], ids=["bytes", "characters"])
    def test_every_token_is_predicted_exactly_once(self, tokenizer: object, length: int, tmp_path: Path) -> None:
        """The end of each document too; all windows but the last of a document are full."""
        of = task(tokenizer, length=length)  # type: ignore[arg-type]
        for number, text in enumerate(DOCUMENTS):
            store, ids = store_of(of, tmp_path / str(number), [text]), of.tokenizer.encode(text)
            spans = of.example_lengths(store)[:, 0]
            assert (spans[:-1] == length).all()
            assert 1 <= spans[-1] <= length
            batch = of.make_batch(store, Placement(np.arange(len(spans)), np.arange(len(spans)), len(spans), (length,)))
            assert batch.labels[batch.labels != IGNORE].tolist() == [*ids, of.end_id]
            assert batch.rows.ids[batch.rows.segment > 0].tolist() == [of.start_id, *ids]

    @pytest.mark.parametrize("most", [5, 40, 1000])
    def test_stretches_of_a_document_go_on_where_the_last_ended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
    ) -> None:
        monkeypatch.setattr(reading, "MAX_CHUNK_CHARACTERS", most)
        for tokenizer in (BYTES, LETTERS):
            of = task(tokenizer)
            path = write(tmp_path, "\n\n".join(DOCUMENTS))
            predicted, before = [], of.start_id
            for stretch in read_document_chunks([str(path)]):
                (ids,) = of.document_tokenizer.encode_chunks([stretch])
                assert ids[0] == (before if stretch.preceding_text else of.start_id)
                predicted += ids[1:]
                before = ids[-1]
            assert tokenizer.decode(predicted) == "".join(DOCUMENTS)
            assert predicted.count(of.end_id) == len(DOCUMENTS)

    def test_line_ends_and_spaces_survive(self) -> None:
        for tokenizer in (BYTES, LETTERS):
            text = " the cat\n  sits\n\non the mat "
            assert tokenizer.decode(task(tokenizer).document_tokenizer.encode_chunks([DocumentChunk(text)])[0]) == text

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("epoch", [0, 1, 7])
    def test_batches_hold_every_token_once(self, tmp_path: Path, epoch: int, packed: bool) -> None:
        """Each part of a window in a row by itself where rows are not packed."""
        of = task(length=16)
        store = store_of(of, tmp_path)
        read: Counter[int] = Counter()
        most = 0
        for placement in order_of(of, store, packed=packed).iterate_epoch(epoch):
            batch = of.make_batch(store, placement)
            most = max(most, int(batch.rows.segment.max()))
            read.update(batch.labels[batch.labels != IGNORE].tolist())
            assert batch.n_tokens == int((batch.rows.segment > 0).sum())
        expected = Counter(index for text in DOCUMENTS for index in (*BYTES.encode(text), END))
        assert read == expected
        assert (most > 1) == packed

    @pytest.mark.parametrize("packed", [True, False])
    def test_no_epoch_cuts_where_the_one_before_did(self, tmp_path: Path, packed: bool) -> None:
        of = task(length=16)
        store = store_of(of, tmp_path, [" ".join(sentences(60))])
        read: list[set[tuple[int, ...]]] = []
        for epoch in range(3):
            batches = [of.make_batch(store, each) for each in order_of(of, store, packed=packed).iterate_epoch(epoch)]
            full = [row.tolist() for batch in batches for row in batch.rows.ids]
            read.append({tuple(row[start : start + 16]) for row in full for start in range(0, len(row), 16)})
        assert all(len(one & other) < len(one) // 2 for one, other in combinations(read, 2))

    @torch.no_grad()
    def test_the_loss_is_that_of_each_window_by_itself(self, tmp_path: Path) -> None:
        of = task()
        model, store = small(of), store_of(of, tmp_path)
        total = count = 0.0
        for placement in PackedOrder(of.example_lengths(store), [32], 4, seed=0).iterate_epoch():
            loss = of.compute_loss(model, of.make_batch(store, placement))
            total, count = total + float(loss.nll), count + int(loss.n_tokens)
        plain, windows = 0.0, cut_windows(store, "text", of.max_length)
        _, starts, spans = windows.segments(np.arange(len(windows.lengths)), 0)
        for start, span in zip(starts.tolist(), spans.tolist(), strict=True):
            ids = store["text"].ids[start : start + span + 1].tolist()
            log_probs = model(sentences_to_rows([ids[:-1]], pad_id=0))[0].log_softmax(-1)
            plain -= float(log_probs[torch.arange(len(ids) - 1), ids[1:]].sum())
        assert total == pytest.approx(plain, rel=1e-9)
        assert count == sum(len(store["text"][item]) - 1 for item in range(len(store)))

    def test_unknown_characters_are_counted_and_named(self, capfd: pytest.CaptureFixture[str]) -> None:
        task(LETTERS).document_tokenizer.encode_texts(["the cat ☃☃", "née"])
        message = "warning: 3 of 13 tokens are unknown to the vocabulary, which never saw them: '☃' 'é'\n"
        assert capfd.readouterr().err == message

    def test_unknown_characters_of_a_store_are_counted_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """However many parts it is encoded in, and though windows share a token."""
        monkeypatch.setattr(corpus, "ENCODING_CHUNK_SIZE", 2)
        of, texts = task(LETTERS, length=8), ["the ☃☃☃☃☃☃☃☃ cat", "née", "the", "☃"]
        store = store_of(of, tmp_path, texts)
        capfd.readouterr()
        of.warn_about_encoded_data(store)
        n_tokens = sum(len(text) + 1 for text in texts)
        message = f"warning: 10 of {n_tokens} tokens to train on are unknown to the vocabulary, which never saw them\n"
        assert capfd.readouterr().err == message

    def test_what_is_read_follows_from_the_table(self) -> None:
        data = DataConfig(train=("a",), max_length=16)
        assert LanguageModelTask.make_reader(LmConfig(), data) == LanguageModelTask.make_reader(
            LmConfig(documents="parted"), data
        )
        assert LanguageModelTask.make_reader(LmConfig(documents="files"), data).one_per_file  # type: ignore[attr-defined]
        assert not LanguageModelTask.make_reader(
            LmConfig(), DataConfig(train=("a",), valid=("b",), max_length=16)
        ).split_if_few  # type: ignore[attr-defined]

    def test_lengths(self) -> None:
        with pytest.raises(ConfigError, match=r"task.length = 3; expected at least 8 and at most 32,767"):
            LmConfig(length=3)
        with pytest.raises(ConfigError, match=r"model.n_positions = 4; expected at least 8"):
            task().with_max_length(4)
        assert task(length=64).with_max_length(32).max_length == 32


RECIPE: config.Tables = {
    "task": {"name": "lm", "length": 16},
    "model": {"preset": "tiny", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.1},
    "train": {
        "steps": 8,
        "batch_tokens": 128,
        "learning_rate": 1e-2,
        "warmup": 2,
        "validate_every": 4,
        "save_every": 2,
    },
}
LETTERWISE: config.Tables = {"tokenizer": {"kind": "characters"}}


def recipe(path: Path, *changes: config.Tables) -> config.Tables:
    return merged(RECIPE, LETTERWISE, {"data": {"train": [str(path)]}}, *changes)


class TestTraining:
    def test_it_learns_a_text_by_heart(self, tmp_path: Path) -> None:
        lines = sentences(4, seed=7)
        path = write(tmp_path, "\n".join(lines))
        learn = {"steps": 150, "validate_every": 50, "log_every": 50, "batch_tokens": 256}
        shape = {"d_model": 32, "n_layers": 2, "d_ff": 64, "dropout": 0.0}
        tables = recipe(path, {"task": {"length": 128}, "data": {"valid": [str(path)]}, "train": learn, "model": shape})
        events = trained(tables, tmp_path / "run")
        assert events[-1].values["valid_perplexity"] < 1.2
        _, of, model = RunDirectory(tmp_path / "run").load()
        assert isinstance(of, LanguageModelTask)
        ((found,),) = of.make_predictor(model, CPU).generate(
            [lines[0][:10]], GenerationConfig(temperature=0.0, max_tokens=300)
        )
        assert lines[0][:10] + found.text == "\n".join(lines)
        assert found.ended == "end"

    @pytest.mark.parametrize("events", [1, 5])
    @pytest.mark.parametrize(
        "changes",
        [LETTERWISE, {"tokenizer": {"kind": "bpe", "vocabulary": 300}}, {"model": {"architecture": "rnn"}}],
        ids=str,
    )
    def test_left_and_taken_up_it_ends_as_if_never_left(
        self, tmp_path: Path, events: int, changes: config.Tables
    ) -> None:
        """In a later epoch, whose windows are others."""
        learn: config.Tables = {"train": {"batch_tokens": 1024, "steps": 16}}
        if "model" in changes:
            learn |= {"model": dict.fromkeys(("n_heads", "d_ff"))}
        tables = recipe(write(tmp_path, "\n\n".join(documents(40))), changes, learn)
        tables["model"] = {name: value for name, value in tables["model"].items() if value is not None}
        trained(tables, tmp_path / "whole")
        run = Trainer(ready(tables, tmp_path / "left")).train()
        for _ in range(events):
            next(run)
        run.close()
        trained(tables, tmp_path / "left", resume=True)
        assert contents(tmp_path / "left") == contents(tmp_path / "whole")

    def test_a_file_without_blank_lines_can_be_held_out_in_part(self, tmp_path: Path) -> None:
        text = " ".join(sentences(60))
        prepared = ready(recipe(write(tmp_path, text)), tmp_path / "run")
        predicted = [
            ids[1:].tolist()
            for store in (prepared.train_store, prepared.valid_store)
            for ids in map(store["text"].__getitem__, range(len(store)))
        ]
        of = prepared.task
        read = Counter(token for ids in predicted for token in ids)
        assert sum(read.values()) == len(text) + 1
        assert read[of.end_id] == 1  # type: ignore[attr-defined]
        assert len(prepared.valid_store) > 0

    def test_validation_files_leave_documents_whole(self, tmp_path: Path) -> None:
        text, valid = " ".join(sentences(20)), " ".join(sentences(5, seed=1))
        data = {"data": {"valid": [str(write(tmp_path, valid, "valid.txt"))]}}
        prepared = ready(recipe(write(tmp_path, text), data), tmp_path / "run")
        lengths = prepared.train_store["text"].lengths
        assert (lengths[:-1] == 17).all()
        assert lengths.sum() - len(lengths) == len(text) + 1

    def test_a_text_shorter_than_the_context(self, tmp_path: Path) -> None:
        path = write(tmp_path, "the cat sits on the mat")
        tables = recipe(path, {"task": {"length": 256}, "data": {"valid": [str(path)]}})
        prepared = ready(tables, tmp_path / "run")
        assert prepared.config.data.max_length == prepared.config.model.n_positions == 24
        assert trained(tables, tmp_path / "run", resume=True)[-1].kind == "end"
        again = ready(config.read(tmp_path / "run" / "config.toml"), tmp_path / "again")
        assert again.config == prepared.config

    def test_lengths_that_do_not_fit(self, tmp_path: Path) -> None:
        path = write(tmp_path, "\n\n".join(documents(40)))
        message = "test: task.length = 64, but model.n_positions = 32; give task.length=32 or less, or more positions"
        with pytest.raises(ConfigError, match=message):
            ready(recipe(path, {"task": {"length": 64}, "model": {"n_positions": 32}}), tmp_path / "run")
        assert not (tmp_path / "run").exists()
        tables = recipe(path, {"model": {"n_positions": 12}, "train": {"batch_tokens": 512}})
        del tables["task"]["length"]
        prepared = ready(tables, tmp_path / "run")
        assert prepared.config.task.length == 12
        assert prepared.task.example_lengths(prepared.train_store).max() == 12

    @pytest.mark.parametrize(
        "shape", [{"positions": "rotary"}, {"positions": "sinusoidal"}, {"architecture": "rnn"}, {}], ids=str
    )
    def test_windows_may_be_longer_than_positions_usually_are(self, tmp_path: Path, shape: config.Table) -> None:
        path = write(tmp_path, " ".join(sentences(200)))
        tables = {
            "task": {"name": "lm", "length": 2048},
            "data": {"train": [str(path)], "valid": [str(path)]},
            "tokenizer": {"kind": "characters"},
            "model": {"preset": "tiny", **shape},
        }
        prepared = ready(merged(tables, {"train": {"batch_tokens": 4096}}), tmp_path / "run")
        assert prepared.config.model.n_positions == prepared.config.data.max_length == 2048
        assert prepared.task.example_lengths(prepared.train_store).max() == 2048
        assert prepared.chosen_settings["model.n_positions"] == 2048

    def test_the_positions_of_a_preset_limit_windows_too(self, tmp_path: Path) -> None:
        path = write(tmp_path, "\n\n".join(documents(40)))
        tables = recipe(path, {"task": {"length": 2048}, "model": {"preset": "gpt2-small"}})
        with pytest.raises(ConfigError, match=r"test: task.length = 2048, but model.n_positions = 1024; give task"):
            ready(tables, tmp_path / "run")

    @pytest.mark.parametrize(("shape", "fits"), [({"positions": "rotary"}, True), ({}, False)], ids=str)
    def test_windows_may_be_longer_than_those_of_the_model_it_starts_from(
        self, tmp_path: Path, shape: config.Table, fits: bool
    ) -> None:
        path = write(tmp_path, "\n\n".join(documents(40)))
        trained(recipe(path, {"model": {**shape, "n_positions": 16}, "train": {"steps": 1}}), tmp_path / "one")
        tables: config.Tables = {
            "task": {"name": "lm", "length": 32},
            "data": {"train": [str(path)]},
            "model": {"start": str(tmp_path / "one")},
        }
        if not fits:
            with pytest.raises(ConfigError, match=r"task.length = 32, but .*one has learned 16 positions"):
                ready(tables, tmp_path / "two")
            return
        prepared = ready(tables, tmp_path / "two")
        assert prepared.config.model.n_positions == prepared.config.task.length == 32
        assert prepared.task.example_lengths(prepared.train_store).max() == 32
        assert prepared.chosen_settings["model.n_positions"] == 32
        assert "model.d_model" not in prepared.chosen_settings

    def test_text_that_has_hardly_any_tokens(self, tmp_path: Path) -> None:
        """Nobody asked for a size, and fewer are learned than a translator would have to have."""
        path = write(tmp_path, "\n\n".join(str(number) for number in range(100, 140)))
        tables = {"task": {"name": "lm"}, "data": {"train": [str(path)]}, "train": {"batch_tokens": 256}}
        prepared = ready(tables, tmp_path / "run")
        assert prepared.config.tokenizer.vocabulary < 259
        again = ready(config.read(tmp_path / "run" / "config.toml"), tmp_path / "again")
        assert again.config.tokenizer == prepared.config.tokenizer

    def test_words_forget_too_much(self, tmp_path: Path) -> None:
        path = write(tmp_path, "\n\n".join(documents(40)))
        with pytest.raises(
            ConfigError, match=r'tokenizer.kind = "wordpiece" forgets spaces and line ends; accepted: bpe'
        ):
            ready(recipe(path, {"tokenizer": {"kind": "wordpiece"}}), tmp_path / "run")

    def test_it_goes_on_from_another(self, tmp_path: Path) -> None:
        path = write(tmp_path, "\n\n".join(documents(40)))
        trained(recipe(path), tmp_path / "one")
        tables = {"task": {"name": "lm"}, "data": {"train": [str(path)]}, "model": {"start": str(tmp_path / "one")}}
        prepared = ready(merged(tables, {"train": RECIPE["train"]}), tmp_path / "two")
        assert prepared.config.task.length == 16
        assert prepared.config.tokenizer.kind == "characters"
        trained(merged(tables, {"train": RECIPE["train"]}), tmp_path / "two", resume=True)
        log = [json.loads(line) for line in (tmp_path / "two" / "log.jsonl").read_text().splitlines()]
        assert log[0]["step"] == 1

    def test_windows_fit_the_positions_that_were_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "text.txt"
        path.write_text("the cat sat on the mat. " * 60, encoding="utf-8")
        tables = {"task": {"name": "lm"}, "data": {"train": [str(path)]}, "model": {"n_positions": 24}}
        prepared = ready(merged(tables, {"tokenizer": {"kind": "characters"}}), tmp_path / "one")
        assert prepared.config.task.length == prepared.config.data.max_length == 24
        ready(config.read(tmp_path / "one" / "config.toml"), tmp_path / "again")

    def test_a_text_shorter_than_a_window_is_said(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = write(tmp_path, "the cat sat on the mat. " * 9)
        tables = {"task": {"name": "lm", "length": 500}, "data": {"train": [str(path)], "valid": [str(path)]}}
        ready(merged(tables, {"tokenizer": {"kind": "characters"}}), tmp_path / "run")
        assert "217 tokens to train on do not fill one window of task.length = 500" in capfd.readouterr().err

    def test_a_batch_holds_a_window_however_long(self, tmp_path: Path) -> None:
        path = write(tmp_path, " ".join(sentences(2000)))
        tables = {"task": {"name": "lm", "length": 1500}, "data": {"train": [str(path)]}, "train": {"steps": 2}}
        prepared = ready(merged(tables, {"tokenizer": {"kind": "characters"}}), tmp_path / "run")
        assert prepared.config.train.batch_tokens == prepared.config.data.max_length == 1500
        with pytest.raises(ConfigError, match="less than one row"):
            ready(merged(tables, {"train": {"batch_tokens": 1000}}), tmp_path / "other")
        assert not (tmp_path / "other" / "config.toml").exists()

    def test_what_is_chosen(self) -> None:
        cpu, gpu = torch.device("cpu"), torch.device("cuda")
        assert (LanguageModelTask.default_task_config(cpu, {}), LanguageModelTask.default_task_config(gpu, {})) == (
            {"length": 64},
            {"length": 256},
        )
        assert LanguageModelTask.default_task_config(cpu, {"start": "runs/x"}) == {"length": 256}
        assert LanguageModelTask.default_task_config(gpu, {"n_positions": 40}) == {"length": 40}
        for tokens in (1_000, 100_000, 1_000_000, 50_000_000):
            table = LanguageModelTask.training_defaults(TrainingScale(100, tokens, 128, False), cpu)
            read = table["steps"](table["batch_tokens"]) * table["batch_tokens"]
            assert read <= max(50 * tokens, 200 * table["batch_tokens"]) * 1.1
            assert tokens >= 5_000_000 or read <= 4_200_000
            assert tokens < 5_000_000 or read >= tokens * 0.99
        assert "steps" not in LanguageModelTask.training_defaults(TrainingScale(100, 10**6, 384, False), gpu)
        rates = [
            LanguageModelTask.training_defaults(TrainingScale(100, 10**6, width, False), gpu)["learning_rate"]
            for width in (128, 384, 768)
        ]
        assert rates == sorted(rates, reverse=True)
        assert (
            LanguageModelTask.training_defaults(TrainingScale(100, 10**6, 384, True), gpu)["learning_rate"] < rates[-1]
        )
