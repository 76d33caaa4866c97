"""`regard translate --engine ctranslate2`: the same translations in the same form, by another engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sources import language_model, save, translator

Regard = Callable[..., tuple[str, str]]
Fail = Callable[..., str]

SENTENCES = ["the red cat sits", "", "a dog runs in tokyo near the mat", "cat"]


@pytest.fixture(params=["plain", "special tokens of BART", "two vocabularies"])
def model(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A translator that was not trained; few of its translations end by themselves."""
    options = {
        "plain": {},
        "special tokens of BART": {"task": {"start": "<eos>", "first": "<sos>"}},
        "two vocabularies": {"joint": False},
    }
    return save(translator(n_positions=20, **options[request.param]), folder / "run")


def test_both_engines_translate_the_same(model: Path, regard: Regard) -> None:
    """Greedy, from a run directory and from its export: text, tokens and their scores."""
    Path("texts").write_text("".join(f"{text}\n" for text in SENTENCES), encoding="utf-8")
    regard("export", "run", "--to", "ctranslate2", "--out", "ct2")
    arguments = ("--file", "texts", "--beam", "1", "--json")
    local = [json.loads(line) for line in regard("translate", "run", *arguments)[0].splitlines()]
    for path in ("run", "ct2"):
        out, _ = regard("translate", path, "--engine", "ctranslate2", *arguments)
        found = [json.loads(line) for line in out.splitlines()]
        assert [each["text"] for each in found] == SENTENCES
        for theirs, ours in zip(found, local, strict=True):
            (other,), (own,) = theirs["translations"], ours["translations"]
            assert other["alignment"] is None
            assert list(other) == list(own)
            assert other["text"] == own["text"]
            assert other["tokens"] == own["tokens"]
            assert other["token_scores"] == pytest.approx(own["token_scores"], abs=1e-4)
            assert other["score"] == pytest.approx(own["score"], abs=1e-4)


def test_beams_and_plain_output(folder: Path, regard: Regard) -> None:
    save(translator(n_positions=20), folder / "run")
    text, err = regard("translate", "run", "--engine", "ctranslate2", *SENTENCES[2:])
    assert len(text.splitlines()) == 2
    assert "of 2 translations were truncated at their limit, 50 tokens more than the source" in err
    scored, _ = regard("translate", "run", "--engine", "ctranslate2", "--n-best", "3", SENTENCES[0])
    scores = [float(line.split("\t")[0]) for line in scored.splitlines()]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    steps, _ = regard("translate", "run", "--engine", "ctranslate2", "--steps", SENTENCES[0])
    assert "<sos> -> " in steps


def test_errors(folder: Path, fail: Fail) -> None:
    save(translator(n_positions=20), folder / "run")
    save(language_model(), folder / "lm")
    ask = ("translate", "run", "a cat", "--engine")
    assert fail(*ask, "fast") == "--engine fast: accepted: local, ctranslate2"
    assert fail(*ask, "ctranslate2", "--sample") == (
        "--sample: --engine ctranslate2 searches only; leave one of them out"
    )
    assert fail("translate", "lm", "a cat", "--engine", "ctranslate2") == (
        "lm: a model for lm; --engine ctranslate2 is for translators"
    )
    long = "cat " * 30
    assert fail("translate", "run", long, "--engine", "ctranslate2").startswith(
        "text 1 has 31 tokens; this model takes at most 19"
    )
    Path("other").mkdir()
    Path("other/model.bin").write_bytes(b"")
    Path("other/config.json").write_text("{}")
    assert fail("translate", "other", "a cat", "--engine", "ctranslate2") == (
        "other: not a translator that `regard export --to ctranslate2` wrote; export the model again"
    )


def test_engines_that_are_not_installed(folder: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    save(translator(n_positions=20), folder / "run")
    monkeypatch.setattr("regard.export.export_format.find_spec", lambda name: None)
    command = "needs the extra 'export'; run: pip install 'regard[export]'"
    assert fail("translate", "run", "a cat", "--engine", "ctranslate2") == f"an export to CTranslate2 {command}"
    for name, engine in (("ctranslate2", "CTranslate2"), ("onnx", "ONNX Runtime")):
        assert fail("export", "run", "--to", name, "--out", "out") == f"an export to {engine} {command}"
    assert not Path("out").exists()


def test_hf_is_written_without_transformers_but_says_so(
    folder: Path, regard: Regard, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(language_model(), folder / "lm")
    monkeypatch.setattr("regard.export.export_format.find_spec", lambda name: None)
    _, err = regard("export", "lm", "--out", "hf")
    assert err == (
        "warning: transformers is not installed, so nothing checks the result; run: pip install 'regard[export]'\n"
    )
    assert "Not at all: transformers was not installed." in Path("hf/README.md").read_text(encoding="utf-8")
