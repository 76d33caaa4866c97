"""A directory of theirs becomes a model of ours: config, vocabulary, labels, and weights to fill it with.

Everything is checked before a weight is moved; what we do not have is refused by its name. `runs/recipe.py` makes a task
and a model of what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from regard.disk import read_json
from regard.errors import CheckpointError, InputError
from regard.models.config import TransformerConfig, TransformerEncoderConfig
from regard.models.exchange.bert import BERT
from regard.models.exchange.distilbert import DISTILBERT
from regard.models.exchange.encoders import HFEncoderFamily
from regard.models.exchange.gpt2 import GPT2
from regard.models.exchange.hf_config import HFConfig
from regard.models.exchange.hf_family import HFModelFamily
from regard.models.exchange.marian_bart import BART, MARIAN, HFSeq2SeqFamily
from regard.models.exchange.roberta import ROBERTA, XLM_ROBERTA
from regard.models.exchange.sentence_transformers import (
    MODULES_FILE,
    SentenceTransformersConfig,
    read_sentence_transformers_config,
)
from regard.models.exchange.weight_files import CONFIG_FILE, read_weights
from regard.models.exchange.weight_mapping import HFWeights
from regard.text.hf_tokenizer import read_hf_tokenizer
from regard.text.special_tokens import SpecialTokenTemplate
from regard.text.tokenizer import TOKENIZER_FILE, Tokenizer, TokenizerPair

HF_FAMILIES: tuple[HFModelFamily, ...] = (BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, GPT2, MARIAN, BART)

MIN_TEXT_LENGTH, MAX_TEXT_LENGTH = 16, (1 << 15) - 1
"""What tasks on an encoder take for the length of a text."""


@dataclass(frozen=True)
class HFCheckpoint:
    """A model in a directory of theirs.

    `task` is the table of the task it is for, but for what follows from its `heads`; `labels` are those it knows.
    """

    family: HFModelFamily
    config: TransformerConfig
    heads: tuple[str, ...]
    task: dict[str, Any]
    tokenizers: TokenizerPair
    labels: tuple[str, ...]
    weights: HFWeights

    def load_into(self, model: nn.Module) -> None:
        """Put the weights into a model of this config with these heads."""
        self.family.load_weights(model, self.weights)


def is_hf_directory(directory: Path) -> bool:
    """A directory of theirs, and not a run."""
    return any((directory / name).exists() for name in (CONFIG_FILE, MODULES_FILE))


def read_hf_directory(directory: Path) -> HFCheckpoint:
    """What a directory of theirs holds."""
    said = read_sentence_transformers_config(directory)
    if not (said.folder / CONFIG_FILE).exists():
        raise CheckpointError(f"{said.folder}: not a Hugging Face directory: it has no {CONFIG_FILE}")
    options = HFConfig(said.folder / CONFIG_FILE, read_json(said.folder / CONFIG_FILE))
    family, architecture = _find_family(options)
    file = HFWeights(said.folder, read_weights(said.folder, architecture), family.prefix)
    config, heads = family.from_hf_config(options, file), family.head_names(architecture, file)
    if isinstance(family, HFEncoderFamily):
        assert isinstance(config, TransformerEncoderConfig)
        tokenizers = _shared_tokenizers(read_hf_tokenizer(said.folder, _vocabulary_size(options)))
        _check_special_tokens(tokenizers.source, config, said.folder / TOKENIZER_FILE)
        _check_special_id(options, "pad_token_id", tokenizers.source, "pad")
        task, labels = _encoder_task(options, config, heads, said)
    elif isinstance(family, HFSeq2SeqFamily):
        tokenizers, labels = _read_tokenizers(options), ()
        task = {"name": "translate", **_translation_task(options, tokenizers, family)}
    else:
        tokenizers, labels = _shared_tokenizers(read_hf_tokenizer(said.folder, _vocabulary_size(options))), ()
        task = {"name": "lm", **_language_model_task(options, tokenizers.source, config.n_positions)}
    return HFCheckpoint(family, config, heads, task, tokenizers, labels, file)


def _find_family(hf_config: HFConfig) -> tuple[HFModelFamily, str]:
    """The family a config names, and the architecture; without one, the body alone."""
    kind, classes = hf_config.values.get("model_type"), hf_config.values.get("architectures") or [None]
    if not isinstance(classes, list):
        hf_config.refuse("architectures", "a list of names", classes)
    family = next((family for family in HF_FAMILIES if family.model_type == kind), None)
    if family is None:
        supported = ", ".join(family.name for family in HF_FAMILIES)
        named = kind if classes[0] is None else f"{classes[0]} of model_type {kind}"
        raise CheckpointError(f"{hf_config.path}: {named} is not supported; supported: {supported}")
    known = list(family.architectures)
    architecture = known[0] if classes[0] is None else classes[0]
    if architecture not in known:
        raise CheckpointError(f"{hf_config.path}: {architecture} is not supported; supported: {', '.join(known)}")
    return family, architecture


def _vocabulary_size(hf_config: HFConfig, key: str = "vocab_size") -> int:
    size = hf_config.values.get(key)
    if not isinstance(size, int):
        hf_config.refuse(key, "a whole number", size)
    return size


def _shared_tokenizers(tokenizer: Tokenizer) -> TokenizerPair:
    return TokenizerPair(tokenizer, tokenizer)


def _read_tokenizers(hf_config: HFConfig) -> TokenizerPair:
    """The vocabularies of both sides; that of the target has a file of its own where it is another."""
    folder, size = hf_config.path.parent, _vocabulary_size(hf_config)
    source = read_hf_tokenizer(folder, size)
    if hf_config.get("share_encoder_decoder_embeddings", True):
        return _shared_tokenizers(source)
    target_size = (
        size
        if hf_config.values.get("decoder_vocab_size") is None
        else _vocabulary_size(hf_config, "decoder_vocab_size")
    )
    return TokenizerPair(source, read_hf_tokenizer(folder, target_size, TokenizerPair.TARGET_FILE))


def _encoder_task(
    hf_config: HFConfig,
    config: TransformerEncoderConfig,
    heads: Sequence[str],
    sentence_config: SentenceTransformersConfig,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The task of an encoder, by its heads, and its labels."""
    length = min(max(sentence_config.max_seq_length or config.n_positions, MIN_TEXT_LENGTH), MAX_TEXT_LENGTH)
    if "tags" in heads:
        return {"name": "tag", "length": length}, _read_labels(hf_config)
    if "label" not in heads:
        how = {"pooling": sentence_config.pooling, "normalised": sentence_config.normalised}
        return {"name": "pretrain", "length": length, **how}, ()
    labels = _read_labels(hf_config)
    problem = hf_config.values.get("problem_type")
    score = problem == "regression" or len(labels) == 1
    if problem == "multi_label_classification":
        hf_config.refuse("problem_type", '"single_label_classification" or "regression"', problem)
    if score and len(labels) != 1:
        hf_config.refuse("id2label", "one label, as problem_type is regression", list(labels))
    return {"name": "classify", "kind": "score" if score else "classes", "length": length}, () if score else labels


def _read_labels(hf_config: HFConfig) -> tuple[str, ...]:
    """The labels in order of their numbers."""
    found = hf_config.values.get("id2label")
    if found is None:
        return tuple(f"LABEL_{i}" for i in range(hf_config.get("num_labels", 2)))
    wanted = [str(i) for i in range(len(found))] if isinstance(found, dict) else []
    if not wanted or set(found) != set(wanted):
        hf_config.refuse("id2label", "a label for each number from 0 on", found)
    return tuple(str(found[number]) for number in wanted)


def _check_special_tokens(tokenizer: Tokenizer, config: TransformerEncoderConfig, path: Path) -> None:
    """Refuse a vocabulary that describes other special tokens around texts than ours, or that lacks them."""
    try:
        frame = SpecialTokenTemplate.from_tokenizer(tokenizer)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None
    for texts in (("a",), ("a", "b")):
        ids, parts = tokenizer.encode_with_special_tokens(*texts)
        plain = [tokenizer.encode(text) for text in texts]
        ours = frame.wrap(*plain)
        told = [int(place >= ours.token_type_boundary) for place in range(len(ours.ids))]
        if ids == [index for part in plain for index in part]:
            continue  # it describes nothing
        if ids != ours.ids:
            raise _special_tokens_error(tokenizer, ids, ours.ids, path)
        if config.n_parts > 1 and parts != told:
            raise CheckpointError(f"{path}: a pair has the parts {parts}, expected {told}")


def _special_tokens_error(
    tokenizer: Tokenizer, found_ids: Sequence[int], expected_ids: Sequence[int], path: Path
) -> CheckpointError:
    found, expected = (" ".join(tokenizer.id_to_token(index) for index in ids) for ids in (found_ids, expected_ids))
    return CheckpointError(f"{path}: puts special tokens as in '{found}', expected '{expected}'")


def _translation_task(hf_config: HFConfig, tokenizers: TokenizerPair, family: HFModelFamily) -> dict[str, str]:
    """The tokens that a decoder starts from and that stand before texts."""
    for tokenizer in (tokenizers.source, tokenizers.target):
        _check_special_id(hf_config, "pad_token_id", tokenizer, "pad")
        _check_special_id(hf_config, "eos_token_id", tokenizer, "end")
    start = hf_config.values.get("decoder_start_token_id")
    if not isinstance(start, int) or not 0 <= start < len(tokenizers.target):
        hf_config.refuse("decoder_start_token_id", "the id of a token", start)
    first = _find_first_token(tokenizers.source, family, hf_config.path.parent / TOKENIZER_FILE)
    return {"start": tokenizers.target.id_to_token(start), "first": first}


def _find_first_token(tokenizer: Tokenizer, family: HFModelFamily, path: Path) -> str:
    """The token before texts: that which the vocabulary describes, or else BART's; Marian has none."""
    plain, (ids, _) = tokenizer.encode("a"), tokenizer.encode_with_special_tokens("a")
    if ids == plain:
        return tokenizer.id_to_token(_special_id(tokenizer, "cls", path)) if family is BART else ""
    before = ids[:1] if family is BART and ids[:1] != plain[:1] else []
    expected = [*before, *plain, _special_id(tokenizer, "end", path)]
    if ids != expected:
        raise _special_tokens_error(tokenizer, ids, expected, path)
    return tokenizer.id_to_token(before[0]) if before else ""


def _language_model_task(hf_config: HFConfig, tokenizer: Tokenizer, n_positions: int) -> dict[str, Any]:
    """The tokens around documents, and whether one stands before a prompt; a config may name ids that are not there."""
    known, where = range(len(tokenizer)), hf_config.path.parent / TOKENIZER_FILE
    eos, bos = (hf_config.values.get(f"{name}_token_id") for name in ("eos", "bos"))
    end = eos if isinstance(eos, int) and eos in known else _special_id(tokenizer, "end", where)
    start = bos if isinstance(bos, int) and bos in known else end
    plain, (framed, _) = tokenizer.encode("a"), tokenizer.encode_with_special_tokens("a")
    if framed not in (plain, [start, *plain]):
        raise _special_tokens_error(tokenizer, framed, plain, where)
    return {
        "length": min(max(n_positions, MIN_TEXT_LENGTH), MAX_TEXT_LENGTH),
        "prompts": "bare" if framed == plain else "begin",
        "start": "" if start == end else tokenizer.id_to_token(start),
        "end": "" if end == tokenizer.find_special_id("end") else tokenizer.id_to_token(end),
    }


def _check_special_id(hf_config: HFConfig, key: str, tokenizer: Tokenizer, role: str) -> None:
    """The id that a config gives to a special token must be the one it has in the vocabulary."""
    hf_config.require_values({key: _special_id(tokenizer, role, hf_config.path.parent / TOKENIZER_FILE)})


def _special_id(tokenizer: Tokenizer, role: str, path: Path) -> int:
    try:
        return tokenizer.special_id(role)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None
