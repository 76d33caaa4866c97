"""The files of sentence-transformers around a model: pooling, normalisation, maximum length.

modules.json              the modules in order, with their folders
1_Pooling/config.json     pooling: the mean or the maximum over tokens, the first or the last token
2_Normalize/              normalisation to unit length
sentence_bert_config.json the maximum number of tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.disk import read_json, read_json_if_exists, write_json
from regard.errors import CheckpointError
from regard.text.json_values import show_json

MODULES_FILE = "modules.json"
SENTENCE_BERT_CONFIG_FILE = "sentence_bert_config.json"
SENTENCE_TRANSFORMERS_CONFIG_FILE = "config_sentence_transformers.json"

POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
"""The supported poolings; newer files have one key ``pooling_mode`` instead."""

MODULE_TYPES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class SentenceTransformersConfig:
    """The folder of the model and how texts are embedded; a `max_seq_length` of 0 means unspecified."""

    folder: Path
    pooling: str = "mean"
    normalised: bool = False
    max_seq_length: int = 0


def read_sentence_transformers_config(directory: Path) -> SentenceTransformersConfig:
    """Read how texts are embedded; without modules.json, return the defaults of sentence-transformers."""
    if not (directory / MODULES_FILE).exists():
        return SentenceTransformersConfig(directory)
    path, modules = directory / MODULES_FILE, read_json(directory / MODULES_FILE, list)
    kinds = [str(each.get("type", "")).rpartition(".")[2] if isinstance(each, dict) else "" for each in modules]
    for kind in kinds:
        if kind not in MODULE_TYPES:
            raise CheckpointError(f"{path}: the module '{kind}' is not supported; supported: {', '.join(MODULE_TYPES)}")
    if kinds not in (list(MODULE_TYPES[:2]), list(MODULE_TYPES)):
        raise CheckpointError(
            f"{path}: expected {', '.join(MODULE_TYPES)} in this order, found {', '.join(kinds) or 'none'}"
        )
    names = [each.get("path", "") for each in modules[:2]]
    if not all(_is_folder_name(name) for name in names):
        raise CheckpointError(f"{path}: path: expected names of folders beside it, found {show_json(names)}")
    folder, pooling = (directory / name for name in names)
    return SentenceTransformersConfig(
        folder, _read_pooling(pooling / "config.json"), "Normalize" in kinds, _read_max_seq_length(directory, folder)
    )


def _is_folder_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and name != ".." and name.isprintable()


def _read_pooling(path: Path) -> str:
    values = read_json(path)
    modes = values.get("pooling_mode") or [
        key for key, value in values.items() if key.startswith("pooling_mode_") and value
    ]
    known = {**POOLING_MODES, **{name: name for name in POOLING_MODES.values()}, "lasttoken": "last"}
    names = modes or ["mean"] if isinstance(modes, list) else [modes]
    if len(names) > 1 or not isinstance(names[0], str) or names[0] not in known:
        raise CheckpointError(
            f"{path}: pooling by {show_json(modes)} is not supported; supported: {', '.join(POOLING_MODES.values())}"
        )
    return known[names[0]]


def _read_max_seq_length(directory: Path, folder: Path) -> int:
    """Return the maximum number of tokens; lowercasing and prompts are refused."""
    limits = {
        **read_json_if_exists(directory / SENTENCE_BERT_CONFIG_FILE),
        **read_json_if_exists(folder / SENTENCE_BERT_CONFIG_FILE),
    }
    if limits.get("do_lower_case"):
        raise CheckpointError(f"{directory / SENTENCE_BERT_CONFIG_FILE}: do_lower_case: expected false, found true")
    prompt = read_json_if_exists(directory / SENTENCE_TRANSFORMERS_CONFIG_FILE).get("default_prompt_name")
    if prompt is not None:
        problem = f"default_prompt_name: expected null, found {show_json(prompt)}"
        raise CheckpointError(f"{directory / SENTENCE_TRANSFORMERS_CONFIG_FILE}: {problem}")
    length = limits.get("max_seq_length") or 0
    if not isinstance(length, int):
        problem = f"max_seq_length: expected a whole number, found {show_json(length)}"
        raise CheckpointError(f"{directory / SENTENCE_BERT_CONFIG_FILE}: {problem}")
    return length


def write_sentence_transformers_config(directory: Path, config: SentenceTransformersConfig, width: int) -> None:
    """Write the files that describe how texts are embedded."""
    kinds = MODULE_TYPES if config.normalised else MODULE_TYPES[:2]
    paths = ("", "1_Pooling", "2_Normalize")
    modules: list[dict[str, Any]] = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    for path in paths[1 : len(kinds)]:
        (directory / path).mkdir()
    modes = {key: name == config.pooling for key, name in POOLING_MODES.items()}
    write_json(directory / paths[1] / "config.json", {"word_embedding_dimension": width, **modes})
    write_json(directory / SENTENCE_BERT_CONFIG_FILE, {"max_seq_length": config.max_seq_length, "do_lower_case": False})
    write_json(directory / MODULES_FILE, modules)
