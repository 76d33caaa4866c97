"""Language models by the command line: train, generate, evaluate, look, identify, export, import."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from encoders import documents
from language_models import LETTERS, small, task
from saved_runs import kept

from regard import progress
from regard.look.views.registry import VIEWS

Called = Callable[..., tuple[int, str, str]]
Regard = Callable[..., tuple[str, str]]

SMALL = [
    *("--set", "model.d_model=16", "--set", "model.n_layers=1", "--set", "model.n_heads=2", "--set", "model.d_ff=32"),
    *("--set", "train.steps=4", "--set", "train.batch_tokens=256", "--set", "train.validate_every=2"),
]


@pytest.fixture
def fail(called: Called) -> Callable[..., str]:
    """Run a command that must be refused; return its one line."""

    def run(*arguments: object) -> str:
        code, out, err = called(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: "), err
        assert len(err.splitlines()) == 1, err
        return err.strip().removeprefix("error: ")

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books.txt").write_text("\n\n".join(documents(40)) + "\n")
    return tmp_path


@pytest.fixture
def model(folder: Path) -> Path:
    """An untrained model of characters."""
    of = task(LETTERS)
    return kept(of, small(of, n_positions=32).float(), folder / "model")


@pytest.mark.parametrize(
    "tokenizer_options", [["--characters"], ["--set", "tokenizer.vocabulary=300"]], ids=["characters", "bytes"]
)
def test_train_generate_evaluate(tokenizer_options: list[str], regard: Regard) -> None:
    out, err = regard("train", "lm", "books.txt", "--out", "run", *SMALL, *tokenizer_options)
    assert out == "run\n"
    assert "done: perplexity" in err
    assert 'generate run "..."' in err
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert {"valid_loss", "valid_perplexity"} <= {key for line in log for key in line}
    recipe = Path("run/config.toml").read_text()
    assert ('kind = "characters"' in recipe) == (tokenizer_options == ["--characters"])
    found = json.loads(regard("generate", "run", "the cat", "--max-tokens", 5, "--json")[0])
    assert set(found) == {"prompt", "text", "score", "tokens", "token_scores", "ended"}
    assert len(found["tokens"]) == len(found["token_scores"]) <= 5
    scores = json.loads(regard("evaluate", "run", "books.txt", "--json")[0])
    text = Path("books.txt").read_text()
    assert scores["words"] == len(text.split())
    assert scores["characters"] == len(text.strip()) - 2 * 39
    assert scores["n"] == 40
    about = json.loads(regard("info", "run", "--json")[0])
    assert about["task"] == "lm"


def test_generate_output_formats(model: Path, regard: Regard) -> None:
    arguments = ["generate", model, "the cat", "--max-tokens", 30, "--seed", 5]
    full = json.loads(regard(*arguments, "--json")[0])
    assert full["prompt"] == "the cat"
    assert regard(*arguments)[0] == full["text"] + "\n"
    assert regard(*arguments, "--stream")[0] == full["text"] + "\n"
    assert regard(*arguments)[0] == regard(*arguments)[0]
    assert regard(*arguments[:-1], 6)[0] != regard(*arguments)[0]
    continuations = regard(*arguments, "--n", 3)[0].splitlines()
    assert len(continuations) == 3
    assert continuations[0] == full["text"].replace("\n", "\\n")


def test_greedy_is_temperature_zero(model: Path, regard: Regard) -> None:
    arguments = ["generate", model, "the", "--max-tokens", 20]
    one = regard(*arguments, "--greedy")[0]
    assert one == regard(*arguments, "--temperature", 0)[0] == regard(*arguments, "--greedy", "--seed", 9)[0]
    assert one == regard(*arguments, "--top-k", 1)[0]
    drawn = ("generate", model, "the cat", "--max-tokens", 20, "--seed", 3)
    assert regard(*drawn)[0] == regard(*drawn, "--top-k", 0)[0]
    assert one != regard(*arguments, "--greedy", "--repetition-penalty", 2)[0]


def test_text_ends_before_stop_string(model: Path, regard: Regard) -> None:
    full = regard("generate", model, "the", "--max-tokens", 60)[0].rstrip("\n")
    stop = full[5:7]
    cut = regard("generate", model, "the", "--max-tokens", 60, "--stop", stop, "--stop", "zzz")[0]
    assert cut == full[: full.index(stop)] + "\n"
    assert regard("generate", model, "the", "--max-tokens", 60, "--stop", stop, "--stream")[0] == cut
    found = json.loads(regard("generate", model, "the", "--max-tokens", 60, "--stop", stop, "--json")[0])
    assert found["ended"] == "stop"


def test_prompts_from_a_file(model: Path, regard: Regard) -> None:
    Path("prompts.txt").write_text("the cat\n\na dog\n")
    out, _ = regard("generate", model, "--file", "prompts.txt", "--max-tokens", 8, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["prompt"] for each in found] == ["the cat", "", "a dog"]
    alone = json.loads(regard("generate", model, "the cat", "--max-tokens", 8, "--json")[0])
    assert (alone["text"], alone["tokens"]) == (found[0]["text"], found[0]["tokens"])
    assert alone["token_scores"] == pytest.approx(found[0]["token_scores"], abs=1e-5)
    assert len(regard("generate", model, "--file", "prompts.txt", "--max-tokens", 8, "--n", 2)[0].splitlines()) == 6


def test_many_texts_are_counted_while_they_are_generated(
    model: Path, regard: Regard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is written, and counted outside a terminal now and then, before the next one is generated."""
    monkeypatch.setattr(progress, "LOG_INTERVAL_SECONDS", 0.0)
    out, err = regard("generate", model, "the", "--n", 5, "--batch", 2, "--max-tokens", 2)
    assert len(out.splitlines()) == 5
    assert err.splitlines() == [f"generating: {count} of 5" for count in range(1, 6)]


def test_generate_without_prompt(model: Path, regard: Regard) -> None:
    found = json.loads(regard("generate", model, "--max-tokens", 4, "--json")[0])
    assert found["prompt"] == ""
    assert found["tokens"]


def test_input_pipe_and_closed_output_pipe(model: Path) -> None:
    """When the reader of its output closes the pipe, the command ends quietly."""
    begin = f"{sys.executable} -m regard generate {model}"
    script = f"{begin} the --max-tokens 3000 --stream --device cpu | head -c 5"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, len(ended.stdout), ended.stderr) == (0, 5, "")
    script = f"printf 'the\\na\\n' | {begin} - --max-tokens 3 --device cpu"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 2


def test_prompt_longer_than_the_context(model: Path, regard: Regard) -> None:
    out, err = regard("generate", model, "the cat sits on " * 10, "--max-tokens", 80, "--greedy")
    assert err == "warning: the prompt has more tokens than the model sees at once; it reads the last 32 of them\n"
    assert out.strip()


def test_warning_names_unknown_characters(model: Path, regard: Regard) -> None:
    _, err = regard("generate", model, "the ☃", "--max-tokens", 2)
    assert err == "warning: 1 of 5 tokens are unknown to the vocabulary, which never saw them: '☃'\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--temperature", -1],
            "temperature -1.0: expected 0 (the most likely token each time) or more and at most 1,000",
        ),
        (["--top-p", 0], "top-p 0.0: expected more than 0 and at most 1"),
        (["--top-p", 1.5], "top-p 1.5: expected more than 0 and at most 1"),
        (["--top-k", -1], "top-k -1: expected 0 (no limit) or more and at most 10,000,000"),
        (["--repetition-penalty", 0], "repetition-penalty 0.0: expected at least 0.01 and at most 100"),
        (["--max-tokens", 0], "max-tokens 0: expected at least 1 and at most 1,000,000"),
        (["--stop", ""], "stop: an empty string stops nothing; leave it out"),
        (["--n", 2, "--greedy"], "n 2 at temperature 0: all would be the same; leave one of them out"),
        (
            ["--greedy", "--temperature", 0.5],
            "--greedy is temperature 0, but --temperature is 0.5; leave one of them out",
        ),
        (["--file", "x"], "both PROMPT and --file given; give one of them"),
        (["--stream", "--json"], "--stream prints one text while it is generated; leave out --file, --json and --n"),
    ],
)
def test_invalid_options(model: Path, fail: Callable[..., str], options: list[object], message: str) -> None:
    assert fail("generate", model, "the", *options) == message


def test_models_and_data_of_another_kind(model: Path, fail: Callable[..., str], regard: Regard) -> None:
    use = "use it with: regard generate"
    assert fail("translate", model, "the") == f"{model}: a model for lm, which cannot translate; {use}"
    assert fail("fill", model, "[MASK]") == f"{model}: a model for lm, which cannot fill; {use}"
    regard("train", "pretrain", "books.txt", "--out", "bert", *SMALL, "--set", "task.length=32")
    assert fail("generate", "bert", "the") == (
        "bert: a model for pretrain, which cannot generate; use it with: regard fill"
    )
    assert (
        fail("evaluate", model, "books.txt", "--beam", 3)
        == f"{model}: a model for lm does not take --beam; leave it out"
    )
    assert fail("evaluate", model, "books.txt", "--stride", 99) == "stride 99: expected 1 to 16, the window"
    Path("empty.txt").touch()
    assert fail("generate", model, "--file", "empty.txt") == "empty.txt: no texts; give one per line"
    Path("empty.txt").write_text("\n\n")
    for command in (["evaluate", model, "empty.txt"], ["train", "lm", "empty.txt", "--out", "x"]):
        assert fail(*command) == "empty.txt: no text; the file is empty or blank: give one with text"
    assert fail("train", "lm", "table.tsv", "--out", "x").startswith("table.tsv: no such file")
    Path("short.txt").write_text("hello")
    assert fail("train", "lm", "short.txt", "--out", "x") == (
        "documents, and parts of long ones: only 5, too few to hold some out for validation; pass --valid with files"
    )
    assert fail("train", "lm", "books.txt", "--columns", "a,b", "--out", "x").startswith("columns: a, b: plain text")
    assert not Path("x", "config.toml").exists()


def test_text_shorter_than_the_context(regard: Regard) -> None:
    Path("short.txt").write_text("the cat sits on the mat")
    regard("train", "lm", "short.txt", "--valid", "short.txt", "--characters", "--out", "run", *SMALL)
    assert "n_positions = 24" in Path("run/config.toml").read_text()
    assert regard("generate", "run", "the", "--max-tokens", 40)[0]


def test_look_into_language_model(model: Path, regard: Regard, fail: Callable[..., str]) -> None:
    out, _ = regard("look", model, "the cat")
    assert "decoder attention" in out
    assert out.splitlines()[1].startswith("prediction  ")
    regard("look", model, "the cat sits", "--view", "all", "--out", "look.json")
    found = json.loads(Path("look.json").read_text())
    assert found["notes"]["gradients"][0].startswith("integrated gradients sum to the change of the log-probability")
    assert found["sides"] == {"decoder": ["<|endoftext|>", *"the▁cat▁sits"]}
    assert {array["kind"] for array in found["arrays"] if array["view"] in ("attention", "effective")} == {"decoder"}
    views = {array["view"] for array in found["arrays"]}
    assert views == set(VIEWS) - {"pooling"}
    regard("look", model, "the cat sits", "--words", "--out", "look.html")
    assert Path("look.html").stat().st_size > 10_000
    message = f"{model}: a model for lm does not take --target; leave it out"
    assert fail("look", model, "the", "--target", "x") == message
    assert fail("look", model, "the cat " * 9).startswith(
        "the text has 72 tokens; this model takes at most 31; look at a part"
    )
    Path("lines.txt").write_text(
        "".join(f"{line}\n" for text in documents(8) for line in text.split("\n") if len(line) < 31)
    )
    out, _ = regard("identify", model, "lines.txt", "--maps", "identity", "--sentences", 20)
    assert "decoder" in out
    out, _ = regard("look", model, "--corpus", "lines.txt")
    assert out.startswith("decoder: values have 8 dimensions")


def test_export_and_import_round_trip(regard: Regard) -> None:
    regard("train", "lm", "books.txt", "--out", "run", *SMALL, "--set", "tokenizer.vocabulary=300")
    assert regard("export", "run", "--to", "hf", "--out", "gpt2")[0] == "gpt2\n"
    assert regard("import", "gpt2", "--out", "back")[0] == "back\n"
    arguments = ["the cat", "--greedy", "--max-tokens", 12]
    written = [regard("generate", each, *arguments)[0] for each in ("run", "gpt2", "back")]
    assert written[0] == written[1] == written[2]
