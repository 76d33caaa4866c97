"""docs/api.md is generated: it must equal what the docstrings say now."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

import regard
from regard.look.corpus.clusters import Clusters
from regard.look.corpus.match import MatchEvidence
from regard.look.corpus.senses import WordSenses
from regard.look.inspection import Inspection

DOCS = Path(__file__).parents[2] / "docs"
MODELS = (
    *(regard.Translator, regard.LanguageModel, regard.MaskedLanguageModel, regard.Classifier, regard.Tagger),
    *(regard.TextEncoder, regard.Model),
)
RESULTS = (Inspection, MatchEvidence, Clusters, WordSenses, regard.Comparison)


def test_api_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("build_api", DOCS / "build_api.py")
    assert spec is not None
    assert spec.loader is not None
    build_api = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_api)
    assert build_api.render_page() == (DOCS / "api.md").read_text(), "docs/api.md is out of date; run: make docs"


@pytest.mark.parametrize("result_class", RESULTS, ids=lambda each: each.__name__)
def test_methods_of_results_have_typed_parameters(result_class: type) -> None:
    for name, method in inspect.getmembers(result_class, inspect.isfunction):
        for parameter in inspect.signature(method).parameters.values():
            if not name.startswith("_") and parameter.name != "self":
                where = f"{result_class.__name__}.{name}: {parameter.name}"
                assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), where
                assert parameter.annotation not in (parameter.empty, "Any"), where


@pytest.mark.parametrize("model_class", MODELS, ids=lambda each: each.__name__)
def test_public_methods_have_typed_parameters_and_document_them(model_class: type) -> None:
    methods = inspect.getmembers(model_class, lambda each: inspect.isfunction(each) or inspect.ismethod(each))
    for name, method in methods:
        if name.startswith("_"):
            continue
        documentation = inspect.getdoc(method) or ""
        for parameter in list(inspect.signature(method).parameters.values()):
            where = f"{model_class.__name__}.{name}: {parameter.name}"
            if parameter.name == "self":
                continue
            assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), where
            assert parameter.annotation not in (parameter.empty, "Any"), where
            assert parameter.name in documentation or "as in `embed`" in documentation, where
