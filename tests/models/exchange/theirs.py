"""Models of `transformers` with random weights, and tokenizers, saved as Hugging Face directories."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MARIAN = ("</s>", "<unk>", "<pad>")
GPT2 = ("<|endoftext|>",)

SIZE = 301
"""The size of most vocabularies: more than 256 bytes."""


class Case(NamedTuple):
    """A class of transformers, its config, and the vocabulary it is saved with."""

    name: str
    model: str
    options: Mapping[str, Any]
    vocabulary: str
    more: Mapping[str, Any] = {}

    @property
    def family(self) -> str:
        return self.name.replace(",", "").split()[0]


SHAPE = {"hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 37}
BODY = SHAPE | {"vocab_size": SIZE, "max_position_embeddings": 43}
SMALL = BODY | {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
DISTIL = {"dim": 30, "n_layers": 2, "n_heads": 5, "hidden_dim": 37, "vocab_size": SIZE, "max_position_embeddings": 43}
GPT = {"n_embd": 30, "n_layer": 2, "n_head": 5, "n_positions": 43, "vocab_size": SIZE}
DEPTHS = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "vocab_size": SIZE, "max_position_embeddings": 43}
WIDTHS = {"encoder_ffn_dim": 37, "decoder_ffn_dim": 37}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
PAIR: dict[str, Any] = DEPTHS | WIDTHS | HEADS
FIVE = {"d_model": 30, "encoder_attention_heads": 5, "decoder_attention_heads": 5}
MARIAN_IDS = {"pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": 0}
MARIAN_PAIR = PAIR | MARIAN_IDS
CLASSES = {"id2label": {0: "no", 1: "maybe", 2: "yes"}}
TAGS = {"id2label": dict(enumerate(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")))}
SCORE = {"id2label": {0: "LABEL_0"}, "problem_type": "regression"}

UNTIED = {"tie_word_embeddings": False}
ONE_PART = {"type_vocab_size": 1}
EPS = {"layer_norm_eps": 1e-5}
APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": SIZE - 7}
NO_POOLER = {"add_pooling_layer": False}

CASES = [
    Case("BERT body", "BertModel", BODY, "words"),
    Case("BERT body, no pooler", "BertModel", SMALL | ONE_PART, "words", NO_POOLER),
    Case("BERT pre-trained", "BertForPreTraining", BODY | {"num_hidden_layers": 3, "hidden_act": "gelu_new"}, "words"),
    Case("BERT next sentence", "BertForNextSentencePrediction", BODY | EPS, "words"),
    Case("BERT words", "BertForMaskedLM", BODY | EPS | {"hidden_act": "relu"}, "words"),
    Case("BERT words, untied", "BertForMaskedLM", SMALL | UNTIED, "words"),
    Case("BERT words of bytes", "BertForMaskedLM", BODY | {"hidden_act": "silu", "pad_token_id": 1}, "bytes"),
    Case("BERT classes", "BertForSequenceClassification", BODY | CLASSES, "words"),
    Case("BERT score", "BertForSequenceClassification", SMALL | SCORE, "words"),
    Case("BERT tags", "BertForTokenClassification", BODY | TAGS | {"type_vocab_size": 3}, "words"),
    Case("BERT questions", "BertForQuestionAnswering", BODY, "words"),
    Case("RoBERTa body", "RobertaModel", BODY | ONE_PART, "bytes"),
    Case("RoBERTa body, no pooler", "RobertaModel", SMALL, "bytes", NO_POOLER),
    Case("RoBERTa words", "RobertaForMaskedLM", BODY | EPS | ONE_PART, "bytes"),
    Case("RoBERTa words, untied", "RobertaForMaskedLM", SMALL | UNTIED, "bytes"),
    Case("RoBERTa classes", "RobertaForSequenceClassification", BODY | CLASSES | {"hidden_act": "relu"}, "bytes"),
    Case("RoBERTa score", "RobertaForSequenceClassification", SMALL | SCORE | ONE_PART, "bytes"),
    Case("RoBERTa tags", "RobertaForTokenClassification", SMALL | TAGS, "bytes"),
    Case("RoBERTa questions", "RobertaForQuestionAnswering", BODY | ONE_PART, "bytes"),
    Case("XLM-R words", "XLMRobertaForMaskedLM", BODY | EPS | ONE_PART, "pieces"),
    Case("XLM-R classes", "XLMRobertaForSequenceClassification", SMALL | CLASSES, "pieces"),
    Case("XLM-R questions", "XLMRobertaForQuestionAnswering", SMALL, "pieces"),
    Case("DistilBERT body", "DistilBertModel", DISTIL, "words"),
    Case("DistilBERT words", "DistilBertForMaskedLM", DISTIL | {"activation": "relu"}, "words"),
    Case("DistilBERT words, untied", "DistilBertForMaskedLM", DISTIL | UNTIED, "words"),
    Case("DistilBERT classes", "DistilBertForSequenceClassification", DISTIL | CLASSES, "words"),
    Case("DistilBERT score", "DistilBertForSequenceClassification", DISTIL | SCORE | {"n_layers": 1}, "words"),
    Case("DistilBERT tags", "DistilBertForTokenClassification", DISTIL | TAGS, "words"),
    Case("DistilBERT questions", "DistilBertForQuestionAnswering", DISTIL, "words"),
    Case("GPT-2", "GPT2LMHeadModel", GPT, "text"),
    Case("GPT-2, untied", "GPT2LMHeadModel", GPT | UNTIED | {"n_inner": 41, "n_layer": 1}, "text"),
    Case("GPT-2 body", "GPT2Model", GPT | {"n_layer": 3, "activation_function": "gelu"}, "text"),
    Case("Marian", "MarianMTModel", MARIAN_PAIR | {"scale_embedding": True}, "marian"),
    Case("Marian swish", "MarianMTModel", MARIAN_PAIR | {"activation_function": "swish"}, "marian"),
    Case("Marian, two vocabularies", "MarianMTModel", MARIAN_PAIR | APART, "two"),
    Case("Marian, untied", "MarianMTModel", MARIAN_PAIR | UNTIED | {"decoder_layers": 1}, "marian"),
    Case("Marian, untied, two vocabularies", "MarianMTModel", MARIAN_PAIR | UNTIED | APART, "two"),
    Case("BART", "BartForConditionalGeneration", PAIR | {"forced_bos_token_id": 0}, "bytes"),
    Case("BART, untied", "BartForConditionalGeneration", PAIR | UNTIED | {"activation_function": "gelu_new"}, "bytes"),
    Case("Pegasus", "PegasusForConditionalGeneration", MARIAN_PAIR | {"scale_embedding": True}, "marian"),
    Case("Pegasus, untied", "PegasusForConditionalGeneration", MARIAN_PAIR | UNTIED | {"decoder_layers": 1}, "marian"),
    Case("Blenderbot", "BlenderbotForConditionalGeneration", MARIAN_PAIR | {"scale_embedding": True}, "marian"),
    Case("BART body", "BartModel", PAIR | FIVE | {"decoder_layers": 1}, "bytes"),
]


def build(case: Case, seed: int = 0) -> nn.Module:
    """Return the model with every weight drawn at random, also biases and norms."""
    torch.manual_seed(seed)
    kind = getattr(transformers, case.model)
    model: nn.Module = kind(kind.config_class(**case.options), **case.more).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(generator=generator)
    return model


def save(case: Case, directory: Path, seed: int = 0) -> nn.Module:
    """Save the model by transformers, with its vocabulary."""
    model = build(case, seed)
    model.save_pretrained(directory)
    VOCABULARIES[case.vocabulary](directory)
    return model


def words(directory: Path, size: int = SIZE) -> None:
    """BERT's vocab.txt."""
    letters = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase), *".,!?'"]
    known = [*BERT, *letters, "the", "cat", "##ing", "é"]
    lines = [*known, *(f"word{i}" for i in range(size - len(known)))]
    (directory / "vocab.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))


def bytewise(directory: Path, specials: tuple[str, ...] = ROBERTA, *, framed: bool = True) -> None:
    """RoBERTa's and BART's, or GPT-2's."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "c"), ("a", "t")]
    merges = merges[: SIZE - len(specials) - len(letters)]
    known = [*specials, *letters, *("".join(pair) for pair in merges)]
    known += [f"<filler {i}>" for i in range(SIZE - len(known))]
    rust = Tokenizer(models.BPE({token: i for i, token in enumerate(known)}, merges))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    if framed:
        rust.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    rust.add_special_tokens(list(specials))
    rust.enable_truncation(5)
    rust.enable_padding(length=9)
    rust.save(str(directory / "tokenizer.json"))


def piecewise(
    directory: Path, specials: tuple[str, ...], template: Mapping[str, str], size: int, file: str = "tokenizer.json"
) -> None:
    """XLM-R's and Marian's."""
    vocabulary = [
        *(f"▁{letter}" for letter in string.ascii_lowercase),
        *string.ascii_lowercase,
        "▁",
        "▁the",
        "▁cat",
        "at",
    ]
    known = [*specials, *vocabulary, *(f"<filler {i}>" for i in range(size - len(specials) - len(vocabulary)))]
    scores = [(token, 0.0 if token in specials else -1.0 - i / size) for i, token in enumerate(known)]
    rust = Tokenizer(models.Unigram(scores, unk_id=specials.index("<unk>")))
    rust.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    rust.decoder = decoders.Metaspace()
    ids = [(token, i) for i, token in enumerate(specials)]
    rust.post_processor = processors.TemplateProcessing(**template, special_tokens=ids)
    rust.add_special_tokens(list(specials))
    rust.save(str(directory / file))


def _marian(directory: Path, size: int = SIZE, file: str = "tokenizer.json") -> None:
    piecewise(directory, MARIAN, {"single": "$A </s>", "pair": "$A $B </s>"}, size, file)


def _two(directory: Path) -> None:
    _marian(directory)
    _marian(directory, SIZE - 7, "tokenizer.target.json")


VOCABULARIES = {
    "words": words,
    "bytes": bytewise,
    "text": lambda directory: bytewise(directory, GPT2, framed=False),
    "pieces": lambda directory: piecewise(
        directory, ROBERTA, {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>"}, SIZE
    ),
    "marian": _marian,
    "two": _two,
}
