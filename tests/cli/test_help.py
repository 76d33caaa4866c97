"""Help and version of every verb, without importing torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import regard
from regard.cli import VERBS, main

HEAVY = ("torch", "numpy", "tokenizers", "pyarrow", "sacrebleu", "matplotlib", "safetensors")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_overview_names_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    out, err = capsys.readouterr()
    assert err == ""
    for verb, line in VERBS.items():
        assert f"{verb} " in out
        assert line in out


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert f"regard {verb}" in out
    assert " ".join(out.split()).endswith("Every verb takes --debug, which shows the traceback of an error.")


@pytest.mark.parametrize(("verb", "option"), [("cluster", "--k"), ("export", "--out"), ("import", "--out")])
def test_options_without_default_are_called_required(
    verb: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    described = " ".join(capsys.readouterr().out.partition("Options:")[2].split())
    assert described.partition(f"{option} <")[2].partition(" --")[0].endswith("[required]")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"{regard.__version__}\n"


def test_help_imports_no_heavy_library() -> None:
    """Check after each verb, in one process: an imported library stays in sys.modules."""
    script = f"""
import sys
from regard.cli import VERBS, main
for arguments in [["--help"], ["--version"], *([verb, "--help"] for verb in VERBS)]:
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, arguments
    found = [name for name in {HEAVY!r} if name in sys.modules]
    assert not found, f"{{arguments}} imports {{found}}"
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
