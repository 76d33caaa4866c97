"""Tokenizers in Hugging Face's files: reading and writing.

Read from ``tokenizer.json``, or from BERT's ``vocab.txt``. Written with a post-processor that adds the special tokens
(`PostProcessorTemplate`), which our own tasks add themselves. Called by models/exchange.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, processors

from regard.disk import read_bytes, read_json_if_exists, write_json, write_text
from regard.errors import CheckpointError
from regard.text.json_values import show_json
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, TOKENIZER_FILE, Tokenizer
from regard.text.tokenizer_training import build_bert_tokenizer

VOCAB_TXT_FILE, TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_MAP_FILE = (
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
)

SUPPORTED_BERT_SETTINGS = {
    "tokenizer_class": (None, "BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast"),
    "do_basic_tokenize": (True, None),
    "do_lower_case": (True, False),
    "strip_accents": (None, True, False),
    "tokenize_chinese_chars": (True, False),
}
"""Settings of a vocab.txt that is pre-tokenized as BERT's, the default first; others need code of their own."""

MAX_ROWS_WITHOUT_TOKEN = 1 << 16
"""Rows of an embedding that may lack a token: it may be padded, but not a vocabulary of its own."""


class PostProcessorTemplate(NamedTuple):
    """Templates of a single text and of a pair, as in ``[CLS] $A [SEP] $B:1 [SEP]:1``; empty if there are no pairs."""

    single: str
    pair: str = ""


def read_hf_tokenizer(directory: Path, vocabulary_size: int, file: str = TOKENIZER_FILE) -> Tokenizer:
    """Return the tokenizer of a model whose embedding has `vocabulary_size` rows."""
    path = directory / file
    if path.exists():
        tokenizer = Tokenizer.load(path)
    elif (directory / VOCAB_TXT_FILE).exists() and file == TOKENIZER_FILE:
        path = directory / VOCAB_TXT_FILE
        tokenizer = _read_vocab_txt(directory)
    else:
        lacking = f"{TOKENIZER_FILE} and no {VOCAB_TXT_FILE}" if file == TOKENIZER_FILE else file
        convert = f"t = AutoTokenizer.from_pretrained('{directory}'); t.save_pretrained('{directory}')"
        raise CheckpointError(
            f"{directory}: has no {lacking}; if transformers can read the vocabulary, it can write one: "
            f'python -c "from transformers import AutoTokenizer; {convert}"'
        )
    return _pad_vocabulary(tokenizer, vocabulary_size, path)


def _read_vocab_txt(directory: Path) -> Tokenizer:
    """Read BERT's vocab.txt, one token a line, with tokenizer_config.json."""
    try:
        words = read_bytes(directory / VOCAB_TXT_FILE).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{directory / VOCAB_TXT_FILE}: not UTF-8 ({error})") from None
    if len(set(words)) < len(words) or not set(ENCODER_SPECIAL_TOKENS) <= set(words):
        raise CheckpointError(
            f"{directory / VOCAB_TXT_FILE}: expected each word once, among them {', '.join(ENCODER_SPECIAL_TOKENS)}"
        )
    settings = read_json_if_exists(directory / TOKENIZER_CONFIG_FILE)
    for key, accepted in SUPPORTED_BERT_SETTINGS.items():
        value = settings.get(key, accepted[0])
        if not any(value == each and type(value) is type(each) for each in accepted):
            problem = f"expected {' or '.join(map(json.dumps, accepted))}, found {show_json(value)}"
            raise CheckpointError(
                f"{directory / TOKENIZER_CONFIG_FILE}: {key}: {problem}, and there is no {TOKENIZER_FILE}"
            )
    return build_bert_tokenizer(
        words,
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        tokenize_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )


def _pad_vocabulary(tokenizer: Tokenizer, vocabulary_size: int, path: Path) -> Tokenizer:
    """Return the tokenizer with a token for every row of the embedding; added tokens occur in no text."""
    if not 0 <= vocabulary_size - len(tokenizer) <= MAX_ROWS_WITHOUT_TOKEN:
        raise CheckpointError(
            f"{path}: has {len(tokenizer):,} tokens, but vocab_size in config.json is {vocabulary_size:,}"
        )
    if len(tokenizer) == vocabulary_size:
        return tokenizer
    rust = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    rust.add_special_tokens(
        [AddedToken(f"<no token {i}>", special=True) for i in range(len(tokenizer), vocabulary_size)]
    )
    return Tokenizer(rust)


def write_hf_tokenizer(
    directory: Path,
    tokenizer: Tokenizer,
    template: PostProcessorTemplate,
    special_tokens_map: Mapping[str, str],
    tokenizer_config: Mapping[str, Any],
) -> None:
    """Write a tokenizer so that transformers encodes a text, special tokens included, as we do.

    `special_tokens_map` maps their names of roles (``cls_token``) to tokens.
    """
    rust = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    if len(rust.encode("").ids) == 0:
        rust.post_processor = _build_post_processor(template, tokenizer)
    write_text(directory / TOKENIZER_FILE, rust.to_str())
    write_json(directory / SPECIAL_TOKENS_MAP_FILE, dict(special_tokens_map))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    write_json(directory / TOKENIZER_CONFIG_FILE, {**described, **tokenizer_config, **special_tokens_map})
    if json.loads(rust.to_str())["model"]["type"] == "WordPiece":
        by_id = sorted(rust.get_vocab().items(), key=lambda item: item[1])
        write_text(directory / VOCAB_TXT_FILE, "".join(f"{word}\n" for word, _ in by_id))


def _build_post_processor(template: PostProcessorTemplate, tokenizer: Tokenizer) -> Any:
    parts = [part.partition(":")[0] for part in f"{template.single} {template.pair}".split()]
    specials = sorted({part for part in parts if not part.startswith("$")})
    known = [(name, tokenizer.token_to_id(name)) for name in specials]
    pair: Sequence[str] | None = template.pair.split() or None
    return processors.TemplateProcessing(single=template.single.split(), pair=pair, special_tokens=known)
