"""Generation options: invalid values are refused; sampling is one configuration for language models and translators."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import InputError
from regard.generate import DecodingConfig, GenerationConfig, SamplingConfig, select_greedy_tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.5}, r"temperature -0\.5: expected 0 \(the most likely token each time\) or more"),
        ({"temperature": math.nan}, "temperature nan: expected 0"),
        ({"temperature": math.inf}, "temperature inf: expected 0"),
        ({"top_k": -1}, r"top-k -1: expected 0 \(no limit\) or more"),
        ({"top_p": 0.0}, r"top-p 0\.0: expected more than 0 and at most 1"),
        ({"top_p": 1.01}, r"top-p 1\.01: expected more than 0 and at most 1"),
        ({"repetition_penalty": 0.0}, r"repetition-penalty 0\.0: expected at least 0\.01 and at most 100"),
        ({"repetition_penalty": -2.0}, r"repetition-penalty -2\.0: expected at least 0\.01"),
        ({"temperature": 1e-9}, "temperature 1e-09: expected 0, or 1e-06 or more"),
        ({"max_tokens": 0}, "max-tokens 0: expected at least 1"),
        ({"n": 0}, "n 0: expected at least 1"),
        ({"batch": 0}, "batch 0: expected at least 1"),
        ({"stop": ("a", "")}, "stop: an empty string stops nothing; leave it out"),
        ({"temperature": 0.0, "n": 2}, "n 2 at temperature 0: all would be the same"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GenerationConfig(**options)  # type: ignore[arg-type]


def test_temperature_zero_is_greedy() -> None:
    assert GenerationConfig(temperature=0.0).make_sampler(["a"]) is select_greedy_tokens
    assert not GenerationConfig(temperature=1e-6).is_greedy
    for cut in ({"top_k": 3}, {"top_p": 0.5}):
        with pytest.raises(InputError, match="top-k and top-p belong to sampling; at temperature 0 nothing is drawn"):
            GenerationConfig(temperature=0.0, **cut)


@pytest.mark.parametrize("option", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 2.0}])
def test_sampling_options_are_checked_alike(option: dict[str, float]) -> None:
    for kind, others in ((SamplingConfig, {}), (GenerationConfig, {}), (DecodingConfig, {"sample": True})):
        assert issubclass(kind, SamplingConfig)
        with pytest.raises(InputError, match=r"^(temperature|top-k|top-p) .*: expected "):
            kind(**option, **others)


def test_top_k_of_none_and_of_zero_are_no_limit() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    samplers = [GenerationConfig(top_k=top_k).make_sampler(["a"]) for top_k in (None, 0, 50)]
    assert len({int(sampler(logits, [0])) for sampler in samplers}) == 1
    for top_k in (None, 0):
        assert not DecodingConfig(top_k=top_k).sample
        assert DecodingConfig(sample=True, top_k=top_k).sample
    for kind, options in ((GenerationConfig, {}), (DecodingConfig, {"sample": True}), (DecodingConfig, {})):
        with pytest.raises(InputError, match=r"top-k -1: expected 0 \(no limit\) or more"):
            kind(top_k=-1, **options)


def test_draws_depend_on_seed_and_row_key_alone() -> None:
    logits = torch.zeros(3, 1000)

    def drawn(names: list[str], seed: int = 0) -> list[int]:
        return GenerationConfig(seed=seed).make_sampler(names)(logits[: len(names)], list(range(len(names)))).tolist()

    assert drawn(["a", "b", "c"]) == [*drawn(["a"]), *drawn(["b"]), *drawn(["c"])]
    assert len(set(drawn(["a", "b", "c"]))) == 3
    assert drawn(["a"]) != drawn(["a"], seed=1)
