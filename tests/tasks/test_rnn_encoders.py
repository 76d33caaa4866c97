"""Texts read by recurrence, and without any: what needs order, or what comes later, is learned; pools add up."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import contents, ready, trained
from torch import Tensor
from torch.testing import assert_close

import regard
from regard import config
from regard.cli import main
from regard.data.batches import Rows
from regard.data.order import BucketOrder, PackedOrder
from regard.errors import ConfigError, InputError
from regard.models.heads import AttentionPoolingConfig, Pooling, make_text_mask
from regard.nn import edit, record, redundancy_penalty, taps
from regard.tasks.classify import ClassifyConfig
from regard.training.loop import Trainer

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl"]
SHORT = {"steps": 6, "batch_tokens": 128, "learning_rate": 1e-2, "validate_every": 3, "save_every": 2, "log_every": 1}


def ordered(n: int) -> list[tuple[str, str]]:
    """Texts in which one of two words comes first: the same words, so only order tells."""
    generator = random.Random(0)
    found = []
    for _ in range(n):
        words = generator.choices(WORDS, k=generator.randint(4, 8))
        first, second = sorted(generator.sample(range(len(words)), 2))
        label = generator.choice(["xx", "yy"])
        words[first], words[second] = (label, "yy" if label == "xx" else "xx")
        found.append((" ".join(words), label))
    return found


def table(folder: Path, n: int = 300) -> str:
    path = folder / "texts.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ordered(n)))
    return str(path)


def sentences(folder: Path, n: int = 300) -> str:
    """Each word has the label of the next one's first letter."""
    generator = random.Random(1)
    path = folder / "words.conll"
    with path.open("w") as file:
        for _ in range(n):
            words = generator.choices(WORDS, k=generator.randint(2, 7))
            for word, next_word in zip(words, [*words[1:], "."], strict=True):
                file.write(f"{word}\t{next_word[0].upper()}\n")
            file.write("\n")
    return str(path)


def tables(task: dict[str, Any], data: str, model: dict[str, Any], **train: Any) -> config.Tables:
    shape = {"preset": "tiny", "d_model": 24, "dropout": 0.0, **model}
    return {"task": task, "data": {"train": [data]}, "model": shape, "train": {**SHORT, "average": 1, **train}}


def accuracies(tables: config.Tables, out: Path) -> list[float]:
    return [event.values["accuracy"] for event in trained(tables, out) if event.kind == "valid"]


LEARN = {"steps": 120, "batch_tokens": 512, "validate_every": 60, "log_every": 60, "save_every": 60}
RNN = {"architecture": "rnn", "n_layers": 1}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    task = {"name": "classify", "hops": 2, "penalty": 0.1}
    assert accuracies(tables(task, table(folder, 800), RNN, **LEARN), folder / "run")[-1] > 0.95
    return folder / "run"


def test_recurrence_learns_order_which_static_vectors_cannot(classifier: Path, tmp_path: Path) -> None:
    predictions = regard.load(classifier, device="cpu").classify(["ab xx cd yy ef", "yy ab xx"])
    assert [each.label for each in predictions] == ["xx", "yy"]
    static = tables({"name": "classify"}, table(tmp_path, 800), {"architecture": "static"}, **LEARN)
    assert accuracies(static, tmp_path / "static")[-1] < 0.75


def test_static_vectors_learn_what_words_tell(tmp_path: Path) -> None:
    generator = random.Random(2)
    rows = []
    for _ in range(300):
        label = generator.choice(["good", "bad"])
        words = [*generator.choices(WORDS, k=4), "fine" if label == "good" else "poor"]
        generator.shuffle(words)
        rows.append(f"{' '.join(words)}\t{label}\n")
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "".join(rows))
    given = tables({"name": "classify"}, str(tmp_path / "t.tsv"), {"architecture": "static"}, **LEARN)
    assert accuracies(given, tmp_path / "run")[-1] > 0.95
    model = regard.load(tmp_path / "run", device="cpu")
    seen = model.look("ab fine cd")
    (weights,) = seen.view_data("pooling", words=True).arrays
    tokens = seen.view_data("pooling", words=True).sides["encoder"]
    assert tokens[int(weights.values[:, 0].argmax())] == "fine"
    assert_close(weights.values.sum(0), torch.ones(1))


@pytest.mark.parametrize(("directions", "least", "most"), [("both", 0.95, 1.0), ("forward", 0.0, 0.6)])
def test_what_comes_later_is_read_from_the_right(directions: str, least: float, most: float, tmp_path: Path) -> None:
    given = tables({"name": "tag"}, sentences(tmp_path, 500), {**RNN, "directions": directions}, **LEARN)
    given["train"]["learning_rate"] = 2e-2
    assert least <= accuracies(given, tmp_path / "run")[-1] <= most
    if directions == "both":
        model = regard.load(tmp_path / "run", device="cpu")
        assert [each.label for each in model.tag("ab cd ef")][:2] == ["C", "E"]
        assert model.look("ab cd ef").view_data("gradients").arrays


@pytest.mark.parametrize("architecture", ["rnn", "static"])
@pytest.mark.parametrize("name", ["classify", "tag"])
def test_left_and_taken_up_it_ends_as_if_never_left(tmp_path: Path, name: str, architecture: str) -> None:
    data = table(tmp_path, 60) if name == "classify" else sentences(tmp_path, 60)
    shape = {"architecture": architecture, "dropout": 0.2} | ({"n_layers": 2} if architecture == "rnn" else {})
    given = tables({"name": name}, data, shape)
    trained(given, tmp_path / "whole")
    run = Trainer(ready(given, tmp_path / "left")).train()
    for _ in range(5):
        next(run)
    run.close()
    trained(given, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")


def test_an_architecture_brings_the_pooling_that_suits_it(tmp_path: Path) -> None:
    data = table(tmp_path, 60)
    for architecture, pooling, order in (("rnn", "attention", BucketOrder), ("static", "attention", PackedOrder)):
        prepared = ready(tables({"name": "classify"}, data, {"architecture": architecture}), tmp_path / architecture)
        assert prepared.config.task.pooling == pooling
        assert isinstance(prepared.train_order, order)
    recipe = tables({"name": "classify", "pooling": "max"}, data, {"architecture": "rnn"})
    assert ready(recipe, tmp_path / "asked").config.task.pooling == "max"
    default = tables({"name": "classify"}, data, {"n_heads": 2})
    assert ready(default, tmp_path / "usual").config.task.pooling == "cls"
    batch = next(prepared.train_order.iterate())[0]
    assert prepared.task.make_batch(prepared.train_store, batch).labels.shape[1] == batch.widths[0] // 2
    recurrent = ready(tables({"name": "classify"}, data, {"architecture": "rnn"}), tmp_path / "again")
    batch = next(recurrent.train_order.iterate())[0]
    assert recurrent.task.make_batch(recurrent.train_store, batch).labels.shape == (batch.n_rows, 1)


def test_an_architecture_brings_its_rate_and_a_trained_model_has_that_of_fine_tuning(tmp_path: Path) -> None:
    given = tables({"name": "classify"}, table(tmp_path, 60), RNN)
    del given["train"]["learning_rate"]
    trained(given, tmp_path / "first")
    first = ready(given, tmp_path / "first", resume=True)
    then = ready({**given, "model": {"start": str(tmp_path / "first")}}, tmp_path / "then")
    assert first.config.train.learning_rate == 2e-3
    assert then.config.train.learning_rate < 2e-3
    assert then.config.model.architecture == "rnn"


def packed() -> tuple[Tensor, Rows]:
    segment = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 0, 0, 0, 0]], dtype=torch.int32)
    position = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 0, 0, 0, 0]], dtype=torch.int32)
    hidden = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return hidden, Rows(torch.zeros_like(segment), segment, position)


def pooling_of(kind: str) -> Pooling:
    return Pooling(kind, 4, AttentionPoolingConfig(n_hops=2 if kind == "attention" else 1)).double()


@pytest.mark.parametrize("kind", ["cls", "last", "mean", "max", "attention"])
@pytest.mark.parametrize("n_texts", [3, 1])
def test_pools_are_their_definitions(kind: str, n_texts: int) -> None:
    (hidden, rows), pooling = packed(), pooling_of(kind)
    found, own = pooling(hidden, rows, n_texts), make_text_mask(rows, n_texts)
    weights, hops = pooling.token_weights(hidden, rows, own), pooling.hop_weights(hidden, rows, own)
    for row, text, tokens in [(0, 0, slice(0, 3)), (0, 1, slice(3, 5)), (1, 0, slice(0, 2))]:
        if text >= n_texts:
            continue
        part = hidden[row, tokens]
        expected = {"cls": part[0], "last": part[-1], "mean": part.mean(0), "max": part.amax(0)}
        if kind == "attention":
            expected["attention"] = torch.cat([(part @ q / 2).softmax(0) @ part for q in pooling.attention.query])
        assert_close(found[row, text], expected[kind])
        assert_close(weights[row, text].sum(), weights.new_ones(()))
        assert not torch.cat((weights[row, text, : tokens.start], weights[row, text, tokens.stop :])).any()
        assert_close(hops[row, text].mean(0), weights[row, text])
        assert_close(pooling.text_vectors(hidden, rows, n_texts)[row, text], found[row, text].view(-1, 4).mean(0))
    if n_texts == 3:
        assert not found[0, 2].any()
        assert not found[1, 1:].any()
        assert not weights[1, 1:].any()


@pytest.mark.parametrize("kind", ["cls", "last", "mean", "attention"])
def test_pooling_weights_flow_through_one_tap(kind: str) -> None:
    (hidden, rows), pooling = packed(), pooling_of(kind)
    scores = ["attention.scorer.scores", "attention.scorer.masked_scores"] if kind == "attention" else []
    assert list(taps(pooling)) == ["weights", *scores]
    with record(pooling, "*") as recorded:
        pooling(hidden, rows, 3)
    assert list(recorded) == [*scores, "weights"], "every tap fires"
    assert_close(recorded["weights"], pooling.hop_weights(hidden, rows, make_text_mask(rows, 3)))
    with edit(pooling, "weights", torch.zeros_like):
        assert not pooling(hidden, rows, 3).any()


def test_the_largest_are_shared_out_among_the_tokens_that_have_them() -> None:
    hidden = torch.tensor([[[1.0, 5.0, 0.0, 2.0], [3.0, 4.0, 1.0, 2.5], [9.0, 9.0, 9.0, 9.0]]])
    rows = Rows(*(torch.tensor([[1, 1, 0]], dtype=torch.int32) for _ in range(3)))
    assert_close(
        Pooling("max", 4).token_weights(hidden, rows, make_text_mask(rows, 1)), torch.tensor([[[0.25, 0.75, 0.0]]])
    )


def test_hops_that_look_at_the_same_are_penalised(tmp_path: Path) -> None:
    data, shape = table(tmp_path, 60), {"architecture": "rnn", "n_layers": 1}
    losses = []
    for penalty in (0.0, 0.5):
        task = {"name": "classify", "hops": 3, "penalty": penalty}
        prepared = ready(tables(task, data, shape), tmp_path / str(penalty))
        batch = prepared.task.make_batch(prepared.train_store, next(prepared.train_order.iterate())[0])
        losses.append(prepared.task.compute_loss(prepared.model.eval(), batch))
    pooling = prepared.model.heads["pooler"].pooling
    hops = pooling.hop_weights(prepared.model(batch.rows), batch.rows, make_text_mask(batch.rows, 1))[:, 0]
    assert_close(losses[1].total - losses[0].total, 0.5 * redundancy_penalty(hops).sum(), rtol=1e-4, atol=1e-4)
    assert_close(losses[0].nll, losses[1].nll)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": 0, "pooling": "attention"}, "task.hops = 0; expected at least 1 and at most 1,024"),
        (
            {"penalty": -1.0, "pooling": "attention"},
            "task.penalty = -1.0; expected 0 .off. or more and at most 1,0+,0+",
        ),
        ({"hops": 2}, 'task.hops and task.penalty go with task.pooling = "attention", not "cls"'),
        ({"penalty": 0.1, "pooling": "max"}, 'task.hops and task.penalty go with .*, not "max"'),
    ],
)
def test_hops_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        ClassifyConfig(**changes)


def test_it_gives_vectors_of_texts_words_and_tokens(classifier: Path) -> None:
    model = regard.load(classifier, device="cpu")
    texts = ["ab xx cd", "yy", "kl ij gh ef cd ab xx"]
    assert model.embed(texts).shape == (3, 24)
    assert [each.shape for each in model.embed(texts, level="word")] == [(3, 24), (1, 24), (7, 24)]
    for pooling in ("max", "last", "mean"):
        alone = np.stack([model.embed(text, pooling=pooling) for text in texts])
        assert np.abs(model.embed(texts, pooling=pooling) - alone).max() < 1e-5
    assert model.match("ab xx cd", "ab xx cd") == pytest.approx(1)
    assert model.match("ab xx cd", "ab yy cd") < 0.99
    evidence = model.explain_match("ab xx cd", "ef xx")
    assert evidence.score == pytest.approx(model.match("ab xx cd", "ef xx"), abs=1e-4)
    assert len(model.cluster(["ab xx", "xx ab", "yy ef", "yy cd"], 2).labels) == 4
    with pytest.raises(InputError, match="layer 2: this model has 1 layers"):
        model.embed(texts, layers=2)


def test_the_attention_over_its_words_is_what_look_shows(classifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["look", str(classifier), "ab xx cd yy", "--words", "--device", "cpu"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "pooling: weight of each token in the vector of the text" in out
    assert all(word in out for word in ("ab", "xx", "cd", "yy"))
    seen = regard.load(classifier, device="cpu").look("ab xx cd yy")
    (hops,) = seen.view_data("pooling").arrays
    assert_close(hops.values.sum(0), torch.ones(2))
    assert "pooling" in seen.faithfulness().methods


def test_a_text_is_classified_alone_as_in_company(classifier: Path) -> None:
    model = regard.load(classifier, device="cpu")
    texts = [text for text, _ in ordered(30)]
    batched = [each.probability for each in model.classify(texts)]
    assert batched == pytest.approx([model.classify(text).probability for text in texts], abs=1e-5)


def test_it_has_no_counterpart_elsewhere(classifier: Path, tmp_path: Path) -> None:
    from regard.export import export_model

    with pytest.raises(InputError, match=r"model\.architecture = 'rnn' has no Hugging Face equivalent; not exported"):
        export_model(classifier, tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()
