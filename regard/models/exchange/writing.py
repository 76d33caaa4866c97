"""A model of ours becomes a directory of theirs, which their library loads and which gives the same numbers.

Whatever has no equal there is refused by its name before anything is written. config.json comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from regard.disk import write_json
from regard.errors import InputError
from regard.models.encoder import TextEncoder
from regard.models.exchange.bert import BERT
from regard.models.exchange.distilbert import DISTILBERT
from regard.models.exchange.encoders import BARE
from regard.models.exchange.family import Family
from regard.models.exchange.files import CONFIG, WEIGHTS
from regard.models.exchange.gpt2 import GPT2
from regard.models.exchange.marian_bart import BART, MARIAN
from regard.models.exchange.roberta import ROBERTA, XLM_ROBERTA
from regard.models.exchange.sentences import Sentences, write_sentences
from regard.models.exchange.tensors import written
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.models.weights import write_tensors
from regard.text.foreign import Template, write_vocabulary
from regard.text.framing import Frame
from regard.text.tokenizer import Tokenizer, Tokenizers

HEADER = {"format": "pt"}
"""Without it their library does not know whose tensors these are."""

INPUTS = ("input_ids", "attention_mask")
PARTS = "token_type_ids"

Task = Mapping[str, Any]
"""The ``[task]`` table of a run."""


class Words(NamedTuple):
    """What depends on the vocabulary: keys of the config, its special tokens, those around texts, what models take."""

    keys: dict[str, Any]
    specials: dict[str, int | None]
    template: Template
    inputs: Sequence[str] = INPUTS


def family_of(model: Any, tokenizers: Tokenizers) -> Family:
    """The family of theirs that is nearest to a model of ours."""
    if isinstance(model, LanguageModel):
        return GPT2
    if isinstance(model, Seq2Seq):
        return BART if model.config.positions == "learned" else MARIAN
    if not isinstance(model, TextEncoder):
        raise InputError(f"model.architecture = {model.config.architecture!r} has no counterpart there; not exported")
    if model.config.n_parts == 0:
        return DISTILBERT
    if model.config.first_position == 0:
        return BERT
    return ROBERTA if tokenizers.source.bytewise else XLM_ROBERTA


def write(directory: Path, model: Any, task: Task, tokenizers: Tokenizers, labels: Sequence[str] = ()) -> None:
    """Write a model with its vocabulary and the labels it knows."""
    family = family_of(model, tokenizers)
    words = _words(model, family, task, tokenizers)
    table = {**family.table(model), **words.keys, **_labels(task, labels)}
    prefix = "" if table["architectures"][0].endswith(BARE) else family.prefix
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS, written(model, family.lines(model), prefix), HEADER)
    _write_tokenizers(directory, words, tokenizers, model.config.n_positions)
    if task["name"] == "pretrain":
        said = Sentences(directory, task["pooling"], task["normalised"], task["length"])
        write_sentences(directory, said, model.config.d_model)
    write_json(directory / CONFIG, table)


def _words(model: nn.Module, family: Family, task: Task, tokenizers: Tokenizers) -> Words:
    if isinstance(model, TextEncoder):
        return _of_texts(model, tokenizers.source)
    if isinstance(model, Seq2Seq):
        return _of_pairs(task, tokenizers, family)
    return _of_language(task, tokenizers.source)


def _of_texts(model: TextEncoder, tokenizer: Tokenizer) -> Words:
    frame = Frame.of(tokenizer)
    config, one_part = model.config, len(frame.between) > 1
    if config.first_position not in (0, frame.pad + 1):
        found = f"model.first_position = {config.first_position}, but the pad token has the id {frame.pad}"
        raise InputError(f"{found}: RoBERTa counts positions from there on, so this model cannot be exported as one")
    first, parting = (tokenizer.name(index) for index in (frame.before, frame.after))
    pair = f"{parting}:0 $B:0 {parting}:0" if one_part else f"$B:1 {parting}:1"
    specials = {
        "pad_token": frame.pad,
        "unk_token": tokenizer.find("unknown"),
        "cls_token": frame.before,
        "sep_token": frame.after,
        "mask_token": tokenizer.find("mask"),
    }
    ends = {"bos_token": frame.before, "eos_token": frame.after} if one_part else {}
    return Words(
        {"vocab_size": len(tokenizer), "pad_token_id": frame.pad, **_ids(ends)},
        {**specials, **ends},
        Template(f"{first} $A {parting}", f"{first}:0 $A:0 {parting}:0 {pair}"),
        INPUTS if one_part or config.n_parts < 2 else (*INPUTS, PARTS),
    )


def _of_pairs(task: Task, tokenizers: Tokenizers, family: Family) -> Words:
    source, target = tokenizers.source, tokenizers.target
    pad, end, begin = target.special("pad"), target.special("end"), target.find("start")
    start = target.named(task["start"]) if task["start"] else target.special("start")
    if family is BART and not tokenizers.joint:
        raise InputError("tokenizer.joint = false: BART has one vocabulary, so this model cannot be exported as one")
    separate = {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": tokenizers.joint}
    keys = {
        "vocab_size": len(source),
        **(separate if family is MARIAN else {}),
        "decoder_start_token_id": start,
        "forced_eos_token_id": end,
        "forced_bos_token_id": target.named(task["first"]) if task["first"] else None,
    }
    specials = {"pad_token": pad, "bos_token": begin, "eos_token": end, "unk_token": target.find("unknown")}
    ids = _ids({name: specials[name] for name in ("pad_token", "bos_token", "eos_token")})
    return Words({**keys, **ids}, specials, Template(f"{task['first']} $A {target.name(end)}".strip()))


def _of_language(task: Task, tokenizer: Tokenizer) -> Words:
    end = tokenizer.named(task["end"]) if task["end"] else tokenizer.special("end")
    start = tokenizer.named(task["start"]) if task["start"] else end
    specials = {"bos_token": start, "eos_token": end, "unk_token": tokenizer.find("unknown")}
    keys = {"vocab_size": len(tokenizer), "bos_token_id": start, "eos_token_id": end}
    return Words(keys, specials, Template("$A" if task["prompts"] == "bare" else f"{tokenizer.name(start)} $A"))


def _ids(specials: Mapping[str, int | None]) -> dict[str, int | None]:
    return {f"{name}_id": index for name, index in specials.items()}


def _labels(task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """The labels by number, and what they are for."""
    if task["name"] not in ("classify", "tag"):
        return {}
    score = task.get("kind") == "score"
    names = ["LABEL_0"] if score else list(labels)
    numbers = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    kind = "regression" if score else "single_label_classification"
    return numbers if task["name"] == "tag" else {**numbers, "problem_type": kind}


def _write_tokenizers(directory: Path, words: Words, tokenizers: Tokenizers, n_positions: int) -> None:
    """One file, or one more for a target vocabulary of its own, which their library knows nothing of."""
    source = tokenizers.source
    names = {name: source.name(index) for name, index in words.specials.items() if index is not None}
    settings = {"model_max_length": n_positions, "model_input_names": list(words.inputs)}
    write_vocabulary(directory, source, words.template, names, settings)
    if not tokenizers.joint:
        tokenizers.target.save(directory / Tokenizers.TARGET_FILE)
