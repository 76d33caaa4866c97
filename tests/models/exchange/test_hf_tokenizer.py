"""Imported and exported tokenizers: the same ids, special tokens and token types as in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from theirs import BERT, CASES, SIZE, Case, save, words

from regard.errors import CheckpointError, ConfigError
from regard.export import export_model
from regard.runs.model_loading import open_model
from regard.text.hf_tokenizer import PostProcessorTemplate, read_hf_tokenizer, write_hf_tokenizer
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SAMPLE_TEXTS = ["The cat sat, didn't it?", "thé  CAT", "a", "zebra! 7", "the\ncat 猫"]

ENCODERS = [case for case in CASES if case.family not in ("GPT-2", "Marian", "BART", "Pegasus", "Blenderbot")]
BY_KIND = {(case.family, case.vocabulary): case for case in ENCODERS}


@pytest.mark.parametrize("case", BY_KIND.values(), ids=lambda case: f"{case.family} {case.vocabulary}")
def test_special_tokens_of_texts_and_pairs_equal_transformers(case: Case, tmp_path: Path) -> None:
    """With the original tokenizer and with the exported one."""
    save(case, tmp_path / "theirs")
    _, opened, model = open_model(tmp_path / "theirs")
    task: Any = opened
    for folder in (tmp_path / "theirs", export_model(tmp_path / "theirs", tmp_path / "ours", "hf")):
        unlike = (
            case.model.startswith("Bert") and case.vocabulary == "bytes"
        )  # transformers reads every BERT tokenizer as WordPiece
        kind = transformers.PreTrainedTokenizerFast if unlike else transformers.AutoTokenizer
        theirs = kind.from_pretrained(folder)
        for first in SAMPLE_TEXTS:
            for second in (None, *SAMPLE_TEXTS):
                ids = [task.tokenizer.encode(text) for text in (first, second) if text is not None]
                wrapped = task.template.wrap(*ids)
                expected = theirs(first, second)
                assert wrapped.ids == expected["input_ids"]
                parts = [int(i >= wrapped.token_type_boundary) for i in range(len(wrapped.ids))]
                if model.config.n_parts > 1:
                    assert parts == expected.get("token_type_ids", [0] * len(parts))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in ("Marian", "BART")], ids=lambda case: case.name
)
def test_special_tokens_of_sources_equal_transformers(case: Case, tmp_path: Path) -> None:
    save(case, tmp_path / "theirs")
    _, opened, _ = open_model(tmp_path / "theirs")
    task: Any = opened
    for folder in (tmp_path / "theirs", export_model(tmp_path / "theirs", tmp_path / "ours", "hf")):
        theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        for text in SAMPLE_TEXTS:
            ids = task.tokenizers.source.encode(text)
            assert task.special_tokens.wrap_source(ids) == theirs(text, truncation=False)["input_ids"]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_exported_tokenizer_equals_transformers(kind: Any, tmp_path: Path) -> None:
    config = TokenizerConfig(kind=kind, vocabulary=300, lowercase=kind == "wordpiece")
    tokenizer = train_tokenizer(SAMPLE_TEXTS * 3, config, ENCODER_SPECIAL_TOKENS)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    template = PostProcessorTemplate("[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    write_hf_tokenizer(tmp_path, tokenizer, template, names, {})
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert len(theirs) == len(tokenizer)
    first, last = tokenizer.special_id("cls"), tokenizer.special_id("sep")
    for text in SAMPLE_TEXTS:
        ids = tokenizer.encode(text)
        assert theirs(text)["input_ids"] == [first, *ids, last]
        assert theirs.decode(ids) == tokenizer.decode(ids)
    assert (tmp_path / "vocab.txt").exists() == (kind == "wordpiece")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode_batch(SAMPLE_TEXTS) == tokenizer.encode_batch(
        SAMPLE_TEXTS
    )


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False}])
def test_vocab_txt_without_tokenizer_json(settings: dict[str, Any], tmp_path: Path) -> None:
    """vocab.txt, with settings beside it or not."""
    words(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    if settings:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = read_hf_tokenizer(tmp_path, SIZE)
    theirs = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), **settings)
    for text in SAMPLE_TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert [ours.id_to_token(index) for index in sorted(ours.special_ids)] == list(BERT)


def test_imported_vocabulary_is_not_retrained() -> None:
    config = TokenizerConfig(kind="ready", vocabulary=7)
    with pytest.raises(ConfigError, match=r'^tokenizer.kind = "ready" is for models from elsewhere; accepted: bpe, '):
        train_tokenizer(SAMPLE_TEXTS, config)


def test_more_embeddings_than_tokens(tmp_path: Path) -> None:
    """Embeddings often have more rows than the vocabulary; the extra rows get tokens that no text contains."""
    words(tmp_path, SIZE - 3)
    tokenizer = read_hf_tokenizer(tmp_path, SIZE)
    assert len(tokenizer) == SIZE
    assert SIZE - 1 in tokenizer.special_ids
    assert SIZE - 1 not in tokenizer.encode(tokenizer.id_to_token(SIZE - 1))
    tokenizer.save(tmp_path / "tokenizer.json")
    assert read_hf_tokenizer(tmp_path, SIZE).to_json() == tokenizer.to_json()


def refusal(folder: Path, size: int = SIZE) -> str:
    with pytest.raises(CheckpointError) as error:
        read_hf_tokenizer(folder, size)
    return str(error.value).replace(str(folder), "DIR")


def test_refusals(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        "DIR: has no tokenizer.json and no vocab.txt; if transformers can read the vocabulary, it can write one: "
        "python -c \"from transformers import AutoTokenizer; t = AutoTokenizer.from_pretrained('DIR'); "
        "t.save_pretrained('DIR')\""
    )
    words(tmp_path)
    assert refusal(tmp_path, 300) == "DIR/vocab.txt: has 301 tokens, but vocab_size in config.json is 300"
    vocabulary = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(vocabulary.replace("word3\n", "word2\n"))
    once = "DIR/vocab.txt: expected each word once, among them [PAD], [UNK], [CLS], [SEP], [MASK]"
    assert refusal(tmp_path) == once
    (tmp_path / "vocab.txt").write_text(vocabulary.replace("[SEP]\n", "[S]\n"))
    assert refusal(tmp_path) == once
    (tmp_path / "vocab.txt").write_bytes(b"\xff\n")
    assert refusal(tmp_path).startswith("DIR/vocab.txt: not UTF-8 (")
    (tmp_path / "vocab.txt").write_text(vocabulary)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    assert refusal(tmp_path) == (
        'DIR/tokenizer_config.json: tokenizer_class: expected null or "BertTokenizer" or "BertTokenizerFast" or '
        '"DistilBertTokenizer" or "DistilBertTokenizerFast", found "BertJapaneseTokenizer", '
        "and there is no tokenizer.json"
    )
    (tmp_path / "tokenizer_config.json").write_text('{"do_basic_tokenize": false}')
    message = "do_basic_tokenize: expected true or null, found false, and there is no tokenizer.json"
    assert refusal(tmp_path) == f"DIR/tokenizer_config.json: {message}"
    (tmp_path / "tokenizer_config.json").write_text("{")
    assert refusal(tmp_path).startswith("DIR/tokenizer_config.json: damaged, or not JSON (")
    (tmp_path / "tokenizer.json").write_text("{")
    assert refusal(tmp_path).startswith("DIR/tokenizer.json: damaged, or not JSON (")


def test_gaps_in_the_ids(tmp_path: Path) -> None:
    words(tmp_path)
    rust = json.loads(read_hf_tokenizer(tmp_path, SIZE).to_json())
    rust["model"]["vocab"]["word3"] = 400
    (tmp_path / "tokenizer.json").write_text(json.dumps(rust))
    problem = "301 tokens, but one has the id 400; expected 0 to 300; restore it from a copy"
    assert refusal(tmp_path, 401) == f"DIR/tokenizer.json: damaged, or not a tokenizer: {problem}"
