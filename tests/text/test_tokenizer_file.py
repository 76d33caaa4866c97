"""Hostile tokenizer.json files: refused in one line before the Rust library panics; what it still does is an error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers

from regard.errors import CheckpointError, InputError
from regard.text import tokenizer
from regard.text.tokenizer_file import MAX_EXPANSION, convert_panics, load_backend

VOCABULARY = {"a": 0, "b": 1, "ab": 2, " ": 3, "##b": 4}


def write_tokenizer(path: Path, **keys: Any) -> Path:
    content = json.loads(Tokenizer(models.BPE(VOCABULARY, [("a", "b")])).to_str())
    model = {**content["model"], **keys.pop("model", {})}
    path.write_text(json.dumps({**content, **keys, "model": model}), encoding="utf-8")
    return path


def replace_by(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "id too large": ({"model": {"vocab": {"a": 4_000_000_000}}}, "one has the id 4000000000"),
    "no tokens": ({"model": {"vocab": {}}}, "0 tokens"),
    "same id": ({"model": {"vocab": {"a": 0, "b": 0}}}, "the same id"),
    "two ids": ({"added_tokens": [{"id": 1, "content": "a", **ADDED}]}, "has two ids"),
    "wrong types": ({"model": {"vocab": 7}}, "wrong keys or types"),
    "short pair": ({"post_processor": {"type": "BertProcessing", "sep": ["a"], "cls": ["b", 1]}}, "wrong keys"),
    "special id": ({"post_processor": {"type": "BertProcessing", "sep": ["a", 9], "cls": ["b", 1]}}, "the id 9"),
    "merge": ({"model": {"continuing_subword_prefix": "##"}}, "does not begin with '##'"),
    "merge in a text": ({"model": {"continuing_subword_prefix": "##", "merges": ["a b"]}}, "does not begin with '##'"),
    "empty added token": (
        {
            "added_tokens": [{"id": 5, "content": "  ", **ADDED}],
            "normalizer": {"type": "Strip", **dict.fromkeys(("strip_left", "strip_right"), True)},
        },
        "leaves nothing of the added token",
    ),
    "length": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "pieces of length 0"),
    "strip": ({"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 2}}, "expected stop 0"),
    "strip of another type": ({"decoder": {"type": 7, "content": "a", "start": 0, "stop": 2}}, "expected stop 0"),
    "pattern": ({"normalizer": replace_by("x", Regex="(a+)+")}, "which may never end"),
    "empty pattern": ({"normalizer": replace_by("x", String="")}, "by nothing"),
    "expansion": ({"normalizer": replace_by("x" * (MAX_EXPANSION + 1))}, "65 times longer"),
    "character map": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
        "characters is damaged",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_before_the_library_panics(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys, problem = HOSTILE[name]
    path = write_tokenizer(tmp_path / "tokenizer.json", **keys)
    with pytest.raises(CheckpointError, match=problem) as refused:
        load_backend(path)
    assert str(refused.value).startswith(f"{path}: damaged, or not a tokenizer")
    assert capfd.readouterr().err == ""


def test_what_the_limits_allow_is_loaded(tmp_path: Path) -> None:
    merge = {"vocab": {**VOCABULARY, "a##b": 5}, "merges": [["a", "##b"]], "continuing_subword_prefix": "##"}
    normalizer = replace_by("x" * MAX_EXPANSION)
    decoder = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    path = write_tokenizer(tmp_path / "tokenizer.json", model=merge, normalizer=normalizer, decoder=decoder)
    assert load_backend(path).get_vocab_size() == 6


def test_a_panic_that_no_check_foresees_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+c"}, "behavior": "Isolated", "invert": False}
    path = write_tokenizer(tmp_path / "tokenizer.json", pre_tokenizer=split)
    monkeypatch.setattr("regard.text.tokenizer_file.check_pattern", lambda _: None)
    with pytest.raises(CheckpointError, match=r"tokenizer.json: .*retry-limit-in-match"):
        load_backend(path)


@pytest.mark.parametrize(
    "call", [lambda each: each.encode("a" * 64), lambda each: each.encode_with_special_tokens("a" * 64)]
)
def test_a_panic_in_use_is_an_error(call: Callable[[tokenizer.Tokenizer], object]) -> None:
    backend = Tokenizer(models.BPE(VOCABULARY, []))
    backend.normalizer = normalizers.Replace(Regex("(a+)+c"), "b")
    with pytest.raises(InputError, match="cannot encode a text"):
        call(tokenizer.Tokenizer(backend))


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyboardInterrupt), convert_panics("a problem", InputError):
        raise KeyboardInterrupt


def test_threads_that_load_keep_the_messages_of_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good = write_tokenizer(tmp_path / "good.json")
    bad = write_tokenizer(tmp_path / "bad.json", model={"merges": [["a", "zzz"]]})

    def load(number: int) -> None:
        load_backend(good)
        with pytest.raises(CheckpointError):
            load_backend(bad)
        os.write(2, f"message {number}\n".encode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(load, range(200)))
    assert sorted(capfd.readouterr().err.splitlines()) == sorted(f"message {number}" for number in range(200))
