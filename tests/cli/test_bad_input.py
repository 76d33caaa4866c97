"""User errors of the command line: one line with the place, what was found, what is accepted and the likely fix."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import digits, recipe, write_pairs, written

from regard.cli import main

Fail = Callable[..., str]

TINY = [
    *("--set", "tokenizer.vocabulary=266", "--set", "model.d_model=16", "--set", "model.n_layers=1"),
    *("--set", "model.n_decoder_layers=1", "--set", "model.n_heads=2", "--set", "model.d_ff=32"),
    *("--set", "train.steps=2", "--set", "train.batch_tokens=64", "--set", "model.n_positions=32"),
]
VALID = ["--valid", "valid.src", "--valid", "valid.tgt"]


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def test_unknown_verb(fail: Fail) -> None:
    assert fail("trian") == "unknown verb 'trian'; did you mean 'train'?"
    assert fail("zzz").startswith("unknown verb 'zzz'; known: demo, train, distill, shortlist, translate, ")


@pytest.mark.parametrize("verb", ["train", "translate", "evaluate", "info"])
def test_unknown_option_or_missing_argument(fail: Fail, verb: str) -> None:
    message = fail(verb, "x", "--colour", "red")
    assert "--colour" in message
    assert message.endswith(f"(see: regard {verb} --help)")
    assert "Missing argument" in fail(verb)


@pytest.mark.parametrize(
    "arguments",
    [("--beam", "wide"), ("--alpha", "x"), ("--batch",), ("--n-best", "1.5")],
)
def test_option_without_value_or_of_wrong_type(fail: Fail, arguments: tuple[str, ...]) -> None:
    assert arguments[0] in fail("translate", "run", "x", *arguments)


def test_one_file_where_two_are_expected(fail: Fail) -> None:
    message = fail("compare", "--quick", "--data", "pairs.tsv", "--out", "x")
    assert message == "--data pairs.tsv: expected two parallel files, as in --data train.en train.fr"


def test_unknown_or_unavailable_device(fail: Fail, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command in (["translate", run, "1"], ["evaluate", run, "valid.src", "valid.tgt"]):
        assert fail(*command, "--device", "tpu") == "device 'tpu' is unknown; accepted: auto, cpu, cuda, cuda:N, mps"
        assert fail(*command, "--device", "cuda").startswith("device 'cuda' is not available: ")
    assert fail("train", "translate", "train.src", "train.tgt", "--out", "x", "--device", "cuda").startswith(
        "device 'cuda'"
    )
    assert not Path("x").exists()


def test_invalid_recipes(fail: Fail, folder: Path) -> None:
    assert fail("train", "none.toml") == "none.toml: no such recipe; without one: regard train TASK DATA"
    assert fail("train", write("bad.toml", "[train\n")).startswith("bad.toml: not valid TOML: ")
    assert fail("train", write("flat.toml", "steps = 5\n")).startswith("flat.toml: 'steps' is outside a table")
    good = written(folder, recipe(folder)).name
    assert fail("train", good, "more.src") == (
        "more.src: data beside a recipe; put it in the recipe, or pass --set data.train=..."
    )
    for text, message in (
        ("[train]\nlearnin_rate = 1\n", "unknown key 'train.learnin_rate'; did you mean 'train.learning_rate'?"),
        ("[model]\nn_layer = 1\n", "unknown key 'model.n_layer'; did you mean 'model.n_layers'?"),
        ('[train]\nsteps = "many"\n', "train.steps = 'many'; expected a whole number, found a text"),
        ("[train]\nsteps = 1.5\n", "train.steps = 1.5; expected a whole number, found a number"),
        ('[model]\nnorm = "middle"\n', "model.norm = 'middle'; accepted: post, pre"),
        ("[modle]\nd_model = 1\n", "unknown table 'modle'; did you mean 'model'?"),
        (
            '[task]\nname = "sing"\n',
            "task.name = 'sing' is unknown; known: translate, pretrain, classify, tag, qa, embed, lm, vectors",
        ),
    ):
        task = "" if "[task]" in text else '[task]\nname = "translate"\n'
        assert fail("train", write("r.toml", task + text)) == f"r.toml: {message}"
    assert fail("train", write("r.toml", "[train]\nsteps = 5\n")).startswith("r.toml: no task; add name = ")
    assert not Path("runs").exists()


def test_options_of_another_kind_of_model(fail: Fail, run: Path) -> None:
    message = "run: a model for translate does not take --window, --stride; leave them out"
    assert fail("evaluate", run, "valid.src", "valid.tgt", "--window", 8, "--stride", 4) == message
    cannot = "run: a model for translate, which cannot generate; use it with: regard translate"
    assert fail("generate", run, "1 2") == cannot


def test_invalid_settings(fail: Fail) -> None:
    command = ["train", "translate", "train.src", "train.tgt", "--out", "x", "--set"]
    assert fail(*command, "steps=5") == "--set steps=5: expected table.key=value, as in train.steps=1000"
    assert fail(*command, "train.stesp=5") == "train translate: unknown key 'train.stesp'; did you mean 'train.steps'?"
    assert fail(*command, "train.steps=few").endswith("train.steps = 'few'; expected a whole number, found a text")
    assert (
        fail(*command, "train.steps=0")
        == "train translate: train.steps = 0; expected at least 1 and at most 1,000,000,000"
    )
    assert fail(*command, "model.preset=huge").startswith("model.preset = 'huge' is unknown; known: tiny, ")
    assert fail(*command, "model.preset=basse").endswith("did you mean 'base'?")
    assert (
        fail(*command, "model.dropout=1.5")
        == "train translate: model.dropout = 1.5; expected 0 or more and less than 1"
    )
    assert fail(*command, "tokenizer.vocabulary=99999").startswith(
        "tokenizer.vocabulary: 99,999 requested, but this text gi"
    )
    assert not Path("x").exists()


def test_invalid_tasks_and_run_directories(fail: Fail, run: Path) -> None:
    data = ["train.src", "train.tgt"]
    assert fail("train", "transalte", *data) == (
        "train transalte: task.name = 'transalte' is unknown; did you mean 'translate'?"
    )
    assert fail("train", "translate").startswith("train translate: no training data; give files, or ")
    assert fail("train", "translate", *data, "--resume") == "--resume: which run? pass its directory with --out"
    assert fail("train", "translate", *data, "--out", run) == (
        "run: already holds a run; pass --resume to continue it, or choose another --out"
    )
    assert (
        fail("train", "translate", *data, "--out", write("file", "")) == "file: not a directory; choose another --out"
    )
    assert fail("train", "translate", "-", "train.tgt").endswith("so not from standard input; use a file")


def failing_data(fail: Fail, *data: str) -> str:
    message = fail("train", "translate", *data, "--out", "x")
    assert not Path("x").exists()
    return message


def test_missing_files(fail: Fail, run: Path) -> None:
    assert failing_data(fail, "train.src", "trian.tgt") == "trian.tgt: no such file; did you mean 'train.tgt'?"
    assert failing_data(fail, "no/a.en", "no/a.fr") == "no/a.en: no such file; there is no directory no either"
    assert failing_data(fail, "train.src", "run") == "run: a directory; name the files in it"
    assert failing_data(fail, "train.src").startswith(
        "train.src: a second file must go with it, as in train.en train.fr or --valid dev.en --valid dev.fr;"
    )
    assert fail("train", "translate", "train.src", "train.tgt", "--valid", "train.src", "train.tgt").startswith(
        "train.src: a second file must go with it, as in train.en train.fr or --valid dev.en --valid dev.fr;"
    )
    assert fail("train", "translate", "train.src", "train.tgt", "--valid", "nope.src").startswith(
        "nope.src: no such file"
    )
    assert fail("evaluate", run, "valid.src", "nope") == "nope: no such file"
    assert fail("translate", run, "--file", "nope") == "nope: no such file"


def test_parallel_files_of_different_length(fail: Fail, run: Path) -> None:
    write("short.tgt", "1\n2\n")
    expected = "train.src: 24 lines, but short.tgt has 2; line by line, one must translate the other"
    assert failing_data(fail, "train.src", "short.tgt") == expected
    assert fail("evaluate", run, "train.src", "short.tgt") == expected


def test_empty_files_and_lines(fail: Fail, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("empty.src", "")
    write("empty.tgt", "")
    assert failing_data(fail, "empty.src", "empty.tgt") == ("empty.src: no pairs; no line has a source and a target")
    assert fail("translate", run, "--file", "empty.src") == "empty.src: no texts; give one per line"
    pairs = digits(30)
    pairs[16] = (pairs[16][0], "")
    write_pairs(Path(), "gap", pairs)
    message = "gap.tgt:17: empty target; drop the line or pass --skip-empty"
    assert failing_data(fail, "gap.src", "gap.tgt") == message
    assert fail("evaluate", run, "gap.src", "gap.tgt") == message
    with pytest.raises(SystemExit) as ended:
        main(["train", "translate", "gap.src", "gap.tgt", "--skip-empty", "--out", "y", "--device", "cpu", *TINY])
    assert ended.value.code == 0
    assert "warning: gap.src, gap.tgt: left out 1 of 30 pairs: empty source or target" in capsys.readouterr().err


def test_corpus_of_one_line(fail: Fail) -> None:
    write("one.src", "1 2\n")
    write("one.tgt", "2 1\n")
    assert failing_data(fail, "one.src", "one.tgt") == (
        "pairs: only 1, too few to hold some out for validation; pass --valid with files"
    )


def test_text_not_in_utf8(fail: Fail, run: Path) -> None:
    write("latin.src", "un\ndeux é\n".encode("latin-1"))
    write("latin.tgt", "one\ntwo\n")
    message = "latin.src:2: byte 0xe9 at column 6 is not UTF-8; convert it: iconv -f latin-1 -t utf-8"
    assert failing_data(fail, "latin.src", "latin.tgt") == message
    assert fail("translate", run, "--file", "latin.src") == message


def test_damaged_compressed_files(fail: Fail) -> None:
    write("cut.gz", gzip.compress(b"1 2 3\n" * 1000)[:-20])
    write("other.gz", gzip.compress(b"1 2 3\n" * 1000))
    assert failing_data(fail, "cut.gz", "other.gz").startswith("cut.gz: damaged or cut short: ")


def test_invalid_columns(fail: Fail) -> None:
    rows = "".join(f"{source}\t{target}\n" for source, target in digits(30))
    write("t.tsv", rows)
    write("h.csv", "en,fr\n1,2\n")
    write("j.jsonl", '{"en": "1", "fr": "2"}\n')
    assert failing_data(fail, "t.tsv:1,3") == "t.tsv:1: 2 fields, too few for column 3; fields are separated by tabs"
    assert failing_data(fail, "t.tsv:0,1") == "t.tsv: no column 0; columns are counted from 1"
    assert failing_data(fail, "t.tsv:1,2,3").startswith("t.tsv: columns '1,2,3'; expected two, source and target")
    assert failing_data(fail, "h.csv:en,de").startswith("h.csv: no column 'de'; the first line holds 'en', 'fr'; ")
    assert failing_data(fail, "j.jsonl:en,de").startswith("j.jsonl:1: no key 'de'; the line holds 'en', 'fr'")
    assert fail("train", "translate", "t.tsv", "--columns", "1", "--out", "x").startswith("columns: expected two, ")


def test_line_of_100_000_characters(fail: Fail, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training leaves the line out with a warning and truncates nothing; translating it is refused."""
    long = " ".join("7" * 50_000)
    write_pairs(Path(), "long", [*digits(30), (long, "1 2 3"), ("1 2 3", long)])
    command = ["train", "translate", "long.src", "long.tgt", *VALID, "--out", "y", "--device", "cpu", *TINY]
    with pytest.raises(SystemExit) as ended:
        main(command)
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    assert out == "y\n"
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert re.match(
        r"warning: 2 of 32 examples to train on are longer than .* and are left out \(the longest", warnings[0]
    )
    message = (
        r"text 1, '7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 \.\.\.', has [\d,]+ tokens; this model takes at most 31; split it .*"
    )
    assert re.fullmatch(message, fail("translate", run, long))
    write("one.src", f"{long}\n")
    write("one.tgt", "1\n")
    assert re.fullmatch(message, fail("translate", run, "--file", "one.src"))
    assert re.fullmatch(message, fail("evaluate", run, "one.src", "one.tgt"))


def test_debug_shows_the_traceback() -> None:
    from regard.errors import ConfigError

    with pytest.raises(ConfigError, match="no such recipe"):
        main(["train", "none.toml", "--debug"])


def test_batch_smaller_than_one_row(fail: Fail, folder: Path) -> None:
    good = written(folder, recipe(folder)).name
    settings = ("--set", "train.batch_tokens=8", "--set", "data.max_length=64", "--set")
    problem = "is less than one row of data.max_length = 64 tokens; raise it to"
    one = fail("train", good, "--out", "small", *settings, "train.accumulate=1")
    assert one == f"train.batch_tokens = 8 {problem} 64 or more"
    two = fail("train", good, "--out", "small", *settings, "train.accumulate=2")
    assert two == f"train.batch_tokens = 8 in 2 micro-batches {problem} 128 or more"
    assert not Path("small").exists()


@pytest.mark.parametrize("option", [("--temperature", "0.7"), ("--top-k", "5"), ("--top-p", "0.9")])
def test_sampling_options_without_sampling(fail: Fail, run: Path, option: tuple[str, str]) -> None:
    message = "temperature, top-k and top-p belong to sampling; pass --sample as well"
    assert fail("translate", run, "1 2", *option) == message


@pytest.mark.parametrize("setting", ["train.seed=9", "train.batch_tokens=128", "train.accumulate=2", "model.d_ff=64"])
def test_settings_a_resumed_run_cannot_change(fail: Fail, run: Path, setting: str) -> None:
    message = fail("train", run / "config.toml", "--out", run, "--resume", "--set", setting)
    assert f"but the run in {run} has" in message
    assert message.endswith("leave it out, or begin another run")


def test_internal_error_is_not_reported_as_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class OddError(Exception):
        def format_message(self) -> str:
            return "as if typer had found it"

    def info(model: str) -> None:
        raise OddError

    monkeypatch.setattr("regard.cli.info.info", info)
    with pytest.raises(OddError):
        main(["info", "x"])
