"""Training runs of a comparison: equal recipes, and operation counts over batches of every width."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
import torch

from regard import api, config
from regard.compare import corpora
from regard.compare import training_runs as runs
from regard.compare.corpora import CorpusSize, CorpusSplit
from regard.compare.experiment import ComparisonSettings
from regard.training.plan import _profile_batch, make_plan

SHAPE = {"architecture": "rnn", "preset": "tiny", "d_model": 16, "n_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
TRAIN = {"steps": 3, "batch_tokens": 170, "learning_rate": 1e-3, "warmup": 1}


@pytest.fixture
def split(tmp_path: Path) -> CorpusSplit:
    """Return a corpus of short texts and one that fills more than half of a batch."""
    lines = [*(f"{n} words and more" for n in range(199)), "long " * 17]
    for side in ("source", "target"):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    setting = ComparisonSettings(tmp_path, data=(str(tmp_path / "source"), str(tmp_path / "target")))
    return corpora.prepare_corpus("translate", setting, CorpusSize(0, 5, 5, 0), tmp_path / "text")


def test_every_model_has_the_same_training_settings(split: CorpusSplit) -> None:
    """On a GPU too, where the defaults of recurrent models and Transformers differ."""
    recipe = runs.build_recipe("translate", split, SHAPE, {"vocabulary": 270}, TRAIN)
    assert recipe["train"]["precision"] == "float32"
    assert recipe["train"]["compiled"] is False


def test_operations_are_averaged_over_batches_of_every_width(split: CorpusSplit, tmp_path: Path) -> None:
    recipe = tmp_path / "rnn.toml"
    recipe.write_text(
        config.dump(runs.build_recipe("translate", split, SHAPE, {"vocabulary": 270}, TRAIN)), encoding="utf-8"
    )
    prepared = api.train(recipe, out=tmp_path / "run", device="cpu").prepared
    batches = prepared.train_order.pool_batches(0, 0)
    with torch.device("meta"):
        model = prepared.task.build_model(prepared.config.model)
    shapes = {(batch.n_rows, batch.widths): batch for batch in batches}
    weighed = {shape: _profile_batch(model, prepared, batch) for shape, batch in shapes.items()}
    counts, kept = zip(*(weighed[batch.n_rows, batch.widths] for batch in batches), strict=True)
    widest = max(shapes, key=lambda shape: shape[1])
    assert widest[0] == 1
    assert weighed[widest][0] < 0.8 * fmean(counts)
    sized = make_plan(prepared)
    assert sized.flops == pytest.approx(3 * fmean(counts), rel=0.05)
    assert sized.memory_bytes >= 16 * sized.n_parameters + max(kept)
