"""The tables of architectures, messages about unknown ones, and a new architecture defined in a test."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jaxtyping import Float, Int
from tiny_runs import contents, ready, trained
from torch import Tensor, nn

import regard
from regard.data.batches import Rows
from regard.errors import ConfigError
from regard.models.architectures import (
    CAUSAL_LMS,
    ENCODER_MODELS,
    MASKED_LMS,
    SEQ2SEQ_MODELS,
    WORD_VECTOR_MODELS,
    Architecture,
    Architectures,
    architecture_of,
)
from regard.models.config import ModelConfig, apply_preset
from regard.models.interfaces import CausalLM, EncoderModel, Seq2SeqModel
from regard.nn import OutputEmbedding, TokenEmbedding
from regard.nn.positions import NoPositions
from regard.tasks import TASKS
from regard.training.loop import Trainer

WORK: dict[type[nn.Module], tuple[Architectures, tuple[Any, ...], dict[str, Any]]] = {
    Seq2SeqModel: (SEQ2SEQ_MODELS, (9, 9), {"joint": True}),
    EncoderModel: (ENCODER_MODELS, (9, {}), {}),
    CausalLM: (CAUSAL_LMS, (9,), {}),
}


def test_every_model_implements_the_interface_of_its_table() -> None:
    for interface, (families, arguments, options) in WORK.items():
        for name, (Config, Model) in families.items():
            config = Config(**apply_preset({"preset": "tiny"}, Config))
            assert config.architecture == name
            assert isinstance(Model(config, *arguments, **options), interface)
            assert {"tiny", "mini", "small", "medium", "base"} <= Config.presets.keys()
    assert {id(task.architectures) for task in TASKS.values()} == {
        id(each) for each in (SEQ2SEQ_MODELS, ENCODER_MODELS, MASKED_LMS, CAUSAL_LMS, WORD_VECTOR_MODELS)
    }


def test_unknown_architectures_are_refused() -> None:
    assert architecture_of(SEQ2SEQ_MODELS, {}, "x") is SEQ2SEQ_MODELS["transformer"]
    with pytest.raises(ConfigError, match=r"^x: model\.architecture = 'rnm'; accepted here: transformer, rnn$"):
        architecture_of(SEQ2SEQ_MODELS, {"architecture": "rnm"}, "x")
    with pytest.raises(
        ConfigError, match=r"^x: model\.architecture = 3; accepted here: transformer, rnn, static, bilm$"
    ):
        architecture_of(ENCODER_MODELS, {"architecture": 3}, "x")
    with pytest.raises(ConfigError, match=r"accepted here: transformer$"):
        architecture_of(MASKED_LMS, {"architecture": "rnn"}, "x")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"architecture": "rnn", "n_heads": 4}, "model.n_heads belongs to model.architecture = transformer, not rnn"),
        ({"cell": "gru"}, "model.cell belongs to model.architecture = rnn or bilm, not transformer"),
        (
            {"architecture": "static", "n_layers": 4},
            "model.n_layers belongs to .* transformer or rnn or bilm, not static",
        ),
    ],
)
def test_keys_of_another_architecture_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^x: {message}; leave it out$"):
        architecture_of(ENCODER_MODELS, table, "x")
    assert (
        architecture_of(ENCODER_MODELS, {"nonsense": 1}, "x") is ENCODER_MODELS["transformer"]
    )  # an unknown key: the check of the table names it


@dataclass(frozen=True, kw_only=True)
class ToyConfig(ModelConfig):
    """An architecture defined in this file: the next token depends on the last one alone."""

    presets: ClassVar[Any] = {"tiny": {"d_model": 16, "dropout": 0.0}}
    largest_cpu_preset: ClassVar[str] = "tiny"
    uses_packing: ClassVar[bool] = False
    recipe_defaults: ClassVar[Any] = {"train": {"weight_decay": 0.0}, "task": {"length": 24}}

    architecture: str = "toy"
    colour: str = "red"


class Forgets:
    def select(self, rows: Int[Tensor, "B W"]) -> None:
        pass


class Toy(CausalLM):
    def __init__(self, config: ToyConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(vocabulary, config.d_model, NoPositions(), dropout=0.0)
        self.softmax_embedding = OutputEmbedding(vocabulary, config.d_model)

    def hidden_states(self, rows: Rows) -> Float[Tensor, "B T D"]:
        result: Tensor = self.embedding(rows.ids, rows.position)
        return result

    def start(self, rows: Rows) -> Forgets:
        return Forgets()

    def step(self, tokens: Int[Tensor, " N"], state: Forgets) -> Float[Tensor, "N V"]:
        return self.logits(self.embedding(tokens[:, None], tokens[:, None]))[:, 0]


def test_new_architecture_needs_only_its_table_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAUSAL_LMS, "toy", Architecture(ToyConfig, Toy))
    generator = random.Random(0)
    starts = (generator.randint(0, 9) for _ in range(80))
    text = "\n\n".join(" ".join(str((start + i) % 10) for i in range(generator.randint(5, 30))) for start in starts)
    (tmp_path / "t.txt").write_text(text)
    tables = {
        "task": {"name": "lm"},
        "data": {"train": [str(tmp_path / "t.txt")]},
        "tokenizer": {"kind": "characters"},
        "model": {"architecture": "toy", "colour": "blue"},
        "train": {"steps": 40, "batch_tokens": 128, "learning_rate": 3e-2, "validate_every": 20, "save_every": 10},
    }
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(25):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")
    model = regard.load(tmp_path / "whole", device="cpu")
    settings = model.info()["config"]
    assert (settings["model"]["architecture"], settings["model"]["colour"]) == ("toy", "blue")
    assert (settings["task"]["length"], settings["train"]["weight_decay"]) == (24, 0.0)
    assert model.generate("3", temperature=0.0, max_tokens=1)[0].text == " "
    assert len(model.look("3 4 5").view_data("gradients").arrays) == 3
    assert model.evaluate([str(tmp_path / "t.txt")])["perplexity"] < 5
    assert str(model.device) == "cpu"
