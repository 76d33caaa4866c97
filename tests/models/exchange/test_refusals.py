"""Refusals of unsupported and damaged Hugging Face directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from theirs import CASES, MARIAN, SIZE, piecewise, save
from tokenizers import Tokenizer, processors
from torch import nn

from regard.errors import CheckpointError
from regard.models import exchange
from regard.runs.model_loading import open_model

NAMED = {case.name: case for case in CASES}

Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a function that saves a model with some config keys changed; None removes a key."""

    def make(name: str = "BERT words", **keys: Any) -> Path:
        save(NAMED[name], tmp_path)
        path = tmp_path / "config.json"
        table = json.loads(path.read_text()) | keys
        path.write_text(json.dumps({key: value for key, value in table.items() if value is not None}))
        return tmp_path

    return make


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        open_model(folder)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(folder), "DIR")


FAMILIES = "BERT, RoBERTa, XLM-R, DistilBERT, GPT-2, Marian, BART, Pegasus, Blenderbot"
BERTS = (
    "BertModel, BertForPreTraining, BertForMaskedLM, BertForNextSentencePrediction, BertForSequenceClassification, "
    "BertForTokenClassification, BertForQuestionAnswering"
)
LABELS = "id2label: expected a label for each number from 0 on"
ALONE = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
ACTIVATIONS = '"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"'


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
            f"T5ForConditionalGeneration of model_type t5 is not supported; supported: {FAMILIES}",
        ),
        ({"model_type": "mamba", "architectures": None}, f"mamba is not supported; supported: {FAMILIES}"),
        ({"model_type": None}, f"no model_type; expected that of a Hugging Face model: {FAMILIES}"),
        ({"architectures": ["BertForMultipleChoice"]}, f"BertForMultipleChoice is not supported; supported: {BERTS}"),
        ({"architectures": "BertModel"}, 'architectures: expected a list of names, found "BertModel"'),
        (
            {"position_embedding_type": "relative_key"},
            'position_embedding_type: expected "absolute", found "relative_key"',
        ),
        ({"is_decoder": True}, "is_decoder: expected false, found true"),
        ({"add_cross_attention": True}, "add_cross_attention: expected false, found true"),
        ({"pruned_heads": {"0": [1]}}, 'pruned_heads: expected {}, found {"0": [1]}'),
        ({"quantization_config": {"bits": 4}}, 'quantization_config: expected none, found {"bits": 4}'),
        ({"hidden_act": "mish"}, f'hidden_act: expected one of {ACTIVATIONS}, found "mish"'),
        ({"hidden_size": "30"}, 'hidden_size: expected as in 768, found "30"'),
        ({"num_hidden_layers": True}, "num_hidden_layers: expected as in 12, found true"),
        ({"vocab_size": None}, "vocab_size: expected a whole number, found null"),
        ({"pad_token_id": 7}, "pad_token_id: expected 0, found 7"),
        (
            {"num_attention_heads": 4},
            "model.n_heads = 4 does not divide model.d_model = 30; choose a number of heads that does, or set "
            "model.d_key and model.d_value",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_unsupported_bert_configs_are_refused(folder: Folder, keys: dict[str, Any], expected: str) -> None:
    assert refusal(folder(**keys)) == f"DIR/config.json: {expected}"


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("RoBERTa words", {"hidden_act": "relu"}, 'hidden_act: expected "gelu", found "relu"'),
        ("DistilBERT words", {"sinusoidal_pos_embds": True}, "sinusoidal_pos_embds: expected false, found true"),
        ("GPT-2", {"scale_attn_weights": False}, "scale_attn_weights: expected true, found false"),
        (
            "GPT-2",
            {"scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inverse_layer_idx: expected false, found true",
        ),
        ("GPT-2", {"n_inner": "41"}, 'n_inner: expected as in 120, found "41"'),
        ("Marian", {"decoder_ffn_dim": 64}, "decoder_ffn_dim: expected 37, as in encoder_ffn_dim, found 64"),
        (
            "Marian",
            {"decoder_attention_heads": 2},
            "decoder_attention_heads: expected 4, as in encoder_attention_heads, found 2",
        ),
        ("Marian", {"normalize_embedding": True}, "normalize_embedding: expected false, found true"),
        ("Marian", {"d_model": 33, **ALONE}, "model.d_model = 33 is odd; sinusoidal positions need an even width"),
        ("Marian", {"eos_token_id": 5}, "eos_token_id: expected 0, found 5"),
        ("Marian", {"decoder_start_token_id": None}, "decoder_start_token_id: expected the id of a token, found null"),
        ("BART", {"scale_embedding": True}, "scale_embedding: expected false, found true"),
        ("BART", {"normalize_before": True}, "normalize_before: expected false, found true"),
        (
            "BERT classes",
            {"problem_type": "multi_label_classification"},
            'problem_type: expected "single_label_classification" or "regression", found "multi_label_classification"',
        ),
        (
            "BERT classes",
            {"problem_type": "regression"},
            'id2label: expected one label, as problem_type is regression, found ["no", "maybe", "yes"]',
        ),
        ("BERT tags", {"id2label": {"1": "x"}}, f'{LABELS}, found {{"1": "x"}}'),
        ("BERT tags", {"id2label": ["x"]}, f'{LABELS}, found ["x"]'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_unsupported_configs_are_refused(folder: Folder, name: str, keys: dict[str, Any], expected: str) -> None:
    assert refusal(folder(name, **keys)) == f"DIR/config.json: {expected}"


def test_language_model_without_an_end_token_is_refused(folder: Folder) -> None:
    path = folder("GPT-2")
    text = (path / "tokenizer.json").read_text(encoding="utf-8")
    (path / "tokenizer.json").write_text(text.replace("<|endoftext|>", "<|start|>"), encoding="utf-8")
    expected = "this vocabulary has no token for 'end'; it would be <eos> or </s> or <|endoftext|>"
    assert refusal(path) == f"DIR/tokenizer.json: {expected}"


def tensors(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the tensors of a directory and return it."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, {"format": "pt"})
    return folder


KEY = "bert.encoder.layer.1.attention.self.key.weight"


def test_mismatched_tensors_are_refused(folder: Folder) -> None:
    assert refusal(tensors(folder(), lambda weights: weights.pop(KEY))) == (
        f"DIR: lacks the tensor '{KEY.removeprefix('bert.')}', of shape (30, 30)"
    )
    assert refusal(tensors(folder(), lambda weights: weights.update({KEY: torch.zeros(30, 31)}))) == (
        f"DIR: '{KEY}' has shape (30, 31), expected (30, 30); does config.json belong to it?"
    )
    assert refusal(tensors(folder(), lambda weights: weights.update({KEY: torch.zeros(30, 30, dtype=torch.int8)}))) == (
        f"DIR: '{KEY}' holds torch.int8, expected floating-point numbers"
    )
    assert refusal(tensors(folder(), lambda weights: weights.update({"bert.adapter.weight": torch.zeros(2)}))) == (
        "DIR: holds a tensor 'bert.adapter.weight' this model does not have"
    )
    untied = {"cls.predictions.decoder.weight": torch.zeros(SIZE, 30)}
    assert refusal(tensors(folder(), lambda weights: weights.update(untied))) == (
        "DIR: 'cls.predictions.decoder.weight' differs from 'bert.embeddings.word_embeddings.weight', "
        "but config.json says that they are one (tie_word_embeddings)"
    )
    twice = {KEY.removeprefix("bert."): torch.zeros(30, 30)}
    assert refusal(tensors(folder(), lambda weights: weights.update(twice))).endswith("which are names of one tensor")
    layers = folder(num_hidden_layers=1)
    assert refusal(layers).startswith("DIR: holds a tensor 'bert.encoder.layer.1.")
    assert refusal(folder(num_hidden_layers=3)).startswith("DIR: lacks the tensor 'encoder.layer.2.")
    assert refusal(folder(vocab_size=SIZE + 1)) == (
        f"DIR/config.json: vocab_size: expected the number of rows of one of its tensors, found {SIZE + 1}"
    )


def test_positions_that_are_not_sinusoidal_are_refused(folder: Folder) -> None:
    name = "model.encoder.embed_positions.weight"
    assert refusal(tensors(folder("Marian"), lambda weights: weights.update({name: torch.zeros(43, 32)}))) == (
        f"DIR: '{name}' does not hold sinusoidal positions"
    )


def test_unused_tensors_are_reported(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """Buffers of old versions, old names of norms, copies of tied vectors, and the pooler that tags do not use."""
    more = {"bert.embeddings.position_ids": torch.arange(43)[None], "bert.pooler.dense.weight": torch.zeros(30, 30)}
    tagger = tensors(folder("BERT tags"), lambda weights: weights.update(more))
    open_model(tagger)
    assert capsys.readouterr().err.replace(str(tagger), "DIR") == (
        "warning: DIR: left out 1 tensors that this architecture does not use: bert.pooler.dense.weight\n"
    )

    def old(weights: dict[str, Any]) -> None:
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()
        for name in [name for name in weights if "LayerNorm" in name]:
            short = name.removesuffix(".weight").removesuffix(".bias")
            weights[f"{short}.{'gamma' if name.endswith('weight') else 'beta'}"] = weights.pop(name)

    theirs = save(NAMED["BERT words"], tagger)
    _, _, model = open_model(tensors(tagger, old))
    norm: nn.LayerNorm = model.embedding.norm
    assert torch.equal(norm.bias, theirs.bert.embeddings.LayerNorm.bias)


def test_masked_lm_with_all_pretraining_heads(folder: Folder) -> None:
    """As bert-base does."""
    settings, _, _ = open_model(folder("BERT pre-trained", architectures=["BertForMaskedLM"]))
    assert settings.task.objective == "masked+next"


def test_damaged_files_are_refused(folder: Folder, tmp_path: Path) -> None:
    path = folder()
    (path / "config.json").write_text("{")
    assert refusal(path).startswith("DIR/config.json: damaged, or not JSON (")
    (path / "config.json").write_text("[]")
    assert refusal(path) == "DIR/config.json: expected an object, found other JSON"
    (path / "config.json").unlink()
    assert refusal(path).startswith("DIR: not a run directory: it has no config.toml; name one that ")
    with pytest.raises(CheckpointError, match=r"not a Hugging Face directory: it has no config.json"):
        exchange.read_hf_directory(path)
    weights = folder() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert refusal(path).startswith("DIR/model.safetensors: damaged or not a safetensors file (")
    weights.unlink()
    assert refusal(path) == "DIR: has no model.safetensors; was the download complete?"
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../other"}}))
    assert refusal(path) == (
        "DIR/model.safetensors.index.json: damaged; expected a weight_map with a file name for each tensor"
    )
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    save_file({"b": torch.zeros(1)}, path / "part.safetensors")
    assert refusal(path) == (
        "DIR/part.safetensors: lacks the tensor 'a', which model.safetensors.index.json assigns to it"
    )


def test_pickles_are_never_read(folder: Folder) -> None:
    """The command in the message converts them."""
    path = folder()
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    expected = refusal(path)
    convert = "m = transformers.BertForMaskedLM.from_pretrained('DIR'); m.save_pretrained('DIR')"
    assert expected == (
        "DIR: has only pickled weights (pytorch_model.bin), which can run any code and are never read; where you trust "
        f'them, convert them: python -c "import transformers; {convert}"'
    )
    exec(convert.replace("DIR", str(path)), {"transformers": transformers})
    open_model(path)


def test_other_special_token_templates_are_refused(folder: Folder) -> None:
    path = folder("RoBERTa words")
    rust = Tokenizer.from_file(str(path / "tokenizer.json"))
    rust.no_padding()
    rust.no_truncation()
    rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    rust.save(str(path / "tokenizer.json"))
    assert refusal(path) == "DIR/tokenizer.json: adds special tokens as in '<s> a', expected '<s> a </s>'"
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    rust.save(str(folder("RoBERTa words, untied") / "tokenizer.json"))
    assert refusal(path) == (
        "DIR/tokenizer.json: a pair has the token types [0, 0, 0, 0, 1, 1], expected [0, 0, 0, 0, 0, 0]"
    )
    path = folder("Marian")
    piecewise(path, MARIAN, {"single": "<unk> $A </s>"}, SIZE)
    assert refusal(path) == "DIR/tokenizer.json: adds special tokens as in '<unk> ▁a </s>', expected '▁a </s>'"
    path = folder("BERT words")
    piecewise(path, MARIAN, {"single": "$A </s>"}, SIZE)
    assert refusal(path) == ("DIR/tokenizer.json: this vocabulary has no token for 'cls'; it would be [CLS] or <s>")
    path = folder("Marian, two vocabularies")
    (path / "tokenizer.target.json").unlink()
    assert refusal(path).startswith("DIR: has no tokenizer.target.json; ")


SENTENCES = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]


def sentence_files(folder: Path, kinds: list[tuple[str, str]], pooling: dict[str, Any], **files: Any) -> Path:
    modules = [{"idx": i, "path": path, "type": f"x.y.{kind}"} for i, (kind, path) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_sentence_transformers_files(folder: Folder) -> None:
    path, mean = folder("BERT body"), {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    opened_task = open_model(sentence_files(path, SENTENCES, mean, sentence_bert_config={"max_seq_length": 20}))[0].task
    assert (opened_task.pooling, opened_task.normalised, opened_task.length) == ("mean", True, 20)
    opened_task = open_model(sentence_files(path, SENTENCES[:2], {"pooling_mode": "cls"}))[0].task
    assert (opened_task.pooling, opened_task.normalised) == ("cls", False)
    assert refusal(sentence_files(path, SENTENCES, {"pooling_mode_weightedmean_tokens": True})) == (
        'DIR/1_Pooling/config.json: pooling by ["pooling_mode_weightedmean_tokens"] is not supported; supported: '
        "cls, mean, max, last"
    )
    assert refusal(sentence_files(path, SENTENCES, {"pooling_mode": ["mean", "max"]})) == (
        'DIR/1_Pooling/config.json: pooling by ["mean", "max"] is not supported; supported: cls, mean, max, last'
    )
    assert refusal(sentence_files(path, [*SENTENCES, ("Dense", "3_Dense")], mean)) == (
        "DIR/modules.json: the module 'Dense' is not supported; supported: Transformer, Pooling, Normalize"
    )
    assert refusal(sentence_files(path, SENTENCES[:1], mean)) == (
        "DIR/modules.json: expected Transformer, Pooling, Normalize in this order, found Transformer"
    )
    lower = {"sentence_bert_config": {"do_lower_case": True}}
    assert refusal(sentence_files(path, SENTENCES, mean, **lower)) == (
        "DIR/sentence_bert_config.json: do_lower_case: expected false, found true"
    )
    prompt = {"sentence_bert_config": {}, "config_sentence_transformers": {"default_prompt_name": "query"}}
    assert refusal(sentence_files(path, SENTENCES, mean, **prompt)) == (
        'DIR/config_sentence_transformers.json: default_prompt_name: expected null, found "query"'
    )


@pytest.mark.parametrize("path", ["..", "/dev", "a/b", "\0", 7, None])
def test_sentence_transformers_paths_are_folders_beside_the_file(folder: Folder, path: Any) -> None:
    kinds = [("Transformer", ""), ("Pooling", path)]
    message = refusal(sentence_files(folder("BERT body"), kinds, {}))
    assert message == f'DIR/modules.json: path: expected names of folders beside it, found ["", {json.dumps(path)}]'


@pytest.mark.parametrize("mode", [7, {"a": 1}, [[]], [{}]])
def test_sentence_transformers_pooling_of_another_type(folder: Folder, mode: Any) -> None:
    message = refusal(sentence_files(folder("BERT body"), SENTENCES, {"pooling_mode": mode}))
    assert message == (
        f"DIR/1_Pooling/config.json: pooling by {json.dumps(mode)} is not supported; supported: cls, mean, max, last"
    )
