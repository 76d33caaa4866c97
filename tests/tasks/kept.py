"""An encoder as a run directory, without training it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard import config
from regard.data.corpus import SHORTEST_ROW, DataConfig
from regard.models.encoder import TextEncoder
from regard.models.weights import weights_of, write_tensors
from regard.tasks.reading import Reading
from regard.text.vocabulary import TokenizerConfig
from regard.train.run import UNTRAINED, RunConfig, RunDirectory


def kept(task: Reading, model: TextEncoder, path: Path) -> Path:
    """What `regard.load` and every command take."""
    path.mkdir(parents=True)
    made: Any = task
    tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary, joint=True)
    settings = RunConfig(made.config, DataConfig(train=(), max_length=SHORTEST_ROW), tokenizer, model.config, UNTRAINED)
    task.save(path)
    write_tensors(RunDirectory(path).weights, weights_of(model))
    RunDirectory(path).config.write_text(config.dump(settings.tables()), encoding="utf-8")
    return path
