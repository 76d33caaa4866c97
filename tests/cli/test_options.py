"""Functions shared by all verbs."""

from __future__ import annotations

import json
import math

import pytest

from regard.cli.options import print_json


def test_print_json_writes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"perplexity": math.inf, "loss": math.nan, "text": "é\n"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out, parse_constant=pytest.fail) == {"perplexity": None, "loss": None, "text": "é\n"}
