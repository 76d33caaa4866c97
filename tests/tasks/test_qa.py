"""Question answering: labels of windows, the loss against its definition, and models that learn to answer."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import CPU, DISTINCT, distinct_words
from questions import questions, random_model, write_questions
from tiny_runs import contents, merged, ready, trained
from torch.testing import assert_close

import regard
from regard.data.corpus import write_store
from regard.data.labels import Labels
from regard.data.order import PackedOrder
from regard.errors import ConfigError, InputError
from regard.models.exchange import write_hf_directory
from regard.nn import IGNORE
from regard.predict.encoder_inference import inputs_to_rows
from regard.runs.run_directory import RunDirectory
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.training.loop import Trainer

TOKENIZER = distinct_words()


def make_task(**settings: Any) -> QuestionAnsweringTask:
    return QuestionAnsweringTask(QuestionAnsweringConfig(**settings), TOKENIZER, Labels(("answer",)))


def example(context: str, question: str, *answers: tuple[str, int]) -> tuple[str, str, str]:
    return context, question, json.dumps(answers)


def test_start_and_end_are_labelled() -> None:
    context = "am, an ao ap"
    _, _, starts, ends, texts = make_task().encode(
        [
            example(context, "aq", ("an ao", 4), ("am", 0)),
            example(context, "aq ar", ("n a", 5)),  # cut out of two words, which are labelled whole
            example(context, "aq"),
        ]
    )
    assert list(zip(starts, ends, strict=True)) == [(5, 6), (6, 7), (0, 0)]  # after [CLS] aq [SEP] am ,
    assert [json.loads(text)[1] for text in texts] == ["aq", "aq ar", "aq"]


def test_only_windows_with_the_whole_answer_are_labelled_with_it() -> None:
    words = DISTINCT[:40]
    context, answer = " ".join(words), " ".join(words[11:13])
    ids, _, starts, ends, texts = make_task(length=16, stride=3).encode(
        [example(context, "zz", (answer, context.index(answer)))]
    )
    assert len(ids) > 10
    gold = TOKENIZER.encode(answer)
    for each, start, end in zip(ids, starts, ends, strict=True):
        is_inside = any(each[i : i + 2] == gold for i in range(len(each)))
        assert each[start : end + 1] == gold if is_inside else (start, end) == (0, 0)
    assert 1 < sum(start > 0 for start in starts) < len(starts)
    assert [bool(text) for text in texts] == [True, *[False] * (len(ids) - 1)]


def test_an_answer_without_tokens_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = make_task(max_answer_length=1)
    entries = [example("am \x01 an", "aq", ("\x01", 3)), example("am an", "aq", ("am an", 0))]
    store = write_store(tmp_path / "train", entries, task, fingerprint="")
    assert store.values("start").tolist() == [IGNORE, 3]
    capsys.readouterr()
    task.warn_about_encoded_data(store)
    stderr = capsys.readouterr().err
    assert "1 of 2 windows to train on have an answer without tokens: left out" in stderr
    assert "1 answers to train on have more tokens than task.max_answer_length = 1" in stderr
    placement = next(PackedOrder(task.example_lengths(store), [64], 1, seed=0).iterate_epoch())
    assert task.make_batch(store, placement).n_tokens == 1


@pytest.mark.parametrize("pooling", ["none", "attention"])
def test_loss_equals_its_definition(pooling: str, tmp_path: Path) -> None:
    """Question by question, by a softmax over the tokens of its context and [CLS]; packed, in any order."""
    task = make_task(pooling=pooling)
    model = random_model(task)
    entries = [
        example("am an ao ap", "aq", ("an ao", 3)),
        example("am an", "aq ar as"),
        example("ao ap am an at au", "av aw", ("au", 15)),
    ]
    store = write_store(tmp_path / "train", entries, task, fingerprint="")
    batch = task.make_batch(store, next(PackedOrder(task.example_lengths(store), [64], 1, seed=0).iterate_epoch()))
    assert batch.rows.ids.shape == (1, 64)
    loss = task.compute_loss(model, batch)
    total = 0.0
    for number, (_, window) in enumerate(task._window_encoder(64).encode([(q, c) for c, q, _ in entries])):
        rows = inputs_to_rows([window.encoded], task.template.pad_id)
        with torch.no_grad():
            logits = task.make_predictor(model, CPU).compute_logits(model(rows), rows)[0].tolist()
        candidates = [0, *range(window.context_start, len(window.encoded.ids) - 1)]
        for side, name in enumerate(("start", "end")):
            gold = int(store.values(name)[number])
            total += math.log(sum(math.exp(logits[p][side]) for p in candidates)) - logits[gold][side]
    assert int(loss.n_tokens) == batch.n_tokens == 3
    assert_close(float(loss.total.detach()), total / 2, rtol=1e-4, atol=1e-5)
    loss.total.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


RECIPE = {
    "task": {"name": "qa", "length": 48},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 120, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 15, "validate_every": 60},
}
RNN = {"model": {"architecture": "rnn", "n_layers": 1, "d_model": 32}}


def recipe(data: str, *changes: dict[str, Any]) -> dict[str, Any]:
    return merged(RECIPE, {"data": {"train": [data], "valid": [data]}}, *changes)


@pytest.fixture(scope="module")
def squad2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained on questions of which a third has no answer."""
    folder = tmp_path_factory.mktemp("qa")
    data = write_questions(folder / "data.jsonl", questions(240, unanswered=0.33))
    trained(recipe(data), folder / "run")
    return folder / "run"


def test_it_learns_also_that_there_is_no_answer(squad2: Path) -> None:
    model = regard.QuestionAnswerer.load(squad2, device="cpu")
    new = write_questions(squad2.parent / "new.jsonl", questions(100, seed=9, unanswered=0.33))
    scores = model.evaluate(new)
    assert scores["task"] == "qa"
    assert scores["n"] == 100
    for name in ("exact_match", "f1", "answerable_f1", "unanswerable_f1", "best_f1"):
        assert scores[name] > 0.95, (name, scores)
    assert scores["best_f1"] >= scores["f1"]
    found = model.answer([("which city", "There is A Dog Near A Tokyo."), ("which city?", "There is A Fox.")])
    assert [each.text for each in found] == ["Tokyo", ""]
    assert (found[0].start, found[0].end) == (22, 27)
    assert found[1].no_answer_score == found[1].score > 0.9
    assert model.answer("which city", "There is A Fox.", no_answer=False).text != ""
    labels = json.loads((squad2 / "labels.json").read_text())
    assert labels["labels"] == ["answer", "no answer"]
    assert sum(labels["counts"]) == 240


def test_validation_scores_whole_questions_as_evaluate_does(squad2: Path, tmp_path: Path) -> None:
    """Contexts of several windows included."""
    words = " ".join(f"a Fox near a {city}." for city in ("Rome", "Oslo", "Paris") * 8)
    entries = [*questions(30, unanswered=0.3), {"question": "which city", "context": words, "answers": ["Rome"]}] * 2
    data = write_questions(tmp_path / "long.jsonl", entries)
    tables = {"task": {"name": "qa", "length": 48}, "data": {"train": [data], "valid": [data]}}
    prepared = ready({**tables, "model": {"start": str(squad2)}, "train": {"steps": 2}}, tmp_path / "run")
    task, model = prepared.task, prepared.model.eval()
    assert isinstance(task, QuestionAnsweringTask)
    assert len(prepared.valid_store) > 62 + 4
    found = task.compute_validation_metrics(model, prepared.valid_store, prepared.scored_examples, CPU)  # type: ignore[arg-type]
    expected = task.evaluate(model, [data], (), False, CPU)  # type: ignore[arg-type]
    assert found == pytest.approx({key: value for key, value in expected.items() if key not in ("task", "n")})


@pytest.mark.parametrize("changes", [RNN, {"model": {"architecture": "static"}}], ids=["rnn", "static"])
def test_other_encoders_answer_too(changes: dict[str, Any], tmp_path: Path) -> None:
    """A recurrent one pools the question by attention; each answers by itself."""
    data = write_questions(tmp_path / "data.jsonl", questions(240))
    model = {"preset": "tiny", "d_model": 32, "dropout": 0.0, **changes["model"]}
    tables = {**recipe(data), "model": model}
    tables["train"] = {**tables["train"], "steps": 100, "validate_every": 100}
    trained(tables, tmp_path / "run")
    loaded = regard.QuestionAnswerer.load(tmp_path / "run", device="cpu")
    assert loaded.task.config.pooling == "attention"
    new = write_questions(tmp_path / "new.jsonl", questions(60, seed=9))
    assert loaded.evaluate(new)["exact_match"] > 0.95
    assert loaded.answer("which city", "There is A Dog Near A Tokyo.").no_answer_score is None


def test_a_killed_run_continues_exactly(tmp_path: Path) -> None:
    tables = recipe(write_questions(tmp_path / "data.jsonl", questions(40, unanswered=0.3)))
    tables = merged(tables, {"train": {"steps": 6, "validate_every": 2, "save_every": 2, "log_every": 1}})
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(6):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")


def test_questions_of_one_context_are_held_out_together(tmp_path: Path) -> None:
    drawn = questions(40)
    twice = [{**entry, "question": f"{entry['question']}{mark}"} for entry, mark in product(drawn, ("", "?"))]
    tables = merged(RECIPE, {"data": {"train": [write_questions(tmp_path / "data.jsonl", twice)]}})
    prepared = ready(tables, tmp_path / "run")
    contexts = [
        {json.loads(store["question"][i].tobytes())[0] for i in range(len(store))}
        for store in (prepared.train_store, prepared.valid_store)
    ]
    assert contexts[0]
    assert contexts[1]
    assert not contexts[0] & contexts[1]


def test_data_without_any_answer_is_refused(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "data.jsonl", questions(40, unanswered=1.0))
    with pytest.raises(ConfigError, match="no question has an answer: nothing to learn"):
        ready(recipe(data), tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 8}, "task.length = 8"),
        ({"stride": 0}, "task.stride = 0; expected at least 1"),
        ({"max_answer_length": 0}, "task.max_answer_length = 0; expected at least 1"),
        ({"threshold": math.nan}, "task.threshold = nan; expected at least -1,000,000,000 and at most 1,000,000,000"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        QuestionAnsweringConfig(**settings)


def test_fine_tuning_starts_from_a_pretrained_encoder(squad2: Path, tmp_path: Path) -> None:
    """Another model's head fits, so a trained one answers before the first step."""
    _, _, before = RunDirectory(squad2).load()
    data = write_questions(tmp_path / "data.jsonl", questions(40))
    tables = {"task": {"name": "qa"}, "data": {"train": [data], "valid": [data]}, "model": {"start": str(squad2)}}
    prepared = ready(merged(tables, {"train": {"steps": 2}}), tmp_path / "run")
    loaded = dict(prepared.model.named_parameters())
    assert all(np.array_equal(weight.detach(), loaded[name].detach()) for name, weight in before.named_parameters())


def test_look_explains_the_start_and_the_end_in_the_window_of_the_answer(squad2: Path) -> None:
    model = regard.QuestionAnswerer.load(squad2, device="cpu")
    context = f"{'There is A Fox. ' * 12}There is A Dog Near A Tokyo. {'There is A Cat. ' * 12}"
    answer = model.answer("which city", context)
    assert answer.text
    seen = model.look("which city", context)
    assert len(seen.tokens["encoder"]) <= 48 < len(model.task.tokenizer.encode(context))
    first, *_, last = 2 * answer.text.split()
    assert seen.look_target.output_labels == (f"start: {first}", f"end: {last}")
    probabilities = seen.look_target.explained_outputs().exp()
    assert float(probabilities.detach().prod()) == pytest.approx(answer.score, rel=1e-4)
    gradients = seen.gradients()
    assert gradients.integrated_gradients.shape == (len(seen.tokens["encoder"]), 2)
    assert seen.attribution().shape == (len(seen.tokens["encoder"]),) * 2
    nothing = model.look("which city", "There is A Fox.")
    assert nothing.look_target.output_labels == ("start: [CLS]", "end: [CLS]")
    assert str(nothing.about["prediction"]).startswith("no answer (")


def test_a_pooled_question_has_no_equivalent_elsewhere(tmp_path: Path) -> None:
    task = make_task(pooling="attention")
    model = random_model(task, norm="post", positions="learned", embedding="normed")
    with pytest.raises(InputError, match=r'task.pooling = "attention": BERT has only "none" under a head'):
        write_hf_directory(tmp_path / "out", model, {"name": "qa"}, task.tokenizers)
    assert not (tmp_path / "out").exists()
