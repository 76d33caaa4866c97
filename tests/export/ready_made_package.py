"""A package of tiny ready-made models, installed in a folder as pip would: a package, its metadata, an entry point."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sources import WORDPIECE, encoder, save, translator

from regard.config import dump
from regard.data.labels import Labels
from regard.export import export_model
from regard.tasks.classify import ClassificationTask, ClassifyConfig

PACKAGE = "toy_models"
ENTRIES = {
    "toy-en-fr": {
        "directory": "toy-translator",
        "task": "translate",
        "languages": ["en", "fr"],
        "licence": "CC BY 2.0",
    },
    "toy-fr-en": {
        "directory": "toy-translator",
        "task": "translate",
        "languages": ["fr", "en"],
        "licence": "CC BY 2.0",
    },
    "toy-mood": {"directory": "toy-mood", "task": "classify", "languages": ["en"], "licence": "MIT"},
}
SCORES = {"BLEU": 31.5, "chrF": 50}


def build(site: Path) -> Path:
    """Make a package and its metadata in a folder."""
    models, metadata = site / PACKAGE, site / f"{PACKAGE}-0.1.dist-info"
    for directory in (models, metadata):
        directory.mkdir(parents=True)
    (models / "__init__.py").write_text("raise ImportError('nobody imports it')\n")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[regard.models]\ntoy = {PACKAGE}\n")
    mood = encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, Labels(("negative", "positive"))))
    sources = {"toy-translator": translator(task={"source_lang": "en", "target_lang": "fr"}), "toy-mood": mood}
    for name, source in sources.items():
        run = save(source, site / "runs" / name)
        export_model(run, models / name, "regard", quantization="int8", licence="mit")
    write_index(models, ENTRIES)
    return site


def install(built: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy what `build` made, put it on the path, and return the directory of the models."""
    shutil.copytree(built, site)
    monkeypatch.delenv("REGARD_MODELS", raising=False)
    monkeypatch.syspath_prepend(site)
    return site / PACKAGE


def write_index(models: Path, entries: dict[str, dict[str, object]]) -> None:
    """Write index.toml; the first name has scores."""
    text = dump(entries)
    first = next(iter(entries), "")
    inline = ", ".join(f'"{name}" = {value}' for name, value in SCORES.items())
    text = text.replace(f"[{first}]\n", f"[{first}]\nscores = {{ {inline} }}\n", 1)
    (models / "index.toml").write_text(text, encoding="utf-8")
