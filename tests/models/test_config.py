"""Presets, and messages about invalid configs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from sentences import tiny_config

from regard.errors import ConfigError
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.seq2seq import TransformerSeq2Seq


@pytest.mark.parametrize("name", ["d_model", "n_layers", "n_decoder_layers", "n_heads", "d_ff", "n_positions"])
@pytest.mark.parametrize("value", [0, -2])
def test_sizes_are_at_least_one(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.{name} = {value}; expected at least 1 and at most "):
        tiny_config(**{name: value})


def test_heads_divide_the_width() -> None:
    with pytest.raises(ConfigError, match=r"model\.n_heads = 3 does not divide model\.d_model = 16; choose"):
        tiny_config(n_heads=3)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_dropout_is_a_probability(dropout: float) -> None:
    with pytest.raises(ConfigError, match=rf"model\.dropout = {dropout}; expected 0 or more and less than 1"):
        tiny_config(dropout=dropout)


def test_odd_widths_are_refused_for_sinusoidal_and_rotary() -> None:
    with pytest.raises(ConfigError, match=r"model\.d_model = 15 is odd; sinusoidal positions need an even width"):
        tiny_config(d_model=15, n_heads=3)
    with pytest.raises(ConfigError, match=r"model\.positions = 'rotary' needs an even width per head"):
        tiny_config(d_model=18, n_heads=6, positions="rotary")
    assert tiny_config(d_model=15, n_heads=3, positions="learned").d_model == 15


def test_preset_gives_missing_keys() -> None:
    table = apply_preset({"preset": "base", "n_layers": 12, "norm": "pre"})
    assert table == {
        "preset": "base",
        "d_model": 512,
        "n_layers": 12,
        "n_decoder_layers": 6,
        "n_heads": 8,
        "d_ff": 2048,
        "dropout": 0.1,
        "norm": "pre",
    }


def test_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"model\.preset = 'smal' is unknown; did you mean 'small'\?"):
        apply_preset({"preset": "smal"})
    with pytest.raises(ConfigError, match=r"model\.preset = 'xyzzy' is unknown; known: tiny, mini, small, "):
        apply_preset({"preset": "xyzzy"})


def test_base_and_big_match_the_paper() -> None:
    base, big = (TransformerSeq2SeqConfig(**apply_preset({"preset": name})) for name in ("base", "big"))
    assert (base.n_layers, base.n_decoder_layers, base.d_model, base.d_ff, base.n_heads) == (6, 6, 512, 2048, 8)
    assert (big.n_layers, big.n_decoder_layers, big.d_model, big.d_ff, big.n_heads) == (6, 6, 1024, 4096, 16)
    assert (base.dropout, big.dropout) == (0.1, 0.3)
    for config in (base, big):
        assert (config.positions, config.norm, config.activation, config.tied) == ("sinusoidal", "post", "relu", True)


@pytest.mark.parametrize("name", TransformerSeq2SeqConfig.presets)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative-values"])
def test_every_preset_can_be_built(name: str, positions: str) -> None:
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": name, "positions": positions}))
    with torch.device("meta"):
        model = TransformerSeq2Seq(config, 100, 100, joint=True)
    assert (len(model.encoder), len(model.decoder)) == (config.n_layers, config.n_decoder_layers)


ROOT = Path(__file__).parents[2]


def count_weights(preset: str, vocabulary_size: int) -> tuple[int, int]:
    """Return the weights of a translator, and its bytes with matrices in 8 bits and a scale for each row."""
    config = TransformerSeq2SeqConfig(**apply_preset({"preset": preset}))
    with torch.device("meta"):
        weights = list(TransformerSeq2Seq(config, vocabulary_size, vocabulary_size, joint=True).parameters())
    n_bytes = sum(each.numel() + 4 * len(each) if each.dim() == 2 else 4 * each.numel() for each in weights)
    return sum(each.numel() for each in weights), n_bytes


def test_sizes_of_fast_presets_are_those_of_the_page() -> None:
    page = (ROOT / "docs/distill.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([\w+-]+)`(?: \(6\+6\))? \| (\d+) \| ([\d.]+), ([\d.]+) \| ([\d.]+), ([\d.]+) \|$", page, re.M
    )
    assert [name for name, *_ in rows] == ["small-6+2", "medium-6+2", "base-6+2", "base-12+1", "base"]
    for name, width, *numbers in rows:
        shape = TransformerSeq2SeqConfig.presets[name]
        assert shape["d_model"] == int(width)
        assert name.endswith(f"-{shape['n_layers']}+{shape['n_decoder_layers']}") or name == "base"
        counts = [*count_weights(name, 8000), *count_weights(name, 16000)]
        assert [float(number) for number in numbers] == [round(count / 1e6, 1) for count in counts]
    assert count_weights("medium-6+2", 8000)[1] <= 20e6, "a student of at most 20 MB"
