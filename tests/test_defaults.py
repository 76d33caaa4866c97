"""Documented defaults are the defaults: docs/defaults.md is generated from the code, and the prose elsewhere agrees."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import torch

from regard import config
from regard.api.language_model import GenerationConfig
from regard.cli import answer, generate, match, options
from regard.generate.config import DecodingConfig
from regard.models.skip_gram import SkipGramConfig
from regard.predict import translation
from regard.predict.question_answering import AnswerOptions
from regard.tasks.qa import QuestionAnsweringConfig
from regard.tasks.task import TrainingScale
from regard.tasks.vectors import WordVectorConfig, WordVectorTask

DOCS = Path(__file__).parents[1] / "docs"


def stated_default(module: object, phrase: str) -> str:
    """Return the default that the help of an option states."""
    source = Path(module.__file__).read_text(encoding="utf-8")  # type: ignore[attr-defined]
    stated = re.search(rf"{re.escape(phrase)}.*? Default: ([\d.]+\d|\d+|\w+)", source)
    assert stated is not None, phrase
    return stated[1]


def test_page_of_defaults_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("build_defaults", DOCS / "build_defaults.py")
    assert spec is not None
    assert spec.loader is not None
    build_defaults = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_defaults)
    page = (DOCS / "defaults.md").read_text(encoding="utf-8")
    assert build_defaults.render_page() == page, "docs/defaults.md is out of date; run: make docs"


def test_help_states_the_defaults_of_translation() -> None:
    decoding = DecodingConfig()
    assert stated_default(options, "Beam width") == str(decoding.beam_width) == "4"
    assert DecodingConfig(n_best=7).beam_width == 7, "or --n-best if that is more"
    assert stated_default(options, "Length penalty") == str(decoding.alpha)
    assert stated_default(options, "Sentences translated at a time.") == str(decoding.batch)
    text = " ".join((DOCS / "translate.md").read_text(encoding="utf-8").split())
    wanted = f"beam {decoding.beam_width}, alpha {decoding.alpha}, and a maximal length of "
    assert f"{wanted}{translation.MAX_EXTRA_TOKENS} tokens more than the source" in text


def test_help_states_the_defaults_of_other_verbs() -> None:
    assert stated_default(generate, "The largest number of tokens") == str(GenerationConfig().max_tokens)
    assert stated_default(generate, "Below 1 is more conservative") == f"{GenerationConfig().temperature:g}"
    assert stated_default(generate, "Texts generated at a time.") == str(GenerationConfig().batch)
    assert stated_default(match, "The number of lines") == str(match.DEFAULT_TOP)
    for answering in (QuestionAnsweringConfig(), AnswerOptions()):
        assert stated_default(answer, "Margin in log-probability") == f"{answering.threshold:g}"
        assert stated_default(answer, "The largest number of tokens of an answer") == str(answering.max_answer_length)


def test_table_of_word_vectors_states_the_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| ([\d.]+)", (DOCS / "vectors.md").read_text("utf-8"), re.MULTILINE)
    scale = TrainingScale(1000, 10**6, 100, is_finetuning=False)
    tables: config.Tables = {
        "model": SkipGramConfig.presets["small"],
        "task": {field.name: field.default for field in fields(WordVectorConfig)},
        "train": WordVectorTask.training_defaults(scale, torch.device("cpu")),
    }
    assert len(rows) == 6
    for table, key, value in rows:
        assert float(value) == tables[table][key], f"{table}.{key}"
