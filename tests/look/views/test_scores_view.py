"""The views of scores and of alternative attention: what they hold, how masked cells are marked, what they say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from sample_targets import one_stack, translator
from torch.testing import assert_close

from regard.look.inspection import Inspection
from regard.look.render.terminal import MASKED_CELL, render_text
from regard.look.views import alternative_view
from regard.look.views.view_data import Axis, ViewArray, merge_array_subwords
from regard.text.subwords import Word


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_softmax_of_the_masked_scores_is_the_attention(kind: str) -> None:
    seen = Inspection(translator(5, 4))
    masked, mask = seen.scores(kind), seen.attention_mask(kind)
    assert_close(masked.nan_to_num(-math.inf, -math.inf).softmax(-1), seen.attention(kind))
    assert torch.equal(masked.isnan(), ~mask.expand_as(masked))
    unmasked = seen.scores(kind, masked=False)
    assert unmasked.isfinite().all()
    assert torch.equal(unmasked[..., mask], masked[..., mask])


def test_masked_cells_are_marked_in_json_and_terminal_and_hatched_in_a_figure(tmp_path: Path) -> None:
    seen = Inspection(one_stack("decoder", 4))
    data = seen.view_data("scores")
    assert [array.name for array in data.arrays] == ["scores", "masked_scores"]
    written = json.loads(seen.save(tmp_path / "scores.json", "scores").read_text(encoding="utf-8"))
    values = written["arrays"][1]["values"][0][0]
    assert [[cell is None for cell in row] for row in values] == [
        [key > query for key in range(4)] for query in range(4)
    ]
    text = render_text(data, 80)
    assert text.count(MASKED_CELL.strip()) == 6 + 1  # cells right of the diagonal, and the legend
    assert "6 of 16 cells are masked" in data.notes["scores"][0]
    assert (
        "NaN"
        not in seen.save(tmp_path / "scores.html", "scores").read_text(encoding="utf-8").split("const INPUT_AXES")[0]
    )


def test_a_figure_hatches_masked_cells_only(drawn) -> None:  # type: ignore[no-untyped-def]
    decoder, encoder = (drawn(Inspection(one_stack(stack, 4)).view_data("scores")) for stack in ("decoder", "encoder"))
    hatched = [
        bool(axes.patch.get_hatch()) for axes in decoder.findobj(lambda part: hasattr(part, "patch") and part.axes)
    ]
    assert any(hatched)
    assert not all(hatched)
    assert not any(
        axes.patch.get_hatch() for axes in encoder.findobj(lambda part: hasattr(part, "patch") and part.axes)
    )


def test_scores_of_an_encoder_have_no_mask_and_name_their_range() -> None:
    seen = Inspection(one_stack("encoder", 4))
    data = seen.view_data("scores", layer=0, head=1)
    (array,) = data.arrays
    assert_close(array.values[0, 0], seen.scores()[0, 1])
    scores = seen.scores()
    assert data.notes["scores"][0].startswith(f"encoder: scores from {scores.min():.3g} to {scores.max():.3g}; ")
    assert data.notes["scores"][0].endswith("no cell is masked")


def test_scores_of_subwords_are_averaged_over_visible_cells() -> None:
    values = torch.tensor([[1.0, 3.0, math.nan], [2.0, 6.0, 4.0], [0.0, 1.0, 2.0]])
    array = ViewArray(
        "scores", "decoder", "masked_scores", (Axis("query", ("d",)), Axis("key", ("d",))), values, "score"
    )
    words = {"d": [Word("a", (0,)), Word("bc", (1, 2))]}
    assert_close(merge_array_subwords(array, words).values, torch.tensor([[1.0, 3.0], [1.0, 3.25]]))


def test_the_alternative_is_beside_the_weights_of_the_model() -> None:
    seen = Inspection(one_stack("encoder", 9))
    data = seen.view_data("alternative")
    own, other, distance, difference = data.arrays
    assert torch.equal(own.values, seen.attention())
    assert_close((own.values - other.values).abs().sum(-1) / 2, distance.values)
    assert difference.values.max() < 1e-12
    first, changed, farthest = data.notes["alternative"]
    assert first.startswith("encoder: 4 of 4 heads have other valid weights (9 keys, rank of [T 1] 5): ")
    assert f"{distance.values.mean():.2f} on average and {distance.values.max():.2f} at most" in first
    assert "the output of the model changes by" in changed
    layer, head = divmod(int(distance.values.mean(-1).argmax()), 2)
    assert farthest.endswith(f"--layer {layer} --head {head}")
    assert "other weights with the same output" in render_text(data, 80)


def test_it_is_said_when_no_other_weights_are_valid() -> None:
    data = Inspection(one_stack("encoder", 4)).view_data("alternative")
    assert data.notes["alternative"] == [
        "encoder: only the model's own weights are valid in every head (4 keys, rank of [T 1] 4): no alternative exists"
    ]
    assert_close(data.arrays[0].values, data.arrays[1].values, rtol=0, atol=1e-12)
    assert data.arrays[2].values.max() < 1e-12


def test_a_long_search_is_of_one_head_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternative_view, "MAX_SEARCH_SIZE", 10)
    data = Inspection(one_stack("encoder", 9)).view_data("alternative")
    assert data.arrays[1].values.shape == (1, 1, 9, 9)
    layer, head = (axis.labels[0] for axis in data.arrays[1].axes[:2])
    assert f"only this head is searched (--layer {layer} --head {head}), as all 4 would" in data.notes["alternative"][0]
