"""Attention against gradients and removal: correlation and importance by their definitions, and the paired table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sample_targets import one_stack, translator
from torch.testing import assert_close

from regard.errors import InputError
from regard.look.compute.gradients import compute_gradients
from regard.look.compute.jvp import record_inputs, replace_inputs
from regard.look.compute.output_importance import gradient_importance, removal_importance
from regard.look.corpus.effective_survey import EffectiveSurvey, kendall_tau, survey_effective_attention
from regard.look.inspection import Inspection


def plain_tau(one: list[float], other: list[float]) -> float:
    """Kendall's tau-b, pair by pair."""
    concordant = ties_one = ties_other = pairs = 0
    for i in range(len(one)):
        for j in range(i):
            a, b = one[i] - one[j], other[i] - other[j]
            pairs += 1
            concordant += (a * b > 0) - (a * b < 0)
            ties_one += a == 0
            ties_other += b == 0
    return concordant / ((pairs - ties_one) * (pairs - ties_other)) ** 0.5


def test_kendall_tau_is_that_of_the_pairs_of_visible_entries() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randint(0, 4, (5, 7), generator=generator).double() for _ in range(2))  # with ties
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2, 4:] = mask[3, :3] = False
    for row, tau in enumerate(kendall_tau(one, other, mask).tolist()):
        expected = plain_tau(one[row][mask[row]].tolist(), other[row][mask[row]].tolist())
        assert tau == pytest.approx(expected, abs=1e-12)
    assert kendall_tau(torch.ones(1, 3), torch.rand(1, 3), mask[:1, :3]).isnan().all()


def test_removal_of_a_prediction_is_the_change_of_its_log_probability() -> None:
    target = translator(4, 3)
    inputs, found = record_inputs(target), removal_importance(target)
    assert found.shape == (7, 3)
    whole = target.explained_outputs()
    for number, (side, place) in enumerate([*(("encoder", i) for i in range(4)), *(("decoder", i) for i in range(3))]):
        changed = inputs[side].clone()
        changed[0, place] = 0
        with torch.no_grad(), replace_inputs(target, {**inputs, side: changed}):
            assert_close(found[number], (whole - target.explained_outputs()).abs(), rtol=1e-8, atol=1e-12)


def test_removal_of_vectors_is_the_length_of_their_change() -> None:
    target = replace(one_stack("encoder", 4), head=None)
    inputs, found = record_inputs(target), removal_importance(target)
    changed = inputs["encoder"].clone()
    changed[0, 2] = 0
    with torch.no_grad():
        whole = target.run_layers()[0]
        with replace_inputs(target, {"encoder": changed}):
            assert_close(found[2], (whole - target.run_layers()[0]).norm(dim=-1), rtol=1e-8, atol=1e-12)


def test_gradients_are_gradient_x_input_of_predictions_and_attribution_of_vectors() -> None:
    target = one_stack("decoder", 4)
    assert_close(gradient_importance(target), compute_gradients(target, 1).gradient_x_input.abs())
    vectors = replace(target, head=None)
    assert_close(gradient_importance(vectors), Inspection(vectors).attribution(stack="decoder"))  # 8 of 8 directions


@pytest.fixture(scope="module")
def survey() -> EffectiveSurvey:
    targets = [translator(source, target, seed=source) for source, target in ((3, 3), (4, 4), (8, 7), (9, 9), (10, 8))]
    about = {"model": "m", "texts": 5, "tokens": 65, "seed": 3}
    return survey_effective_attention(targets, ["encoder", "decoder", "cross"], about)


def test_correlations_are_means_over_queries_of_each_head(survey: EffectiveSurvey) -> None:
    assert list(survey.kinds) == ["decoder", "cross"]  # the queries of the encoder are not the output
    seen = Inspection(translator(9, 9, seed=9))
    removal = removal_importance(seen.look_target)
    for kind, inputs in (("decoder", removal[9:]), ("cross", removal[:9])):
        for name, weights in (("raw", seen.attention(kind)), ("effective", seen.effective_attention(kind).abs())):
            taus = []
            for query in range(9):
                keys = query + 1 if kind == "decoder" else 9
                if keys > 1:
                    taus.append(plain_tau(weights[1, 0, query, :keys].tolist(), inputs[:keys, query].tolist()))
            assert float(getattr(survey.kinds[kind], name)["removal"][3, 1, 0]) == pytest.approx(
                sum(taus) / len(taus), abs=1e-6
            )


def test_short_texts_are_equal_and_long_ones_tested(survey: EffectiveSurvey) -> None:
    kind = survey.kinds["cross"]
    assert kind.keys.tolist() == [3, 4, 8, 9, 10]
    short, long = torch.tensor([0, 1]), torch.tensor([2, 3, 4])
    assert kind.test_difference("removal", short).p == 1.0
    difference = (kind.effective["removal"] - kind.raw["removal"]).double().mean((1, 2))[long]
    test = kind.test_difference("removal", long)
    assert test.t == pytest.approx(float(difference.mean() / (difference.std() / 3**0.5)))
    lines = list(survey.summary_lines())
    assert lines[0] == "5 texts, 65 tokens, seed 3"
    table = lines[lines.index("cross: values have 4 dimensions; with more keys raw and effective attention differ") :]
    assert table[3].split()[:2] == ["3", "1"]
    assert table[4].endswith("+0.0000 (one text)")
    assert any(line.split()[:2] == ["all", "5"] for line in table)


def test_all_numbers_and_a_figure_are_saved(survey: EffectiveSurvey, tmp_path: Path) -> None:
    written = json.loads(survey.save(tmp_path / "e.json").read_text(encoding="utf-8"))
    names = {(array["kind"], array["name"]) for array in written["arrays"]}
    assert {("cross", "raw_gradients"), ("cross", "effective_removal"), ("decoder", "test_removal")} <= names
    pytest.importorskip("matplotlib")
    assert survey.save(tmp_path / "e.png").stat().st_size > 10_000


def test_text_without_two_keys_has_no_correlation_and_takes_no_part(survey: EffectiveSurvey, tmp_path: Path) -> None:
    sizes = ((1, 1), (3, 3), (4, 4), (8, 7), (9, 9), (10, 8))
    targets = [translator(source, target, seed=source) for source, target in sizes]
    about = {"model": "m", "texts": 6, "tokens": 67, "seed": 3}
    kind = survey_effective_attention(targets, ["cross"], about).kinds["cross"]
    assert kind.raw["removal"][0].isnan().all()
    whole, others = (
        each.test_difference("removal", torch.arange(len(each.keys))) for each in (kind, survey.kinds["cross"])
    )
    assert whole == others
    assert whole.n == 5
    alone = survey_effective_attention(targets[:1], ["cross"], {**about, "texts": 1, "tokens": 2})
    assert any(line.endswith("no two inputs to rank") for line in alone.summary_lines())
    alone.save(tmp_path / "alone.json")
    pytest.importorskip("matplotlib")
    alone.save(tmp_path / "alone.png")


def test_attention_that_does_not_lead_to_the_output_is_refused() -> None:
    with pytest.raises(InputError, match="the output is of the decoder; give pairs"):
        survey_effective_attention([translator(3, 3)], ["encoder"], {})
