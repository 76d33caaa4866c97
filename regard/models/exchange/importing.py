"""Import of a Hugging Face directory: config, tokenizer, labels and weights.

Everything is checked before a weight is loaded; unsupported features are refused by name. The caller builds a task and
a model from the resulting `HFCheckpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from regard.disk import read_json
from regard.errors import CheckpointError, InputError, has_surrogate
from regard.models.config import TransformerConfig, TransformerEncoderConfig
from regard.models.construction import shapes_only, uninitialised
from regard.models.exchange.bert import BERT
from regard.models.exchange.distilbert import DISTILBERT
from regard.models.exchange.encoders import HFEncoderFamily
from regard.models.exchange.gpt2 import GPT2
from regard.models.exchange.hf_config import HFConfig
from regard.models.exchange.hf_family import HFModelFamily
from regard.models.exchange.marian_bart import BART, MARIAN, HFSeq2SeqFamily
from regard.models.exchange.pre_norm_seq2seq import BLENDERBOT, PEGASUS
from regard.models.exchange.roberta import ROBERTA, XLM_ROBERTA
from regard.models.exchange.sentence_transformers import (
    MODULES_FILE,
    SentenceTransformersConfig,
    read_sentence_transformers_config,
)
from regard.models.exchange.weight_files import CONFIG_FILE, read_weights
from regard.models.exchange.weight_mapping import HFWeights
from regard.text.hf_tokenizer import read_hf_tokenizer
from regard.text.special_tokens import ENCODER_ROLES, SpecialTokenTemplate
from regard.text.tokenizer import TOKENIZER_FILE, Tokenizer, TokenizerPair

HF_FAMILIES: tuple[HFModelFamily, ...] = (
    BERT,
    ROBERTA,
    XLM_ROBERTA,
    DISTILBERT,
    GPT2,
    MARIAN,
    BART,
    PEGASUS,
    BLENDERBOT,
)

MIN_TEXT_LENGTH, MAX_TEXT_LENGTH = 16, (1 << 15) - 1
"""The range of text lengths that tasks accept."""


@dataclass(frozen=True)
class HFCheckpoint:
    """The contents of a Hugging Face directory; `task` is the ``[task]`` table that suits the model's `heads`."""

    family: HFModelFamily
    config: TransformerConfig
    heads: tuple[str, ...]
    task: dict[str, Any]
    tokenizers: TokenizerPair
    labels: tuple[str, ...]
    weights: HFWeights

    def load_model(self, build: Callable[[TransformerConfig], nn.Module]) -> nn.Module:
        """Return the model that `build` makes, with the weights; nothing is allocated before their shapes agree."""
        with shapes_only():
            self.family.check_weights(build(self.config), self.weights)
        with uninitialised():
            model = build(self.config)
        self.load_into(model)
        return model

    def load_into(self, model: nn.Module) -> None:
        """Load the weights into a model of this config with these heads."""
        self.family.load_weights(model, self.weights)


def is_hf_directory(directory: Path) -> bool:
    """Return True for a Hugging Face directory, False for a run directory."""
    return any((directory / name).exists() for name in (CONFIG_FILE, MODULES_FILE))


def describe_hf_directory(directory: Path) -> str:
    """Return the library that a directory is for, and the family of its model."""
    library = "sentence-transformers" if (directory / MODULES_FILE).exists() else "Hugging Face transformers"
    family, _ = _find_family(_read_hf_config(read_sentence_transformers_config(directory).folder))
    return f"{library} ({family.name})"


def read_hf_directory(directory: Path) -> HFCheckpoint:
    """Read a Hugging Face or sentence-transformers directory."""
    sentence_config = read_sentence_transformers_config(directory)
    folder = sentence_config.folder
    hf_config = _read_hf_config(folder)
    family, architecture = _find_family(hf_config)
    weights = HFWeights(folder, read_weights(folder, architecture), family.prefix)
    config, heads = family.from_hf_config(hf_config, weights), family.head_names(architecture, weights)
    if isinstance(family, HFEncoderFamily):
        assert isinstance(config, TransformerEncoderConfig)
        tokenizers = _shared_tokenizers(read_hf_tokenizer(folder, _vocabulary_size(hf_config, weights)))
        _check_special_tokens(tokenizers.source, config, folder / TOKENIZER_FILE)
        _check_special_id(hf_config, "pad_token_id", tokenizers.source, "pad")
        task, labels = _encoder_task(hf_config, config, heads, sentence_config, weights)
    elif isinstance(family, HFSeq2SeqFamily):
        tokenizers, labels = _read_tokenizers(hf_config, weights), ()
        task = {"name": "translate", **_translation_task(hf_config, tokenizers, family)}
    else:
        tokenizers, labels = _shared_tokenizers(read_hf_tokenizer(folder, _vocabulary_size(hf_config, weights))), ()
        task = {"name": "lm", **_language_model_task(hf_config, tokenizers.source, config.n_positions)}
    return HFCheckpoint(family, config, heads, task, tokenizers, labels, weights)


def _read_hf_config(folder: Path) -> HFConfig:
    if not (folder / CONFIG_FILE).exists():
        raise CheckpointError(f"{folder}: not a Hugging Face directory: it has no {CONFIG_FILE}")
    return HFConfig(folder / CONFIG_FILE, read_json(folder / CONFIG_FILE))


def _find_family(hf_config: HFConfig) -> tuple[HFModelFamily, str]:
    """Return the family that a config names, and its class; without a class, the base model's."""
    model_type, classes = hf_config.values.get("model_type"), hf_config.values.get("architectures") or [None]
    if not isinstance(classes, list):
        hf_config.refuse("architectures", "a list of names", classes)
    family = next((family for family in HF_FAMILIES if family.model_type == model_type), None)
    if family is None:
        supported = ", ".join(family.name for family in HF_FAMILIES)
        if model_type is None:
            raise CheckpointError(
                f"{hf_config.path}: no model_type; expected that of a Hugging Face model: {supported}"
            )
        named = model_type if classes[0] is None else f"{classes[0]} of model_type {model_type}"
        raise CheckpointError(f"{hf_config.path}: {named} is not supported; supported: {supported}")
    known = list(family.architectures)
    architecture = known[0] if classes[0] is None else classes[0]
    if architecture not in known:
        raise CheckpointError(f"{hf_config.path}: {architecture} is not supported; supported: {', '.join(known)}")
    return family, architecture


def _vocabulary_size(hf_config: HFConfig, weights: HFWeights, key: str = "vocab_size") -> int:
    return _require_rows(hf_config, key, hf_config.values.get(key), weights)


def _require_rows(hf_config: HFConfig, key: str, value: Any, weights: HFWeights) -> int:
    """Return a number in which the weights have rows; no other is so far trusted as to make anything that often."""
    if not isinstance(value, int) or isinstance(value, bool):
        hf_config.refuse(key, "a whole number", value)
    if not weights.has_rows(value):
        hf_config.refuse(key, "the number of rows of one of its tensors", value)
    return value


def _shared_tokenizers(tokenizer: Tokenizer) -> TokenizerPair:
    return TokenizerPair(tokenizer, tokenizer)


def _read_tokenizers(hf_config: HFConfig, weights: HFWeights) -> TokenizerPair:
    """Return the source and target tokenizers; a separate target vocabulary has a file of its own."""
    folder, size = hf_config.path.parent, _vocabulary_size(hf_config, weights)
    source = read_hf_tokenizer(folder, size)
    if hf_config.get("share_encoder_decoder_embeddings", True):
        return _shared_tokenizers(source)
    separate = hf_config.values.get("decoder_vocab_size") is not None
    target_size = _vocabulary_size(hf_config, weights, "decoder_vocab_size") if separate else size
    return TokenizerPair(source, read_hf_tokenizer(folder, target_size, TokenizerPair.TARGET_FILE))


def _encoder_task(
    hf_config: HFConfig,
    config: TransformerEncoderConfig,
    heads: Sequence[str],
    sentence_config: SentenceTransformersConfig,
    weights: HFWeights,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the ``[task]`` table that suits the heads of an encoder, and its labels."""
    length = min(max(sentence_config.max_seq_length or config.n_positions, MIN_TEXT_LENGTH), MAX_TEXT_LENGTH)
    if "tags" in heads:
        labels = _read_labels(hf_config, weights)
        kind, names = ("score", ()) if len(labels) == 1 else ("classes", labels)  # one output is a number, no label
        return {"name": "tag", "kind": kind, "length": length}, names
    if "span" in heads:
        return {"name": "qa", "length": length}, ()
    if "label" not in heads:
        embedding = {"pooling": sentence_config.pooling, "normalised": sentence_config.normalised}
        return {"name": "pretrain", "length": length, **embedding}, ()
    labels = _read_labels(hf_config, weights)
    problem_type = hf_config.values.get("problem_type")
    is_regression = problem_type == "regression" or len(labels) == 1
    if problem_type == "multi_label_classification":
        hf_config.refuse("problem_type", '"single_label_classification" or "regression"', problem_type)
    if is_regression and len(labels) != 1:
        hf_config.refuse("id2label", "one label, as problem_type is regression", list(labels))
    kind = "score" if is_regression else "classes"
    return {"name": "classify", "kind": kind, "length": length}, () if is_regression else labels


def _read_labels(hf_config: HFConfig, weights: HFWeights) -> tuple[str, ...]:
    """Return the labels in order of their ids."""
    id2label = hf_config.values.get("id2label")
    if id2label is None:
        n_labels = _require_rows(hf_config, "num_labels", hf_config.get("num_labels", 2), weights)
        return tuple(f"LABEL_{i}" for i in range(n_labels))
    ids = [str(i) for i in range(len(id2label))] if isinstance(id2label, dict) else []
    if not ids or set(id2label) != set(ids):
        hf_config.refuse("id2label", "a label for each number from 0 on", id2label)
    if has_surrogate("".join(map(str, id2label.values()))):
        hf_config.refuse("id2label", "labels without half a character (a lone surrogate)", id2label)
    return tuple(str(id2label[index]) for index in ids)


def _check_special_tokens(tokenizer: Tokenizer, config: TransformerEncoderConfig, path: Path) -> None:
    """Refuse a tokenizer that lacks the special tokens of an encoder or places them differently."""
    try:
        for role in ENCODER_ROLES:
            tokenizer.special_id(role)
        template = SpecialTokenTemplate.from_tokenizer(tokenizer)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None
    for texts in (("a",), ("a", "b")):
        ids, token_types = tokenizer.encode_with_special_tokens(*texts)
        plain = [tokenizer.encode(text) for text in texts]
        expected = template.wrap(*plain)
        expected_types = [int(i >= expected.token_type_boundary) for i in range(len(expected.ids))]
        if ids == [index for text_ids in plain for index in text_ids]:
            continue  # the tokenizer has no post-processor
        if ids != expected.ids:
            raise _special_tokens_error(tokenizer, ids, expected.ids, path)
        if config.n_parts > 1 and token_types != expected_types:
            raise CheckpointError(f"{path}: a pair has the token types {token_types}, expected {expected_types}")


def _special_tokens_error(
    tokenizer: Tokenizer, found_ids: Sequence[int], expected_ids: Sequence[int], path: Path
) -> CheckpointError:
    actual, expected = (" ".join(tokenizer.id_to_token(index) for index in ids) for ids in (found_ids, expected_ids))
    return CheckpointError(f"{path}: adds special tokens as in '{actual}', expected '{expected}'")


def _translation_task(hf_config: HFConfig, tokenizers: TokenizerPair, family: HFModelFamily) -> dict[str, str]:
    """Return the decoder's start token and the token before each text, if any."""
    for tokenizer in (tokenizers.source, tokenizers.target):
        _check_special_id(hf_config, "pad_token_id", tokenizer, "pad")
        _check_special_id(hf_config, "eos_token_id", tokenizer, "end")
    start = hf_config.values.get("decoder_start_token_id")
    if not isinstance(start, int) or not 0 <= start < len(tokenizers.target):
        hf_config.refuse("decoder_start_token_id", "the id of a token", start)
    first = _find_first_token(tokenizers.source, family, hf_config.path.parent / TOKENIZER_FILE)
    return {"start": tokenizers.target.id_to_token(start), "first": first}


def _find_first_token(tokenizer: Tokenizer, family: HFModelFamily, path: Path) -> str:
    """Return the token before texts: that of the tokenizer's post-processor, or else BART's; Marian has none."""
    plain, (ids, _) = tokenizer.encode("a"), tokenizer.encode_with_special_tokens("a")
    if ids == plain:
        return tokenizer.id_to_token(_special_id(tokenizer, "cls", path)) if family is BART else ""
    before = ids[:1] if family is BART and ids[:1] != plain[:1] else []
    expected = [*before, *plain, _special_id(tokenizer, "end", path)]
    if ids != expected:
        raise _special_tokens_error(tokenizer, ids, expected, path)
    return tokenizer.id_to_token(before[0]) if before else ""


def _language_model_task(hf_config: HFConfig, tokenizer: Tokenizer, n_positions: int) -> dict[str, Any]:
    """Return the tokens around documents and the prompt format; the config may name ids outside the vocabulary."""
    known, where = range(len(tokenizer)), hf_config.path.parent / TOKENIZER_FILE
    eos, bos = (hf_config.values.get(f"{name}_token_id") for name in ("eos", "bos"))
    end = eos if isinstance(eos, int) and eos in known else _special_id(tokenizer, "end", where)
    start = bos if isinstance(bos, int) and bos in known else end
    plain, (wrapped, _) = tokenizer.encode("a"), tokenizer.encode_with_special_tokens("a")
    if wrapped not in (plain, [start, *plain]):
        raise _special_tokens_error(tokenizer, wrapped, plain, where)
    return {
        "length": min(max(n_positions, MIN_TEXT_LENGTH), MAX_TEXT_LENGTH),
        "prompts": "bare" if wrapped == plain else "begin",
        "start": "" if start == end else tokenizer.id_to_token(start),
        "end": "" if end == tokenizer.find_special_id("end") else tokenizer.id_to_token(end),
    }


def _check_special_id(hf_config: HFConfig, key: str, tokenizer: Tokenizer, role: str) -> None:
    """Refuse a config that gives a special token another id than the vocabulary does."""
    hf_config.require_values({key: _special_id(tokenizer, role, hf_config.path.parent / TOKENIZER_FILE)})


def _special_id(tokenizer: Tokenizer, role: str, path: Path) -> int:
    try:
        return tokenizer.special_id(role)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None
