"""`regard look`: every view, in the terminal and in every file format; a survey of a corpus; user errors."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import digits, trained, write_pairs

import regard
from regard.cli import look, main
from regard.look.views.registry import VIEWS

Fail = Callable[..., str]
Done = Callable[..., tuple[str, str]]

SOURCE = "1 2 3 4"


@pytest.fixture
def done(capsys: pytest.CaptureFixture[str]) -> Done:
    """Run `regard look`, which must succeed; return its stdout and stderr."""

    def run(*arguments: object) -> tuple[str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["look", *map(str, arguments), "--device", "cpu"])
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return out, err

    return run


def test_default_view_is_cross_attention(done: Done, trained_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    out, err = done(trained_run, SOURCE)
    text, target, gap, title, *_ = out.splitlines()
    best = regard.load(trained_run, device="cpu").translate(SOURCE)[0]
    assert (text, target, gap) == (f"text        {SOURCE}", f"target      {best.text}", "")
    assert title == "cross attention: weights, layer 0, mean of 2 heads"
    assert err == ""
    names = [line.split()[0] for line in out.splitlines()[4:] if line and line[0] not in " ░"]
    assert names == ["<sos>", *best.tokens[:-1]]


RECURRENT: dict[str, tuple[str, str, str]] = {
    "lm": ("gradients", "one man {0}\n", ""),
    "tag": ("gradients", "one NUM\nman{0} NOUN\n\n", ""),
    "classify": ("pooling", "one man {0}\tyes\nno man {0}\tno\n", "pooling"),
}
"""Models without attention by task: their default view, their data, and their additional views."""


@pytest.fixture(scope="module")
def recurrent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent model for the task named by the test."""
    folder, task = tmp_path_factory.mktemp("recurrent"), request.param
    data = folder / {"lm": "text.txt", "tag": "words.conll", "classify": "texts.tsv"}[task]
    texts = "".join(map(RECURRENT[task][1].format, range(40)))
    data.write_text(("text\tlabel\n" if task == "classify" else "") + texts, encoding="utf-8")
    shape = {"architecture": "rnn", "preset": "tiny", "d_model": 8, "n_layers": 1}
    steps = {"steps": 2, "batch_tokens": 128, "average": 1, "validate_every": 2, "save_every": 2, "log_every": 1}
    trained({"task": {"name": task}, "data": {"train": [str(data)]}, "model": shape, "train": steps}, folder / "run")
    return folder / "run"


@pytest.mark.parametrize(("recurrent", "task"), [(task, task) for task in RECURRENT], indirect=["recurrent"])
def test_default_view_is_one_the_model_has(task: str, done: Done, fail: Fail, recurrent: Path) -> None:
    """The default is the same in every format; a view the model lacks is refused, and the available ones are named."""
    view, _, more = RECURRENT[task]
    assert f"{view}: " in done(recurrent, "one man")[0]
    assert done(recurrent, "one man", "--out", "x.csv") == ("", "written: x.csv\n")
    with Path("x.csv").open(encoding="utf-8", newline="") as file:
        assert {row["view"] for row in csv.DictReader(file)} == {view}
    available = ", ".join(filter(None, ("summary, attribution, gradients, faithfulness", more)))
    assert fail("look", recurrent, "one man", "--view", "attention", "--device", "cpu") == (
        f"this model has nothing to show for --view attention: it has no attention between tokens; look at: {available}"
    )
    pytest.importorskip("matplotlib")
    assert done(recurrent, "one man", "--out", "x.png") == ("", "written: x.png\n")
    assert fail("look", recurrent, "one man", "--view", "all", "--out", "x.png", "--device", "cpu") == (
        f"x.png: a figure shows one view; choose one of: {available}, or write x.html"
    )


@pytest.mark.parametrize("view", [view for view in VIEWS if view != "pooling"])
def test_every_view_in_the_terminal(view: str, done: Done, trained_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for one token, merged to words, with an empty target."""
    monkeypatch.setenv("COLUMNS", "72")
    out, _ = done(trained_run, "1", "--target", "", "--words", "--view", view)
    assert max(map(len, out.splitlines())) <= 72
    assert f"{view}: " in out


def test_all_views_in_one_file(done: Done, trained_run: Path) -> None:
    assert done(trained_run, SOURCE, "--out", "look.json") == ("", "written: look.json\n")
    found = json.loads(Path("look.json").read_text(encoding="utf-8"))
    assert {array["view"] for array in found["arrays"]} == {*VIEWS} - {"pooling"}
    assert found["about"]["text"] == SOURCE


@pytest.mark.parametrize(
    ("view", "suffix", "beginning"),
    [
        ("attention", ".png", b"\x89PNG"),
        ("rollout", ".svg", b"<?xml"),
        ("positions", ".pdf", b"%PDF"),
        ("effective", ".html", b"<!"),
        ("similarity", ".csv", b"view,"),
    ],
)
def test_a_view_in_every_format(view: str, suffix: str, beginning: bytes, done: Done, trained_run: Path) -> None:
    if suffix in (".png", ".svg", ".pdf"):
        pytest.importorskip("matplotlib")
    path = Path(f"look{suffix}")
    assert done(trained_run, "1", "--view", view, "--kind", "encoder", "--out", path) == ("", f"written: {path}\n")
    assert path.read_bytes().lstrip().startswith(beginning)
    assert path.stat().st_size > 1000


def test_saved_numbers_equal_those_of_the_model(done: Done, trained_run: Path) -> None:
    done(trained_run, SOURCE, "--target", "1 2", "--kind", "cross", "--layer", "-1", "--head", "1", "--out", "one.csv")
    seen = regard.load(trained_run, device="cpu").look(SOURCE, "1 2")
    with Path("one.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    weights = seen.attention("cross")[-1, 1]
    assert len(rows) == weights.numel()
    for row in rows:
        assert (row["layer"], row["head"]) == ("0", "1")
        assert row["query_token"] == seen.tokens["decoder"][int(row["query"])]
        expected = weights[int(row["query"]), int(row["key"])].item()
        assert float(row["value"]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("text", ["1", "日", "a\nb", '"<eos>"'])
def test_any_text_in_every_format(text: str, done: Done, trained_run: Path) -> None:
    """Tokens that are part of a character are displayed as such."""
    done(trained_run, text, "--target", "", "--words", "--view", "attention", "--out", "look.json")
    sides = json.loads(Path("look.json").read_text(encoding="utf-8"))["sides"]
    assert sides["decoder"] == ["<sos>"]
    assert "".join(sides["encoder"]).removesuffix("<eos>") == text.replace("\n", "")
    out, _ = done(trained_run, text, "--target", "é", "--kind", "encoder")
    assert ("<0x" in out) == (text == "日")


def test_estimate_reports_its_error(done: Done, trained_run: Path) -> None:
    out, _ = done(trained_run, "1 2", "--view", "attribution", "--kind", "encoder", "--estimate", "4")
    assert "encoder: estimated from 4 directions per token; standard error about" in out.replace("\n", " ")


@pytest.mark.parametrize("suffix", [".json", ".csv", ".svg"])
def test_survey_of_a_corpus(suffix: str, done: Done, trained_run: Path) -> None:
    if suffix == ".svg":
        pytest.importorskip("matplotlib")
    write_pairs(Path(), "some", digits(8, least=2, most=12))
    out, err = done(trained_run, "--corpus", "some.src", "--view", "identifiability", "--out", f"lengths{suffix}")
    assert err == f"written: lengths{suffix}\n"
    first, _, *rows = out.splitlines()
    assert first == "encoder: values have 8 dimensions; with more keys weights are not identifiable"
    assert sum(int(row.split()[1]) for row in rows) == 8
    assert Path(f"lengths{suffix}").stat().st_size > 100
    out, _ = done(trained_run, "--corpus", "some.src", "--corpus", "some.tgt", "--kind", "cross")
    assert out.startswith("cross: values have 8 dimensions")


def test_attribution_and_effective_attention_over_a_corpus(done: Done, trained_run: Path) -> None:
    write_pairs(Path(), "some", digits(8, least=2, most=12))
    out, _ = done(trained_run, "--corpus", "some.src", "--view", "attribution", "--seed", "1", "--out", "mixing.json")
    assert out.startswith("8 of 8 texts, seed 1: probes trained on 6\n")
    both = ("--corpus", "some.src", "--corpus", "some.tgt", "--view", "effective", "--sentences", "5")
    out, _ = done(trained_run, *both, "--out", "effective.json")
    assert out.startswith("5 texts, ")
    assert "cross: values have 8 dimensions; with more keys raw and effective attention differ" in out
    assert all(Path(f"{name}.json").stat().st_size > 100 for name in ("mixing", "effective"))


NOT_THERE: list[tuple[list[str], str]] = [
    ([], "no text to look at; give a TEXT, or a file with --corpus"),
    ([""], "the text is empty; give at least one word"),
    (["1 " * 5000], "text 1, '1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 ...', has "),
    (["1", "--target", "1 " * 5000], "target 1, '1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 ...', has "),
    (["1", "--view", "atention"], "unknown view 'atention'; did you mean 'attention'?"),
    (["1", "--layer", "9", "--kind", "cross"], "layer 9: cross attention has 1, counted from 0"),
    (["1", "--head", "99", "--view", "all"], "head 99: encoder attention has 2, counted from 0"),
    (["1", "--layer", "-2", "--view", "attribution"], "layer -2: encoder attention has 1, counted from 0"),
    (["1", "--kind", "self"], "unknown kind of attention 'self'; known: encoder, decoder, cross"),
    (["1", "--estimate", "1", "--view", "attribution"], "estimate 1: expected at least 2"),
    (
        ["1", "--estimate", "4", "--view", "attention"],
        "attention has no estimate to choose; leave it out, or look at: summary, attribution",
    ),
    (["1", "--view", "gradients", "--layer", "0"], "gradients has no layer to choose; leave it out, or look at: "),
    (["--corpus", "nope.src"], "nope.src: no such file"),
    (["--corpus", "empty.src"], "empty.src: no texts; give one per line"),
    (["--corpus", "train.src", "1 2"], "--corpus shows identifiability of many texts, of all heads; leave out TEXT"),
    (
        ["--corpus", "train.src", "--words", "--layer", "0"],
        "--corpus shows identifiability of many texts, of all heads; ",
    ),
    (["--corpus", "train.src", "--view", "rollout"], "--corpus has no view 'rollout'; known: identifiability, attribu"),
    (["--corpus", "train.src", "--estimate", "4"], "--corpus shows identifiability of many texts, of all heads; leave"),
    (["--corpus", "train.src", "--view", "effective"], "the output is of the decoder; give pairs, as in test.en test"),
    (["1 2", "--sentences", "9"], "--sentences and --seed go with --corpus"),
    (["--corpus", "train.src", "--kind", "cross"], "cross attention cannot be surveyed on train.src; accepted: encod"),
    (["--corpus", "train.src", "--corpus", "valid.tgt"], "train.src: 24 lines, but valid.tgt has 4; "),
]


@pytest.mark.parametrize(("arguments", "message"), NOT_THERE, ids=[str(n) for n in range(len(NOT_THERE))])
def test_user_error_is_one_line_and_touches_no_file(
    arguments: list[str], message: str, fail: Fail, trained_run: Path
) -> None:
    Path("empty.src").write_text("")
    Path("look.json").write_text("before")
    assert fail("look", trained_run, *arguments, "--device", "cpu", "--out", "look.json").startswith(message)
    assert Path("look.json").read_text() == "before"
    assert not list(Path().glob("look.json?*"))


def test_user_error_comes_before_any_output(fail: Fail, trained_run: Path) -> None:
    for view in ("attention", "attribution", "all"):
        message = fail("look", trained_run, "1", "--view", view, "--layer", "9", "--device", "cpu")
        assert message == "layer 9: encoder attention has 1, counted from 0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1", "--out", "look.xyz"], "look.xyz: unknown suffix '.xyz'; known: .html, .json, .csv, .png, .svg, .pdf"),
        (["1", "--out", "look"], "look: no suffix; known: .html, .json, .csv, .png, .svg, .pdf"),
        (["1", "--out", "no/look.html"], "no/look.html: cannot be written: no directory no; make it first"),
        (["1", "--out", "folder.csv"], "folder.csv: cannot be written: is a directory; name a file in it"),
        (
            ["1", "--view", "foo"],
            "unknown view 'foo'; known: summary, attention, scores, effective, alternative, norms, identifiability, "
            "attribution, similarity, rollout, gradients, faithfulness, pooling, positions, all, match, senses",
        ),
        (["--corpus", "train.src", "--out", "x.html"], "x.html: a page shows one text; write .png, .svg, .pdf, "),
        (["--corpus", "train.src", "--out", "no/x.png"], "no/x.png: cannot be written: no directory no; make it first"),
    ],
)
def test_invalid_options_are_refused_before_loading(arguments: list[str], message: str, fail: Fail) -> None:
    Path("folder.csv").mkdir()
    assert fail("look", "no-such-model", *arguments).startswith(message)


def test_figure_of_all_views_is_refused(fail: Fail, trained_run: Path) -> None:
    pytest.importorskip("matplotlib")
    available = ", ".join(view for view in VIEWS if view != "pooling")
    message = fail("look", trained_run, "1", "--view", "all", "--out", "x.png", "--device", "cpu")
    assert message == f"x.png: a figure shows one view; choose one of: {available}, or write x.html"


def test_help_lists_all_views() -> None:
    assert look.VIEWS.split() == list(VIEWS)


@pytest.mark.parametrize("view", look.COMPARISON_VIEWS)
def test_comparison_views_need_an_encoder(view: str, fail: Fail, trained_run: Path) -> None:
    message = fail("look", trained_run, "1", "--view", view, "--device", "cpu")
    assert message == f"{trained_run}: a model for translate; {view} is a view of encoders only"


def test_figure_without_matplotlib(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for arguments in (["1"], ["--corpus", "train.src"]):
        assert fail("look", "no-such-model", *arguments, "--out", "x.png") == (
            "a figure needs the extra 'plot'; run: pip install 'regard[plot]'"
        )


def test_missing_model(fail: Fail) -> None:
    assert fail("look", "no-such-model", "1").startswith("no-such-model: ")
