"""The command from end to end, with the smallest of everything: what it prints and leaves, goes on with and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("babel")
pytest.importorskip("matplotlib")

import regard.compare as comparing
from regard import config
from regard.cli import main
from regard.compare import PARTS, translation
from regard.compare.part import Found, Part, Setting
from regard.text import cldr


@pytest.fixture(autouse=True)
def folder(tiny: Path) -> Path:
    return tiny


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


def test_the_four_parts_and_what_they_leave(capsys: pytest.CaptureFixture[str]) -> None:
    compare("--quick")
    out, err = capsys.readouterr()
    for name in comparing.USUAL:
        part, kept = PARTS[name], json.loads(Path(f"compare/{name}.json").read_text(encoding="utf-8"))
        assert part.title in out
        assert part.title.lower() in err
        assert Path(f"compare/{name}.png").read_bytes().startswith(b"\x89PNG")
        for finding in part.show(kept["found"]).findings:
            assert f"\n{finding.verdict}" in out
        assert kept["machine"]["torch"]
        assert kept["seconds"] > 0
    assert not Path("compare/positions.json").exists()
    assert out.index("The cost of a layer") < out.index("Training cost")
    assert "compare/report.html" in err
    runs = sorted(path.name for path in Path("compare/translation").iterdir() if path.is_dir())
    assert runs == ["rnn-additive-attention", "rnn-one-fixed-vector", "transformer-sinusoidal"]
    for name in runs:
        assert config.read(Path(f"compare/translation/{name}.toml"))["train"]["steps"] == 2
        assert Path(f"compare/translation/{name}.translated").read_text(encoding="utf-8").count("\n") == 10
    _whole_page(Path("compare/report.html").read_text(encoding="utf-8"), comparing.USUAL)


def _whole_page(page: str, names: tuple[str, ...]) -> None:
    """Every part, its claim, its verdicts and its figure are in the page; nothing is outside of it."""
    for name in names:
        assert f'<section id="{name}">' in page
        assert f'href="#{name}"' in page
    assert page.count('src="data:image/png;base64,') == len(names)
    assert "How it was measured" in page
    for word in ("processor", "torch", "command"):
        assert f"<dt>{word}</dt>" in page
    places = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert [place for place in places if not place.startswith(("data:", "#"))] == []
    assert not re.search(r"https?://|@import|<script|<link", page)
    assert "{{" not in page


def test_positions_on_translation_and_tagging(capsys: pytest.CaptureFixture[str]) -> None:
    compare("--only", "positions", "--out", "p")
    out = capsys.readouterr().out
    assert "Translation" in out
    assert "Tagging" in out
    found = json.loads(Path("p/positions.json").read_text(encoding="utf-8"))["found"]
    for task in ("translate", "tag"):
        assert [each["name"] for each in found[task]["models"]] == [
            "sinusoidal",
            "learned",
            "relative",
            "rotary",
            "none",
        ]
        schemes = {config.read(path)["model"]["positions"] for path in Path(f"p/positions/{task}").glob("*.toml")}
        assert schemes == {"sinusoidal", "learned", "relative", "rotary", "none"}
    _whole_page(Path("p/report.html").read_text(encoding="utf-8"), ("positions",))


def test_the_users_own_files(capsys: pytest.CaptureFixture[str]) -> None:
    cldr.write(Path(), 120, 5)
    words = Path("train.en").read_text(encoding="utf-8").split()[:400]
    lines = [f"{word} {'B-N' if word[0].isdigit() else 'O'}" for word in words]
    Path("mine.conll").write_text("\n\n".join("\n".join(lines[i : i + 4]) for i in range(0, 400, 4)), encoding="utf-8")
    compare("--only", "positions,flops", "--data", "train.en", "train.fr", "--tagged", "mine.conll", "--out", "own")
    assert "120 pairs" in Path("own/report.html").read_text(encoding="utf-8")
    assert "100 sentences" in Path("own/report.html").read_text(encoding="utf-8")
    assert "Training cost" in capsys.readouterr().out
    sources = Path("train.en").read_text(encoding="utf-8").splitlines()
    parts = [
        Path(f"own/translation/{name}.source").read_text("utf-8").splitlines() for name in ("train", "valid", "test")
    ]
    assert sorted(line for part in parts for line in part) == sorted(sources)


def test_a_finished_part_is_taken_over(capsys: pytest.CaptureFixture[str]) -> None:
    compare("--only", "cost")
    before = Path("compare/cost.json").read_bytes()
    compare("--only", "cost")
    assert "measured before" in capsys.readouterr().err
    assert Path("compare/cost.json").read_bytes() == before


def test_what_was_finished_stays_when_the_rest_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(setting: Setting, found: dict[str, Found]) -> Found:
        raise KeyboardInterrupt

    whole: Part = PARTS["recall"]
    monkeypatch.setitem(PARTS, "recall", whole._replace(measure=interrupted))
    with pytest.raises(SystemExit, match="130"):
        main(["compare", "--only", "cost,recall", "--device", "cpu"])
    assert "the same command goes on" in capsys.readouterr().err
    _whole_page(Path("compare/report.html").read_text(encoding="utf-8"), ("cost",))
    monkeypatch.setitem(PARTS, "recall", whole)
    compare("--only", "cost,recall")
    assert "measured before" in capsys.readouterr().err
    _whole_page(Path("compare/report.html").read_text(encoding="utf-8"), ("cost", "recall"))


def test_a_run_that_was_interrupted_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    train, begun = translation.runs.train, []

    def stops(name: str, *rest: object) -> object:
        begun.append(name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return train(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(translation.runs, "train", stops)
    with pytest.raises(SystemExit, match="130"):
        main(["compare", "--only", "translation", "--device", "cpu"])
    kept = Path("compare/translation/transformer-sinusoidal/metrics.json").read_bytes()
    monkeypatch.setattr(translation.runs, "train", train)
    compare("--only", "translation")
    assert Path("compare/translation/transformer-sinusoidal/metrics.json").read_bytes() == kept


def test_without_matplotlib_there_are_tables_and_no_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    compare("--only", "cost")
    out, err = capsys.readouterr()
    assert "no figure: a figure needs the extra 'plot'; run: pip install 'regard[plot]'" in err
    assert "How time grows" in out
    assert "<img" not in Path("compare/report.html").read_text(encoding="utf-8")


def test_unknown_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no part is called 'costs'; did you mean 'cost'?" in refused(capsys, "--only", "costs")
    assert not Path("compare").exists()


def test_files_that_do_not_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a").write_text("x\n" * 200, encoding="utf-8")
    Path("b").write_text("y\n" * 199, encoding="utf-8")
    assert "a: 200 lines, but b has 199" in refused(capsys, "--data", "a", "b")
    assert "no such file" in refused(capsys, "--data", "a", "nowhere")
    Path("c").write_text("y\n" * 20, encoding="utf-8")
    assert "20 examples; a comparison needs 100 at least" in refused(capsys, "--data", "c", "c")
    assert not Path("compare").exists()


def test_a_folder_that_is_there_already(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear", encoding="utf-8")
    assert "mine: already there, and no comparison" in refused(capsys, "--out", "mine")
    assert "mine/letter.txt: already there" in refused(capsys, "--out", "mine/letter.txt")
    compare("--only", "cost")
    assert "a comparison with seed 0 is there, not 1" in refused(capsys, "--only", "cost", "--seed", "1")
    assert "a comparison with pace 'full' is there, not 'quick'" in refused(capsys, "--quick")


def test_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert "seed -1" in refused(capsys, "--seed", "-1")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--device", "abacus"])
    assert ended.value.code == 2
    assert "device 'abacus' is unknown" in capsys.readouterr().err
    assert not Path("compare").exists()


def test_a_damaged_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    compare("--only", "cost")
    Path("compare/cost.json").write_text("{}", encoding="utf-8")
    assert "cost.json: not a part of a comparison" in refused_later(capsys, "--only", "cost")


def refused_later(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Refused after something was said."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--device", "cpu", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]
