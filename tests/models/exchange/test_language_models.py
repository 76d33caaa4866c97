"""Imported and exported language models: the same generated text as in transformers, and lossless round trips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from language_models import BYTES, DOCUMENTS, LETTERS, small, task
from parity import language_gap, sentences
from saved_runs import kept
from theirs import CASES, Case, save

import regard
from regard.api import LanguageModel
from regard.errors import CheckpointError
from regard.export import export_model
from regard.generate import GenerationConfig
from regard.models.language_model import TransformerLM
from regard.models.weights import collect_weights
from regard.runs.import_export import import_model
from regard.runs.model_loading import open_model
from regard.tasks.lm import LanguageModelTask
from regard.training.pretrained import load_pretrained

CPU = torch.device("cpu")
LANGUAGE = [case for case in CASES if case.family == "GPT-2" and case.model == "GPT2LMHeadModel"]
ENDED = {"bos_token_id": 0, "eos_token_id": 0}
VARIANTS = [
    *LANGUAGE,
    LANGUAGE[0]._replace(name="GPT-2 that ends", options={**LANGUAGE[0].options, **ENDED}),
    LANGUAGE[0]._replace(name="GPT-2 relu", options={**LANGUAGE[0].options, **ENDED, "activation_function": "relu"}),
]
PROMPTS = ["the cat", "a", "Hello, world!\nIt is the", "the " * 12]


def opened(folder: Path) -> tuple[LanguageModelTask, TransformerLM]:
    _, result, model = open_model(folder)
    assert isinstance(result, LanguageModelTask)
    assert isinstance(model, TransformerLM)
    return result, model


def theirs_written(model: Any, ids: list[int], n_tokens: int, **more: Any) -> list[int]:
    """Return the greedy continuation of these ids by transformers."""
    inputs = torch.tensor([ids])
    generation_options = {"do_sample": False, "num_beams": 1, "max_new_tokens": n_tokens, "pad_token_id": 0, **more}
    result = model.generate(inputs, attention_mask=torch.ones_like(inputs), **generation_options)
    new_ids: list[int] = result[0, len(ids) :].tolist()
    return new_ids


@pytest.mark.parametrize("case", VARIANTS, ids=lambda case: case.name)
def test_greedy_generation_equals_transformers(case: Case, tmp_path: Path) -> None:
    theirs = save(case, tmp_path)
    language, ours = opened(tmp_path)
    for prompt in PROMPTS:
        ids = language.tokenizer.encode(prompt)
        n_tokens = min(25, 43 - len(ids))
        expected = theirs_written(theirs, ids, n_tokens)
        ((result,),) = language.make_predictor(ours, CPU).generate(
            [prompt], GenerationConfig(temperature=0.0, max_tokens=n_tokens)
        )
        if language.end_id in expected and "eos_token_id" not in case.options:
            expected = expected[
                : expected.index(language.end_id) + 1
            ]  # the config does not know the end token of this vocabulary
        assert list(result.ids) == expected
        assert result.text == language.tokenizer.decode(expected)


def test_repetition_penalty_equals_transformers(tmp_path: Path) -> None:
    theirs = save(VARIANTS[2], tmp_path)
    language, ours = opened(tmp_path)
    for prompt in PROMPTS[:3]:
        ids = language.tokenizer.encode(prompt)
        expected = theirs_written(theirs, ids, 15, repetition_penalty=1.4)
        manner = GenerationConfig(temperature=0.0, max_tokens=15, repetition_penalty=1.4)
        assert list(language.make_predictor(ours, CPU).generate([prompt], manner)[0][0].ids) == expected


@pytest.mark.parametrize("case", [*VARIANTS, CASES[[c.name for c in CASES].index("GPT-2 body")]], ids=lambda c: c.name)
def test_round_trip_is_lossless(case: Case, tmp_path: Path) -> None:
    save(case, tmp_path / "theirs")
    first, language, model = open_model(tmp_path / "theirs")
    assert isinstance(language, LanguageModelTask)
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    exported = export_model(run, tmp_path / "exported", "hf")
    for folder in (run, exported):
        settings, again, other = open_model(folder)
        assert settings == first
        assert isinstance(again, LanguageModelTask)
        assert all(again.tokenizer.encode(text) == language.tokenizer.encode(text) for text in PROMPTS)
        one, two = collect_weights(model), collect_weights(other)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(exported).eval()
    assert isinstance(model, TransformerLM)
    ids = sentences(290, frozenset({0}), (7, 1, 12, 4))
    assert max(language_gap(model, loaded, ids)) <= 1e-4
    assert max(language_gap(model.double(), loaded.double(), ids)) <= 1e-9


@pytest.mark.parametrize("tokenizer", [BYTES, LETTERS], ids=["bytes", "characters"])
@pytest.mark.parametrize("prompts", ["begin", "bare"])
def test_exported_language_model_equals_transformers(tokenizer: Any, prompts: str, tmp_path: Path) -> None:
    """The same ids with the token before documents, the same logits, the same text."""
    language = task(tokenizer, prompts=prompts, length=32)
    model = small(language, n_positions=32).float()
    kept(language, model, tmp_path / "run")
    exported = export_model(tmp_path / "run", tmp_path / "out", "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(exported).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(exported)
    again, ours = opened(exported)
    assert again.config == language.config
    for text in (*DOCUMENTS[:3], "the  cat\n sat "):
        ids = language.document_tokenizer.make_prompt_ids(language.tokenizer.encode(text))
        assert inputs(text)["input_ids"] == ids
        assert inputs.decode(ids, skip_special_tokens=True) == text
    for prompt in ("the cat", "a dog\n"):
        ids = language.document_tokenizer.make_prompt_ids(language.tokenizer.encode(prompt))
        never = [[token] for token in tokenizer.special_ids - {language.end_id}]
        expected = theirs_written(theirs, ids, 12, **({"bad_words_ids": never} if never else {}))
        for one, network in ((language, model), (again, ours)):
            assert (
                list(
                    one.make_predictor(network, CPU)
                    .generate([prompt], GenerationConfig(temperature=0.0, max_tokens=12))[0][0]
                    .ids
                )
                == expected
            )


def test_load_returns_a_language_model(tmp_path: Path) -> None:
    save(LANGUAGE[0], tmp_path)
    model = regard.load(tmp_path, device="cpu")
    assert isinstance(model, LanguageModel)
    assert model.config.task.prompts == "bare"
    assert model.config.task.length == 43
    assert model.generate("the cat", max_tokens=3)[0].tokens


def changed(folder: Path, name: str, **keys: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    return folder


def test_document_tokens_come_from_the_config(tmp_path: Path) -> None:
    save(LANGUAGE[0], tmp_path)
    changed(tmp_path, "config.json", bos_token_id=7, eos_token_id=5)
    language, _ = opened(tmp_path)
    assert (language.start_id, language.end_id) == (7, 5)
    assert (language.config.start, language.config.end) == (
        language.tokenizer.id_to_token(7),
        language.tokenizer.id_to_token(5),
    )
    run = import_model(tmp_path, tmp_path / "run")
    assert opened(run)[0].end_id == 5
    settings = open_model(export_model(run, tmp_path / "out", "hf"))[0]
    assert settings.task == language.config


def test_other_special_token_templates_are_refused(tmp_path: Path) -> None:
    save(LANGUAGE[0], tmp_path)
    path = tmp_path / "tokenizer.json"
    table = json.loads(path.read_text())
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]
    token = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": token}
    path.write_text(json.dumps({**table, "post_processor": template}))
    with pytest.raises(CheckpointError, match=r"adds special tokens as in 'a <\|endoftext\|>', expected 'a'"):
        open_model(tmp_path)


def test_training_can_start_from_an_imported_model(tmp_path: Path) -> None:
    save(LANGUAGE[0], tmp_path)
    start = load_pretrained({"start": str(tmp_path)}, LanguageModelTask)
    tables = start.complete_recipe({"model": {"start": str(tmp_path)}, "tokenizer": {}, "task": {"name": "lm"}}, "test")
    inherited = {"prompts": "bare", "start": "", "end": "", "direction": "forward"}
    assert tables["task"] == {"name": "lm", "length": 43, **inherited}
    assert tables["tokenizer"]["kind"] == "ready"
