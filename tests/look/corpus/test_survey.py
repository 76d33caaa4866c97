"""Identifiability over many texts: correlation by its definition, every text in one bin, and all forms of a survey."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from sample_targets import translator
from torch.testing import assert_close

from regard.errors import InputError
from regard.look.corpus.survey import (
    MAX_BINS,
    IdentifiabilitySurvey,
    KindSurvey,
    head_correlation,
    survey_identifiability,
)
from regard.look.inspection import Inspection

LENGTHS = [(2, 2), (3, 5), (7, 4), (9, 9), (12, 6), (12, 3)]


@pytest.fixture(scope="module")
def found() -> IdentifiabilitySurvey:
    return survey_identifiability(
        [translator(*lengths) for lengths in LENGTHS], ["encoder", "decoder", "cross"], {"model": "m"}
    )


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_correlation_of_every_head_is_that_of_its_visible_entries(found: IdentifiabilitySurvey, kind: str) -> None:
    seen = Inspection(translator(9, 9))  # text 3
    raw, effective, mask = seen.attention(kind), seen.effective_attention(kind), seen.attention_mask(kind)
    for layer in range(2):
        for head in range(2):
            pairs = [
                (float(raw[layer, head, query, key]), float(effective[layer, head, query, key]))
                for query in range(9)
                for key in range(9)
                if kind != "decoder" or key <= query
            ]
            expected = np.corrcoef(*zip(*pairs, strict=True))[0, 1]
            assert math.isclose(found.kinds[kind].correlation[3, layer, head], expected, abs_tol=1e-6)
            assert expected < 0.999
    assert_close(head_correlation(raw, effective, mask), found.kinds[kind].correlation[3])
    assert_close(found.kinds[kind].null_fraction[3], seen.identifiability(kind).null_fraction.mean(-1))


def test_equal_weights_correlate_fully_and_constant_weights_do_not() -> None:
    one_entry, flat = torch.ones(1, 1, 1, 1), torch.full((1, 1, 2, 2), 0.5)
    assert head_correlation(one_entry, one_entry, torch.ones(1, 1, dtype=torch.bool)).tolist() == [[1.0]]
    assert head_correlation(flat, flat, torch.ones(2, 2, dtype=torch.bool)).tolist() == [[1.0]]
    assert head_correlation(flat, torch.eye(2)[None, None], torch.ones(2, 2, dtype=torch.bool)).tolist() == [[0.0]]


def test_survey_counts_keys_and_value_width(found: IdentifiabilitySurvey) -> None:
    assert {kind.d_value for kind in found.kinds.values()} == {4}
    assert found.kinds["encoder"].keys.tolist() == [source for source, _ in LENGTHS]
    assert found.kinds["decoder"].keys.tolist() == [target for _, target in LENGTHS]
    assert found.kinds["cross"].keys.tolist() == [source for source, _ in LENGTHS]
    short = found.kinds["encoder"].keys <= 4
    assert (found.kinds["encoder"].correlation[short] == 1).all()
    assert (found.kinds["encoder"].correlation[~short] < 1).all()


def kind_of(keys: list[int], values: Any = None) -> KindSurvey:
    numbers = torch.rand(len(keys), 2, 3) if values is None else torch.tensor(values)[:, None, None].expand(-1, 2, 3)
    return KindSurvey(4, torch.tensor(keys), numbers, numbers)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_bins_have_every_text_once_and_are_equally_wide(keys: list[int]) -> None:
    kind = kind_of(keys)
    bins = [texts.tolist() for texts in kind.length_bins()]
    assert sorted(text for texts in bins for text in texts) == list(range(len(keys)))
    assert all(bins)
    assert len(bins) <= MAX_BINS
    step = (max(keys) - min(keys)) // MAX_BINS + 1
    spans = [[(keys[text] - min(keys)) // step for text in texts] for texts in bins]
    assert all(len(set(span)) == 1 for span in spans)
    assert [span[0] for span in spans] == sorted({(key - min(keys)) // step for key in keys})
    curve = kind.build_curve(kind.correlation)
    assert all(0 <= low <= y <= high <= 1 for y, low, high in zip(*curve[1:], strict=True))


def test_a_curve_is_the_mean_of_its_bin_and_its_interval() -> None:
    x, y, low, high = kind_of([1, 1, 1, 13, 14], [0.2, 0.4, 0.6, 0.99, 0.1]).build_curve(
        torch.tensor([0.2, 0.4, 0.6, 0.99, 0.1])[:, None, None].expand(-1, 2, 3)
    )
    assert x == [1.0, 13.5]
    np.testing.assert_allclose(y, [0.4, 0.545], rtol=1e-6)
    np.testing.assert_allclose([low[0], high[0]], [0.4 - 1.96 * 0.2 / 3**0.5, 0.4 + 1.96 * 0.2 / 3**0.5], rtol=1e-6)
    assert (low[1], high[1]) == (0.0, 1.0)  # cut where a share ends


def test_lines_are_a_table_by_length(found: IdentifiabilitySurvey) -> None:
    lines = list(found.summary_lines())
    assert lines[0] == "encoder: values have 4 dimensions; with more keys weights are not identifiable"
    assert lines[1].split() == ["keys", "texts", "correlation", "no", "effect"]
    kind = found.kinds["encoder"]
    assert lines[2].split() == ["2", "1", "1.0000", "0.0%"]
    last = kind.keys == 12
    expected = ["12", "2", f"{kind.correlation[last].mean():.4f}", f"{kind.null_fraction[last].mean():.1%}"]
    assert lines[lines.index(next(line for line in lines if line.startswith("decoder"))) - 1].split() == expected


def test_all_numbers_are_saved(found: IdentifiabilitySurvey, tmp_path: Path) -> None:
    written = json.loads(found.save(tmp_path / "lengths.json").read_text(encoding="utf-8"))
    assert written["about"] == {"model": "m"}
    for array in written["arrays"]:
        expected = getattr(found.kinds[array["kind"]], array["name"])
        assert torch.equal(torch.tensor(array["values"], dtype=expected.dtype), expected)
    numbers = sum(6 + 2 * 6 * 2 * 2 for _ in found.kinds)
    assert len(found.save(tmp_path / "lengths.csv").read_text(encoding="utf-8").splitlines()) == 1 + numbers


def test_a_figure_has_a_panel_for_each_kind_and_its_legend_fits(
    found: IdentifiabilitySurvey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    save = figures.Figure.savefig
    monkeypatch.setattr(figures.Figure, "savefig", lambda self, *a, **b: (drawn.append(self), save(self, *a, **b)))
    assert found.save(tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
    one = IdentifiabilitySurvey({"encoder": found.kinds["encoder"]}, {})
    one.save(tmp_path / "one.svg")
    for figure, n_panels in zip(drawn, (3, 1), strict=True):
        assert len(figure.axes) == n_panels
        legend = figure.legends[0].get_window_extent()
        assert legend.x0 >= 0
        assert legend.x1 <= figure.bbox.width
        for axes in figure.axes:
            x, y = axes.lines[0].get_data()
            assert list(x) == sorted(x)
            assert max(y) <= 1


def test_a_survey_has_no_page(found: IdentifiabilitySurvey, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a page shows one text; write .png, .svg, .pdf, .json or .csv$"):
        found.save(tmp_path / "lengths.html")
    with pytest.raises(InputError, match=r"cannot be written: no directory "):
        found.save(tmp_path / "no" / "lengths.json")
