"""Round trips: import, export and import again gives the same model; transformers loads the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity import gap, in_double, language_gap, sentences
from safetensors import safe_open
from theirs import CASES, SIZE, Case, save
from torch import Tensor, nn

from regard.export import export_model
from regard.models import exchange
from regard.models.exchange.pre_norm_seq2seq import PEGASUS
from regard.models.language_model import TransformerLM
from regard.models.weights import collect_weights, read_tensors
from regard.runs.import_export import import_model
from regard.runs.model_loading import open_model

LANGUAGE = [case for case in CASES if case.family == "GPT-2"]
OTHERS = [case for case in CASES if case.family != "GPT-2"]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def theirs_again(directory: Path, **more: Any) -> nn.Module:
    """Load an exported directory by transformers; no tensor may be missing or left over."""
    name = transformers.AutoConfig.from_pretrained(directory).architectures[0]
    model, report = getattr(transformers, name).from_pretrained(directory, output_loading_info=True, **more)
    problems = {key: sorted(value) for key, value in report.items() if value}
    tables = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
    assert set(problems.pop("missing_keys", ())) <= {"final_logits_bias", *tables}
    assert not problems
    loaded: nn.Module = model.eval()
    return loaded


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_round_trip_is_lossless(case: Case, tmp_path: Path) -> None:
    original = save(case, tmp_path / "theirs")
    first, task, model = open_model(tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    again, task_again, model_again = open_model(run)
    assert again == first
    assert task_again.fingerprint == task.fingerprint
    assert same(collect_weights(model), collect_weights(model_again))

    exported = export_model(run, tmp_path / "exported", "hf")
    settings, last_task, last = open_model(exported)
    assert settings == first
    assert same(collect_weights(model), collect_weights(last))
    assert labels(last_task) == labels(task)
    loaded = theirs_again(exported, **case.more)
    assert max(gap(model, loaded, task)) <= 1e-4
    expected = transformers.BartForConditionalGeneration if case.name == "BART body" else type(original)
    assert type(loaded) is expected
    sinusoids = SINUSOIDS if case.family == PEGASUS.name else set()
    stored, exported_tensors = (tensors_of(folder) for folder in (tmp_path / "theirs", exported))
    assert stored.keys() - sinusoids == exported_tensors.keys()
    differing = {
        name
        for name, tensor in stored.items()
        if name not in sinusoids and not torch.equal(exported_tensors[name], tensor)
    }
    assert differing <= (UNUSED if case.options.get("tie_word_embeddings") is False else set())


UNUSED = {"cls.predictions.bias", "lm_head.bias", "shared.weight"}
"""Tensors of untied models that transformers stores and does not use."""

SINUSOIDS = set(PEGASUS.ignored_tensors)
"""Tensors of sinusoids, which are no weights; transformers stores those of Pegasus."""


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Read a file of tensors, by their names in the body of the model."""
    return {
        name.removeprefix("model."): tensor for name, tensor in read_tensors(folder / "model.safetensors")[0].items()
    }


def labels(task: Any) -> tuple[str, ...]:
    return task.labels.names if hasattr(task, "labels") else ()


@pytest.mark.parametrize("case", LANGUAGE, ids=lambda case: case.name)
def test_language_model_round_trip_is_lossless(case: Case, tmp_path: Path) -> None:
    save(case, tmp_path / "theirs")
    models, configs = [], []
    for name in ("theirs", "exported"):
        checkpoint = exchange.read_hf_directory(tmp_path / name)
        model = TransformerLM(checkpoint.config, len(checkpoint.tokenizers.source)).eval()  # type: ignore[arg-type]
        checkpoint.load_into(model)
        models.append(model)
        configs.append(checkpoint.config)
        if name == "theirs":
            exchange.write_hf_directory(tmp_path / "exported", model, checkpoint.task, checkpoint.tokenizers)
    assert configs[0] == configs[1]
    assert same(collect_weights(models[0]), collect_weights(models[1]))
    ids = sentences(SIZE, frozenset({0}), (7, 1, 12, 4))
    loaded = theirs_again(tmp_path / "exported")
    assert max(language_gap(models[0], loaded, ids)) <= 1e-4
    assert max(language_gap(models[0].double(), loaded.double(), ids)) <= 1e-9


def test_exported_file_names_the_framework(tmp_path: Path) -> None:
    save(CASES[0], tmp_path / "theirs")
    out = export_model(tmp_path / "theirs", tmp_path / "out", "hf")
    with safe_open(out / "model.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "pt"


def test_sharded_weights(tmp_path: Path) -> None:
    """Transformers saves large models as several files."""
    theirs = save(CASES[0], tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "whole", max_shard_size="10KB")  # type: ignore[operator]
    (tmp_path / "whole" / "model.safetensors").unlink(missing_ok=True)
    assert len(list((tmp_path / "whole").glob("model-*.safetensors"))) > 1
    _, task, ours = open_model(tmp_path / "whole")
    assert max(gap(ours.double(), in_double(theirs), task)) <= 1e-9


def test_half_precision_is_converted_to_float32(tmp_path: Path) -> None:
    theirs = save(CASES[0], tmp_path)
    theirs.half().save_pretrained(tmp_path)  # type: ignore[operator]
    _, task, ours = open_model(tmp_path)
    assert {weight.dtype for weight in ours.parameters()} == {torch.float32}
    assert max(gap(ours.double(), in_double(theirs), task)) <= 1e-9
