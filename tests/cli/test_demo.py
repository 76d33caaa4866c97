"""The tour, cut short: what it shows and leaves behind, and that every command it names can be copied and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shell import Shell

from regard import config
from regard.cli.demo import RECIPE
from regard.cli.program_name import program_name


@pytest.fixture(scope="module")
def working_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("babel")
    pytest.importorskip("matplotlib")
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def finished(working_directory: Path, shell: Shell) -> subprocess.CompletedProcess[str]:
    return shell("regard demo --pairs 1000 --steps 20 --out 'my demo' --device cpu", working_directory)


def commands(output: str) -> list[str]:
    """Return the suggested commands at the end of the output."""
    return [
        line.strip() for line in output[output.index("what to try next:") :].splitlines() if line.startswith("    ")
    ]


def test_demo_prints_four_steps_and_a_table(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "my demo/run\n"
    parts = [
        "1. a corpus",
        "2. training",
        "step 20 ",
        "3. evaluation on 25",
        "┃ English",
        "4. figures",
        "5. ready-made models",
        "what to try",
    ]
    positions = [finished.stderr.find(part) for part in parts]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert "% translated exactly, BLEU " in finished.stderr
    assert finished.stderr.count("│ expected ") + finished.stderr.count("│ exact ") == 12
    assert "warning" not in finished.stderr.lower()


def test_demo_writes_corpus_recipe_run_and_two_figures(
    working_directory: Path, finished: subprocess.CompletedProcess[str]
) -> None:
    folder = working_directory / "my demo"
    assert finished.returncode == 0
    for name, lines in {"train": 1000, "test": 25}.items():
        assert [(folder / f"{name}.{side}").read_text().count("\n") for side in ("en", "fr")] == [lines, lines]
    for figure in ("my demo/run/curve.png", "my demo/alignment.png"):
        assert figure in finished.stderr
        assert (working_directory / figure).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_written_recipe_is_the_one_trained(working_directory: Path, finished: subprocess.CompletedProcess[str]) -> None:
    assert (
        "2. training, the same as: regard train 'my demo/recipe.toml' --out 'my demo/run' --device cpu\n"
        in finished.stderr
    )
    written, run = (config.read(working_directory / "my demo" / name) for name in ("recipe.toml", "run/config.toml"))
    assert written["train"] == {**RECIPE["train"], "steps": 20}
    for name, table in written.items():
        assert {key: run[name][key] for key in table} == table


def test_suggested_commands_run(
    working_directory: Path, finished: subprocess.CompletedProcess[str], shell: Shell
) -> None:
    *here, own = commands(finished.stderr)
    assert len(here) == 5
    for command in here:
        result = shell(command, working_directory)
        assert result.returncode == 0, f"{command}\n{result.stderr}"
        assert result.stdout
    assert shell(f"cd 'my demo' && {own}", working_directory).returncode == 0


def test_second_demo_does_not_overwrite_the_first(
    working_directory: Path, finished: subprocess.CompletedProcess[str], shell: Shell
) -> None:
    again = shell("regard demo --out 'my demo'", working_directory)
    assert again.returncode == 2
    assert again.stderr.startswith("error: my demo/run: already holds a demo; ")


def test_program_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = tmp_path / "bin" / "regard"
    called.parent.mkdir()
    called.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/regard", "demo"])
    monkeypatch.setenv("PATH", "elsewhere")
    assert program_name() == "bin/regard"
    monkeypatch.setenv("PATH", str(called.parent))
    assert program_name() == "regard"
    monkeypatch.setattr(sys, "argv", ["regard/__main__.py", "demo"])
    assert program_name() == f"{sys.executable} -m regard"
