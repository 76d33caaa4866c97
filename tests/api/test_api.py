"""regard from Python: load a model and use it, train one and watch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import language_models
import pytest
import torch
from saved_runs import kept
from tiny_runs import EIGHT, contents, learned, recipe, trained, write_pairs, written
from torch.testing import assert_close

import regard
from regard.api import Translator
from regard.api.training_run import next_run_directory
from regard.errors import CheckpointError, ConfigError, InputError
from regard.generate import length_penalty

SOURCES, TARGETS = [source for source, _ in EIGHT], [target for _, target in EIGHT]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return regard.load(learned(tmp_path_factory.mktemp("api")), device="cpu")


def test_a_text_gives_its_translations_and_a_list_gives_a_list_of_them(model: Translator) -> None:
    best = model.translate(SOURCES[0])
    assert [each.text for each in best] == [TARGETS[0]]
    several = model.translate(SOURCES)
    assert [each[0].text for each in several] == TARGETS
    assert several[0][0].score == pytest.approx(best[0].score, abs=1e-4)
    assert model.translate([]) == []


def test_n_best_widens_the_beam_where_nobody_says_otherwise(model: Translator) -> None:
    best = model.translate(SOURCES[0], n_best=6)
    assert len(best) == 6
    assert len({tuple(each.tokens) for each in best}) == 6
    assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
    with pytest.raises(InputError, match="n-best 6 needs a beam at least as wide"):
        model.translate(SOURCES[0], n_best=6, beam=2)


def test_an_unknown_option_is_named(model: Translator) -> None:
    for ask in (model.translate, model.look):
        with pytest.raises(InputError, match=r"^unknown option 'beams'; did you mean 'beam'\?$"):
            ask("1 2 3", beams=4)


def test_a_stream_gives_each_text_with_its_translations(model: Translator) -> None:
    found = model.translate_iterable(iter([SOURCES[:1], SOURCES[1:3]]), beam=1)
    assert next(found)[0] == SOURCES[0]
    assert [(text, best[0].text) for text, best in found] == list(zip(SOURCES[1:3], TARGETS[1:3], strict=True))


def test_forced_decoding_scores_a_given_text_and_shows_what_it_looked_at(model: Translator) -> None:
    forced = model.force_decode(SOURCES[0], TARGETS[0], alpha=0.0)
    n_source = len(model.task.tokenizers.source.encode(SOURCES[0])) + 1
    n_target = len(model.task.tokenizers.target.encode(TARGETS[0])) + 1
    assert forced.attention.shape == (1, 2, n_target, n_source)
    assert_close(forced.attention.sum(-1), torch.ones(1, 2, n_target))
    assert forced.hypothesis.score == pytest.approx(sum(forced.hypothesis.token_scores))
    assert length_penalty(n_target, 0.0) == 1.0
    assert model.force_decode(SOURCES[0], TARGETS[1], alpha=0.0).hypothesis.score < forced.hypothesis.score - 1


def test_evaluation_and_information(model: Translator, tmp_path: Path) -> None:
    scores = model.evaluate(write_pairs(tmp_path, "test", EIGHT), beam=1)
    assert scores["n"] == 8
    assert scores["exact"] == 1.0
    nll = -sum(sum(model.force_decode(*pair).hypothesis.token_scores) for pair in EIGHT)
    assert scores["perplexity"] == pytest.approx(torch.tensor(nll / scores["tokens"]).exp().item(), rel=1e-5)
    about = model.info()
    assert about["parameters"] == sum(weight.numel() for weight in model.network.parameters())
    assert about["training"]["steps"] == 60


def test_training_may_be_watched(tmp_path: Path) -> None:
    path = written(tmp_path, recipe(tmp_path))
    run = regard.train(path, out=tmp_path / "run", overrides=["train.steps=4"], device="cpu")
    events = list(run)
    assert [event.step for event in events if event.kind == "log"] == [1, 2, 3, 4]
    assert events[-1].kind == "end"
    assert run.path == tmp_path / "run"
    assert regard.load(run.path, device="cpu").translate("1 2")


def test_asking_for_the_path_trains(tmp_path: Path) -> None:
    tables = recipe(tmp_path)
    assert regard.train(tables, out=tmp_path / "one", device="cpu").path == tmp_path / "one"
    trained(tables, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_run_left_half_way_is_taken_up(tmp_path: Path) -> None:
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


def test_without_a_place_the_next_free_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = recipe(tmp_path)
    assert next_run_directory(Path("runs"), tables) == Path("runs/translate-1")
    for number in (1, 2):
        run = regard.train(tables, device="cpu")
        assert run.prepared.directory.path == Path(f"runs/translate-{number}")


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a run directory"):
        regard.load(tmp_path)


def test_a_model_says_the_same_after_training_has_gone_on(tmp_path: Path) -> None:
    """What was loaded is in memory: it does not change under the feet of who uses it."""
    tables = recipe(tmp_path)
    model = regard.load(regard.train(tables, out=tmp_path / "run", device="cpu").path, device="cpu")
    before = model.translate("1 2 3", beam=1)
    trained(recipe(tmp_path, {"train": {"steps": 9}}), tmp_path / "run", resume=True)
    assert model.translate("1 2 3", beam=1) == before


def test_importing_regard_imports_no_torch() -> None:
    script = "import sys, regard; assert 'torch' not in sys.modules; regard.load; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_names() -> None:
    assert set(regard.__all__) >= {"load", "train", "__version__"}
    for name in regard.__all__:
        assert getattr(regard, name)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        regard.lode  # noqa: B018


def test_an_option_that_a_writer_does_not_have(tmp_path: Path) -> None:
    of = language_models.task(language_models.LETTERS)
    model = regard.load(kept(of, language_models.small(of).float(), tmp_path / "model"), device="cpu")
    for call in (model.generate, model.stream):
        with pytest.raises(InputError, match=r"^unknown option 'topk'; did you mean 'top_k'\?$"):
            call("the", topk=3)
    with pytest.raises(InputError, match="unknown option 'beam'; known: max_tokens, temperature, top_k"):
        model.generate("the", beam=3)
