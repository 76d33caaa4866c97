"""End to end: text files -> train -> translate -> evaluate -> info, by the commands a user types."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import EIGHT, TINY, TO_LEARN, digits, merged, write_pairs

from regard.cli import main
from regard.generate import length_penalty

SOURCES, TARGETS = [source for source, _ in EIGHT], [target for _, target in EIGHT]


class Terminal:
    """Run commands that must succeed; return their stdout."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch
        self.err = ""

    def __call__(self, *arguments: object, stdin: str = "") -> str:
        self.capsys.readouterr()
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        out, self.err = self.capsys.readouterr()
        assert status == 0, self.err
        return out

    def json(self, *arguments: object, stdin: str = "") -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, stdin=stdin).split("\n") if line]


@pytest.fixture
def regard(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(capsys, monkeypatch)


def settings() -> Iterator[str]:
    """The recipe that memorises eight pairs, as options."""
    for name, table in merged(TINY, TO_LEARN).items():
        for key, value in table.items():
            if (name, key) != ("task", "name"):
                yield from ("--set", f"{name}.{key}={json.dumps(value)}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk")
    files = write_pairs(folder, "eight", EIGHT)
    command = ["train", "translate", *files, "--valid", files[0], "--valid", files[1], "--out", str(folder / "run")]
    languages = ["--source-lang", "digits", "--target-lang", "reversed"]
    with pytest.raises(SystemExit) as ended:
        main([*command, *languages, "--device", "cpu", "--seed", "0", *settings()])
    assert ended.value.code == 0
    return folder / "run"


def test_train_prints_plan_and_progress_to_stderr_and_path_to_stdout(regard: Terminal, tmp_path: Path) -> None:
    files = write_pairs(tmp_path, "few", digits(40))
    command = ["train", "translate", *files, "--out", tmp_path / "run", "--device", "cpu", *settings()]
    assert regard(*command, "--set", "train.steps=4", "--set", "train.validate_every=2") == f"{tmp_path}/run\n"
    message = regard.err.splitlines()
    assert message[0].startswith("model      ")
    order = [
        "model ",
        "data  ",
        "training ",
        "work ",
        "memory ",
        "step 2 ",
        "step 4 ",
        "done: ",
        "learning curve: ",
        "use it: ",
    ]
    found = [next((i for i, line in enumerate(message) if line.startswith(part)), None) for part in order]
    assert None not in found
    assert found == sorted(found)
    assert "best" in regard.err
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (
        regard(*command, "--resume", "--set", "train.steps=4", "--set", "train.validate_every=2") == f"{tmp_path}/run\n"
    )
    assert "nothing to do: this run ended at step 4; raise train.steps (or train.patience) to continue" in regard.err


def test_translate_arguments(regard: Terminal, model: Path) -> None:
    assert regard("translate", model, *SOURCES).splitlines() == TARGETS
    assert regard.err == ""


def test_translate_plain_and_compressed_files(regard: Terminal, model: Path, tmp_path: Path) -> None:
    lines = SOURCES * 5
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "lines.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    for name in ("lines", "lines.gz"):
        assert regard("translate", model, "--file", tmp_path / name).splitlines() == TARGETS * 5


@pytest.mark.parametrize("options", [[], ["-"], ["--file", "-"]])
def test_translate_standard_input(regard: Terminal, model: Path, options: list[str]) -> None:
    assert regard("translate", model, *options, stdin="\n".join(SOURCES)).splitlines() == TARGETS
    assert regard("translate", model, *options, stdin="") == ""


def test_output_lines_follow_input_lines(regard: Terminal, model: Path) -> None:
    texts = [source for source, _ in digits(40, seed=5, least=1, most=12)]
    texts[7:7] = ["tab\there", "a\u2028b", "naïve 😀", "<eos> <pad>"]
    found = regard.json("translate", model, *texts, "--json", "--beam", 2, "--batch", 7)
    assert [line["text"] for line in found] == texts
    plain = regard("translate", model, *texts, "--beam", 2, "--batch", 7).removesuffix("\n").split("\n")
    assert plain == [line["translations"][0]["text"].replace("\n", " ") for line in found]


def test_line_break_in_a_translation_stays_on_one_line(regard: Terminal, model: Path) -> None:
    """At a high temperature every byte is sampled, the line break too."""
    options = ["--sample", "--temperature", "1000", "--seed", "1", "--batch", "64"]
    texts = [source for source, _ in digits(60, seed=6)]
    wild = regard.json("translate", model, *texts, *options, "--json")
    assert any("\n" in line["translations"][0]["text"] for line in wild)
    assert regard("translate", model, *texts, *options).count("\n") == 60


def test_translate_json(regard: Terminal, model: Path) -> None:
    for alpha in (0.6, 1.0):
        options = ["--json", "--n-best", 3, "--beam", 4, "--alpha", alpha]
        for line, source, target in zip(
            regard.json("translate", model, *SOURCES, *options), SOURCES, TARGETS, strict=True
        ):
            assert line.keys() == {"text", "translations"}
            assert line["text"] == source
            assert line["translations"][0]["text"] == target
            scores = [found["score"] for found in line["translations"]]
            assert len(scores) == 3
            assert scores == sorted(scores, reverse=True)
            for found in line["translations"]:
                assert found.keys() == {"text", "score", "tokens", "token_scores", "alignment"}
                penalty = length_penalty(len(found["tokens"]), alpha)
                assert found["score"] == pytest.approx(sum(found["token_scores"]) / penalty, rel=1e-6)
            assert [t for _, t in line["translations"][0]["alignment"]] == list(range(len(target.split())))


def test_n_best_prints_scores(regard: Terminal, model: Path) -> None:
    lines = regard("translate", model, *SOURCES[:2], "--n-best", 2).splitlines()
    assert len(lines) == 4
    assert [line.split("\t")[1] for line in lines[::2]] == TARGETS[:2]
    assert all(float(line.split("\t")[0]) < 0 for line in lines)


def test_steps_show_tokens_and_scores(regard: Terminal, model: Path) -> None:
    first, second = regard("translate", model, SOURCES[0], "--steps").splitlines()
    assert first == TARGETS[0]
    assert second.strip().startswith("<sos> -> ")
    assert "<eos> (" in second


def test_evaluate(regard: Terminal, model: Path, tmp_path: Path) -> None:
    files = write_pairs(tmp_path, "test", EIGHT)
    (scores,) = regard.json("evaluate", model, *files, "--json")
    assert scores.keys() >= {"task", "n", "bleu", "bleu_signature", "chrf", "perplexity"}
    assert (scores["task"], scores["n"]) == ("translate", 8)
    assert scores["bleu"] == pytest.approx(100)
    assert scores["exact"] == 1.0
    assert 1.0 < scores["perplexity"] < 1.5
    assert "version:" in scores["bleu_signature"]
    table = tmp_path / "test.tsv.gz"
    table.write_bytes(gzip.compress("".join(f"{t}\tx\t{s}\n" for s, t in EIGHT).encode()))
    assert regard.json("evaluate", model, f"{table}:3,1", "--json") == [scores]
    assert regard.json("evaluate", model, table, "--columns", "3,1", "--json") == [scores]
    shown = regard("evaluate", model, *files, "--beam", 1)
    assert "bleu            100" in shown.splitlines()


def test_info(regard: Terminal, model: Path) -> None:
    (about,) = regard.json("info", model, "--json")
    assert about.keys() == {
        *("task", "architecture", "parameters", "vocabulary", "precision", "config", "training", "kernels"),
        "directions",
    }
    assert (about["task"], about["architecture"], about["vocabulary"]) == ("translate", "transformer", 266)
    assert about["config"].keys() == {"task", "data", "tokenizer", "model", "train"}
    assert about["config"]["task"]["source_lang"] == "digits"
    assert about["config"]["train"]["seed"] == 0
    assert about["training"]["best"]["bleu"] == pytest.approx(100)
    assert about["training"]["steps"] == 60
    shown = regard("info", model)
    assert f"{about['parameters']:,}" in shown
    assert "config.model" in shown


def test_closed_output_pipe_ends_the_command_quietly(model: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.write_text("1 2 3\n" * 3000, encoding="utf-8")
    command = [sys.executable, "-m", "regard", "translate", model, "--file", many, "--beam", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        message = process.stderr.read().decode()
    assert process.returncode == 0
    assert "Error" not in message
    assert "Broken" not in message


def test_line_is_translated_before_the_input_pipe_closes(model: Path) -> None:
    """As with ``tail -f``; a user error ends the command while the pipe is still open."""
    command = [sys.executable, "-m", "regard", "translate", str(model), "--device", "cpu"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, **pipes) as process:
        limit = threading.Timer(120, process.kill)
        limit.start()
        try:
            for source, target in EIGHT[:3]:
                process.stdin.write(f"{source}\n")
                process.stdin.flush()
                assert process.stdout.readline() == f"{target}\n"
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "\n"
            process.stdin.write("1 " * 5000 + "\n")
            process.stdin.flush()
            assert process.wait() == 2
            assert "text 5, " in process.stderr.read()
        finally:
            limit.cancel()
            process.kill()
