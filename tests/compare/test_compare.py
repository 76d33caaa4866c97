"""`regard compare` end to end at tiny sizes: output, files, resuming and errors."""

from __future__ import annotations

import html
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("babel")
pytest.importorskip("matplotlib")

import regard
import regard.compare as comparing
from regard import config
from regard.cli import main
from regard.compare import EXPERIMENTS
from regard.compare.compared_models import (
    FINAL_VECTOR_MODELS,
    LANGUAGE_MODELS,
    POSITION_SCHEMES,
    RNN_MODELS,
    TRANSFORMER_MODELS,
)
from regard.compare.experiment import ComparisonSettings, Experiment, Measurements
from regard.demo import cldr_corpus as cldr
from regard.errors import InputError


class Finished(NamedTuple):
    """A finished comparison in a directory "compare", and its output."""

    path: Path
    out: str
    err: str

    def read_measurements(self, name: str) -> Measurements:
        numbers: Measurements = json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))["found"]
        return numbers


@pytest.fixture(scope="module")
def finished(tiny_sizes: None, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run the five default experiments once for all tests that read them or resume from a copy."""
    folder = tmp_path_factory.mktemp("finished")
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.chdir(folder)
        compare("--quick")
    return Finished(folder / "compare", out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def folder(tiny: Path) -> Path:
    return tiny


@pytest.fixture
def copied(finished: Finished, folder: Path) -> Path:
    """Return a copy of the finished comparison, to be resumed or damaged."""
    return shutil.copytree(finished.path, folder / "compare")


def compare(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--device", "cpu", *arguments])
    assert not ended.value.code


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--device", "cpu", *arguments])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert len(err.splitlines()) == 1, err
    return err


def test_four_default_experiments_write_their_files(finished: Finished) -> None:
    path, out, err = finished
    for name in comparing.DEFAULT_EXPERIMENTS:
        experiment, result = EXPERIMENTS[name], json.loads((path / f"{name}.json").read_text(encoding="utf-8"))
        assert experiment.title in out
        assert experiment.title.lower() in err
        assert (path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        for finding in experiment.summarise(result["found"]).findings:
            assert f"\n{finding.verdict}" in out
        assert result["machine"]["torch"]
        assert result["seconds"] > 0
    assert not (path / "positions.json").exists()
    assert out.index("The cost of a layer") < out.index("Training cost")
    assert "compare/report.html" in err
    runs = sorted(each.name for each in (path / "translation").iterdir() if each.is_dir())
    assert runs == ["rnn-additive-attention", "rnn-one-fixed-vector", "transformer-sinusoidal"]
    for name in runs:
        assert config.read(path / f"translation/{name}.toml")["train"]["steps"] == 2
        assert (path / f"translation/{name}.translated").read_text(encoding="utf-8").count("\n") == 10
    _whole_page((path / "report.html").read_text(encoding="utf-8"), comparing.DEFAULT_EXPERIMENTS)


def test_every_layer_is_timed_and_reported(finished: Finished) -> None:
    numbers = finished.read_measurements("cost")
    assert len(numbers["times"]) == 4 * 2 * 2 * 4  # layers, passes, widths, lengths
    assert all(len(each["seconds"]) >= 3 and min(each["seconds"]) > 0 for each in numbers["times"])
    shown = EXPERIMENTS["cost"].summarise(numbers)
    assert [len(table.rows) for table in shown.tables] == [16, 4, 4, 4]
    assert all(len(row) == len(table.columns) for table in shown.tables for row in table.rows)


def test_every_architecture_is_trained_to_copy_and_reported(finished: Finished) -> None:
    names = [*RNN_MODELS, *TRANSFORMER_MODELS, *LANGUAGE_MODELS]
    numbers = finished.read_measurements("recall")
    assert [each["name"] for each in numbers["models"]] == names
    assert all(0 <= n <= 5 * d for each in numbers["models"] for n, d in zip(each["right"], (1, 2, 4), strict=True))
    (table,) = EXPERIMENTS["recall"].summarise(numbers).tables
    assert [row[0] for row in table.rows] == names


def _whole_page(page: str, names: tuple[str, ...]) -> None:
    """Check that the page holds every experiment with claim, verdicts and figure, and refers to nothing outside."""
    for name in names:
        assert f'<section id="{name}">' in page
        assert f'href="#{name}"' in page
    assert page.count('src="data:image/png;base64,') == len(names)
    assert "How it was measured" in page
    for word in ("processor", "torch", "command"):
        assert f"<dt>{word}</dt>" in page
    references = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert [reference for reference in references if not reference.startswith(("data:", "#"))] == []
    assert not re.search(r"https?://|@import|<script|<link", page)
    assert "{{" not in page


def test_finished_experiment_is_reused(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (copied / "cost.json").read_bytes()
    compare("--quick", "--only", "cost")
    assert "measured before" in capsys.readouterr().err
    assert (copied / "cost.json").read_bytes() == before


def test_comparison_from_python(copied: Path) -> None:
    comparison = regard.compare_architectures(copied, only=["cost", "recall"], quick=True, device="cpu")
    assert list(comparison.results) == ["cost", "recall"]
    numbers = json.loads((copied / "cost.json").read_text(encoding="utf-8"))["found"]
    assert comparison.measurements("cost") == numbers
    assert comparison.findings["cost"] == EXPERIMENTS["cost"].summarise(numbers).findings
    verdicts = [finding.verdict for findings in comparison.findings.values() for finding in findings]
    assert repr(comparison).startswith(f"Comparison('{copied}', cost, recall: {verdicts.count(verdicts[0])} ")
    assert EXPERIMENTS["recall"].title in str(comparison)


def test_notebook_displays_the_report(copied: Path) -> None:
    comparison = regard.compare_architectures(copied, only="cost", quick=True, device="cpu")
    (srcdoc,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', comparison._repr_html_())
    assert html.unescape(srcdoc) == comparison.report_path.read_text(encoding="utf-8")


@pytest.mark.parametrize("data", ["train.en", ["train.en"]])
def test_python_data_must_be_two_files(data: str | list[str]) -> None:
    with pytest.raises(InputError, match="expected two parallel files"):
        regard.compare_architectures("other", data=data)
    with pytest.raises(InputError, match="no part is called 'cots'; did you mean 'cost'"):
        regard.compare_architectures("other", only="cots")


def test_finished_experiments_survive_an_interruption(
    finished: Finished, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(settings: ComparisonSettings, measurements: dict[str, Measurements]) -> Measurements:
        raise KeyboardInterrupt

    def known(name: str) -> Experiment:
        """Return an experiment that copies existing measurements and figure."""

        def copy_figure(measurements: Measurements, path: Path) -> Path:
            return Path(shutil.copy(finished.path / f"{name}.png", path))

        return EXPERIMENTS[name]._replace(measure=lambda *_: finished.read_measurements(name), plot=copy_figure)

    monkeypatch.setitem(EXPERIMENTS, "cost", known("cost"))
    monkeypatch.setitem(EXPERIMENTS, "recall", EXPERIMENTS["recall"]._replace(measure=interrupt))
    with pytest.raises(SystemExit, match="130"):
        main(["compare", "--only", "cost,recall", "--device", "cpu"])
    assert "the same command resumes" in capsys.readouterr().err
    _whole_page(Path("compare/report.html").read_text(encoding="utf-8"), ("cost",))
    monkeypatch.setitem(EXPERIMENTS, "recall", known("recall"))
    compare("--only", "cost,recall")
    assert "measured before" in capsys.readouterr().err
    _whole_page(Path("compare/report.html").read_text(encoding="utf-8"), ("cost", "recall"))


def test_finished_run_is_not_trained_again(copied: Path) -> None:
    """The experiment was interrupted during its last run."""
    (copied / "translation.json").unlink()
    shutil.rmtree(copied / "translation/rnn-additive-attention")
    metrics = copied / "translation/transformer-sinusoidal/metrics.json"
    before = metrics.read_bytes()
    compare("--quick", "--only", "translation")
    assert metrics.read_bytes() == before
    assert (copied / "translation/rnn-additive-attention/metrics.json").exists()
    assert (copied / "translation.json").exists()


def test_without_matplotlib_tables_are_printed_and_figures_skipped(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for figure in copied.glob("*.png"):
        figure.unlink()
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    compare("--quick", "--only", "cost")
    out, err = capsys.readouterr()
    assert "no figure: a figure needs the extra 'plot'; run: pip install 'regard[plot]'" in err
    assert "Growth of time" in out
    assert "<img" not in (copied / "report.html").read_text(encoding="utf-8")


def test_existing_directories_with_other_content_are_refused(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear", encoding="utf-8")
    assert "mine: exists and is not a comparison" in refused(capsys, "--out", "mine")
    assert "mine/letter.txt: not a directory; choose another --out" in refused(capsys, "--out", "mine/letter.txt")
    assert "holds a comparison with seed 0, not 1" in refused(capsys, "--quick", "--seed", "1")
    assert "holds a comparison with pace 'quick', not 'full'" in refused(capsys)


def test_damaged_result_is_named(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copied / "cost.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--device", "cpu", "--quick", "--only", "cost"])
    assert ended.value.code == 2
    assert "cost.json: not a part of a comparison" in capsys.readouterr().err.splitlines()[-1]


def test_positions_and_flops_on_user_files(capsys: pytest.CaptureFixture[str]) -> None:
    cldr.write_corpus(Path(), 120, 5)
    words = Path("train.en").read_text(encoding="utf-8").split()
    sentences = [[*words[4 * number : 4 * number + 4], str(number)] for number in range(100)]
    lines = [[f"{word} {'B-N' if word[0].isdigit() else 'O'}" for word in sentence] for sentence in sentences]
    Path("mine.conll").write_text("\n\n".join("\n".join(each) for each in lines), encoding="utf-8")
    _write_labelled_and_questions(words)
    own = ("--data", "train.en", "train.fr", "--tagged", "mine.conll", "--out", "own")
    own += ("--labelled", "mine.tsv", "--questions", "mine.jsonl")
    compare("--only", "positions,flops", *own)
    out = capsys.readouterr().out
    for title in ("Training cost", "Translation", "Tagging", "Sequence classification", "Span extraction"):
        assert f"\n{title}\n" in out
    page = Path("own/report.html").read_text(encoding="utf-8")
    assert "120 pairs" in page
    assert "100 sentences" in page
    assert "110 labelled texts" in page
    assert "100 questions (10 more repeat a source and are left out)" in page
    _whole_page(page, ("translation", "flops", "positions"))
    measurements = json.loads(Path("own/positions.json").read_text(encoding="utf-8"))["found"]
    for task, n_seeds in (("translate", 1), ("tag", 1), ("classify", 1), ("qa", 2)):
        assert [each["name"] for each in measurements[task]["models"]] == [*POSITION_SCHEMES] * n_seeds
        recipes = [config.read(path) for path in Path(f"own/positions/{task}").glob("seed-*/*.toml")]
        trained = {(recipe["model"]["positions"], recipe["train"]["seed"]) for recipe in recipes}
        assert trained == {(scheme, seed) for scheme in POSITION_SCHEMES for seed in range(n_seeds)}
    with Path("train.fr").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert "own: holds a comparison on other contents of the data files" in refused(capsys, *own)


def _write_labelled_and_questions(words: list[str]) -> None:
    """Write 110 labelled texts, and 110 questions of which ten ask about a context again."""
    texts = [f"{words[number]} {number}" for number in range(110)]
    rows = [f"{text}\t{'even' if number % 2 else 'odd'}" for number, text in enumerate(texts)]
    Path("mine.tsv").write_text("\n".join(("text\tlabel", *rows)), encoding="utf-8")
    contexts = [*texts[:100], *texts[:10]]
    questions = [{"question": "how many?", "context": text, "answers": [text.split()[-1]]} for text in contexts]
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")


def test_comparisons_of_before_are_resumed(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their settings have neither labelled texts nor questions, so these must not be given to resume them."""
    assert {"labelled", "questions"} & json.loads((copied / "compare.json").read_text(encoding="utf-8")).keys() == set()
    Path("mine.tsv").write_text("text\tlabel\na\tb\n", encoding="utf-8")
    assert "with labelled None, not 'mine.tsv'" in refused(capsys, "--quick", "--labelled", "mine.tsv")


def test_every_final_vector_is_measured_and_reported(finished: Finished) -> None:
    numbers = finished.read_measurements("distance")
    assert [each["name"] for each in numbers["models"]] == list(FINAL_VECTOR_MODELS)
    assert all(len(each["runs"]) == 2 for each in numbers["models"])
    shown = EXPERIMENTS["distance"].summarise(numbers)
    assert [len(table.rows) for table in shown.tables] == [4, 4]
    assert all(len(row) == len(table.columns) for table in shown.tables for row in table.rows)


def test_unknown_experiments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no part is called 'costs'; did you mean 'cost'?" in refused(capsys, "--only", "costs")
    assert not Path("compare").exists()


def test_files_of_different_lengths_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a").write_text("x\n" * 200, encoding="utf-8")
    Path("b").write_text("y\n" * 199, encoding="utf-8")
    assert "a: 200 lines, but b has 199" in refused(capsys, "--data", "a", "b")
    assert "no such file" in refused(capsys, "--data", "a", "nowhere")
    Path("c").write_text("".join(f"{n}\n" for n in range(20)), encoding="utf-8")
    assert "20 examples; a comparison needs 100 at least" in refused(capsys, "--data", "c", "c")
    assert not Path("compare").exists()


def test_bad_settings_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "seed -1" in refused(capsys, "--seed", "-1")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--device", "abacus"])
    assert ended.value.code == 2
    assert "device 'abacus' is unknown" in capsys.readouterr().err
    assert not Path("compare").exists()
