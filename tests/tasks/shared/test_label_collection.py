"""Labels of a corpus: columns that were swapped are refused, doubtful ones warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.corpus import Corpus, DataConfig
from regard.data.labels import Labels
from regard.errors import DataError
from regard.tasks.classify import LabelledReader
from regard.tasks.shared.label_collection import collect_labels


def collect(rows: list[tuple[str, ...]], header: str = "", entry: str = "", columns: tuple[str, ...] = ()) -> Labels:
    """Write a table in the current directory, and collect its labels."""
    lines = [*([header] if header else []), *("\t".join(row) for row in rows)]
    Path("t.tsv").write_text("\n".join(lines) + "\n")
    data = DataConfig(train=(entry or "t.tsv",), columns=columns, max_length=8)
    return collect_labels(Corpus(LabelledReader(), data, "test"), is_regression=False)


def texts(n_different: int, n_examples: int) -> list[tuple[str, str]]:
    """Return a label, then a text, of which so many are different."""
    return [("good" if n % 2 else "bad", f"story {n % n_different}") for n in range(n_examples)]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_swapped_columns_are_refused_with_the_columns_to_ask_for(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError) as error:
        collect(texts(95, 100), columns=("1", "2"))
    read = "95 different labels in 100 examples, with columns 1,2 as text and label"
    assert str(error.value) == f"t.tsv: {read}; to swap them: --columns 2,1"
    assert capfd.readouterr().err == ""
    assert collect(texts(95, 100), columns=("2", "1")).names == ("bad", "good")


@pytest.mark.parametrize(
    ("header", "entry", "advice"),
    [("text\tlabel", "", "--columns label,text"), ("a\tb", "t.tsv:a,b", "t.tsv:b,a"), ("", "t.tsv:1,2", "t.tsv:2,1")],
)
def test_advice_asks_for_columns_as_they_were_asked_for(header: str, entry: str, advice: str) -> None:
    with pytest.raises(DataError) as error:
        collect(texts(40, 40), header, entry)
    assert str(error.value).endswith(f"; to swap them: {advice}")


def test_pairs_stay_between_text_and_label() -> None:
    with pytest.raises(DataError, match=r"with columns 1,2,3 as text, pair and label; to swap them: --columns 3,2,1$"):
        collect([(label, "so", text) for label, text in texts(40, 40)], columns=("1", "2", "3"))


def test_labels_that_repeat_now_and_then_are_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    assert len(collect(texts(80, 100), columns=("1", "2"))) == 80
    assert capfd.readouterr().err == "warning: 80 labels for 100 examples; is it the right column?\n"


def test_few_examples_and_numbers_are_not_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert len(collect(texts(20, 20), columns=("1", "2"))) == 20
    assert capfd.readouterr().err == ""
    assert len(collect([(text, str(n)) for n, (_, text) in enumerate(texts(40, 40))], columns=("1", "2"))) == 40
    assert "40 labels for 40 examples" in capfd.readouterr().err
