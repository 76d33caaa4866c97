"""Training of sentence vectors: the loss, the gradient cache, validation, what is learned, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import WORDS
from tiny_runs import contents, merged, ready, recipe, trained
from torch.nn.functional import normalize
from torch.testing import assert_close

import regard
from regard.cli import main
from regard.errors import ConfigError
from regard.export import export_model
from regard.models.heads import Pooling
from regard.predict.encoder_inference import inputs_to_rows
from regard.tasks.embed import EmbedConfig, EmbeddingTask
from regard.text.special_tokens import EncodedInput
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun
from regard.training.step import Objective, _cast_weights

MODEL = {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0}
TRAIN = {"steps": 6, "batch_tokens": 128, "learning_rate": 3e-3, "warmup": 2, "log_every": 1, "average": 1}
RECIPE = {
    "task": {"name": "embed"},
    "data": {"max_length": 32},
    "model": MODEL,
    "train": {**TRAIN, "validate_every": 3, "save_every": 3, "patience": 0},
}
UPPER = {word: f"{word}ish" for word in WORDS}


def word_pairs(n: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Return sets of words, and each set again with other words for the same, in another order."""
    drawn, pairs = random.Random(seed), {}
    while len(pairs) < n:
        words = drawn.sample(WORDS, 4)
        pairs[" ".join(words)] = " ".join(UPPER[word] for word in drawn.sample(words, 4))
    return list(pairs.items())


def write_table(path: Path, rows: list[tuple[str, ...]]) -> str:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def pairs_recipe(folder: Path, *changes: dict[str, Any], n: int = 40) -> dict[str, Any]:
    pairs = word_pairs(n + 8)
    files = {
        "train": [write_table(folder / "train.tsv", pairs[8:])],
        "valid": [write_table(folder / "valid.tsv", pairs[:8])],
    }
    return merged(RECIPE, {"data": files}, *changes)


def triples_recipe(folder: Path, *changes: dict[str, Any]) -> dict[str, Any]:
    """Every third hard negative is the positive of another pair, one is its own."""
    pairs = word_pairs(30)
    rows = [(*pair, other[0] if number % 3 else other[1]) for number, (pair, other) in enumerate(pairwise(pairs))]
    rows[4] = (*rows[4][:2], rows[4][1])
    data = write_table(folder / "triples.tsv", rows)
    return merged(RECIPE, {"data": {"train": [data], "valid": [data]}}, *changes)


def batch_of(prepared: PreparedRun) -> Any:
    placement, _ = next(prepared.train_order.iterate())
    return prepared.task.make_batch(prepared.train_store, placement), placement


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_loss_of_packed_rows_is_that_of_texts_one_by_one(tmp_path: Path, pooling: str, symmetric: bool) -> None:
    task_table = {"task": {"pooling": pooling, "symmetric": symmetric, "temperature": 0.3}}
    prepared = ready(triples_recipe(tmp_path, task_table), tmp_path / "run")
    batch, placement = batch_of(prepared)
    task, model, store = prepared.task, prepared.model.eval(), prepared.train_store
    assert isinstance(task, EmbeddingTask)
    assert len(placement.items) > placement.n_rows, "some texts share a row"

    def embed(column: str) -> tuple[list[bytes], torch.Tensor]:
        ids = [store[column][item].tolist() for item in placement.items]
        rows = [inputs_to_rows([EncodedInput(each, len(each), 1, 0)], task.template.pad_id) for each in ids]
        pool = Pooling(pooling, 32)
        vectors = torch.cat([pool(model(each), each, 1)[:, 0] for each in rows])  # type: ignore[operator]
        return [str(each).encode() for each in ids], normalize(vectors, dim=-1).double()

    (a, va), (p, vp), (n, vn) = (embed(column) for column in ("text", "positive", "negative"))
    forward = backward = 0.0
    for i in range(len(a)):
        compared = [j for j in range(len(p)) if j == i or not {a[j], p[j]} & {a[i], p[i]}]
        hard = [j for j in range(len(n)) if n[j] not in (a[i], p[i])]
        logits = torch.cat([va[i] @ vp[compared].T, va[i] @ vn[hard].T]) / 0.3
        forward += (logits.logsumexp(0) - logits[compared.index(i)]).item()
        logits = vp[i] @ va[compared].T / 0.3
        backward += (logits.logsumexp(0) - logits[compared.index(i)]).item()
    loss = task.compute_loss(model, batch)  # type: ignore[arg-type]
    assert int(loss.n_tokens) == batch.n_tokens == len(a)
    assert_close(float(loss.total.detach()), (forward + backward) / 2 if symmetric else forward, rtol=1e-4, atol=1e-4)


def gradients(prepared: PreparedRun, dtype: torch.dtype, chunk_tokens: int) -> dict[str, torch.Tensor]:
    task, model = prepared.task, prepared.model.train()
    assert isinstance(task, EmbeddingTask)
    batch, _ = batch_of(prepared)
    task.config = EmbedConfig(**{**vars(task.config), "chunk_tokens": chunk_tokens})
    model.zero_grad()
    torch.manual_seed(0)
    _cast_weights(Objective(model, task.compute_loss), dtype)(batch).total.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_cache_changes_no_bit(tmp_path: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout: chunks whose graphs are kept, and the same chunks encoded anew in the backward pass."""
    tables = triples_recipe(tmp_path, {"model": {"dropout": 0.5}, "train": {"batch_tokens": 256}})
    prepared = ready(tables, tmp_path / "run")
    cached = gradients(prepared, dtype, 64)
    monkeypatch.setattr("regard.models.pooled_vectors.checkpoint", lambda encode, rows, **_: encode(rows))
    kept = gradients(prepared, dtype, 64)
    assert cached.keys() == kept.keys() == dict(prepared.model.named_parameters()).keys()
    assert all(torch.equal(gradient, kept[name]) for name, gradient in cached.items())
    assert any(not torch.equal(gradient, kept[name]) for name, gradient in gradients(prepared, dtype, 0).items())


def test_gradient_cache_gives_the_gradient_of_the_whole_batch_and_keeps_less(tmp_path: Path) -> None:
    prepared = ready(pairs_recipe(tmp_path, {"train": {"batch_tokens": 256}}, n=60), tmp_path / "run")
    whole, cached = (gradients(prepared, torch.float32, chunk) for chunk in (0, 32))
    for name, gradient in whole.items():
        assert_close(cached[name], gradient, rtol=1e-4, atol=1e-6)
    batch, _ = batch_of(prepared)
    kept = []
    for chunk in (0, 32):
        prepared.task.config = EmbedConfig(chunk_tokens=chunk)  # type: ignore[attr-defined]
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: s.append(x.numel()) or x, lambda x: x):  # type: ignore[misc, func-returns-value]
            prepared.task.compute_loss(prepared.model, batch)
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2


def test_it_learns(tmp_path: Path) -> None:
    """New sets of words find their translations among 60: chance is about 0.08."""
    changes = {
        "train": {"steps": 120, "batch_tokens": 512, "learning_rate": 1e-2, "validate_every": 60, "log_every": 60}
    }
    events = trained(pairs_recipe(tmp_path, changes, n=300), tmp_path / "run")
    assert events[-1].values["mrr"] > 0.9
    model = regard.SentenceEncoder.load(tmp_path / "run", device="cpu")
    test = write_table(tmp_path / "test.tsv", word_pairs(60, seed=9))
    scores = model.evaluate(test)
    assert (scores["task"], scores["n"]) == ("embed", 60)
    assert scores["mrr"] > 0.9
    assert scores["accuracy_at_5"] > 0.95
    assert "mean pooling" in repr(model)
    vectors = model.embed(["the cat", "a dog"])
    assert_close(np.linalg.norm(vectors, axis=1), np.ones(2, np.float32))
    assert model.match("the cat runs", "runsish catish theish") > model.match("the cat runs", "dogish redish mat") + 0.3
    evidence = model.explain_match("the cat runs", "catish")
    assert float(evidence.values.sum()) == pytest.approx(evidence.score)
    assert model.info()["task"] == "embed"


def test_sentences_by_themselves_learn_with_dropout_alone(tmp_path: Path) -> None:
    """The two encodings differ in training, and are one in validation, where the loss decides."""
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("".join(f"{first}\n" for first, _ in word_pairs(60)), encoding="utf-8")
    changes = {"model": {"dropout": 0.1}, "train": {"steps": 40, "validate_every": 20, "learning_rate": 1e-2}}
    tables = merged(RECIPE, {"data": {"train": [str(sentences)], "valid": [str(sentences)]}}, changes)
    events = trained(tables, tmp_path / "run")
    losses = [event.values["valid_loss"] for event in events if event.kind == "valid"]
    assert losses[-1] < losses[0]
    assert "mrr" not in events[-1].values
    prepared = ready(tables, tmp_path / "run", resume=True)
    (batch, _), task = batch_of(prepared), prepared.task
    assert batch.positives is None
    assert isinstance(task, EmbeddingTask)
    sides = [task._embed_batch(prepared.model.train(), batch, "anchors") for _ in range(2)]  # type: ignore[arg-type]
    assert not torch.equal(*sides)
    with pytest.raises(ConfigError, match=r"single sentences cannot score vectors; give pairs"):
        regard.SentenceEncoder.load(tmp_path / "run", device="cpu").evaluate(str(sentences))


def test_scored_pairs_choose_by_their_correlation(tmp_path: Path) -> None:
    """The score is the number of common words; training is on pairs."""
    drawn, rows = random.Random(3), []
    for _ in range(60):
        first = drawn.sample(WORDS, 4)
        kept = drawn.randint(0, 4)
        others = drawn.sample([word for word in WORDS if word not in first], 4 - kept)
        rows.append((" ".join(first), " ".join(UPPER[word] for word in [*first[:kept], *others]), str(kept)))
    scored = write_table(tmp_path / "scored.tsv", rows)
    changes = {
        "train": {"steps": 100, "batch_tokens": 512, "learning_rate": 1e-2, "validate_every": 20, "log_every": 50}
    }
    tables = merged(pairs_recipe(tmp_path, changes, n=300), {"data": {"valid": [scored]}})
    events = trained(tables, tmp_path / "run")
    assert events[-1].values["spearman"] > 0.7
    model = regard.SentenceEncoder.load(tmp_path / "run", device="cpu")
    found = model.evaluate(scored)
    assert found["spearman"] == pytest.approx(events[-1].values["spearman"], abs=1e-6)
    cosines = [model.match(first, second) for first, second, _ in rows]
    expected = np.mean([(cosine - int(score) / 4) ** 2 for cosine, (*_, score) in zip(cosines, rows, strict=True)])
    best = max((event.values for event in events if event.kind == "valid"), key=lambda values: values["spearman"])
    assert best["valid_loss"] == pytest.approx(expected, rel=1e-3)


def test_validation_is_what_evaluate_says(tmp_path: Path) -> None:
    tables = triples_recipe(tmp_path)
    prepared = ready(tables, tmp_path / "run")
    task, model = prepared.task, prepared.model.eval()
    found = task.compute_validation_metrics(model, prepared.valid_store, prepared.scored_examples, torch.device("cpu"))
    expected = task.evaluate(model, tables["data"]["valid"], (), False, torch.device("cpu"))  # type: ignore[attr-defined]
    assert found == pytest.approx({key: value for key, value in expected.items() if key not in ("task", "n")})
    assert 0 < found["mrr"] < 1


@pytest.mark.parametrize("make_recipe", [pairs_recipe, triples_recipe])
def test_a_killed_run_continues_exactly(tmp_path: Path, make_recipe: Callable[..., dict[str, Any]]) -> None:
    changes = {"model": {"dropout": 0.1}, "task": {"chunk_tokens": 64}, "train": {"validate_every": 2, "save_every": 2}}
    tables = make_recipe(tmp_path, changes)
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(6):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")


@pytest.mark.parametrize("architecture", ["rnn", "static"])
def test_other_encoders_learn_too(tmp_path: Path, architecture: str) -> None:
    tables = pairs_recipe(tmp_path, {"train": {"steps": 60, "batch_tokens": 512, "learning_rate": 1e-2}}, n=300)
    shape = {"preset": "tiny", "d_model": 32, "dropout": 0.0, "architecture": architecture}
    tables["train"] |= {"validate_every": 60, "log_every": 60, "save_every": 60}
    assert trained({**tables, "model": shape}, tmp_path / "run")[-1].values["mrr"] > 0.6


def test_long_texts_are_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = word_pairs(40)
    pairs[20] = (" ".join(WORDS * 9), pairs[20][1])
    data = write_table(tmp_path / "long.tsv", pairs)
    prepared = ready(merged(RECIPE, {"data": {"train": [data], "valid": [data]}}), tmp_path / "run")
    assert prepared.train_store["text"].lengths.max() == 32
    err = capsys.readouterr().err
    assert "1 texts of 40 examples to train on are truncated to the first 32 tokens; raise task.length" in err


def test_it_starts_from_a_language_model_or_an_encoder_but_not_from_a_translator(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(pair) for pair in word_pairs(60)), encoding="utf-8")
    small = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "n_positions": 64}
    steps = {"steps": 2, "batch_tokens": 128, "validate_every": 2, "average": 1}
    for task in ("lm", "pretrain"):
        base = {
            "task": {"name": task, "length": 32},
            "data": {"train": [str(text)]},
            "model": {"preset": "tiny", **small},
        }
        trained(merged(base, {"train": steps}), tmp_path / task)
        tables = pairs_recipe(tmp_path)
        tables = {**tables, "tokenizer": {}, "model": {"start": str(tmp_path / task)}}
        prepared = ready(tables, tmp_path / f"from-{task}")
        assert prepared.config.task.pooling == {"lm": "last", "pretrain": "mean"}[task]
        trained(tables, tmp_path / f"from-{task}", resume=True)
        assert regard.load(tmp_path / f"from-{task}", device="cpu").embed("the cat").shape == (32,)  # type: ignore[union-attr]
    trained(recipe(tmp_path, {"train": {"steps": 2}}), tmp_path / "translator")
    tables = {**pairs_recipe(tmp_path), "tokenizer": {}, "model": {"start": str(tmp_path / "translator")}}
    with pytest.raises(
        ConfigError, match=r"a model for translate; embed cannot start from it; leave out --from, or name"
    ):
        ready(tables, tmp_path / "refused")


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
def test_sentence_transformers_directory_has_its_pooling(tmp_path: Path, pooling: str) -> None:
    """What sentence-transformers reads; docs/embed.md has the comparison with the library itself."""
    changes = {"task": {"pooling": pooling, "length": 24}, "model": {"positions": "learned", "norm": "post"}}
    trained(pairs_recipe(tmp_path, changes), tmp_path / "run")
    out = export_model(tmp_path / "run", tmp_path / "out", "hf")
    modules = json.loads((out / "modules.json").read_text())
    assert [each["type"].rpartition(".")[2] for each in modules] == ["Transformer", "Pooling", "Normalize"]
    modes = json.loads((out / "1_Pooling" / "config.json").read_text())
    names = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}
    assert [key for key, value in modes.items() if value is True] == [f"pooling_mode_{names[pooling]}"]
    assert json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"] == 24
    texts = ["the cat", "a dog runsish"]
    ours, back = (regard.load(path, device="cpu").embed(texts) for path in (tmp_path / "run", out))  # type: ignore[union-attr]
    np.testing.assert_allclose(back, ours, atol=1e-6)


MISTAKES = [
    (["pairs.tsv", "--set", "task.temperature=0"], "task.temperature = 0.0; expected more than 0 and at most 1,000"),
    (["pairs.tsv", "--set", "train.freeze=encoder"], 'train.freeze = "encoder": vectors have no head, so nothing is'),
    (["pairs.tsv", "--set", "task.pooling=attention"], "task.pooling = 'attention'; accepted: mean, cls, max, last"),
    (["one.tsv"], "one.tsv: 1 column; expected two texts"),
    (["side.tsv"], "side.tsv:2: empty anchor; drop the line or pass --skip-empty"),
    (["blank.tsv"], "blank.tsv:3: empty negative; drop the line or pass --skip-empty"),
    (["scored.tsv"], "scored.tsv: scored pairs: training takes pairs that belong together; pass them as --valid"),
    (["few.tsv", "--valid", "pairs.tsv"], "few.tsv: 1 example has no negatives; give at least two"),
    (["nine.tsv"], "pairs or sentences: only 9, too few to hold some out for validation; pass --valid with files"),
    (["lines.txt", "--set", "model.dropout=0"], "model.dropout = 0, but dropout is the only difference between the"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(each) for each, _ in MISTAKES])
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = word_pairs(30)
    write_table(Path("pairs.tsv"), pairs)
    write_table(Path("one.tsv"), [(first,) for first, _ in pairs])
    write_table(Path("side.tsv"), [pairs[0], ("", "a"), *pairs[1:]])
    write_table(Path("blank.tsv"), [(*pair, "" if number == 2 else "x") for number, pair in enumerate(pairs)])
    write_table(Path("scored.tsv"), [(*pair, "0.5") for pair in pairs])
    write_table(Path("few.tsv"), pairs[:1])
    write_table(Path("nine.tsv"), pairs[:9])
    Path("lines.txt").write_text("".join(f"{first}\n" for first, _ in pairs))
    with pytest.raises(SystemExit) as ended:
        main(["train", "embed", *arguments, "--out", "run", "--device", "cpu"])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert not Path("run/config.toml").exists()
