"""`regard shortlist` as a user types it: learned, used, and one line for a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sources import language_model, save
from tiny_runs import EIGHT, learned, write_pairs

Fail = Callable[..., str]
Regard = Callable[..., tuple[str, str]]

AGAIN = "learn it again with: regard shortlist"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("model"))


def test_learn_and_use(regard: Regard, fail: Fail, model: Path, run: Path, folder: Path) -> None:
    pairs = write_pairs(folder, "eight", EIGHT)
    out, _ = regard("shortlist", model, *pairs, "--out", "short", "--per-token", "5", "--common", "3")
    assert out == "short\n"
    plain, _ = regard("translate", model, EIGHT[0][0])
    for precision in ("float32", "int8"):
        found, _ = regard("translate", model, EIGHT[0][0], "--shortlist", "short", "--precision", precision)
        assert found == plain == f"{EIGHT[0][1]}\n"
    scores = json.loads(regard("evaluate", model, *pairs, "--shortlist", "short", "--json")[0])
    assert scores["exact"] == 1
    _refuse(fail, model, run)


def _refuse(fail: Fail, model: Path, other: Path) -> None:
    """Another model's shortlist, damaged ones, and options that do not go with one."""
    ask = ("translate", model, "1", "--device", "cpu", "--shortlist")
    assert fail("translate", other, "1", "--device", "cpu", "--shortlist", "short") == (
        f"short: the shortlist of another model; {AGAIN}"
    )
    content = bytearray(Path("short").read_bytes())
    content[-1] ^= 1
    Path("damaged").write_bytes(content)
    assert fail(*ask, "damaged") == f"damaged: damaged (its checksum does not match); {AGAIN}"
    assert fail(*ask, model / "model.safetensors") == f"{model / 'model.safetensors'}: not a shortlist; {AGAIN}"
    Path("text").write_text("no tensors", encoding="utf-8")
    assert fail(*ask, "text").startswith("text: damaged or not a safetensors file")
    assert fail(*ask, "missing") == "missing: no such file; make it with: regard shortlist"
    assert fail(*ask, "short", "--sample").startswith("a shortlist belongs to beam search")
    assert fail(*ask, "short", "--engine", "ctranslate2") == (
        "--shortlist goes with --engine local; leave one of them out"
    )


def test_bad_requests(fail: Fail, run: Path) -> None:
    ask = ("shortlist", run, "valid.src", "valid.tgt", "--device", "cpu", "--out", "short")
    assert fail(*ask, "--per-token", "0").startswith("per-token 0: expected at least 1")
    assert fail(*ask, "--common", "0").startswith("common 0: expected at least 1")
    assert fail(*ask[:-1], "no/short").startswith("no/short: cannot be written: no directory no")


def test_models_that_are_no_translators(fail: Fail, folder: Path) -> None:
    save(language_model(), folder / "lm")
    Path("texts").write_text("a cat\n", encoding="utf-8")
    assert fail("shortlist", "lm", "texts", "texts", "--out", "short") == (
        "lm: a model for lm, which cannot learn a shortlist; use it with: regard generate"
    )
    assert fail("evaluate", "lm", "texts", "--shortlist", "short") == (
        "lm: a model for lm does not take --shortlist; leave it out"
    )
