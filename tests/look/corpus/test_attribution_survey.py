"""Attribution beside token identifiability: the same test sentences, quartiles over their tokens, and all forms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_targets import one_stack
from torch.testing import assert_close

from regard.look.compute.look_target import LookTarget
from regard.look.corpus.attribution_survey import AttributionSurvey, survey_attribution
from regard.look.corpus.sentences import SentenceSet
from regard.look.inspection import Inspection


def sentences_of_one_model() -> list[LookTarget]:
    """Texts of different lengths in the same model, as `SentenceSet` needs them."""
    first = one_stack("encoder", 5)
    targets = [first]
    for number in range(1, 10):
        ids = torch.randint(3, 20, (1, 3 + number % 4), generator=torch.Generator().manual_seed(number))
        other = one_stack("encoder", ids.shape[1])
        targets.append(
            LookTarget(
                first.model,
                other.sides,
                run_layers=lambda ids=ids: first.model(ids),  # type: ignore[misc]
                head=None,
                predicted_ids=ids[0, :0],
            )
        )
    return targets


@pytest.fixture(scope="module")
def targets() -> list[LookTarget]:
    return [target for target in sentences_of_one_model() if target.head is None]


@pytest.fixture(scope="module")
def found(targets: list[LookTarget]) -> AttributionSurvey:
    about = {"model": "runs/m", "data": ["f"], "read": 20, "texts": len(targets)}
    return survey_attribution(
        targets, stacks=["encoder"], seed=1, device=torch.device("cpu"), about=about, estimate=None
    )


def test_contributions_are_of_the_tokens_that_test_the_probes(
    found: AttributionSurvey, targets: list[LookTarget]
) -> None:
    split = SentenceSet(targets, ["encoder"], 1)
    tested = split.look_targets[-split.split_sizes["test"] :]
    own = torch.cat([Inspection(target).self_contribution("encoder") for target in tested], 1)
    stack = found.stacks["encoder"]
    assert_close(stack.own[1:], own)
    assert (stack.own[0] == 1).all()
    assert stack.own.shape[1] == found.identifiability.stacks["encoder"]["tokens"]["test"]
    np.testing.assert_allclose(stack.quartiles.numpy(), np.quantile(stack.own.numpy(), [0.25, 0.5, 0.75], axis=1).T)
    counts = [
        Inspection(target).dominated_fraction("encoder") * len(target.sides["encoder"].tokens) for target in tested
    ]
    assert_close(stack.dominated[1:], sum(counts) / own.shape[1])
    assert stack.dominated[0] == 0


def test_the_table_has_a_row_for_each_layer_and_says_what_was_sampled(found: AttributionSurvey) -> None:
    lines = list(found.summary_lines())
    assert lines[0].startswith("9 of 20 texts, seed 1: probes trained on ")
    assert lines[1].endswith("attribution from all directions (exact)")
    rows = [line.split() for line in lines if line.split()[0] in "012"]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[0][1:5] == ["100.0%", "100.0%", "100.0%", "0.0%"]
    median, dominated = found.stacks["encoder"].quartiles[-1, 1], found.stacks["encoder"].dominated[-1]
    assert rows[2][2] == f"{median:.1%}"
    assert f"contributes {median:.0%} (median) and another more for {dominated:.0%} of the tokens" in lines[-1]


def test_an_estimate_of_all_directions_is_exact_and_fewer_are_named(targets: list[LookTarget]) -> None:
    options = {"stacks": ["encoder"], "seed": 1, "device": torch.device("cpu"), "about": {"model": "m", "read": 9}}
    assert survey_attribution(targets[:5], estimate=8, **options).about["estimate"] is None  # type: ignore[arg-type]
    some = survey_attribution(targets[:5], estimate=4, **options)  # type: ignore[arg-type]
    assert list(some.summary_lines())[1].endswith("attribution from 4 directions per token")


def test_all_numbers_and_a_figure_are_saved(found: AttributionSurvey, tmp_path: Path) -> None:
    written = json.loads(found.save(tmp_path / "a.json").read_text(encoding="utf-8"))
    arrays = {array["name"]: array for array in written["arrays"]}
    assert_close(torch.tensor(arrays["self_contribution"]["values"], dtype=torch.float64), found.stacks["encoder"].own)
    assert arrays["recovered_accuracy"]["shape"] == [3, 2, 2]
    first = next(each for each in found.identifiability.results if each.spec == ("encoder", 2, "linear", "l2"))
    assert arrays["recovered_accuracy"]["values"][2][1][1] == first.accuracy
    pytest.importorskip("matplotlib")
    assert found.save(tmp_path / "a.png").stat().st_size > 10_000
