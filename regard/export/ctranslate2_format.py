"""Export to CTranslate2: the files of a model, which `ctranslate2.Translator`, `Generator` or `Encoder` loads.

model.bin, config.json            the weights and the special tokens
*vocabulary.json                  the tokens of tokenizer.json, in the order of their ids
tokenizer.json                    text to tokens, special tokens included; of two, that of the source
tokenizer.target.json             that of the target, where there are two
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.export.comparison import Comparison
from regard.export.ctranslate2_check import compare_ctranslate2
from regard.export.ctranslate2_spec import (
    ENGINE,
    build_encoder_spec,
    build_language_model_spec,
    build_translator_spec,
    check_expressible,
)
from regard.export.export_format import ExportFormat
from regard.export.source_model import SourceModel
from regard.models import exchange
from regard.progress import warn
from regard.text.languages import language_token
from regard.text.special_tokens import SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer

REGARD_KEY = "regard"
"""The key of config.json under which regard stores what it needs to translate; the engine ignores it."""

LONGEST_TRANSLATION = 256
"""The tokens of a translation in the script of the model card, at most: the default of the engine."""


class CTranslate2Format(ExportFormat):
    """Translators, language models, and encoders without heads that predict."""

    name, engine, modules = "ctranslate2", ENGINE, ("ctranslate2",)
    quantizations = ("int8", "int8_float16", "int8_bfloat16", "float16", "bfloat16")

    def check_expressible(self, source: SourceModel) -> None:
        check_expressible(source.model)

    def write(self, directory: Path, source: SourceModel, quantization: str) -> None:
        spec = _build_spec(source)
        spec.validate()
        spec.optimize(quantization or None)
        spec.save(str(directory))
        exchange.write_tokenizer_files(directory, source.model, source.task_table, source.task.tokenizers)

    def compare(self, directory: Path, source: SourceModel, comparison: Comparison) -> None:
        with _only_errors():
            compare_ctranslate2(directory, source, comparison)

    def usage(self, directory_name: str, source: SourceModel) -> str:
        if source.is_translator:
            return _translator_usage(directory_name, source)
        usage = LANGUAGE_MODEL_USAGE if source.is_language_model else ENCODER_USAGE
        return usage.format(directory=directory_name)


@contextmanager
def _only_errors() -> Iterator[None]:
    """Suppress the engine's warnings of types that this machine cannot compute with, which it converts."""
    import ctranslate2

    level = ctranslate2.get_log_level()
    ctranslate2.set_log_level(logging.ERROR)
    try:
        yield
    finally:
        ctranslate2.set_log_level(level)


def _build_spec(source: SourceModel) -> Any:
    tokenizers = source.task.tokenizers
    if source.is_translator:
        spec = build_translator_spec(source.network)
        spec.register_source_vocabulary(token_names(tokenizers.source))
        spec.register_target_vocabulary(token_names(tokenizers.target))
        _set_translator_config(spec.config, source)
    else:
        build = build_language_model_spec if source.is_language_model else build_encoder_spec
        spec = build(source.network)
        spec.register_vocabulary(token_names(tokenizers.source))
        _set_text_config(spec.config, source)
    spec.config.layer_norm_epsilon = source.network.config.norm_eps
    if heads := sorted({"masked", "next"} & set(getattr(source.network, "heads", {}))):
        warn(f"{ENGINE} has no heads: the hidden states are exported, without {' and '.join(heads)}")
    return spec


def token_names(tokenizer: Tokenizer) -> list[str]:
    """Return the token of each id; an id without a token gets a name of its own."""
    names = [tokenizer.id_to_token(index) for index in range(len(tokenizer))]
    return [name or f"<no token {index}>" for index, name in enumerate(names)]


def _set_translator_config(config: Any, source: SourceModel) -> None:
    task: Any = source.task
    tokens, special = task.tokenizers.target, task.special_tokens
    config.decoder_start_token = config.bos_token = tokens.id_to_token(special.decoder_start_id)
    config.eos_token = tokens.id_to_token(special.eos_id)
    config.unk_token = _unknown_token(tokens, special.pad_id)
    config.add_attribute(
        REGARD_KEY,
        {
            "first": source.task_table["first"],
            "directions": list(map(str, task.directions.known)) if task.directions.is_tagged else [],
            "n_positions": source.network.config.n_positions,
            "suppressed": [tokens.id_to_token(index) for index in special.decoding_tokens.suppressed_ids],
        },
    )


def _set_text_config(config: Any, source: SourceModel) -> None:
    task: Any = source.task
    tokens = task.tokenizers.source
    if source.is_language_model:
        start, end = task.start_id, task.end_id
    else:
        template = SpecialTokenTemplate.from_tokenizer(tokens)
        start, end = template.cls_id, template.sep_id
    config.bos_token, config.eos_token = tokens.id_to_token(start), tokens.id_to_token(end)
    config.unk_token = _unknown_token(tokens, end)


def _unknown_token(tokenizer: Tokenizer, otherwise: int) -> str:
    """Return the unknown token; without one, the engine would add a token that it has no weights for."""
    index = tokenizer.find_special_id("unknown")
    return tokenizer.id_to_token(otherwise if index is None else index)


def _translator_usage(directory_name: str, source: SourceModel) -> str:
    task: Any = source.task
    first = source.task_table["first"]
    is_joint = source.task.tokenizers.is_joint
    target = "tokenizer" if is_joint else 'Tokenizer.from_file(f"{directory}/tokenizer.target.json")'
    prefix = f', target_prefix=[["{first}"]]' if first else ""
    longest = min(LONGEST_TRANSLATION, source.network.config.n_positions - len(prefix.split()))
    source_tokens = 'tokenizer.encode("I am good").tokens'
    if task.directions.is_tagged:
        source_tokens = f'["{language_token(task.directions.targets[0])}", *{source_tokens}]'
    return TRANSLATOR_USAGE.format(
        directory=directory_name, target=target, prefix=prefix, longest=longest, source_tokens=source_tokens
    )


TRANSLATOR_USAGE = """\
import ctranslate2
from tokenizers import Tokenizer

directory = "{directory}"
tokenizer = Tokenizer.from_file(f"{{directory}}/tokenizer.json")
target_tokenizer = {target}
translator = ctranslate2.Translator(directory)

source = {source_tokens}
result = translator.translate_batch([source], beam_size=4, max_decoding_length={longest}{prefix})[0]
ids = [target_tokenizer.token_to_id(token) for token in result.hypotheses[0]]
print(target_tokenizer.decode(ids))
"""

LANGUAGE_MODEL_USAGE = """\
import ctranslate2
from tokenizers import Tokenizer

directory = "{directory}"
tokenizer = Tokenizer.from_file(f"{{directory}}/tokenizer.json")
generator = ctranslate2.Generator(directory)

prompt = tokenizer.encode("Once upon a time").tokens
result = generator.generate_batch([prompt], max_length=20, sampling_topk=40)[0]
print(tokenizer.decode(result.sequences_ids[0]))
"""

ENCODER_USAGE = """\
import ctranslate2
import numpy as np
from tokenizers import Tokenizer

directory = "{directory}"
tokenizer = Tokenizer.from_file(f"{{directory}}/tokenizer.json")
encoder = ctranslate2.Encoder(directory)

tokens = tokenizer.encode("I am good").tokens
hidden_states = np.array(encoder.forward_batch([tokens]).last_hidden_state)
print(hidden_states.shape)
"""
