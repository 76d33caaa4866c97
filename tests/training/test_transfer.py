"""Classifiers and taggers that start from a language model, with the options of ULMFiT; backward language models."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import CPU, documents, sentences
from language_models import BYTES, DOCUMENTS, small, task
from safetensors.torch import load_file
from tiny_runs import contents, merged, ready, trained

import regard
from regard import config
from regard.data.batches import sentences_to_rows
from regard.data.corpus import write_store
from regard.data.order import PackedOrder
from regard.errors import ConfigError, InputError
from regard.export import export_model
from regard.models.config import DirectedEncoderConfig
from regard.models.freezing import count_layers_above
from regard.models.interfaces import CausalLM
from regard.nn import IGNORE
from regard.predict.perplexity import measure_perplexity
from regard.runs.import_export import describe_export_problem
from regard.runs.model_loading import open_model
from regard.text.documents import DocumentChunk
from regard.training.loop import Trainer
from regard.training.plan import make_plan
from regard.training.schedule import SCHEDULES

END = BYTES.special_id("end")
KINDS = [(a, d) for a in ("transformer", "rnn") for d in ("forward", "backward")]

TRAIN: config.Table = {
    "steps": 8,
    "batch_tokens": 128,
    "learning_rate": 1e-2,
    "warmup": 2,
    "log_every": 1,
    "validate_every": 4,
    "save_every": 2,
    "average": 1,
    "patience": 0,
}
LM: config.Tables = {
    "task": {"name": "lm", "length": 32},
    "tokenizer": {"vocabulary": 280},
    "model": {"preset": "tiny", "d_model": 16, "n_layers": 2, "dropout": 0.0},
    "train": {**TRAIN, "steps": 4},
}
TRANSFORMER: config.Tables = {"model": {"n_heads": 2, "d_ff": 32}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Language models of two architectures and both directions."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "text.txt").write_text("\n\n".join(documents(20)) + "\n")
    for architecture, direction in KINDS:
        kind: config.Tables = {
            "task": {"direction": direction},
            "data": {"train": [str(folder / "text.txt")]},
            "model": {"architecture": architecture},
        }
        shape = TRANSFORMER if architecture == "transformer" else {}
        trained(merged(LM, shape, kind), folder / f"{architecture}-{direction}")
    return folder


def data(folder: Path, name: str) -> str:
    """Write texts with a class, or words with a label, each: cats are animals."""
    texts = sentences(30)
    if name == "classify":
        rows = [f"{text}\t{'yes' if 'cat' in text.split() else 'no'}" for text in texts]
        (folder / "data.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
        return str(folder / "data.tsv")
    words = ["\n".join(f"{word} {'ANI' if word == 'cat' else 'O'}" for word in text.split()) for text in texts]
    (folder / "data.conll").write_text("\n\n".join(words) + "\n")
    return str(folder / "data.conll")


def recipe(folder: Path, start: Path | str, *changes: config.Tables, name: str = "classify") -> config.Tables:
    file = data(folder, name)
    own: config.Tables = {
        "task": {"name": name},
        "data": {"train": [file], "valid": [file]},
        "model": {"start": str(start)} if start else {},
        "train": TRAIN,
    }
    return merged(own, *changes)


class TestStart:
    @pytest.mark.parametrize("name", ["classify", "tag"])
    @pytest.mark.parametrize(("architecture", "direction"), KINDS)
    def test_the_encoder_begins_with_the_states_of_the_language_model(
        self, models: Path, tmp_path: Path, name: str, architecture: str, direction: str
    ) -> None:
        start = models / f"{architecture}-{direction}"
        prepared = ready(recipe(tmp_path, start, name=name), tmp_path / "run")
        run_config, _, lm = open_model(start)
        assert isinstance(lm, CausalLM)
        ids = prepared.train_store["text"][3].tolist()
        assert ids[0] == ids[-1] == prepared.task.tokenizers.source.special_id("end")  # as the language model has read
        read = ids if direction == "forward" else ids[::-1]
        expected = lm.hidden_states(sentences_to_rows([read], pad_id=0))[0]
        with torch.no_grad():
            single = sentences_to_rows([ids], pad_id=0)
            found = prepared.model.eval()(
                regard.data.batches.SegmentedRows(single.ids, single.segment, single.position, single.ids * 0)
            )
        torch.testing.assert_close(found[0], expected if direction == "forward" else expected.flip(0))
        assert isinstance(prepared.config.model, DirectedEncoderConfig)
        assert prepared.config.model.directions == direction
        assert run_config.task.direction == direction

    @pytest.mark.parametrize(("architecture", "direction"), KINDS)
    def test_a_trained_model_is_saved_and_used(
        self, models: Path, tmp_path: Path, architecture: str, direction: str
    ) -> None:
        start = models / f"{architecture}-{direction}"
        poolings = {"transformerforward": "last", "transformerbackward": "cls"}
        for name in ("classify", "tag"):
            events = trained(recipe(tmp_path, start, name=name), tmp_path / name)
            model: Any = regard.load(tmp_path / name, device="cpu")
            assert model.evaluate(data(tmp_path, name))["accuracy"] == pytest.approx(events[-1].values["accuracy"])
        classifier: Any = regard.load(tmp_path / "classify", device="cpu")
        assert classifier.config.task.pooling == poolings.get(architecture + direction, "concat")
        assert classifier.embed("a cat").shape == (16,)
        assert classifier.look("the cat sits on a mat").gradients() is not None

    def test_options_of_ulmfit_learn(self, models: Path, tmp_path: Path) -> None:
        """All of them together, on a model that has seen the words: better than always the same answer."""
        options: config.Table = {
            "unfreeze": 5,
            "schedule": "slanted-triangular",
            "layer_decay": 1 / 2.6,
            "steps": 60,
            "warmup": 6,
            "validate_every": 20,
            "learning_rate": 2e-2,
        }
        events = trained(recipe(tmp_path, models / "rnn-forward", {"train": options}), tmp_path / "run")
        majority = sum("cat" not in text.split() for text in sentences(30)) / 30
        assert majority < 0.8
        assert events[-1].values["accuracy"] > 0.9

    def test_from_scratch_in_one_direction(self, tmp_path: Path) -> None:
        shape = {"preset": "tiny", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16, "directions": "forward"}
        changes: config.Tables = {"model": shape, "tokenizer": {"vocabulary": 48}}
        assert ready(recipe(tmp_path, "", changes), tmp_path / "classify").config.task.pooling == "last"
        tagger = ready(recipe(tmp_path, "", changes, name="tag"), tmp_path / "tag")
        problem = describe_export_problem(tagger.task, tagger.model)
        assert problem == 'not as Hugging Face BERT: model.directions = "forward": BERT has only "both"'

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"task": {"pooling": "cls"}}, 'task.pooling = "cls": that token has read no other'),
            ({"model": {"directions": "both"}}, "model.directions = 'both', but .* has 'forward'; leave it out"),
            ({"train": {"freeze": "encoder", "unfreeze": "epoch"}}, "leaves no layer for train.unfreeze"),
            (
                {"train": {"unfreeze": 0}},
                "train.unfreeze = 0; expected at least 1 and at most .*, or none, or epoch",
            ),
        ],
    )
    def test_refusals(self, models: Path, tmp_path: Path, changes: config.Tables, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            ready(recipe(tmp_path, models / "transformer-forward", changes), tmp_path / "run")

    def test_pretraining_does_not_start_from_a_language_model(self, models: Path, tmp_path: Path) -> None:
        tables = merged(LM, {"task": {"name": "pretrain"}, "data": {"train": [str(models / "text.txt")]}})
        del tables["tokenizer"], tables["task"]["length"]
        tables["model"] = {"start": str(models / "transformer-forward")}
        with pytest.raises(ConfigError, match="a model for lm; pretrain cannot start from it"):
            ready(tables, tmp_path / "run")


class TestElmo:
    """Features of a forward and a backward language model."""

    def both(self, models: Path, **more: str) -> config.Tables:
        return {"model": {"start_backward": str(models / "rnn-backward"), **more}}

    @pytest.mark.parametrize("name", ["classify", "tag"])
    def test_only_heads_and_the_mix_are_trained(self, models: Path, tmp_path: Path, name: str) -> None:
        tables = recipe(tmp_path, models / "rnn-forward", self.both(models), name=name)
        trainer = Trainer(ready(tables, tmp_path / "run"))
        before = {key: weight.detach().clone() for key, weight in trainer.model.named_parameters()}
        end = list(trainer.train())[-1]
        changed = {key for key, weight in trainer.model.named_parameters() if not torch.equal(weight, before[key])}
        assert changed == {key for key in before if key.startswith("heads.")}
        for direction in ("forward", "backward"):
            lm = load_file(models / f"rnn-{direction}" / "model.safetensors")
            assert torch.equal(before[f"embedding.{direction}_lm.tokens.weight"], lm["embedding.tokens.weight"])
            cell = f"encoder.1.{direction}_rnn"
            names = [key for key in before if key.startswith(cell)]
            assert names
            assert all(torch.equal(before[key], lm[key.replace(cell, "decoder.1.rnn")]) for key in names)
        model: Any = regard.load(tmp_path / "run", device="cpu")
        assert (model.config.task.layers, model.config.train.freeze) == ("mix", "encoder")
        assert model.evaluate(data(tmp_path, name))["accuracy"] == pytest.approx(end.values["accuracy"])
        assert model.embed("a cat", layers=[0]).shape == (32,)
        assert model.look("a cat").gradients() is not None

    def test_both_may_be_fine_tuned(self, models: Path, tmp_path: Path) -> None:
        tables = recipe(tmp_path, models / "rnn-forward", self.both(models), {"train": {"freeze": "none"}})
        prepared = ready(tables, tmp_path / "run")
        assert all(weight.requires_grad for weight in prepared.model.parameters())

    @pytest.mark.parametrize(
        ("forward", "backward", "problem"),
        [
            ("rnn-backward", "rnn-backward", "rnn-backward: not a forward language model; leave out --from"),
            ("rnn-forward", "rnn-forward", "rnn-forward: not a backward language model; leave out --from"),
            ("rnn-forward", "transformer-backward", r"both must be recurrent language models \(--architecture rnn\)"),
        ],
    )
    def test_refusals(self, models: Path, tmp_path: Path, forward: str, backward: str, problem: str) -> None:
        tables = recipe(tmp_path, models / forward, {"model": {"start_backward": str(models / backward)}})
        with pytest.raises(ConfigError, match=problem):
            ready(tables, tmp_path / "run")


class TestGradualUnfreezing:
    def test_layers_are_trained_one_by_one_from_the_top(self, models: Path, tmp_path: Path) -> None:
        """Heads in steps 1 and 2, the last layer from step 3 on, the first from 5, embeddings from 7."""
        tables = recipe(tmp_path, models / "rnn-forward", {"train": {"unfreeze": 2, "save_every": 1}})
        trainer = Trainer(ready(tables, tmp_path / "run"))
        first_trained: dict[str, int] = {}
        before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
        for event in trainer.train():
            if event.kind == "save":
                for name, weight in trainer.model.named_parameters():
                    if not torch.equal(weight, before[name]):
                        first_trained.setdefault(name, event.step)
        assert first_trained == {name: 1 + 2 * count_layers_above(name, 2) for name in before}
        assert set(first_trained.values()) == {1, 3, 5, 7}
        assert "all from step 7 on" in make_plan(trainer.prepared).unfreezing

    def test_moments_begin_when_a_layer_is_unfrozen(self, models: Path, tmp_path: Path) -> None:
        tables = recipe(tmp_path, models / "rnn-forward", {"train": {"unfreeze": 3}})
        trained(tables, tmp_path / "run")
        saved = load_file(tmp_path / "run" / "train.safetensors")
        counts = {name.removeprefix("step."): int(count) for name, count in saved.items() if name.startswith("step.")}
        assert counts == {name: 8 - 3 * count_layers_above(name, 2) for name in counts}
        assert not any(name.startswith("embedding") for name in counts)  # the run ends before

    def test_a_killed_run_resumes_as_if_never_killed(self, models: Path, tmp_path: Path) -> None:
        tables = recipe(tmp_path, models / "transformer-forward", {"train": {"unfreeze": 3}})
        trained(tables, tmp_path / "whole")
        for event in (trainer := Trainer(ready(tables, tmp_path / "killed"))).train():
            if event.kind == "save" and event.step == 4:
                trainer.request_stop()
        trained(tables, tmp_path / "killed", resume=True)
        assert contents(tmp_path / "killed") == contents(tmp_path / "whole")

    def test_an_epoch_is_its_number_of_steps(self, models: Path, tmp_path: Path) -> None:
        tables = recipe(tmp_path, models / "rnn-forward", {"train": {"unfreeze": "epoch", "accumulate": 2}})
        prepared = ready(tables, tmp_path / "run")
        n_steps = round(prepared.train_order.estimate().n_batches / 2)
        assert f"one more layer every {n_steps} steps, the run ends with" in make_plan(prepared).unfreezing

    def test_a_model_without_heads_is_refused(self, models: Path, tmp_path: Path) -> None:
        tables = merged(LM, TRANSFORMER, {"data": {"train": [str(models / "text.txt")]}, "train": {"unfreeze": 1}})
        with pytest.raises(ConfigError, match=r"train\.unfreeze: this model has no head to train first"):
            ready(tables, tmp_path / "run")


@pytest.mark.parametrize(("steps", "cut_frac"), [(100, 0.1), (1000, 0.1), (40, 0.25)])
def test_slanted_triangular_schedule(steps: int, cut_frac: float) -> None:
    """Howard and Ruder 2018, equation 3, word by word, with their ratio of 32."""
    cut = math.floor(steps * cut_frac)
    for t in range(1, steps + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        assert SCHEDULES["slanted-triangular"](t, steps, cut) == pytest.approx((1 + p * 31) / 32)


class TestBackward:
    def test_every_token_is_predicted_once_from_the_one_behind_it(self, tmp_path: Path) -> None:
        of = task(direction="backward", length=8)
        store = write_store(tmp_path / "store", [DocumentChunk(text) for text in DOCUMENTS], of, fingerprint="")
        order = PackedOrder(of.example_lengths(store), [32], 4, seed=0)
        for epoch in (0, 3):
            seen: list[tuple[int, int]] = []
            for number in range(order.n_pools):
                for placement in order.pool_batches(epoch, number):
                    batch = of.make_batch(store, placement)
                    chosen = batch.labels != IGNORE
                    seen += zip(batch.rows.ids[chosen].tolist(), batch.labels[chosen].tolist(), strict=True)
            texts = [[END, *of.tokenizer.encode(text), END] for text in DOCUMENTS]
            assert sorted(seen) == sorted((b, a) for ids in texts for a, b in pairwise(ids))

    def test_windows_are_read_from_their_end(self, tmp_path: Path) -> None:
        of, text = task(direction="backward", length=8), DOCUMENTS[0]
        store = write_store(tmp_path / "store", [DocumentChunk(text)], of, fingerprint="")
        ids = [END, *of.tokenizer.encode(text), END]
        placement = next(iter(PackedOrder(of.example_lengths(store), [8], 1, seed=0, shuffle=False).pool_batches(0, 0)))
        batch, (start,) = of.make_batch(store, placement), placement.items * 8
        assert batch.rows.ids[0].tolist() == ids[start + 1 : start + 9][::-1]
        assert batch.labels[0].tolist() == ids[start : start + 8][::-1]

    @pytest.mark.parametrize(("window", "stride"), [(16, None), (8, 3)])
    def test_perplexity_is_that_of_reversed_documents(self, window: int, stride: int | None) -> None:
        of = task(direction="backward")
        model, chunks = small(of), [DocumentChunk(text) for text in DOCUMENTS[:4]]
        found = measure_perplexity(
            model, of.document_tokenizer, chunks, CPU, window=window, stride=stride, backward=True
        )
        expected = 0.0
        for text in DOCUMENTS[:4]:
            ids = np.array([END, *of.tokenizer.encode(text), END])[::-1].tolist()
            for end in range(1, len(ids)):
                step = stride or window
                first = 0 if end <= window else -(-(end - window) // step) * step
                logits = model(sentences_to_rows([ids[first:end]], pad_id=0))[0, -1]
                expected -= float(logits.log_softmax(-1)[ids[end]].detach())
        assert found.nll == pytest.approx(expected)
        assert found.n_tokens == sum(len(of.tokenizer.encode(text)) + 1 for text in DOCUMENTS[:4])

    def test_what_only_a_forward_model_can_do_is_refused(self, models: Path, tmp_path: Path) -> None:
        model: Any = regard.load(models / "transformer-backward", device="cpu")
        assert model.evaluate(str(models / "text.txt"))["perplexity"] > 1
        for use in (lambda: model.generate("the"), lambda: next(model.stream("the")), lambda: model.look("the cat")):
            with pytest.raises(InputError, match=r'reads texts backward \(task.direction = "backward"\) and cannot'):
                use()
        with pytest.raises(
            InputError, match=r'task\.direction = "backward": other libraries read forward, so this model cannot'
        ):
            export_model(models / "transformer-backward", tmp_path / "hf", "hf")

    def test_training_goes_on_in_the_same_direction(self, models: Path, tmp_path: Path) -> None:
        tables = merged(LM, {"data": {"train": [str(models / "text.txt")]}})
        tables["model"], tables["tokenizer"] = {"start": str(models / "rnn-backward")}, {}
        assert ready(tables, tmp_path / "run").config.task.direction == "backward"
