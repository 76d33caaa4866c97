"""Functions shared by all verbs."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import get_type_hints

import pytest

from regard.cli.generate import generate
from regard.cli.options import print_json
from regard.cli.translate import translate
from regard.generate.config import DecodingConfig, GenerationConfig


def test_print_json_writes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"perplexity": math.inf, "loss": math.nan, "text": "é\n"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out, parse_constant=pytest.fail) == {"perplexity": None, "loss": None, "text": "é\n"}


@pytest.mark.parametrize(
    ("verb", "option", "default"),
    [
        (generate, "max_tokens", GenerationConfig.max_tokens),
        (generate, "batch", GenerationConfig.batch),
        (generate, "temperature", int(GenerationConfig.temperature)),
        (translate, "beam", DecodingConfig().beam_width),
        (translate, "alpha", DecodingConfig.alpha),
        (translate, "batch", DecodingConfig.batch),
    ],
)
def test_help_names_the_default_of_the_config(verb: Callable[..., None], option: str, default: float) -> None:
    help_text = get_type_hints(verb, include_extras=True)[option].__metadata__[0].help
    assert f"Default: {default}" in help_text
    assert inspect.signature(verb).parameters[option].default is None  # the config has the only default
