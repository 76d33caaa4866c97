"""The file tokenizer.json: the only place where a file from elsewhere is passed to the ``tokenizers`` library.

The library is written in Rust. It trusts the file: an id of four billion may abort the process, and other values make
it panic, which is no `Exception` in Python and prints a report to standard error. So the ids, the sizes and the
patterns (text/pattern_limits.py) are checked before the library reads the file, and it encodes short texts before
anyone else uses it. A panic that no check foresees is still raised as an error of ours, after the library's report.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import tokenizers

from regard.disk import RESTORE, read_json
from regard.errors import CheckpointError, RegardError
from regard.ranges import MAX_VOCABULARY, show_value
from regard.text.pattern_limits import check_pattern

MAX_EXPANSION = 64
"""Factor by which the replacements of a file may lengthen a text, at most, all of them together."""

TRIAL_TEXTS = (
    "The 2 cats sat, it's TRUE: naïve 你好 \n\t<a@b.c> 1,234.5 __x__ ",
    "a" * 64,
    " " * 64,
    "7" * 64,
    "." * 64,
)
"""Texts that a tokenizer must be able to encode and decode before it is used."""


def load_backend(path: Path) -> Any:
    """Return the library's tokenizer of a file, which is checked first."""
    if not path.exists():
        raise CheckpointError(f"{path}: no such tokenizer; {RESTORE}")
    try:
        content = read_json(path)
        n_tokens = _count_tokens(content)
        _check_post_processor(content.get("post_processor"), n_tokens)
        _check_merges(content["model"])
        _check_components(content)
    except RecursionError:
        raise _damage_error(path, "too deeply nested") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _damage_error(path, error if type(error) is ValueError else "wrong keys or types") from None
    try:
        with convert_panics(f"{path}: damaged, or not a tokenizer", CheckpointError):
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
            _check_added_tokens(backend)
            _try_tokenizer(backend)
    except RegardError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise _damage_error(path, error) from None
    return backend


def _damage_error(path: Path, problem: object) -> CheckpointError:
    return CheckpointError(f"{path}: damaged, or not a tokenizer: {problem}; {RESTORE}")


@contextmanager
def convert_panics(problem: str, error_type: type[RegardError]) -> Iterator[None]:
    """Raise a panic of the library in the block as an error of ours; its class is not a subclass of `Exception`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise error_type(f"{problem} ({error}); {RESTORE}") from None


def _try_tokenizer(backend: Any) -> None:
    """Encode and decode short texts; a tokenizer may lack tokens for them, but not panic."""
    backend.no_padding()
    backend.no_truncation()
    for text in TRIAL_TEXTS:
        try:
            ids = backend.encode(text, text[:8]).ids
        except Exception:  # an unknown character, for which this tokenizer has no token
            ids = [0]
        backend.decode(ids)


def _count_tokens(content: Any) -> int:
    """Return the number of tokens, whose ids must be all numbers from 0 on."""
    vocabulary = content["model"]["vocab"]
    ids = dict(vocabulary) if isinstance(vocabulary, dict) else {entry[0]: i for i, entry in enumerate(vocabulary)}
    for token in content.get("added_tokens") or ():
        if ids.setdefault(token["content"], token["id"]) != token["id"]:
            raise ValueError(f"the added token {show_value(token['content'])} has two ids")
    wrong = next((each for each in ids.values() if type(each) is not int or not 0 <= each < len(ids)), None)
    if wrong is not None:
        raise ValueError(f"{len(ids):,} tokens, but one has the id {show_value(wrong)}; expected 0 to {len(ids) - 1:,}")
    if not 0 < len(ids) <= MAX_VOCABULARY:
        raise ValueError(f"{len(ids):,} tokens; expected 1 to {MAX_VOCABULARY:,}")
    if len(set(ids.values())) < len(ids):
        raise ValueError("two tokens have the same id")
    return len(ids)


def _check_post_processor(processor: Any, n_tokens: int) -> None:
    """Refuse special tokens with ids outside the vocabulary, or that are not defined."""
    for part in _components(processor):
        tokens = part.get("special_tokens") or {}
        ids = [each for token in tokens.values() for each in token["ids"]] if isinstance(tokens, dict) else []
        ids += [part[key][1] for key in ("sep", "cls") if key in part]
        for each in ids:
            if type(each) is not int or not 0 <= each < n_tokens:
                raise ValueError(
                    f"its post-processor adds a token of the id {show_value(each)}, of {n_tokens:,} tokens"
                )
        for entry in (*(part.get("single") or ()), *(part.get("pair") or ())):
            if "SpecialToken" in entry and entry["SpecialToken"]["id"] not in tokens:
                raise ValueError("its post-processor adds a token that it does not define")


def _check_merges(model: dict[str, Any]) -> None:
    """Refuse merges whose second part lacks the prefix that the library removes from it."""
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or ():
        if not (merge.split(" ") if isinstance(merge, str) else merge)[1].startswith(prefix):
            raise ValueError(f"the second part of the merge {show_value(merge)} does not begin with {prefix!r}")


def _check_added_tokens(backend: Any) -> None:
    """Refuse an added token that the normalizer reduces to nothing: the library would find it everywhere."""
    for token in backend.get_added_tokens_decoder().values():
        if token.normalized and backend.normalizer and not backend.normalizer.normalize_str(token.content):
            raise ValueError(f"its normalizer leaves nothing of the added token {show_value(token.content)}")


def _check_components(content: dict[str, Any]) -> None:
    """Refuse patterns that may never end, replacements that multiply a text, and sizes that make the library panic.

    Components are known by their keys, as to the library: it takes one of the type 7 with the right keys.
    """
    parts = [part for name in ("normalizer", "pre_tokenizer", "decoder") for part in _components(content.get(name))]
    for part in parts:
        _check_component(part)
    expansion = prod(max(1, len(part["content"])) for part in parts if "pattern" in part and "content" in part)
    if expansion > MAX_EXPANSION:
        raise ValueError(f"its replacements make a text {show_value(expansion)} times longer, at most {MAX_EXPANSION}")


def _check_component(part: dict[str, Any]) -> None:
    if "precompiled_charsmap" in part:
        _check_character_map(part["precompiled_charsmap"])
    if part.get("length", 1) < 1:
        raise ValueError(f"it splits a text into pieces of length {show_value(part['length'])}; expected 1 or more")
    if part.get("stop", 0) > 0:
        raise ValueError("its decoder strips the ends of tokens, also of shorter ones; expected stop 0")
    if part.get("String") == "":
        raise ValueError("it replaces or splits by nothing; expected a text of at least one character")
    if "Regex" in part:
        check_pattern(part["Regex"])


def _components(value: Any) -> Iterator[dict[str, Any]]:
    """Yield a component of a file, and those that it is a sequence of, at any depth."""
    if isinstance(value, dict):
        yield value
    inside: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inside:
        yield from _components(each)


def _check_character_map(encoded: str) -> None:
    """Refuse a character map whose trie is not inside it; its size, in bytes, comes first."""
    content = b64decode(encoded, validate=True)
    if len(content) < 4 or struct.unpack("<I", content[:4])[0] > len(content) - 4:
        raise ValueError("its map of characters is damaged")
