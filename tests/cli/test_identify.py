"""`regard identify`: table, JSON, figure, resuming after Ctrl-C, and user errors."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import digits, write_pairs

from regard.cli import main
from regard.look.compute import probes
from regard.look.corpus import identify as module
from regard.models.weights import read_tensors, write_tensors

Fail = Callable[..., str]
Done = Callable[..., tuple[str, str]]

FAST = ["--maps", "identity,linear", "--device", "cpu"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small probes trained for a few steps: fast and inaccurate."""
    monkeypatch.setattr(probes, "N_HIDDEN", 20)
    monkeypatch.setattr(probes, "MIN_STEPS_PER_EPOCH", 2)


@pytest.fixture
def done(capsys: pytest.CaptureFixture[str]) -> Done:
    """Run a command that must succeed; return its stdout and stderr."""

    def run(*arguments: object, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == status, err
        return out, err

    return run


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace drawing, which is slow."""
    monkeypatch.setattr(module.TokenIdentifiability, "draw", lambda self, path: path.touch())


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def test_table_of_every_layer_and_map(run: Path, done: Done) -> None:
    out, _ = done("identify", run, "train.src", "train.tgt", "--device", "cpu")
    model, sentences, encoder, decoder, gap, head, *rows = out.splitlines()
    assert model == "model      run"
    assert sentences == "sentences  24 of 24, by seed 0: 16 to train the maps, 4 to stop, 4 to test"
    assert encoder.startswith("encoder    ")
    assert encoder.split(" tokens, chance ")[1].endswith("%")
    assert decoder.startswith("decoder    ")
    assert (gap, head.split()) == ("", ["stack", "layer", "map", "cosine", "%", "L2", "%"])
    names = [row.split()[:3] for row in rows]
    assert names == [[s, n, m] for s in ("encoder", "decoder") for n in "01" for m in ("identity", "linear", "mlp")]
    assert rows[0].split()[3] == "100.0"


def test_json_equals_saved_results(run: Path, done: Done) -> None:
    image = pytest.importorskip("matplotlib.image")
    write("train.src.gz", gzip.compress(Path("train.src").read_bytes()))
    out, _ = done("identify", run, "train.src.gz", "--out", "deep/out", "--json", *FAST)
    found = json.loads(out)
    assert json.loads(Path("deep/out/identify.json").read_text(encoding="utf-8")) == found
    assert found["model"] == "run"
    assert found["data"] == ["train.src.gz"]
    assert found["sentences"] == {"train": 16, "valid": 4, "test": 4}
    assert list(found["stacks"]) == ["encoder"]
    assert found["stacks"]["encoder"]["layers"] == 1
    assert found["stacks"]["encoder"]["chance"] == pytest.approx(4 / found["stacks"]["encoder"]["tokens"]["test"])
    assert len(found["results"]) == 2 * 2 * 2
    first = found["results"][0]
    assert list(first.values())[:5] == ["encoder", 0, "identity", "cosine", 1.0]
    assert list(first)[4:] == ["accuracy", "low", "high"]
    assert 0.5 < first["low"] < first["high"] == 1.0
    assert image.imread("deep/out/identify.png").shape[0] > 500
    assert sorted(path.name for path in Path("deep/out").iterdir()) == ["identify.json", "identify.png"]


def test_tables_and_one_stack(run: Path, done: Done) -> None:
    pairs = digits(24)
    write("pairs.tsv", "".join(f"{target}\tx\t{source}\n" for source, target in pairs))
    (out, _), (other, _) = (
        done("identify", run, *data, "--stack", "decoder", "--json", *FAST)
        for data in (["pairs.tsv:3,1"], write_pairs(Path(), "two", pairs))
    )
    assert json.loads(out)["results"] == json.loads(other)["results"]
    assert list(json.loads(out)["stacks"]) == ["decoder"]


def test_sampled_sentences_are_counted(run: Path, done: Done) -> None:
    texts = [source for source, _ in digits(40)]
    write("many.src", "".join(f"{text}\n" for text in [*texts, *texts[:5], "", " ", " ".join("7" * 50)]))
    out, err = done("identify", run, "many.src", "--sentences", "12", "--json", *FAST)
    assert "12 of 46 sentences are drawn, by seed 0\n" in err
    assert "warning: many.src: left out 2 of 48 lines: empty\n" in err
    assert json.loads(out)["read"] == 46
    other, _ = done("identify", run, "many.src", "--sentences", "12", "--seed", "1", "--json", *FAST)
    assert json.loads(other)["texts"] != json.loads(out)["texts"]
    _, err = done("identify", run, "many.src", "--json", *FAST)
    assert "warning: of 41 sentences are left out: 1 longer than 31 tokens (the longest has " in err


def test_json_is_written_without_matplotlib(run: Path, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out, err = done("identify", run, "train.src", "--out", "out", *FAST)
    assert "encoder" in out
    assert "no figure: a figure needs the extra 'plot'; run: pip install 'regard[plot]'\n" in err
    assert [path.name for path in Path("out").iterdir()] == ["identify.json"]


def test_interrupted_measurement_resumes(run: Path, done: Done, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["identify", run, "train.src", "--out", "out", "--json", *FAST]
    full, _ = done(*command[:4], "whole", *command[5:])
    measure, calls = module.measure_recovery, []

    def stopping(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(module, "measure_recovery", stopping)
    out, err = done(*command, status=130)
    assert out == ""
    assert err.endswith("stopped; the results so far are in out/identify.json; the same command resumes\n")
    assert len(json.loads(Path("out/identify.json").read_text(encoding="utf-8"))["results"]) == 3
    out, err = done(*command)
    assert "out/identify.json: 3 of 8 results already exist\n" in err
    assert out == full
    assert len(calls) == 4 + 5
    out, err = done(*command)
    assert "out/identify.json: 8 of 8 results already exist\n" in err
    assert (out, len(calls)) == (full, 9)


def test_out_directory_of_another_measurement(fail: Fail, done: Done, undrawn: None, run: Path) -> None:
    command = ["identify", run, "train.src", "--out", "out", *FAST]
    done(*command)
    kept = Path("out/identify.json").read_bytes()
    again = "; choose another --out, or delete it"
    assert fail(*command, "--seed", "1") == f"out/identify.json: found with seed 0, not 1{again}"
    assert fail(*command, "--maps", "identity") == (
        f"out/identify.json: found with maps identity,linear, not identity{again}"
    )
    assert fail("identify", run, "train.tgt", "--out", "out", *FAST) == (
        f"out/identify.json: found for other texts{again}"
    )
    pairs = ["identify", run, "train.src", "train.tgt", "--out", "pairs", *FAST]
    done(*pairs, "--stack", "encoder")
    assert fail(*pairs) == f"pairs/identify.json: found with stacks encoder, not encoder,decoder{again}"
    weights = Path("run/model.safetensors").read_bytes()
    tensors, metadata = read_tensors(Path("run/model.safetensors"))
    write_tensors(Path("run/model.safetensors"), {name: -each for name, each in tensors.items()}, metadata)
    assert fail(*command) == f"out/identify.json: found of another model{again}"
    Path("run/model.safetensors").write_bytes(weights)
    assert Path("out/identify.json").read_bytes() == kept
    for content in ("", "{", "[]", '{"results": []}', '{"view": "token identifiability"}', b"\xff\xfe"):
        write("out/identify.json", content)
        assert fail(*command) == (
            "out/identify.json: not a file of regard identify; choose another --out, or move it away"
        )
        assert Path("out/identify.json").read_bytes() == (content if isinstance(content, bytes) else content.encode())
    write("out/identify.json", kept.replace(b'"accuracy"', b'"precision"'))
    assert fail(*command) == f"out/identify.json: a result is damaged{again}"


def test_unwritable_out_directories(fail: Fail, run: Path) -> None:
    write("file", "")
    fix = "make room, or choose another"
    assert fail("identify", run, "train.src", "--out", "file", *FAST) == "file: not a directory; choose another --out"
    assert fail("identify", run, "train.src", "--out", "file/deep", *FAST) == (
        f"file/deep: cannot be written (Not a directory); {fix} --out"
    )
    Path("out/identify.json").mkdir(parents=True)
    blocked = fail("identify", run, "train.src", "--out", "out", *FAST)
    assert blocked == f"out: cannot be written (Is a directory); {fix} path"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.src"], "nope.src: no such file"),
        (["trian.src"], "trian.src: no such file; did you mean 'train.src'?"),
        (["train.src", "nope.tgt"], "nope.tgt: no such file"),
        (["empty.src"], "empty.src: no texts; give one per line"),
        (["three.src"], "3 different sentences; expected at least 4"),
        (["same.src"], "1 different sentences; expected at least 4"),
        (
            ["long.src"],
            "0 different sentences; expected at least 4 (left out: 5 longer than 31 tokens (the longest",
        ),
        (["latin.src"], "latin.src:1: byte 0xe9 at column 1 is not UTF-8; convert it: iconv -f latin-1 -t utf-8"),
        (["cut.gz"], "cut.gz: damaged or cut short: "),
        (["train.src", "three.src"], "train.src: 24 lines, but three.src has 3; line by line, one must translate the"),
        (["train.src", "--stack", "decoder"], "the decoder reads targets; give pairs, as in test.en test.fr, or a tab"),
        (["train.src", "--stack", "encodr"], "unknown stack 'encodr'; did you mean 'encoder'?"),
        (["train.src", "--maps", "identity,lineer"], "unknown map 'lineer'; did you mean 'linear'?"),
        (["train.src", "--maps", ""], "no maps to measure with; known: identity, linear, mlp"),
        (["train.src", "--sentences", "3"], "sentences 3: expected at least 4"),
        (["train.src", "--sentences", "few"], "Invalid value for '--sentences': "),
        (["train.src", "--device", "tpu"], "device 'tpu' is unknown; accepted: auto, cpu, cuda, cuda:N, mps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_data_and_options(fail: Fail, run: Path, arguments: list[str], message: str) -> None:
    write("empty.src", "")
    write("three.src", "1 2\n3 4\n5 6\n")
    write("same.src", "1 2 3\n" * 50)
    write("long.src", "".join(" ".join(str(number) * 40) + "\n" for number in range(5)))
    write("latin.src", "été\n".encode("latin-1"))
    write("cut.gz", gzip.compress(b"1 2 3\n" * 1000)[:-20])
    assert fail("identify", run, *arguments, "--out", "out").startswith(message)
    assert not Path("out").exists()


def test_missing_run(fail: Fail) -> None:
    assert fail("identify", "run", "train.src").startswith("run: no such run directory")
    assert "Missing argument" in fail("identify", "run")
