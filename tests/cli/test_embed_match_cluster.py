"""The verbs embed, match and cluster and the views that compare texts: results, formats and user errors."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from encoders import sentences, small, vocabulary
from saved_runs import kept
from tiny_runs import recipe, trained

import regard
from regard.cli import main
from regard.data import buckets
from regard.errors import InputError
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

LINES = [*sentences(9), "the cat sits on the mat"]
RunCommand = Callable[..., tuple[str, str]]
Fail = Callable[..., str]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = PretrainingTask(PretrainConfig(length=32), vocabulary())
    return kept(task, small(task), tmp_path_factory.mktemp("vectors") / "bert")


@pytest.fixture(autouse=True)
def _texts(folder: Path) -> None:
    Path("texts.txt").write_text("".join(f"{text}\n" for text in LINES))
    Path("hole.txt").write_text("the cat\n\na dog\n")
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text("\n \n")


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command that must succeed; return its stdout and stderr."""

    def run(*arguments: object) -> tuple[str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--device", "cpu"])
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return out, err

    return run


def test_embed_texts(bert: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUFFER_SIZE", 4)
    expected = regard.load(bert, device="cpu").embed(LINES, layers=(0, -1), pooling="cls", normalised=True)
    options = ("--layers", "0,-1", "--pooling", "cls", "--normalised")
    assert run_command("embed", bert, "texts.txt", *options, "--out", "v.npy") == (
        "",
        "written: v.npy: 10 vectors of 16 numbers\n",
    )
    np.testing.assert_allclose(np.load("v.npy"), expected, atol=1e-6)
    run_command("embed", bert, "texts.txt", *options, "--out", "v.parquet")
    table = pq.read_table("v.parquet")
    assert table.column_names == ["line", "text", "vector"]
    assert (table["line"].to_pylist(), table["text"].to_pylist()) == (list(range(1, 11)), LINES)
    np.testing.assert_allclose(np.array(table["vector"].to_pylist()), expected, atol=1e-6)


@pytest.mark.parametrize("level", ["word", "token"])
def test_embed_words_and_tokens(level: str, bert: Path, run_command: RunCommand) -> None:
    parts = regard.load(bert, device="cpu").embed_words_or_tokens(LINES, level, "static")
    run_command("embed", bert, "texts.txt", "--level", level, "--layers", "static", "--out", "w.npy")
    np.testing.assert_array_equal(np.load("w.npy"), np.concatenate([each.vectors for each in parts]))
    rows = [line.split("\t") for line in Path("w.tsv").read_text(encoding="utf-8").splitlines()]
    names = [(line, place, name) for line, each in enumerate(parts, 1) for place, name in enumerate(each.names)]
    assert rows == [["line", "place", level], *([str(line), str(place), name] for line, place, name in names)]
    run_command("embed", bert, "texts.txt", "--level", level, "--layers", "static", "--out", "w.parquet")
    assert pq.read_table("w.parquet")[level].to_pylist() == [name for _, _, name in names]


def test_embed_standard_input(bert: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"the cat\na dog\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    found = [json.loads(line) for line in run_command("embed", bert, "-", "--json")[0].splitlines()]
    assert [(each["line"], each["text"]) for each in found] == [(1, "the cat"), (2, "a dog")]
    expected = regard.load(bert, device="cpu").embed(["the cat", "a dog"])
    np.testing.assert_allclose([each["vector"] for each in found], expected, atol=1e-6)


EMPTY_WARNING = "warning: 1 of 3 texts are empty; so are their results"


def test_empty_lines_have_missing_vectors(bert: Path, run_command: RunCommand) -> None:
    expected = regard.load(bert, device="cpu").embed(["the cat", "a dog"])
    assert EMPTY_WARNING in run_command("embed", bert, "hole.txt", "--out", "v.npy")[1]
    vectors = np.load("v.npy")
    np.testing.assert_allclose(vectors[[0, 2]], expected, atol=1e-6)
    assert np.isnan(vectors[1]).all()
    run_command("embed", bert, "hole.txt", "--out", "v.parquet")
    table = pq.read_table("v.parquet")
    assert (table["line"].to_pylist(), table["text"].to_pylist()) == ([1, 2, 3], ["the cat", "", "a dog"])
    assert np.isnan(table["vector"].to_pylist()).all(1).tolist() == [False, True, False]
    rows = [json.loads(line) for line in run_command("embed", bert, "hole.txt", "--json")[0].splitlines()]
    assert rows[1] == {"line": 2, "text": "", "vector": None}
    np.testing.assert_allclose(rows[2]["vector"], expected[1], atol=1e-6)


def test_empty_lines_have_no_words(bert: Path, run_command: RunCommand) -> None:
    out, err = run_command("embed", bert, "hole.txt", "--level", "word", "--json")
    assert EMPTY_WARNING in err
    words = [json.loads(line) for line in out.splitlines()]
    assert [(each["line"], each["word"]) for each in words] == [(1, "the"), (1, "cat"), (3, "a"), (3, "dog")]


def test_file_of_empty_lines_has_only_missing_vectors(bert: Path, run_command: RunCommand) -> None:
    assert "2 of 2 texts are empty" in run_command("embed", bert, "blank.txt", "--out", "v.npy")[1]
    assert np.isnan(np.load("v.npy")).tolist() == [[True] * 16] * 2
    run_command("embed", bert, "blank.txt", "--level", "token", "--out", "w.parquet")
    assert pq.read_table("w.parquet").num_rows == 0


def test_search_leaves_out_empty_lines(bert: Path, run_command: RunCommand) -> None:
    out, err = run_command("match", bert, "a dog", "--in", "hole.txt")
    assert (len(out.splitlines()), out.splitlines()[0]) == (2, "1.0000\t3\ta dog")
    assert "warning: 1 of 3 texts are empty; they are not compared" in err


def test_empty_lines_belong_to_no_cluster(bert: Path, run_command: RunCommand) -> None:
    out, err = run_command("cluster", bert, "hole.txt", "--k", 2, "--out", "map.json")
    assert EMPTY_WARNING in err
    labels = regard.load(bert, device="cpu").cluster(["the cat", "", "a dog"], 2).labels.tolist()
    assert (labels[1], sorted(labels)) == (-1, [-1, 0, 1])
    assert out.splitlines() == [f"{labels[0]}\tthe cat", "", f"{labels[2]}\ta dog"]
    assert [len(array["values"]) for array in json.loads(Path("map.json").read_text())["arrays"]] == [2, 2]
    rows = [json.loads(line) for line in run_command("cluster", bert, "hole.txt", "--k", 2, "--json")[0].splitlines()]
    assert rows[1] == {"text": "", "cluster": None, "x": None, "y": None}
    assert sum(row["size"] for row in rows[3:]) == 2


def test_python_api_keeps_empty_texts_in_their_places(bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = regard.load(bert, device="cpu")
    texts = ["the cat", " ", "a dog"]
    expected = model.embed(["the cat", "a dog"])
    for vectors in (model.embed(texts), np.stack(list(model.embed_iterable(texts)))):
        np.testing.assert_allclose(vectors[[0, 2]], expected, atol=1e-6)
        assert np.isnan(vectors[1]).all()
    assert np.isnan(model.embed("")).all()
    assert [array.shape for array in model.embed(texts, "word")] == [(2, 16), (0, 16), (2, 16)]
    assert [each.names for each in model.embed_words_or_tokens(texts)] == [["the", "cat"], [], ["a", "dog"]]
    assert [hit.corpus_id for hit in model.nearest("a dog", texts)] == [2, 0]
    assert "1 of 3 texts are empty; they are not compared" in capsys.readouterr().err
    clusters, alone = model.cluster(texts, 2), model.cluster(["the cat", "a dog"], 2)
    assert clusters.labels.tolist() == [alone.labels[0], -1, alone.labels[1]]
    np.testing.assert_allclose(clusters.coordinates[[0, 2]], alone.coordinates, atol=1e-6)
    assert np.isnan(clusters.coordinates[1]).all()
    assert clusters.sizes == [1, 1]
    with pytest.raises(InputError, match="the text is empty"):
        model.match("a dog", " ")
    with pytest.raises(InputError, match="k 3: there are only 2 texts"):
        model.cluster(texts, 3)


def test_match_two_texts(bert: Path, run_command: RunCommand) -> None:
    score = regard.load(bert, device="cpu").match("the cat", "a dog runs")
    assert run_command("match", bert, "the cat", "a dog runs")[0] == f"{score:.4f}\n"
    assert run_command("match", bert, "the cat", "the cat")[0] == "1.0000\n"
    found = json.loads(run_command("match", bert, "the cat", "a dog runs", "--json")[0])
    assert found == {"text": "the cat", "other": "a dog runs", "score": pytest.approx(score, abs=1e-6)}


def test_match_searches_a_file(bert: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.load(bert, device="cpu")
    scores = np.array([model.match("the red mat", text) for text in LINES])
    order = np.argsort(-scores, kind="stable")
    for window in (3, 1024):
        monkeypatch.setattr(buckets, "BUFFER_SIZE", window)
        out, _ = run_command("match", bert, "the red mat", "--in", "texts.txt", "--top", 4)
        expected = [f"{scores[i]:.4f}\t{i + 1}\t{LINES[i]}" for i in order[:4]]
        assert out.splitlines() == expected
    assert len(run_command("match", bert, "a", "--in", "texts.txt", "--top", 99)[0].splitlines()) == len(LINES)
    first = json.loads(run_command("match", bert, LINES[3], "--in", "texts.txt", "--top", 1, "--json")[0])
    assert first == {"score": pytest.approx(1), "line": 4, "text": LINES[3]}
    found = model.nearest(LINES[3], iter(LINES), top=2)
    assert (found[0].corpus_id, found[0].text) == (3, LINES[3])


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_match_searches_vectors_as_it_searches_their_texts(suffix: str, bert: Path, run_command: RunCommand) -> None:
    """Also those embedded by other options than the default; the texts are embedded once."""
    Path("texts.txt").write_text("".join(f"{text}\n" for text in [*LINES[:4], "", *LINES[4:]]))
    expected = run_command("match", bert, "the red mat", "--in", "texts.txt")[0]
    texts = ["--texts", "texts.txt"] if suffix == "npy" else []
    run_command("embed", bert, "texts.txt", "--out", f"v.{suffix}")
    out, err = run_command("match", bert, "the red mat", "--in", f"v.{suffix}", *texts)
    assert out == expected
    assert "warning: 1 of 11 vectors are those of empty texts; they are not compared" in err
    run_command("embed", bert, "texts.txt", "--out", f"v.{suffix}", "--layers", "0,1", "--pooling", "cls")
    rows = run_command("match", bert, LINES[6], "--in", f"v.{suffix}", "--top", 2, "--json", *texts)[0].splitlines()
    assert json.loads(rows[0]) == {"score": pytest.approx(1), "line": 8, "text": LINES[6]}
    vectors = regard.load(bert, device="cpu").embed(LINES, layers=(0, 1), pooling="cls").astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert json.loads(rows[1])["score"] == pytest.approx(sorted(unit @ unit[6])[-2], abs=1e-5)
    names = None if suffix == "parquet" else Path("texts.txt").read_text().splitlines()
    hits = regard.load(bert, device="cpu").nearest_stored(LINES[6], f"v.{suffix}", names, top=1)
    assert (hits[0].corpus_id, hits[0].text) == (7, LINES[6])


def test_vectors_without_their_texts_give_lines(bert: Path, run_command: RunCommand) -> None:
    run_command("embed", bert, "texts.txt", "--out", "v.npy")
    assert run_command("match", bert, LINES[2], "--in", "v.npy", "--top", 1)[0] == "1.0000\t3\t\n"
    row = json.loads(run_command("match", bert, LINES[2], "--in", "v.npy", "--top", 1, "--json")[0])
    assert row == {"score": pytest.approx(1), "line": 3, "text": None}


def test_vectors_of_others_are_refused(bert: Path, run_command: RunCommand, fail: Fail, tmp_path: Path) -> None:
    task = PretrainingTask(PretrainConfig(length=32), vocabulary())
    other = kept(task, small(task, seed=1), tmp_path / "other")
    on_cpu = ("--device", "cpu")
    for name in ("v.npy", "v.parquet"):
        run_command("embed", bert, "texts.txt", "--out", name)
        message = fail("match", other, "a dog", "--in", name, *on_cpu)
        assert message.startswith(f"{name}: vectors of another model than {other}; embed the texts again: regard embed")
    Path("longer.txt").write_text(Path("texts.txt").read_text() + "one more\n")
    Path("shorter.txt").write_text("".join(f"{text}\n" for text in LINES[:-1]))
    Path("changed.txt").write_text("".join(f"{text}\n" for text in [*LINES[:-1], "another"]))
    for name, problem in {
        "longer.txt": "longer.txt: 11 lines, but v.npy has 10 vectors; embed this file",
        "shorter.txt": "shorter.txt: 9 lines, but v.npy has 10 vectors; embed this file",
        "changed.txt": "changed.txt: not the texts whose vectors are in v.npy; embed this file",
    }.items():
        assert fail("match", bert, "a dog", "--in", "v.npy", "--texts", name, *on_cpu) == problem
    run_command("embed", bert, "texts.txt", "--level", "word", "--out", "w.npy")
    assert fail("match", bert, "a", "--in", "w.npy", *on_cpu).startswith("w.npy: the vectors of words; whole texts are")
    Path("v.npy.json").unlink()
    assert fail("match", bert, "a", "--in", "v.npy", *on_cpu).startswith(
        "v.npy: v.npy.json is missing, which says what"
    )


@pytest.mark.parametrize("name", ["v.npy", "v.npy.json", "v.parquet"])
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_damaged_vectors_are_refused(name: str, damage: str, bert: Path, run_command: RunCommand, fail: Fail) -> None:
    file = name.removesuffix(".json")
    run_command("embed", bert, "texts.txt", "--out", file)
    content = Path(name).read_bytes()
    Path(name).write_bytes(content[: len(content) // 2] if damage == "cut" else b"{}" + bytes(range(200)))
    assert "embed the texts again" in fail("match", bert, "a", "--in", file, "--device", "cpu")


def test_cluster_texts(bert: Path, run_command: RunCommand) -> None:
    pytest.importorskip("matplotlib")
    out, err = run_command("cluster", bert, "texts.txt", "--k", 3, "--seed", 1, "--out", "map.png")
    found = regard.load(bert, device="cpu").cluster(LINES, 3, seed=1)
    assert out.splitlines() == [f"{label}\t{text}" for label, text in zip(found.labels, LINES, strict=True)]
    assert err.splitlines() == [*found.summary_lines(), "written: map.png"]
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    lines = [
        json.loads(line)
        for line in run_command("cluster", bert, "texts.txt", "--k", 3, "--seed", 1, "--json")[0].split("\n")[:-1]
    ]
    assert [each["cluster"] for each in lines[:10]] == found.labels.tolist()
    assert set(lines[0]) == {"text", "cluster", "x", "y"}
    assert [each["size"] for each in lines[10:]] == found.sizes
    run_command("cluster", bert, "texts.txt", "--k", 3, "--out", "map.html")
    run_command("cluster", bert, "texts.txt", "--k", 3, "--out", "map.json")
    names = [array["name"] for array in json.loads(Path("map.json").read_text())["arrays"]]
    assert names == ["map", "cluster"]


def test_map_is_written_when_the_output_pipe_closes(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise RuntimeError("nobody reads")

    monkeypatch.setattr("builtins.print", closed)
    with pytest.raises(RuntimeError, match="nobody reads"):
        main(["cluster", str(bert), "texts.txt", "--k", "2", "--out", "map.json", "--device", "cpu"])
    assert json.loads(Path("map.json").read_text())


def test_look_explains_a_match(bert: Path, run_command: RunCommand) -> None:
    pair = ("the cat sits", "--pair", "a dog runs", "--view", "match")
    score = regard.load(bert, device="cpu").match("the cat sits", "a dog runs")
    out, _ = run_command("look", bert, *pair, "--words")
    assert f"the cosine of the two texts is {score:.4f}, the sum of the contributions of all pairs" in out
    run_command("look", bert, *pair, "--out", "match.json")
    found = json.loads(Path("match.json").read_text())
    assert found["about"]["score"] == pytest.approx(score, abs=1e-6)
    assert np.sum(found["arrays"][0]["values"]) == pytest.approx(score, abs=1e-6)


def test_look_senses_of_a_word(bert: Path, run_command: RunCommand) -> None:
    two = ("the cat sits", "--pair", "a red cat", "--view", "senses", "--word", "cat")
    assert "static vectors of 'cat' are equal" in run_command("look", bert, *two)[0].replace("\n", " ")
    run_command("look", bert, *two, "--corpus", "texts.txt", "--out", "senses.csv")
    n_cats = sum(text.split().count("cat") for text in LINES) + 2
    last = Path("senses.csv").read_text().splitlines()[-1]
    assert f",{n_cats - 1}," in last


MISTAKES: list[tuple[list[str], str]] = [
    (["embed", "texts.txt"], "give --out vectors.npy, --out vectors.parquet, or --json, which prints the vectors"),
    (["embed", "texts.txt", "--json", "--out", "v.npy"], "give --out vectors.npy, --out vectors.parquet, or --json, "),
    (["embed", "texts.txt", "--out", "v.txt"], "v.txt: unknown suffix '.txt'; known: .npy, .parquet"),
    (["embed", "texts.txt", "--out", "no/v.npy"], "no/v.npy: cannot be written: no directory no; make it first"),
    (["embed", "nope.txt", "--out", "v.npy"], "nope.txt: no such file"),
    (["embed", "empty.txt", "--out", "v.npy"], "empty.txt: no texts; give one per line"),
    (["embed", "texts.txt", "--out", "v.npy", "--level", "wrd"], "no level is called 'wrd'; did you mean 'word'?"),
    (["embed", "texts.txt", "--out", "v.npy", "--layers", "9"], "layer 9: this model has 2 layers; 0 is the input of "),
    (["embed", "texts.txt", "--out", "v.npy", "--layers", "last"], "--layers last: expected comma-separated numbers"),
    (
        ["embed", "texts.txt", "--out", "v.npy", "--layers", ""],
        "layers (): expected one layer number or several, or 'static'",
    ),
    (["embed", "texts.txt", "--out", "v.npy", "--pooling", "sum"], "no pooling is called 'sum'; known: cls, mean, att"),
    (["embed", "texts.txt", "--out", "v.npy", "--pooling", "attention"], "this model has learned no attention over it"),
    (["match", "the cat"], "give two texts, or a text and a file with --in"),
    (["match", "the cat", "a dog", "--in", "texts.txt"], "give two texts, or a text and a file with --in"),
    (["match", "the cat", " "], "a text is empty; give at least one word"),
    (["match", "the cat", "--in", "texts.txt", "--top", "0"], "--top 0: expected at least 1 and at most 1,000,000,000"),
    (["match", "the cat", "a dog", "--top", "3"], "--top goes with a file, given with --in, or with one word"),
    (["match", "the cat", "--in", "nope.txt"], "nope.txt: no such file"),
    (["match", "the cat", "--in", "empty.txt"], "empty.txt: no texts; give one per line"),
    (["match", "the cat", "--in", "nope.npy"], "nope.npy: no such file"),
    (
        ["match", "the cat", "--in", "texts.txt", "--texts", "texts.txt"],
        "--texts goes with --in vectors.npy, whose tex",
    ),
    (
        ["match", "the cat", "--in", "v.parquet", "--texts", "texts.txt"],
        "--texts goes with --in vectors.npy, whose tex",
    ),
    (["match", "the cat", "a dog", "--texts", "texts.txt"], "--texts goes with --in vectors.npy, whose texts it names"),
    (["cluster", "texts.txt", "--k", "0"], "--k 0: expected at least 1 and"),
    (["cluster", "texts.txt", "--k", "11"], "--k 11: texts.txt has only 10 texts; ask for fewer clusters"),
    (["cluster", "hole.txt", "--k", "3"], "--k 3: hole.txt has only 2 texts; ask for fewer clusters"),
    (["cluster", "texts.txt"], "Missing option '--k'"),
    (["cluster", "empty.txt", "--k", "1"], "empty.txt: no texts; give one per line"),
    (["cluster", "texts.txt", "--k", "2", "--out", "map.npy"], "map.npy: unknown suffix '.npy'; known: .html, .json, "),
    (["look", "the cat", "--view", "match"], "match compares a TEXT with the text of --pair; give these two"),
    (["look", "--pair", "a", "--view", "match"], "match compares a TEXT with the text of --pair; give these two"),
    (["look", "a", "--pair", "b", "--view", "match", "--layer", "1"], "match compares texts; leave out --layer"),
    (["look", "a", "--pair", "", "--view", "match"], "the text is empty; give at least "),
    (["look", "a", "--pair", "b", "--view", "senses"], "senses compares one word across sentences; give it with --wo"),
    (["look", "a", "--view", "senses", "--word", "cat"], "'cat' occurs nowhere in these texts; give two sentences "),
    (["look", "a cat", "--view", "senses", "--word", "cat"], "'cat' occurs once in these texts; give two sentences "),
    (["look", "--corpus", "nope.txt", "--view", "senses", "--word", "cat"], "nope.txt: no such file"),
    (["look", "the cat", "--word", "cat"], "--word goes with --view senses"),
    (["look", "a", "--pair", "b", "--view", "match", "--out", "m.xyz"], "m.xyz: unknown suffix '.xyz'; known: .html"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(each) for each, _ in MISTAKES])
def test_user_error_is_one_line_and_leaves_no_file(
    arguments: list[str], message: str, fail: Fail, bert: Path, folder: Path
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    verb, *rest = arguments
    assert fail(verb, bert, *rest, "--device", "cpu").startswith(message)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_translator_cannot_embed(fail: Fail, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("translator")
    trained(recipe(folder), folder / "run")
    for verb, arguments in {
        "embed": ["embed", "texts.txt", "--out", "v.npy"],
        "match": ["match", "a", "b"],
        "cluster": ["cluster", "texts.txt", "--k", "2"],
    }.items():
        message = fail(arguments[0], folder / "run", *arguments[1:], "--device", "cpu")
        assert message == f"{folder / 'run'}: a model for translate, which cannot {verb}; use it with: regard translate"
    for view in ("match", "senses"):
        message = fail("look", folder / "run", "a", "--view", view, "--device", "cpu")
        assert message == f"{folder / 'run'}: a model for translate; {view} is a view of encoders only"
