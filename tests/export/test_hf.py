"""Exports to transformers: models that it has under another notation of positions give the same there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sources import WORDPIECE, encoder, language_model, save, translator, usage_of

from regard.data.labels import Labels
from regard.errors import InputError
from regard.export import export_model
from regard.export.exporting import write_and_compare
from regard.export.hf_format import HFFormat
from regard.export.source_model import SourceModel
from regard.models.exchange import to_exchangeable
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.tasks.tag import TagConfig, TaggingTask

NAMES = Labels(("no", "yes"))
SOURCES: dict[str, Any] = {
    "MarianMTModel": lambda: translator(norm="post"),
    "MarianMTModel, halves": lambda: translator(norm="post", positions="sinusoidal-halves", tied=False),
    "MarianMTModel, two vocabularies": lambda: translator(norm="post", joint=False, embedding="plain"),
    "PegasusForConditionalGeneration": lambda: translator(),
    "PegasusForConditionalGeneration, untied": lambda: translator(tied=False, activation="silu", output_bias=True),
    "BlenderbotForConditionalGeneration": lambda: translator(positions="learned"),
    "BlenderbotForConditionalGeneration, plain": lambda: translator(positions="learned", embedding="plain", tied=False),
    "BartForConditionalGeneration": lambda: translator(
        norm="post", positions="learned", embedding="normed", first_position=2
    ),
    "GPT2LMHeadModel": lambda: language_model(),
    "GPT2LMHeadModel, sinusoidal": lambda: language_model(positions="sinusoidal"),
    "GPT2LMHeadModel, none": lambda: language_model(positions="none", tied=False),
    "BertModel": lambda: encoder(PretrainingTask(PretrainConfig(length=32, objective="pooled"), WORDPIECE)),
    "BertForMaskedLM, sinusoidal": lambda: encoder(
        PretrainingTask(PretrainConfig(length=32, objective="masked"), WORDPIECE), positions="sinusoidal"
    ),
    "BertForPreTraining": lambda: encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE)),
    "BertForSequenceClassification": lambda: encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, NAMES)),
    "BertForTokenClassification": lambda: encoder(TaggingTask(TagConfig(), WORDPIECE, NAMES)),
    "BertForQuestionAnswering": lambda: encoder(
        QuestionAnsweringTask(QuestionAnsweringConfig(), WORDPIECE, Labels(("answer",)))
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_exported_models_give_the_same(name: str, tmp_path: Path) -> None:
    comparison = write_and_compare(SOURCES[name](), tmp_path / "model", HFFormat(), "")
    assert f'"{name.partition(",")[0]}"' in (tmp_path / "model/config.json").read_text(encoding="utf-8")
    assert 0 <= max(comparison.largest.values()) < 5e-5
    assert ("pooler_output" in comparison.largest) == (name == "BertModel")


@pytest.mark.parametrize(
    "name", ["PegasusForConditionalGeneration", "GPT2LMHeadModel", "BertForSequenceClassification"]
)
def test_card_has_a_script_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save(SOURCES[name](), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    out = export_model(run, Path("there"), "hf")
    capsys.readouterr()
    exec(usage_of(out / "README.md"), {})
    assert capsys.readouterr().out.strip()


def test_the_model_itself_stays_as_it_was() -> None:
    source = translator()
    before = {name: weight.clone() for name, weight in source.model.state_dict().items()}
    other: Any = to_exchangeable(source.model)
    assert other.config.positions == "sinusoidal-halves"
    assert source.network.config.positions == "sinusoidal"
    assert all(weight.equal(before[name]) for name, weight in source.model.state_dict().items())
    halves = translator(positions="sinusoidal-halves")
    assert to_exchangeable(halves.model) is halves.model


def test_a_difference_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of sines and cosines is taken for that of the other library, without reordering."""

    def mistake(model: Any) -> Any:
        if model.config.positions == "sinusoidal":
            object.__setattr__(model.config, "positions", "sinusoidal-halves")
        return model

    monkeypatch.setattr("regard.models.exchange.exporting.to_exchangeable", mistake)
    run = save(translator(), tmp_path / "run")
    with pytest.raises(InputError, match="transformers: not the same model: logits differs by"):
        export_model(run, tmp_path / "out", "hf")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_what_it_lacks_is_refused() -> None:
    cases: list[tuple[SourceModel, str]] = [
        (translator(joint=False), "tokenizer.joint = false: Pegasus has one vocabulary"),
        (translator(positions="rotary"), 'model.positions = "rotary": Pegasus has only "sinusoidal-halves"'),
        (language_model(positions="rotary"), 'model.positions = "rotary": GPT-2 has only "learned"'),
    ]
    for source, message in cases:
        with pytest.raises(InputError) as refused:
            HFFormat().check_expressible(source)
        assert str(refused.value) == f"{message}, so this model cannot be exported as one"
