"""The Python interface: load a model and use it, train one and follow its events."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import EIGHT, contents, learned, recipe, trained, write_pairs, written
from torch.testing import assert_close

import regard
from regard.api import Translator
from regard.api.inputs import check_texts
from regard.api.training_run import next_run_directory
from regard.errors import CheckpointError, ConfigError, InputError
from regard.generate import length_penalty

SOURCES, TARGETS = [source for source, _ in EIGHT], [target for _, target in EIGHT]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return regard.load(learned(tmp_path_factory.mktemp("api")), device="cpu")


def test_translate_takes_a_text_or_a_list(model: Translator) -> None:
    best = model.translate(SOURCES[0])
    assert [each.text for each in best] == [TARGETS[0]]
    several = model.translate(SOURCES)
    assert [each[0].text for each in several] == TARGETS
    assert several[0][0].score == pytest.approx(best[0].score, abs=1e-4)
    assert model.translate([]) == []


def test_n_best_widens_the_default_beam(model: Translator) -> None:
    best = model.translate(SOURCES[0], n_best=6)
    assert len(best) == 6
    assert len({tuple(each.tokens) for each in best}) == 6
    assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
    with pytest.raises(InputError, match="n-best 6 needs a beam at least as wide"):
        model.translate(SOURCES[0], n_best=6, beam=2)


def test_unknown_keyword_is_a_type_error(model: Translator) -> None:
    for method in (model.translate, model.look, model.evaluate):
        with pytest.raises(TypeError, match="unexpected keyword argument 'beams'"):
            method("1 2 3", beams=4)  # type: ignore[operator]


def test_load_by_class_refuses_another_kind(model: Translator) -> None:
    assert isinstance(Translator.load(model.path, device="cpu"), Translator)
    message = f"^{re.escape(str(model.path))}: a Translator, not a Classifier; load it with regard.Translator.load$"
    with pytest.raises(InputError, match=message):
        regard.Classifier.load(model.path, device="cpu")


def test_repr_names_path_languages_size_and_device(model: Translator, tmp_path: Path) -> None:
    assert repr(model) == f"Translator('{model.path}', {model.n_parameters:,} parameters, cpu)"
    run = regard.train(recipe(tmp_path), out=tmp_path / "run", device="cpu")
    assert re.fullmatch(r"TrainingRun\('.*/run', translate, step 0 of \d+\)", repr(run))
    assert "1 2 3" in repr(model.look("1 2 3"))


@pytest.mark.parametrize(("source", "target", "named"), [("en", "fr", "en -> fr, "), ("en", "", ""), ("", "fr", "")])
def test_repr_names_languages_where_both_are_known(
    model: Translator, monkeypatch: pytest.MonkeyPatch, source: str, target: str, named: str
) -> None:
    config = replace(model.task.config, source_lang=source, target_lang=target)
    monkeypatch.setattr(model.task, "config", config)
    assert repr(model) == f"Translator('{model.path}', {named}{model.n_parameters:,} parameters, cpu)"


def test_nan_in_a_list_is_named() -> None:
    message = "^text 1, counted from 0: expected a str, found nan, a float; drop it or replace it$"
    with pytest.raises(InputError, match=message):
        list(check_texts(["1 2", math.nan]))


def test_columns_may_be_a_str_or_a_sequence(model: Translator, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("".join(f"{target}\t{source}\n" for source, target in EIGHT))
    scores = model.evaluate(str(tmp_path / "test.tsv"), columns="2,1", beam=1)
    assert scores["exact"] == 1.0
    assert model.evaluate([str(tmp_path / "test.tsv")], columns=("2", "1"), beam=1) == scores


def test_translate_iterable_reads_a_generator(model: Translator) -> None:
    translations = model.translate_iterable(itertools.cycle(SOURCES), beam=1)
    assert [best[0].text for best in itertools.islice(translations, 10)] == [*TARGETS, *TARGETS[:2]]


def test_forced_decoding_returns_score_and_attention(model: Translator) -> None:
    forced = model.force_decode(SOURCES[0], TARGETS[0], alpha=0.0)
    n_source = len(model.task.tokenizers.source.encode(SOURCES[0])) + 1
    n_target = len(model.task.tokenizers.target.encode(TARGETS[0])) + 1
    assert forced.attention.shape == (1, 2, n_target, n_source)
    assert_close(forced.attention.sum(-1), torch.ones(1, 2, n_target))
    assert forced.hypothesis.score == pytest.approx(sum(forced.hypothesis.token_scores))
    assert length_penalty(n_target, 0.0) == 1.0
    assert model.force_decode(SOURCES[0], TARGETS[1], alpha=0.0).hypothesis.score < forced.hypothesis.score - 1


def test_evaluate_and_info(model: Translator, tmp_path: Path) -> None:
    scores = model.evaluate(write_pairs(tmp_path, "test", EIGHT), beam=1)
    assert scores["n"] == 8
    assert scores["exact"] == 1.0
    nll = -sum(sum(model.force_decode(*pair).hypothesis.token_scores) for pair in EIGHT)
    assert scores["perplexity"] == pytest.approx(torch.tensor(nll / scores["tokens"]).exp().item(), rel=1e-5)
    about = model.info()
    assert about["parameters"] == sum(weight.numel() for weight in model.network.parameters())
    assert about["training"]["steps"] == 60


def test_iterating_over_a_run_yields_events(tmp_path: Path) -> None:
    path = written(tmp_path, recipe(tmp_path))
    run = regard.train(path, out=tmp_path / "run", overrides=["train.steps=4"], device="cpu")
    events = list(run)
    assert [event.step for event in events if event.kind == "log"] == [1, 2, 3, 4]
    assert events[-1].kind == "end"
    assert run.path == tmp_path / "run"
    assert regard.load(run.path, device="cpu").translate("1 2")


def test_reading_the_path_trains(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    assert regard.train(tables, out=tmp_path / "one", device="cpu").path == tmp_path / "one"
    trained(tables, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_interrupted_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    events = iter(regard.train(tables, out=tmp_path / "one", device="cpu"))
    for _ in range(6):
        next(events)
    events.close()
    with pytest.raises(ConfigError, match="already holds a run"):
        regard.train(tables, out=tmp_path / "one", device="cpu")
    assert regard.train(tables, out=tmp_path / "one", device="cpu", resume=True).path
    trained(tables, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_default_run_directory_is_the_next_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = recipe(tmp_path)
    assert next_run_directory(Path("runs"), tables) == Path("runs/translate-1")
    for number in (1, 2):
        run = regard.train(tables, device="cpu")
        assert run.prepared.directory.path == Path(f"runs/translate-{number}")


def test_loading_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a run directory"):
        regard.load(tmp_path)


def test_loaded_model_is_independent_of_later_training(tmp_path: Path) -> None:
    """The weights are in memory: writing to the run directory does not change a loaded model."""
    tables = recipe(tmp_path)
    model = regard.load(regard.train(tables, out=tmp_path / "run", device="cpu").path, device="cpu")
    before = model.translate("1 2 3", beam=1)
    trained(recipe(tmp_path, {"train": {"steps": 9}}), tmp_path / "run", resume=True)
    assert model.translate("1 2 3", beam=1) == before


def test_importing_regard_imports_no_torch() -> None:
    script = "import sys, regard; assert 'torch' not in sys.modules; regard.load; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_public_names() -> None:
    assert set(dir(regard)) == set(regard.__all__) >= {"load", "train", "Translator", "__version__"}
    for name in regard.__all__:
        assert getattr(regard, name)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        regard.lode  # noqa: B018
