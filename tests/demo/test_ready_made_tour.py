"""The end of the tour, with tiny models in place of the ready-made ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ready_made_package import ENTRIES, build, install, write_index
from sources import WORDPIECE, encoder, save

from regard.demo import ready_made_tour
from regard.demo.ready_made_tour import OPINION, SENTENCES, show_ready_made
from regard.export import export_model
from regard.look.compute import faithfulness, gradients
from regard.tasks.embed import EmbedConfig, EmbeddingTask


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = install(build(tmp_path / "built"), tmp_path / "site", monkeypatch)
    monkeypatch.setenv("REGARD_MODELS", str(directory))
    run = save(encoder(EmbeddingTask(EmbedConfig(), WORDPIECE)), tmp_path / "vectors")
    export_model(run, directory / "vectors", "regard")
    vectors = {"directory": "vectors", "task": "embed", "languages": ["en"], "licence": "MIT"}
    names = {"en-fr": "toy-en-fr", "sentiment-en": "toy-mood"}
    write_index(directory, {name: ENTRIES[toy] for name, toy in names.items()} | {"sentences-en": vectors})
    return directory


def test_every_model_is_shown(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ready_made_tour, "SENTENCE", "the red cat")
    monkeypatch.setattr(gradients, "N_INTEGRATION_STEPS", 4)
    monkeypatch.setattr(faithfulness, "N_RANDOM_ORDERS", 2)
    capsys.readouterr()
    show_ready_made(tmp_path, "cpu")
    lines = capsys.readouterr().err.splitlines()
    text = "\n".join(lines)
    assert "en-fr: the red cat" in text
    assert " ← " in text
    assert (tmp_path / "look.html").stat().st_size > 10_000
    assert "tive (" in text  # negative or positive, with its probability
    assert len(re.findall(r"^ +\S+ +[+-]\d\.\d\d  [+-]*$", text, re.MULTILINE)) > len(OPINION.split())
    neighbours = [line.split("  ")[-1] for line in lines[-3:]]
    assert set(neighbours) < set(SENTENCES)
    assert "not among" not in text


def test_what_is_missing_takes_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGARD_MODELS", "")
    show_ready_made(tmp_path, "cpu")
    first, *others = capsys.readouterr().err.strip().splitlines()
    assert first.startswith("5. ready-made models")
    assert [line.split()[0] for line in others] == ["en-fr", "sentiment-en", "sentences-en"]
    assert all(line.endswith("is not among the installed models") for line in others)
    assert list(tmp_path.iterdir()) == []
