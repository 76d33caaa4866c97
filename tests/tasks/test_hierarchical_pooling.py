"""Pooling by words, then sentences: against loops, in packed rows as alone, learned, looked at, and refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import ENCODER_SPECIAL_TOKENS
from tiny_runs import ready, trained
from torch import Tensor, nn
from torch.testing import assert_close

import regard
from regard import config
from regard.cli import main
from regard.data.batches import Rows
from regard.data.order import BucketOrder
from regard.errors import ConfigError, InputError
from regard.models.heads import AttentionPoolingConfig, Pooling, make_text_mask
from regard.models.hierarchical_pooling import number_sentences
from regard.nn import record, taps
from regard.tasks.classify import ClassifyConfig
from regard.text.sentence_boundaries import find_closing_tokens
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer
from regard.training.plan import make_plan

CLOSING = [False] * 8 + [True, True]
"""Of ten tokens the last two close a sentence."""

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl"]


def sentence_numbers(ids: list[int]) -> list[int]:
    """The rule for one text, token by token."""
    numbers, number = [], 1
    for i, token in enumerate(ids):
        if i and CLOSING[ids[i - 1]] and not CLOSING[token]:
            number += 1
        numbers.append(number)
    return numbers


def rows_of(*rows: list[list[int]]) -> Rows:
    width = max(sum(map(len, row)) for row in rows) + 1
    ids = torch.full((len(rows), width), 8, dtype=torch.int32)  # padding closes a sentence, if it is asked
    segment, position = torch.zeros_like(ids), torch.zeros_like(ids)
    for r, row in enumerate(rows):
        start = 0
        for number, text in enumerate(row, 1):
            here = slice(start, start + len(text))
            ids[r, here], segment[r, here] = torch.tensor(text, dtype=torch.int32), number
            position[r, here] = torch.arange(len(text), dtype=torch.int32)
            start += len(text)
    return Rows(ids, segment, position)


TOKEN_IDS = [[0, 1, 2, 8, 3, 4, 9, 8, 5], [1, 8], [2, 3, 4], [0, 8, 1, 9], [7, 6, 8, 5, 5, 8, 4, 8, 3, 9]]
ROWS = ([TOKEN_IDS[0], TOKEN_IDS[1], TOKEN_IDS[2]], [TOKEN_IDS[3]], [TOKEN_IDS[4], TOKEN_IDS[2]])


def test_sentences_are_numbered_by_the_rule() -> None:
    assert sentence_numbers(TOKEN_IDS[0]) == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    rows = rows_of(*ROWS)
    found = number_sentences(rows, torch.tensor(CLOSING))
    for row, texts in enumerate(ROWS):
        expected, before = [], 0
        for text in texts:
            expected += [before + number for number in sentence_numbers(text)]
            before = expected[-1]
        assert found[row].tolist() == expected + [0] * (found.shape[1] - len(expected))


def test_end_marks_and_separators_close_a_sentence() -> None:
    texts = ["a cat . it ran ! why ?? well ... 3.5 x. #"] * 3
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind="wordpiece", vocabulary=80), ENCODER_SPECIAL_TOKENS)
    closing = find_closing_tokens(tokenizer)
    named = {
        token for token, closes in zip(tokenizer.display_tokens(range(len(tokenizer))), closing, strict=True) if closes
    }
    assert {".", "!", "?", "[SEP]"} <= named
    assert not named & {"[CLS]", "[PAD]", "a", "3", "#", "cat"}


def hierarchical(**changes: Any) -> Pooling:
    torch.manual_seed(1)
    return Pooling("hierarchical", 6, AttentionPoolingConfig(**changes), CLOSING).double()


def attend(module: Any, vectors: Tensor, changes: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Attention pooling of one sequence, by its definition."""
    keys = module.key_projection(vectors)
    if changes.get("score") == "additive":
        scores = torch.tanh(module.scorer.hidden(keys)) @ module.query[0]
    else:
        scores = keys @ module.query[0] / (6**0.5 if changes.get("score", "scaled") == "scaled" else 1.0)
    weights = scores.softmax(0)
    return weights, weights @ module.value_projection(vectors)


def pooled_by_loops(
    pooling: Pooling, text: list[int], hidden: Tensor, changes: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Return the weights of tokens and the vector of one text."""
    numbers, module = torch.tensor(sentence_numbers(text)), pooling.hierarchy
    parts = [attend(module.words, hidden[numbers == n], changes) for n in range(1, int(numbers.max()) + 1)]
    vectors = torch.stack([vector for _, vector in parts])
    encoder = nn.GRU(6, 3, bidirectional=True).double()
    layer = module.sentence_encoder
    weights = [*layer.forward_rnn.cell.parameters(), *layer.backward_rnn.cell.parameters()]
    with torch.no_grad():
        for theirs, ours in zip(encoder.parameters(), weights, strict=True):
            theirs.copy_(ours)
    by_sentence, vector = attend(module.sentences, encoder(vectors)[0], changes)
    return torch.cat([part * weight for (part, _), weight in zip(parts, by_sentence, strict=True)]), vector


@pytest.mark.parametrize(
    "changes", [{}, {"score": "additive", "project": True}, {"score": "dot", "project": True, "query": "ones"}], ids=str
)
def test_pooling_equals_loops_in_packed_rows(changes: dict[str, Any]) -> None:
    pooling, rows = hierarchical(**changes), rows_of(*ROWS)
    hidden = torch.randn(*rows.ids.shape, 6, dtype=torch.float64)
    found, own = pooling(hidden, rows, 4), make_text_mask(rows, 4)
    weights = pooling.token_weights(hidden, rows, own)
    assert found.shape == (3, 4, 6)
    for row, texts in enumerate(ROWS):
        for number, text in enumerate(texts):
            mask = rows.segment[row] == number + 1
            by_token, vector = pooled_by_loops(pooling, text, hidden[row, mask], changes)
            assert_close(found[row, number], vector, rtol=1e-10, atol=1e-12)
            assert_close(weights[row, number, mask], by_token, rtol=1e-10, atol=1e-12)
            assert not weights[row, number, ~mask].any()
        assert not found[row, len(texts) :].any()
        assert not weights[row, len(texts) :].any()
    assert_close(pooling.text_vectors(hidden, rows, 4), found)


def test_both_levels_are_taps() -> None:
    pooling, rows = hierarchical(), rows_of([TOKEN_IDS[0]])
    hidden = torch.randn(*rows.ids.shape, 6, dtype=torch.float64)
    assert {"hierarchy.words.weights", "hierarchy.sentences.weights"} <= set(taps(pooling))
    with record(pooling, "*.weights") as recorded:
        pooling(hidden, rows, 1)
    words, sentences = (recorded[f"hierarchy.{level}.weights"] for level in ("words", "sentences"))
    assert words.shape == (1, 3, 1, rows.ids.shape[1])
    assert sentences.shape == (1, 1, 1, 3)
    product = (sentences[0, 0, 0, :, None] * words[0, :, 0]).sum(0)
    assert_close(product, pooling.token_weights(hidden, rows, make_text_mask(rows, 1))[0, 0])


def test_gradients_reach_every_weight() -> None:
    pooling, rows = hierarchical(score="additive", project=True), rows_of(*ROWS)
    pooling(torch.randn(*rows.ids.shape, 6, dtype=torch.float64), rows, 3).sin().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in pooling.parameters())
    assert all(weight.grad.any() for name, weight in pooling.named_parameters() if "weight" in name or "query" in name)


def documents(folder: Path, n: int) -> str:
    """Write documents of three sentences; a word in one of them is the label."""
    generator = random.Random(0)
    lines = []
    for _ in range(n):
        sentences = [generator.choices(WORDS, k=generator.randint(2, 4)) for _ in range(3)]
        label = generator.choice(["xx", "yy"])
        sentences[generator.randrange(3)][0] = label
        lines.append(" . ".join(" ".join(words) for words in sentences) + f" .\t{label}\n")
    path = folder / "documents.tsv"
    path.write_text("text\tlabel\n" + "".join(lines))
    return str(path)


def tables(folder: Path, architecture: str, n: int = 120, **task: Any) -> config.Tables:
    shape = {"static": {}, "rnn": {"n_layers": 1, "cell": "gru"}}.get(
        architecture, {"n_layers": 1, "n_heads": 2, "d_ff": 32}
    )
    data = documents(folder, n)
    return {
        "task": {"name": "classify", "pooling": "hierarchical", "score": "additive", **task},
        "data": {"train": [data], "valid": [data]},
        "model": {"preset": "tiny", "architecture": architecture, "d_model": 16, "dropout": 0.0, **shape},
        "train": {"steps": 60, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 5, "validate_every": 30},
    }


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hierarchical")
    trained(tables(folder, "static"), folder / "run")
    return folder / "run"


TEXT = "ab cd . xx kl ij . gh ef ."


def test_it_learns_and_loads(run_directory: Path) -> None:
    model = regard.load(run_directory, device="cpu")
    assert model.evaluate(str(run_directory.parent / "documents.tsv"))["accuracy"] > 0.95
    alone = [model.classify(text).probability for text in (TEXT, "yy ab .")]
    batched = [each.probability for each in model.classify([TEXT, "yy ab ."])]
    assert alone == pytest.approx(batched, abs=1e-5)
    assert model.classify(TEXT).label == "xx"


@pytest.mark.parametrize("architecture", ["transformer", "rnn"])
def test_every_text_has_a_row_of_its_own_in_training(architecture: str, tmp_path: Path) -> None:
    given = tables(tmp_path, architecture, 40)
    given["train"] |= {"steps": 2, "validate_every": 2}
    prepared = ready(given, tmp_path / "run")
    assert isinstance(prepared.train_order, BucketOrder)
    assert prepared.config.train.compiled is False
    batch = prepared.task.make_batch(prepared.train_store, next(prepared.train_order.iterate())[0])
    assert batch.labels.shape[1] == 1
    loss = prepared.task.compute_loss(prepared.model.eval(), batch)
    assert loss.total.isfinite()
    with torch.autocast("cpu", torch.bfloat16):
        low = prepared.task.compute_loss(prepared.model, batch)
    assert_close(low.total.float(), loss.total, rtol=0.05, atol=0.05)
    assert make_plan(prepared).flops > 0
    with pytest.raises(ConfigError, match=r'but task\.pooling = "hierarchical" has batches of many'):
        ready({**tables(tmp_path, "transformer", 40), "train": {"compiled": True}}, tmp_path / "compiled")


def test_look_shows_sentences_and_words(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = regard.load(run_directory, device="cpu").look(TEXT)
    arrays = {array.name: array for array in seen.view_data("pooling", words=True).arrays}
    assert arrays["sentences"].axes[0].labels == ("1: ab cd .", "2: xx kl ij .", "3: gh ef .")
    weights, words = arrays["weights"].values[:, 0], arrays["words"].values
    sentences = arrays["sentences"].values
    assert_close(sentences.sum(), torch.ones(()))
    owner = torch.tensor([0] * 4 + [1] * 4 + [2] * 4)  # [CLS] is in the first sentence, [SEP] in the last
    assert_close(weights, words * sentences[owner], rtol=1e-4, atol=1e-6)
    assert_close(torch.zeros(3).index_add(0, owner, words), torch.ones(3))
    with pytest.raises(SystemExit) as ended:
        main(["look", str(run_directory), TEXT, "--view", "pooling", "--words", "--device", "cpu"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "pooling: weight of each sentence in the vector of the text" in out
    assert f"sentence 2: xx kl ij . (weight {float(sentences[1]):.2f}); in it: " in out


def test_the_page_and_json_hold_both_levels(run_directory: Path, tmp_path: Path) -> None:
    seen = regard.load(run_directory, device="cpu").look(TEXT)
    seen.save(tmp_path / "look.json", "pooling")
    assert "2: xx kl ij ." in (tmp_path / "look.json").read_text()
    assert {"sentences", "words", "weights"} <= set(
        json.dumps(json.loads((tmp_path / "look.json").read_text())).split('"')
    )
    seen.save(tmp_path / "look.html")
    assert "2: xx kl ij ." in (tmp_path / "look.html").read_text()


def test_vectors_of_documents(run_directory: Path) -> None:
    model = regard.load(run_directory, device="cpu")
    texts = [TEXT, "yy ab .", "ab . cd . ef . gh ."]
    batched = model.embed(texts)
    assert batched.shape == (3, 16)
    assert np.abs(batched - np.stack([model.embed(text) for text in texts])).max() < 1e-5
    with pytest.raises(InputError, match="a vector pooled over sentences is not a sum over tokens"):
        model.explain_match(TEXT, "yy ab .")
    assert -1 <= model.match(TEXT, "yy ab .") <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": "dot"}, 'task.query, task.score and task.project go with task.pooling = "attention" or '
         '"hierarchical", not "cls"'),
        ({"pooling": "mean", "project": True}, 'task.query, task.score and task.project go with task.pooling = '
         '"attention" or "hierarchical", not "mean"'),
        ({"pooling": "hierarchical", "hops": 2}, 'task.hops and task.penalty go with task.pooling = "attention", not '
         '"hierarchical"'),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ClassifyConfig(**changes)
    assert str(refused.value) == message


def test_odd_widths_are_refused(tmp_path: Path) -> None:
    given = tables(tmp_path, "static", 20)
    given["model"]["d_model"] = 15
    with pytest.raises(ConfigError, match=r"model\.d_model = 15 is odd; hierarchical pooling needs an even width"):
        ready(given, tmp_path / "run")
