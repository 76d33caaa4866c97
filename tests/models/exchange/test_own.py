"""Exported models: equal outputs in transformers, or a refusal by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity import encoder_gap, pair_gap, sentences, texts
from torch import nn

from regard.errors import InputError
from regard.models import exchange
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig
from regard.models.encoder import TransformerEncoder
from regard.models.heads import MaskedLMHead, Pooler
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import Linear
from regard.predict.seq2seq_inputs import Seq2SeqSpecialTokens
from regard.runs.model_loading import open_model
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.translate import TranslationTask
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SAMPLE_TEXTS = ["The cat sat, didn't it?", "thé  CAT", "a", "zebra! 7"]
SMALL = {"preset": "", "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 20, "dropout": 0.1}
PRETRAIN = {"name": "pretrain", "pooling": "mean", "normalised": False, "length": 16}
TRANSLATE = {"name": "translate", "start": "", "first": ""}
PAIR = {**SMALL, "n_decoder_layers": 1, "norm": "post"}


def vocabulary(
    kind: Any = "bpe", specials: tuple[str, ...] = ENCODER_SPECIAL_TOKENS, text: str = "the cat"
) -> TokenizerPair:
    tokenizer = train_tokenizer([text, *SAMPLE_TEXTS], TokenizerConfig(kind=kind, vocabulary=300), specials)
    return TokenizerPair(tokenizer, tokenizer)


def randomise(model: nn.Module) -> nn.Module:
    """Draw every weight at random, also those with a constant initial value."""
    initialise_weights(model, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return model.eval()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@pytest.mark.parametrize(
    ("objective", "name"),
    [
        ("masked+next", "BertForPreTraining"),
        ("masked", "BertForMaskedLM"),
        ("next", "BertForNextSentencePrediction"),
        ("none", "BertModel"),
    ],
)
def test_exported_bert_equals_transformers(kind: str, objective: Any, name: str, tmp_path: Path) -> None:
    tokenizers = vocabulary(kind)
    task = PretrainingTask(PretrainConfig(objective=objective), tokenizers.source)
    model = randomise(task.build_model(TransformerEncoderConfig(**SMALL, n_positions=43)))
    assert isinstance(model, TransformerEncoder)
    exchange.write_hf_directory(tmp_path, model, PRETRAIN, tokenizers)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.architectures == [name]
    bare = {"add_pooling_layer": False} if objective == "none" else {}
    theirs = getattr(transformers, name).from_pretrained(tmp_path, **bare).eval()
    inputs = texts(task.template, task.vocabulary_size, tokenizers.source.special_ids)
    assert max(encoder_gap(model, theirs, inputs, task.template.pad_id, typed=True)) <= 1e-4
    hf_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for first, second in zip(SAMPLE_TEXTS, reversed(SAMPLE_TEXTS), strict=True):
        wrapped = task.template.wrap(*map(tokenizers.source.encode, (first, second)))
        assert hf_tokenizer(first, second)["input_ids"] == wrapped.ids
        assert hf_tokenizer(first, second)["token_type_ids"] == [
            int(i >= wrapped.token_type_boundary) for i in range(len(wrapped.ids))
        ]


HALVES = {"positions": "sinusoidal-halves"}
LEARNED = {"positions": "learned", "first_position": 2}


@pytest.mark.parametrize(
    "shape",
    [
        HALVES,
        HALVES | {"tied": False},
        HALVES | {"embedding": "plain", "output_bias": True},
        LEARNED | {"embedding": "normed"},
    ],
    ids=["tied", "untied", "biased", "learned"],
)
def test_exported_translator_equals_transformers(shape: dict[str, Any], tmp_path: Path) -> None:
    tokenizers = vocabulary(specials=("<pad>", "<sos>", "<eos>"))
    config = TransformerSeq2SeqConfig(**PAIR, **shape, n_positions=43)
    size = len(tokenizers.source)
    model = randomise(TransformerSeq2Seq(config, size, size, joint=True))
    assert isinstance(model, TransformerSeq2Seq)
    exchange.write_hf_directory(tmp_path, model, TRANSLATE, tokenizers)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert (theirs.config.decoder_start_token_id, theirs.config.eos_token_id) == (1, 2)
    sources = [Seq2SeqSpecialTokens().wrap_source(ids) for ids in sentences(size, frozenset({0, 1, 2}), (5, 1, 9, 3))]
    targets = [
        Seq2SeqSpecialTokens().wrap_target_in(ids) for ids in sentences(size, frozenset({0, 1, 2}), (2, 11, 4, 1), 1)
    ]
    assert max(pair_gap(model, theirs, sources, targets, 0)) <= 1e-4
    settings, task, again = open_model(tmp_path)
    assert settings.model == config
    assert isinstance(task, TranslationTask)
    assert task.special_tokens == Seq2SeqSpecialTokens()
    assert all(torch.equal(weight, again.get_parameter(name)) for name, weight in model.named_parameters())


def refusal(model: nn.Module, task: dict[str, Any], tokenizers: TokenizerPair, folder: Path) -> str:
    with pytest.raises(InputError) as error:
        exchange.write_hf_directory(folder / "out", model, task, tokenizers)
    assert not (folder / "out").exists()
    return str(error.value)


def encoder(
    heads: Callable[[TransformerEncoderConfig], dict[str, nn.Module]] = lambda _: {}, **shape: Any
) -> TransformerEncoder:
    config = TransformerEncoderConfig(**SMALL | shape)
    return TransformerEncoder(config, 300, heads(config))


def unlike(key: str, value: str, family: str, supported: str) -> str:
    return f"model.{key} = {value}: {family} has {supported}, so this model cannot be exported as one"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (encoder(norm="pre"), unlike("norm", '"pre"', "BERT", 'only "post"')),
        (encoder(positions="rotary"), unlike("positions", '"rotary"', "BERT", 'only "learned"')),
        (encoder(embedding="plain"), unlike("embedding", '"plain"', "BERT", 'only "normed"')),
        (encoder(activation="gated-gelu"), unlike("activation", '"gated-gelu"', "BERT", "no such value")),
        (encoder(n_parts=0, norm_eps=1e-5), unlike("norm_eps", "1e-05", "DistilBERT", "only 1e-12")),
        (
            encoder(lambda c: {"pooler": Pooler(c), "label": Linear(16, 2)}, n_parts=0),
            'model.pooler = "tanh": DistilBERT has only "relu"',
        ),
        (
            encoder(lambda c: {"pooler": Pooler(c, "mean"), "label": Linear(16, 2)}),
            'task.pooling = "mean": BERT has only "cls" under a head',
        ),
        (encoder(lambda c: {"next": Linear(16, 2)}), "no BERT class has exactly these heads: next"),
        (
            encoder(first_position=5),
            "model.first_position = 5, but the pad token has the id 0: RoBERTa counts positions from there on, "
            "so this model cannot be exported as one",
        ),
        (
            encoder(lambda c: {"masked": MaskedLMHead(c, 300)}, first_position=1, activation="relu"),
            'model.activation = "relu": the masked LM head of RoBERTa has only "gelu"',
        ),
    ],
    ids=lambda value: "" if isinstance(value, nn.Module) else value[:30],
)
def test_encoders_without_an_equivalent_are_refused(model: nn.Module, message: str, tmp_path: Path) -> None:
    assert refusal(model, PRETRAIN, vocabulary(), tmp_path) == message


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"positions": "rotary"}, unlike("positions", '"rotary"', "Marian", 'only "sinusoidal-halves"')),
        ({"norm": "pre", "embedding": "normed"}, unlike("embedding", '"normed"', "Pegasus", "no such value")),
        ({"norm": "pre"} | LEARNED | {"first_position": 2}, unlike("first_position", "2", "Blenderbot", "only 0")),
        ({"activation": "gated-silu"}, unlike("activation", '"gated-silu"', "Marian", "no such value")),
        (LEARNED, unlike("embedding", '"scaled"', "BART", 'only "normed"')),
    ],
    ids=["positions", "normed", "first position", "activation", "embedding"],
)
def test_translators_without_an_equivalent_are_refused(shape: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = TransformerSeq2Seq(TransformerSeq2SeqConfig(**PAIR | shape), 300, 300, joint=True)
    assert refusal(model, TRANSLATE, vocabulary(specials=("<pad>", "<sos>", "<eos>")), tmp_path) == message


def test_bart_with_two_vocabularies_is_refused(tmp_path: Path) -> None:
    model = TransformerSeq2Seq(
        TransformerSeq2SeqConfig(**PAIR | LEARNED | {"embedding": "normed"}), 300, 300, joint=False
    )
    one, other = (vocabulary(specials=("<pad>", "<sos>", "<eos>"), text=text).source for text in ("the cat", "a dog"))
    message = "tokenizer.joint = false: BART has one vocabulary, so this model cannot be exported as one"
    assert refusal(model, TRANSLATE, TokenizerPair(one, other), tmp_path) == message


def test_language_model_without_an_equivalent_is_refused(tmp_path: Path) -> None:
    model = TransformerLM(TransformerLMConfig(**SMALL, norm="post"), 300)
    message = unlike("norm", '"post"', "GPT-2", 'only "pre"')
    table = {"name": "lm", "prompts": "begin", "start": "", "end": ""}
    assert refusal(model, table, vocabulary(specials=("<pad>", "<sos>", "<eos>")), tmp_path) == message


def test_every_config_field_is_mapped() -> None:
    """In every family, a config field is mapped to a key or must have a constant value."""
    elsewhere = {"preset", "start", "pooler", "output_bias", "spread", "d_key", "d_value", "sinusoid_base"}
    for family in exchange.HF_FAMILIES:
        mapped = {key.field_name for key in family.config_keys} | set(family.constant_fields)
        assert {field.name for field in fields(family.Config)} - elsewhere == mapped, family.name
