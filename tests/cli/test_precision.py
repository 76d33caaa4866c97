"""``--precision`` on the command line: what it changes, what is reported, and what is refused."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from regard.cli import VERBS
from regard.cli.options import DeviceOption, PrecisionOption

Fail = Callable[..., str]
Regard = Callable[..., tuple[str, str]]


def test_every_verb_that_uses_a_model_takes_a_precision() -> None:
    taking = set()
    for verb in VERBS:
        module = import_module(f"regard.cli.{verb}" if verb not in ("import", "next") else f"regard.cli.{verb}_")
        function = getattr(module, module.__name__.rpartition(".")[2])
        annotations = {each.annotation for each in inspect.signature(function, eval_str=True).parameters.values()}
        if PrecisionOption in annotations:
            taking.add(verb)
            assert DeviceOption in annotations or verb == "info"
        else:
            assert DeviceOption not in annotations or verb in ("train", "demo", "compare"), verb
    assert {"translate", "generate", "classify", "tag", "embed", "fill", "answer", "next", "match", "cluster"} <= taking


def test_a_translation_in_each_precision(regard: Regard, run: Path) -> None:
    exact = regard("translate", run, "1 2 3", "2 1")[0]
    assert regard("translate", run, "1 2 3", "2 1", "--precision", "auto")[0] == exact
    for precision in ("int8", "bfloat16"):
        out, _ = regard("translate", run, "1 2 3", "2 1", "--precision", precision)
        assert len(out.splitlines()) == 2
    scores = [
        json.loads(regard("translate", run, "1 2 3", "--json", "--precision", precision)[0])["translations"][0]["score"]
        for precision in ("float32", "int8")
    ]
    assert scores[0] != scores[1] == pytest.approx(scores[0], abs=0.3)


def test_info_reports_the_error_of_int8(regard: Regard, run: Path) -> None:
    about = json.loads(regard("info", run, "--json", "--precision", "int8")[0])
    assert about["precision"] == "int8"
    assert 0 < about["relative_error"] < 0.2
    assert about["parameters"] == json.loads(regard("info", run, "--json")[0])["parameters"]
    assert re.search(r"^relative_error +0\.0", regard("info", run, "--precision", "int8")[0], re.MULTILINE)


def test_bad_precisions(fail: Fail, run: Path) -> None:
    message = "precision 'int4' is unknown; accepted: auto, float32, bfloat16, int8"
    assert fail("translate", run, "1", "--precision", "int4") == message
    assert fail("evaluate", run, "valid.src", "valid.tgt", "--precision", "int4") == message
    for command in (["look", run, "1"], ["identify", run, "valid.src"]):
        refused = fail(*command, "--precision", "int8")
        assert refused == f"precision 'int8': {command[0]} works in float32 only; leave --precision out"


def test_word_vectors_have_no_precision(fail: Fail, folder: Path) -> None:
    Path("vectors.txt").write_text("a 1 2\nb 3 4\n", encoding="utf-8")
    assert fail("match", "vectors.txt", "a", "--precision", "int8") == (
        "vectors.txt: word vectors, a table of float32 numbers; leave the precision 'int8' out"
    )
