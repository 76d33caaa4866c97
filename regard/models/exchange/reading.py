"""A directory of theirs becomes a model of ours: config, vocabulary, labels, and weights to fill it with.

Everything is checked before a weight is moved; what we do not have is refused by its name. `train/run.py` makes a task
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
from regard.models.exchange.bert import BERT
from regard.models.exchange.distilbert import DISTILBERT
from regard.models.exchange.encoders import EncoderFamily
from regard.models.exchange.family import Family
from regard.models.exchange.files import CONFIG, read_weights
from regard.models.exchange.gpt2 import GPT2
from regard.models.exchange.marian_bart import BART, MARIAN, Seq2SeqFamily
from regard.models.exchange.options import Options
from regard.models.exchange.roberta import ROBERTA, XLM_ROBERTA
from regard.models.exchange.sentences import MODULES, Sentences, read_sentences
from regard.models.exchange.tensors import File
from regard.models.presets import EncoderConfig, TransformerConfig
from regard.text.foreign import read_vocabulary
from regard.text.framing import Frame
from regard.text.tokenizer import FILE, Tokenizer, Tokenizers

FAMILIES: tuple[Family, ...] = (BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, GPT2, MARIAN, BART)

SHORTEST, LONGEST = 16, (1 << 15) - 1
"""What tasks on an encoder take for the length of a text."""


@dataclass(frozen=True)
class Found:
    """A model in a directory of theirs.

    `task` is the table of the task it is for, but for what follows from its `heads`; `labels` are those it knows.
    """

    family: Family
    config: TransformerConfig
    heads: tuple[str, ...]
    task: dict[str, Any]
    tokenizers: Tokenizers
    labels: tuple[str, ...]
    file: File

    def fill(self, model: nn.Module) -> None:
        """Put the weights into a model of this config with these heads."""
        self.family.fill(model, self.file)


def is_foreign(directory: Path) -> bool:
    """A directory of theirs, and not a run."""
    return any((directory / name).exists() for name in (CONFIG, MODULES))


def read(directory: Path) -> Found:
    """What a directory of theirs holds."""
    said = read_sentences(directory)
    if not (said.folder / CONFIG).exists():
        raise CheckpointError(f"{said.folder}: not a Hugging Face directory: it has no {CONFIG}")
    options = Options(said.folder / CONFIG, read_json(said.folder / CONFIG))
    family, architecture = _family(options)
    file = File(said.folder, read_weights(said.folder, architecture), family.prefix)
    config, heads = family.config(options, file), family.heads(architecture, file)
    if isinstance(family, EncoderFamily):
        assert isinstance(config, EncoderConfig)
        tokenizers = _one(read_vocabulary(said.folder, _size(options)))
        _check_frame(tokenizers.source, config, said.folder / FILE)
        _check_id(options, "pad_token_id", tokenizers.source, "pad")
        task, labels = _reading(options, config, heads, said)
    elif isinstance(family, Seq2SeqFamily):
        tokenizers, labels = _two(options), ()
        task = {"name": "translate", **_translating(options, tokenizers, family)}
    else:
        tokenizers, labels = _one(read_vocabulary(said.folder, _size(options))), ()
        task = {"name": "lm", **_writing(options, tokenizers.source, config.n_positions)}
    return Found(family, config, heads, task, tokenizers, labels, file)


def _family(options: Options) -> tuple[Family, str]:
    """The family a config names, and the architecture; without one, the body alone."""
    kind, classes = options.table.get("model_type"), options.table.get("architectures") or [None]
    if not isinstance(classes, list):
        options.refuse("architectures", "a list of names", classes)
    family = next((family for family in FAMILIES if family.model_type == kind), None)
    if family is None:
        supported = ", ".join(family.name for family in FAMILIES)
        named = kind if classes[0] is None else f"{classes[0]} of model_type {kind}"
        raise CheckpointError(f"{options.where}: {named} is not supported; supported: {supported}")
    known = list(family.architectures)
    architecture = known[0] if classes[0] is None else classes[0]
    if architecture not in known:
        raise CheckpointError(f"{options.where}: {architecture} is not supported; supported: {', '.join(known)}")
    return family, architecture


def _size(options: Options, key: str = "vocab_size") -> int:
    size = options.table.get(key)
    if not isinstance(size, int):
        options.refuse(key, "a whole number", size)
    return size


def _one(tokenizer: Tokenizer) -> Tokenizers:
    return Tokenizers(tokenizer, tokenizer)


def _two(options: Options) -> Tokenizers:
    """The vocabularies of both sides; that of the target has a file of its own where it is another."""
    folder, size = options.where.parent, _size(options)
    source = read_vocabulary(folder, size)
    if options.value("share_encoder_decoder_embeddings", True):
        return _one(source)
    target_size = size if options.table.get("decoder_vocab_size") is None else _size(options, "decoder_vocab_size")
    return Tokenizers(source, read_vocabulary(folder, target_size, Tokenizers.TARGET_FILE))


def _reading(
    options: Options, config: EncoderConfig, heads: Sequence[str], said: Sentences
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The task of an encoder, by its heads, and its labels."""
    length = min(max(said.length or config.n_positions, SHORTEST), LONGEST)
    if "tags" in heads:
        return {"name": "tag", "length": length}, _labels(options)
    if "label" not in heads:
        how = {"pooling": said.pooling, "normalised": said.normalised}
        return {"name": "pretrain", "length": length, **how}, ()
    labels = _labels(options)
    problem = options.table.get("problem_type")
    score = problem == "regression" or len(labels) == 1
    if problem == "multi_label_classification":
        options.refuse("problem_type", '"single_label_classification" or "regression"', problem)
    if score and len(labels) != 1:
        options.refuse("id2label", "one label, as problem_type is regression", list(labels))
    return {"name": "classify", "kind": "score" if score else "classes", "length": length}, () if score else labels


def _labels(options: Options) -> tuple[str, ...]:
    """The labels in order of their numbers."""
    found = options.table.get("id2label")
    if found is None:
        return tuple(f"LABEL_{i}" for i in range(options.value("num_labels", 2)))
    wanted = [str(i) for i in range(len(found))] if isinstance(found, dict) else []
    if not wanted or set(found) != set(wanted):
        options.refuse("id2label", "a label for each number from 0 on", found)
    return tuple(str(found[number]) for number in wanted)


def _check_frame(tokenizer: Tokenizer, config: EncoderConfig, where: Path) -> None:
    """Refuse a vocabulary that describes other special tokens around texts than ours, or that lacks them."""
    try:
        frame = Frame.of(tokenizer)
    except InputError as error:
        raise CheckpointError(f"{where}: {error}") from None
    for texts in (("a",), ("a", "b")):
        ids, parts = tokenizer.framed(*texts)
        plain = [tokenizer.encode(text) for text in texts]
        ours = frame.around(*plain)
        told = [int(place >= ours.turn) for place in range(len(ours.ids))]
        if ids == [index for part in plain for index in part]:
            continue  # it describes nothing
        if ids != ours.ids:
            raise _framed_otherwise(tokenizer, ids, ours.ids, where)
        if config.n_parts > 1 and parts != told:
            raise CheckpointError(f"{where}: a pair has the parts {parts}, expected {told}")


def _framed_otherwise(tokenizer: Tokenizer, there: Sequence[int], here: Sequence[int], where: Path) -> CheckpointError:
    found, expected = (" ".join(tokenizer.name(index) for index in ids) for ids in (there, here))
    return CheckpointError(f"{where}: puts special tokens as in '{found}', expected '{expected}'")


def _translating(options: Options, tokenizers: Tokenizers, family: Family) -> dict[str, str]:
    """The tokens that a decoder starts from and that stand before texts."""
    for tokenizer in (tokenizers.source, tokenizers.target):
        _check_id(options, "pad_token_id", tokenizer, "pad")
        _check_id(options, "eos_token_id", tokenizer, "end")
    start = options.table.get("decoder_start_token_id")
    if not isinstance(start, int) or not 0 <= start < len(tokenizers.target):
        options.refuse("decoder_start_token_id", "the id of a token", start)
    first = _first(tokenizers.source, family, options.where.parent / FILE)
    return {"start": tokenizers.target.name(start), "first": first}


def _first(tokenizer: Tokenizer, family: Family, where: Path) -> str:
    """The token before texts: that which the vocabulary describes, or else BART's; Marian has none."""
    plain, (ids, _) = tokenizer.encode("a"), tokenizer.framed("a")
    if ids == plain:
        return tokenizer.name(_special(tokenizer, "first", where)) if family is BART else ""
    before = ids[:1] if family is BART and ids[:1] != plain[:1] else []
    expected = [*before, *plain, _special(tokenizer, "end", where)]
    if ids != expected:
        raise _framed_otherwise(tokenizer, ids, expected, where)
    return tokenizer.name(before[0]) if before else ""


def _writing(options: Options, tokenizer: Tokenizer, n_positions: int) -> dict[str, Any]:
    """The tokens around documents, and whether one stands before a prompt; a config may name ids that are not there."""
    known, where = range(len(tokenizer)), options.where.parent / FILE
    eos, bos = (options.table.get(f"{name}_token_id") for name in ("eos", "bos"))
    end = eos if isinstance(eos, int) and eos in known else _special(tokenizer, "end", where)
    start = bos if isinstance(bos, int) and bos in known else end
    plain, (framed, _) = tokenizer.encode("a"), tokenizer.framed("a")
    if framed not in (plain, [start, *plain]):
        raise _framed_otherwise(tokenizer, framed, plain, where)
    return {
        "length": min(max(n_positions, SHORTEST), LONGEST),
        "prompts": "bare" if framed == plain else "begin",
        "start": "" if start == end else tokenizer.name(start),
        "end": "" if end == tokenizer.find("end") else tokenizer.name(end),
    }


def _check_id(options: Options, key: str, tokenizer: Tokenizer, role: str) -> None:
    """The id that a config gives to a special token must be the one it has in the vocabulary."""
    options.require({key: _special(tokenizer, role, options.where.parent / FILE)})


def _special(tokenizer: Tokenizer, role: str, where: Path) -> int:
    try:
        return tokenizer.special(role)
    except InputError as error:
        raise CheckpointError(f"{where}: {error}") from None
