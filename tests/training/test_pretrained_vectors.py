"""Models that start from word vectors: classifiers, taggers and recurrent translators, frozen or tuned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import digits, merged, ready, trained, write_pairs

from regard import config
from regard.data.word_vectors import WordVectorTable, write_word_vectors
from regard.errors import ConfigError, DataError
from regard.runs.run_directory import RunDirectory
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun

WORDS = ["good", "bad", "film", "unseen", "awful"]
VECTORS = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32) * 3
SHORT = {"steps": 3, "batch_tokens": 64, "validate_every": 3, "average": 1}


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    write_word_vectors(tmp_path / "vectors.txt", WordVectorTable(WORDS, VECTORS))
    return str(tmp_path / "vectors.txt")


def classify(folder: Path, **changes: config.Table) -> config.Tables:
    lines = [f"the {word} film\t{word}" for word in ("good", "bad")] * 20
    (folder / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    files = [str(folder / "train.tsv")]
    return merged({"task": {"name": "classify"}, "data": {"train": files, "valid": files}, "train": SHORT}, changes)


def rows_of(run: PreparedRun, words: list[str]) -> torch.Tensor:
    tokenizer = run.task.tokenizers.source
    name = "embedding" if hasattr(run.model, "embedding") else "source_embedding"
    weight: torch.Tensor = getattr(run.model, name).tokens.weight.detach()
    return weight[[tokenizer.encode_words([word])[0][0] for word in words]]


def test_words_with_a_vector_get_it(tmp_path: Path, vectors: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = ready(classify(tmp_path, model={"start": vectors}), tmp_path / "run")
    assert run.config.model.architecture == "static"
    assert run.config.tokenizer.kind == "words"
    assert run.config.tokenizer.lowercase
    found = rows_of(run, WORDS)
    ratio = found / torch.from_numpy(VECTORS)
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-4, atol=0)  # one factor for all
    assert float(found.square().mean()) * 8 == pytest.approx(1, rel=0.4)  # as random vectors: variance 1 / width
    # 3 of the 5 words of the vectors are in the text; "the" has none: 40 of 120 words
    assert "vectors for 5 of 6 tokens, which are 66.7% of the training text" in capsys.readouterr().err


def test_frozen_vectors_stay_and_tuned_ones_move(tmp_path: Path, vectors: str) -> None:
    for freeze in ("embeddings", "none"):
        tables = classify(tmp_path, model={"start": vectors}, train={"freeze": freeze})
        run = ready(tables, tmp_path / freeze)
        before = rows_of(run, WORDS[:2]).clone()
        list(Trainer(run).train())
        assert torch.equal(before, rows_of(run, WORDS[:2])) == (freeze == "embeddings")
        assert torch.equal(
            RunDirectory(tmp_path / freeze).load()[2].embedding.tokens.weight, run.model.embedding.tokens.weight
        )


def test_the_vocabulary_of_the_recipe_limits_that_of_the_vectors(tmp_path: Path, vectors: str) -> None:
    tables = classify(tmp_path, model={"start": vectors}, tokenizer={"vocabulary": 9})
    assert ready(tables, tmp_path / "run").task.vocabulary_size == 9


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
def test_a_tagger_starts_from_vectors(tmp_path: Path, vectors: str, kind: str) -> None:
    (tmp_path / "train.conll").write_text("the O\ngood A\nfilm N\n\nthe O\nbad A\nfilm N\n\n" * 20)
    files = [str(tmp_path / "train.conll")]
    tables: config.Tables = {
        "task": {"name": "tag"},
        "data": {"train": files, "valid": files},
        "model": {"start": vectors, "architecture": "rnn", "n_layers": 1},
        "tokenizer": {"kind": kind},
        "train": SHORT,
    }
    found = rows_of(ready(tables, tmp_path / kind), ["good", "bad", "film"])
    ratio = found / torch.from_numpy(VECTORS[:3])
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-4, atol=0)
    trained(tables, tmp_path / kind, resume=True)


def test_a_recurrent_translator_keeps_its_subwords(tmp_path: Path) -> None:
    write_word_vectors(tmp_path / "digits.bin", WordVectorTable(["1", "2", "3"], VECTORS[:3]))
    files = write_pairs(tmp_path, "train", digits(24))
    tables: config.Tables = {
        "task": {"name": "translate"},
        "data": {"train": files, "valid": files, "max_length": 32},
        "tokenizer": {"vocabulary": 266},
        "model": {"start": str(tmp_path / "digits.bin"), "preset": "tiny", "n_layers": 1, "n_decoder_layers": 1},
        "train": SHORT,
    }
    run = ready(tables, tmp_path / "run")
    assert run.config.model.architecture == "rnn"
    assert run.config.tokenizer.kind == "bpe"
    ratio = rows_of(run, ["1", "2", "3"]) / torch.from_numpy(VECTORS[:3])
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-4, atol=0)


def test_a_run_of_vectors_is_a_start_as_well(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(["the good film", "the bad film"] * 30))
    tables: config.Tables = {
        "task": {"name": "vectors", "subsample": 0.0},
        "data": {"train": [str(tmp_path / "text.txt")]},
        "model": {"d_model": 8},
        "train": {"steps": 2, "batch_tokens": 512},
    }
    trained(tables, tmp_path / "vectors")
    run = ready(classify(tmp_path, model={"start": str(tmp_path / "vectors")}), tmp_path / "run")
    assert run.config.model.d_model == 8


FAULTS: dict[str, tuple[config.Tables, str]] = {
    "width": ({"model": {"d_model": 16}}, "model.d_model = 16, but the vectors of .*vectors.txt have 8 numbers"),
    "architecture": ({"model": {"architecture": "transformer"}}, "pass --architecture static or rnn"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_refused(tmp_path: Path, vectors: str, fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(ConfigError, match=message):
        ready(merged(classify(tmp_path, model={"start": vectors}), changes), tmp_path / "run")


def test_pretraining_cannot_start_from_vectors(tmp_path: Path, vectors: str) -> None:
    (tmp_path / "text.txt").write_text("a film\n\na book\n" * 20)
    tables: config.Tables = {
        "task": {"name": "pretrain"},
        "data": {"train": [str(tmp_path / "text.txt")]},
        "model": {"start": vectors},
    }
    with pytest.raises(ConfigError, match="pretrain cannot start a model from word vectors; leave out --from"):
        ready(tables, tmp_path / "run")


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("a 1 2\nb 1\n")
    with pytest.raises(DataError, match=r"bad.txt:2: 1 numbers for 'b'"):
        ready(classify(tmp_path, model={"start": str(tmp_path / "bad.txt")}), tmp_path / "run")
