"""The summary: the prediction, the inputs that mattered to it, the view that says so; and where a page opens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sample_targets import one_stack, only_one, translator

from regard.look.compute import faithfulness
from regard.look.compute.look_target import LookTarget
from regard.look.inspection import Inspection
from regard.look.views.focus import default_focus, longest_content_token
from regard.look.views.view_data import Axis, ViewArray, ViewData, merge_subwords
from regard.text.subwords import Word


def test_summary_names_the_prediction_the_decisive_input_and_the_view() -> None:
    data = Inspection(only_one(6, decisive=4), {"prediction": "an answer"}).view_data("summary")
    (importance,) = data.arrays
    predicted, mattered, trusted = data.notes["summary"]
    assert predicted.startswith("predicted: an answer (mean probability per output ")
    assert "t0 ← t4; t1 ← t4" in mattered
    assert trusted.startswith("trust ")
    assert importance.values.argmax(0).tolist() == [4] * 6


@pytest.mark.parametrize(("target", "prediction"), [("", "an empty text"), ("Bonjour.", "Bonjour.")])
def test_summary_names_the_translation_also_an_empty_one(target: str, prediction: str) -> None:
    data = Inspection(translator(3, 2), {"target": target}).view_data("summary")
    assert data.notes["summary"][0].startswith(f"predicted: {prediction} (mean probability per output ")


@pytest.mark.parametrize(
    ("threshold", "claim"),
    [
        (-1e9, "mattered most in the source to each output, by "),
        (1e9, "ranked highest (no proof that it mattered) in the source for each output, by "),
    ],
    ids=["trusted", "no better than chance"],
)
def test_summary_names_source_tokens_for_a_translator(
    threshold: float, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faithfulness, "MIN_STDS_ABOVE_RANDOM", threshold)
    target = translator(5, 4)
    data = Inspection(with_next_tokens(target)).view_data("summary")
    (mattered,) = (note for note in data.notes["summary"] if note.startswith(claim))
    source = target.sides["encoder"].tokens
    assert all(pair.split(" ← ")[1] in source for pair in mattered.split(": ", 1)[1].split("; "))


@pytest.mark.parametrize(
    ("target", "caveat"),
    [
        (one_stack("encoder", 4), "no view is clearly better than chance for this prediction: "),
        (one_stack("decoder", 1), "there is only one input, "),
    ],
    ids=["chance", "one input"],
)
def test_summary_says_that_no_view_is_to_be_trusted_before_it_names_inputs(
    target: LookTarget, caveat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faithfulness, "MIN_STDS_ABOVE_RANDOM", 1e9)
    _, first, ranked = Inspection(target).view_data("summary").notes["summary"]
    assert first.startswith(caveat)
    assert ranked.startswith("ranked highest (no proof that it mattered) for ")


def with_next_tokens(target):  # type: ignore[no-untyped-def]
    side = target.sides["decoder"]
    written = replace(side, next_tokens=(*side.tokens[1:], "<eos>"))
    return replace(target, sides={**target.sides, "decoder": written})


def test_translators_open_at_cross_attention_and_a_content_token() -> None:
    target = translator(5, 4)
    written = ("▁a", "▁meeting", ".", "<eos>")
    side = replace(target.sides["decoder"], next_tokens=written)
    focus = default_focus(Inspection(replace(target, sides={**target.sides, "decoder": side})))
    assert (focus.kind, focus.layer) == ("cross", 1)
    assert focus.tokens["decoder"] == 1, "the step that writes the longest token"


def test_classifiers_open_at_the_token_the_class_is_read_from() -> None:
    target = one_stack("encoder", 4)
    reads_first = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    classifier = replace(target, output_labels=("positive",), output_token_weights=lambda: reads_first)
    assert default_focus(Inspection(classifier)).tokens == {"encoder": 0}


def test_language_models_open_at_the_next_token() -> None:
    assert default_focus(Inspection(one_stack("decoder", 4))).tokens == {"decoder": 3}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(["<sos>", "▁a", "▁meeting", "▁today"], 2), (["[CLS]", "it", "[SEP]"], 1), (["<eos>"], 0), ([], 0)],
)
def test_special_tokens_are_no_content(tokens: list[str], expected: int) -> None:
    assert longest_content_token(tokens) == expected


def test_labels_of_a_decoder_name_the_token_read_and_the_token_written() -> None:
    query = Axis("query", ("decoder",), predicts_next=True)
    array = ViewArray("attention", "decoder", "weights", (query, Axis("key", ("decoder",))), torch.eye(4))
    data = ViewData(
        {"decoder": ["<sos>", "▁le", "▁s", "ac"]}, [array], next_tokens={"decoder": ["▁le", "▁s", "ac", "."]}
    )
    assert data.display_labels(query, 4) == ["<sos> → ▁le", "▁le → ▁s", "▁s → ac", "ac → ."]
    assert data.labels(query, 4) == ["<sos>", "▁le", "▁s", "ac"], "JSON and CSV keep the token read"
    words = {"decoder": [Word("<sos>", (0,)), Word("le", (1,)), Word("sac", (2, 3))]}
    merged = merge_subwords(data, words)
    assert merged.display_labels(query, 3) == ["<sos> → le", "le → sac", "sac → ."]
    # The row "le → sac" is the mean of the two steps that write "sac".
    assert merged.arrays[0].values.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
