"""Export of a model as a Hugging Face directory, which transformers loads and which gives the same outputs.

Features without an equivalent are refused by name before anything is written. config.json is written last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from regard.disk import write_json
from regard.errors import InputError
from regard.models.encoder import TransformerEncoder
from regard.models.exchange.bert import BERT
from regard.models.exchange.distilbert import DISTILBERT
from regard.models.exchange.encoders import BASE_MODEL_SUFFIX
from regard.models.exchange.equivalents import to_exchangeable
from regard.models.exchange.gpt2 import GPT2
from regard.models.exchange.hf_family import HFModelFamily
from regard.models.exchange.marian_bart import BART, MARIAN, HFSeq2SeqFamily
from regard.models.exchange.pre_norm_seq2seq import BLENDERBOT, PEGASUS
from regard.models.exchange.roberta import ROBERTA, XLM_ROBERTA
from regard.models.exchange.sentence_transformers import SentenceTransformersConfig, write_sentence_transformers_config
from regard.models.exchange.weight_files import CONFIG_FILE, WEIGHTS_FILE
from regard.models.exchange.weight_mapping import to_hf_tensors
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.models.weights import write_tensors
from regard.text.hf_tokenizer import PostProcessorTemplate, write_hf_tokenizer
from regard.text.special_tokens import SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer, TokenizerPair

SAFETENSORS_METADATA = {"format": "pt"}
"""Without it transformers does not know the framework of the tensors."""

MODEL_INPUTS = ("input_ids", "attention_mask")
TOKEN_TYPE_IDS = "token_type_ids"

TaskTable = Mapping[str, Any]
"""The ``[task]`` table of a run."""


class TokenizerExport(NamedTuple):
    """The parts of an export that depend on the vocabulary."""

    config_values: dict[str, Any]
    special_ids: dict[str, int | None]
    template: PostProcessorTemplate
    model_inputs: Sequence[str] = MODEL_INPUTS


def choose_hf_family(model: Any, tokenizers: TokenizerPair) -> HFModelFamily:
    """Return the Hugging Face family that a model can be exported as."""
    if isinstance(model, TransformerLM):
        return GPT2
    if isinstance(model, TransformerSeq2Seq):
        post_norm, pre_norm = (BART, BLENDERBOT) if model.config.positions == "learned" else (MARIAN, PEGASUS)
        return post_norm if model.config.norm == "post" else pre_norm
    if not isinstance(model, TransformerEncoder):
        raise InputError(
            f"model.architecture = {model.config.architecture!r} has no Hugging Face equivalent; not exported"
        )
    if model.config.n_parts == 0:
        return DISTILBERT
    if model.config.first_position == 0:
        return BERT
    return ROBERTA if tokenizers.source.is_byte_level else XLM_ROBERTA


def write_hf_directory(
    directory: Path, model: Any, task: TaskTable, tokenizers: TokenizerPair, labels: Sequence[str] = ()
) -> None:
    """Write a model, or one with the same outputs, with its tokenizer and labels."""
    model = to_exchangeable(model)
    family = choose_hf_family(model, tokenizers)
    family.check_vocabularies(model, tokenizers)
    export = _tokenizer_export(model, task, tokenizers)
    separate = family.separate_vocabulary_values(tokenizers) if isinstance(family, HFSeq2SeqFamily) else {}
    hf_config = {**family.to_hf_config(model), **separate, **export.config_values, **label_values(task, labels)}
    prefix = "" if hf_config["architectures"][0].endswith(BASE_MODEL_SUFFIX) else family.prefix
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(
        directory / WEIGHTS_FILE, to_hf_tensors(model, family.weight_mappings(model), prefix), SAFETENSORS_METADATA
    )
    _write_tokenizers(directory, export, tokenizers, model.config.n_positions)
    if task["name"] in ("pretrain", "embed"):
        sentence_config = SentenceTransformersConfig(directory, task["pooling"], task["normalised"], task["length"])
        write_sentence_transformers_config(directory, sentence_config, model.config.d_model)
    write_json(directory / CONFIG_FILE, hf_config)


def write_tokenizer_files(directory: Path, model: Any, task: TaskTable, tokenizers: TokenizerPair) -> None:
    """Write tokenizer.json, which adds the special tokens of the model, and the files of transformers about it."""
    _write_tokenizers(directory, _tokenizer_export(model, task, tokenizers), tokenizers, model.config.n_positions)


def _tokenizer_export(model: nn.Module, task: TaskTable, tokenizers: TokenizerPair) -> TokenizerExport:
    if isinstance(model, TransformerEncoder):
        return _encoder_export(model, tokenizers.source)
    if isinstance(model, TransformerSeq2Seq):
        return _seq2seq_export(task, tokenizers)
    return _language_model_export(task, tokenizers.source)


def _encoder_export(model: TransformerEncoder, tokenizer: Tokenizer) -> TokenizerExport:
    template = SpecialTokenTemplate.from_tokenizer(tokenizer)
    config, one_type = model.config, len(template.pair_separator_ids) > 1
    cls, sep = (tokenizer.id_to_token(index) for index in (template.cls_id, template.sep_id))
    pair = f"{sep}:0 $B:0 {sep}:0" if one_type else f"$B:1 {sep}:1"
    specials = {
        "pad_token": template.pad_id,
        "unk_token": tokenizer.find_special_id("unknown"),
        "cls_token": template.cls_id,
        "sep_token": template.sep_id,
        "mask_token": tokenizer.find_special_id("mask"),
    }
    ends = {"bos_token": template.cls_id, "eos_token": template.sep_id} if one_type else {}
    return TokenizerExport(
        {"vocab_size": len(tokenizer), "pad_token_id": template.pad_id, **_special_id_values(ends)},
        {**specials, **ends},
        PostProcessorTemplate(f"{cls} $A {sep}", f"{cls}:0 $A:0 {sep}:0 {pair}"),
        MODEL_INPUTS if one_type or config.n_parts < 2 else (*MODEL_INPUTS, TOKEN_TYPE_IDS),
    )


def _seq2seq_export(task: TaskTable, tokenizers: TokenizerPair) -> TokenizerExport:
    source, target = tokenizers.source, tokenizers.target
    pad, end, begin = target.special_id("pad"), target.special_id("end"), target.find_special_id("start")
    start = target.token_to_id(task["start"]) if task["start"] else target.special_id("start")
    keys = {
        "vocab_size": len(source),
        "decoder_start_token_id": start,
        "forced_eos_token_id": end,
        "forced_bos_token_id": target.token_to_id(task["first"]) if task["first"] else None,
    }
    specials = {"pad_token": pad, "bos_token": begin, "eos_token": end, "unk_token": target.find_special_id("unknown")}
    ids = _special_id_values({name: specials[name] for name in ("pad_token", "bos_token", "eos_token")})
    return TokenizerExport(
        {**keys, **ids}, specials, PostProcessorTemplate(f"{task['first']} $A {target.id_to_token(end)}".strip())
    )


def _language_model_export(task: TaskTable, tokenizer: Tokenizer) -> TokenizerExport:
    end = tokenizer.token_to_id(task["end"]) if task["end"] else tokenizer.special_id("end")
    start = tokenizer.token_to_id(task["start"]) if task["start"] else end
    specials = {"bos_token": start, "eos_token": end, "unk_token": tokenizer.find_special_id("unknown")}
    keys = {"vocab_size": len(tokenizer), "bos_token_id": start, "eos_token_id": end}
    return TokenizerExport(
        keys,
        specials,
        PostProcessorTemplate("$A" if task["prompts"] == "bare" else f"{tokenizer.id_to_token(start)} $A"),
    )


def _special_id_values(specials: Mapping[str, int | None]) -> dict[str, int | None]:
    return {f"{name}_id": index for name, index in specials.items()}


def label_values(task: TaskTable, labels: Sequence[str]) -> dict[str, Any]:
    """Return the config values of the labels: their ids, and the problem type of a classifier."""
    if task["name"] not in ("classify", "tag"):
        return {}
    is_regression = task.get("kind") == "score"
    names = ["LABEL_0"] if is_regression else list(labels)
    ids = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    problem_type = "regression" if is_regression else "single_label_classification"
    return ids if task["name"] == "tag" else {**ids, "problem_type": problem_type}


def _write_tokenizers(directory: Path, export: TokenizerExport, tokenizers: TokenizerPair, n_positions: int) -> None:
    """Write the tokenizer, and a separate target tokenizer if there is one, which transformers ignores."""
    source = tokenizers.source
    names = {name: source.id_to_token(index) for name, index in export.special_ids.items() if index is not None}
    settings = {"model_max_length": n_positions, "model_input_names": list(export.model_inputs)}
    write_hf_tokenizer(directory, source, export.template, names, settings)
    if not tokenizers.is_joint:
        tokenizers.target.save(directory / TokenizerPair.TARGET_FILE)
