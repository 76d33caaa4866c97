"""A tagger is explained word by word: the label of a word sits on its first piece, and no other token is an output."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from encoders import small, vocabulary
from saved_runs import kept
from torch import Tensor
from torch.testing import assert_close

import regard
from regard.api import Tagger
from regard.data.labels import Labels
from regard.look.compute.jvp import record_inputs, replace_inputs
from regard.look.inspection import Inspection
from regard.look.render.terminal import render_text
from regard.tasks.tag import TagConfig, TaggingTask

TEXT = "The cat's red (in tokyo)."
WORDS = ["The", "cat's", "red", "(", "in", "tokyo", ")", "."]
NAMES = Labels(("ADJ", "NOUN", "X"))
VIEWS = ("gradient_x_input", "integrated_gradients")


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def tagger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    task = TaggingTask(TagConfig(), vocabulary(request.param, 40 if request.param == "wordpiece" else 330), NAMES)
    return regard.load(kept(task, small(task), tmp_path_factory.mktemp("tagger") / "run"), device="cpu")


@pytest.fixture(scope="module")
def seen(tagger: Tagger) -> Inspection:
    return tagger.look(TEXT)


def first_subwords(tagger: Tagger) -> list[int]:
    """Counted by hand: each word begins where the one before it ends, and the first behind [CLS]."""
    places = [1]
    for ids in tagger.task.tokenizer.encode_words(WORDS)[:-1]:
        places.append(places[-1] + len(ids))
    return places


def log_probs(tagger: Tagger, seen: Inspection) -> Tensor:
    """Of the likeliest label at every token, by the network itself."""
    scores = tagger.network.heads["tags"](seen.look_target.run_layers())[0]
    return scores.log_softmax(-1).amax(-1)


def test_each_output_is_the_label_of_a_word_on_its_first_subword(tagger: Tagger, seen: Inspection) -> None:
    first = first_subwords(tagger)
    assert len(seen.tokens["encoder"]) > len(WORDS) + 2, "some words have several pieces"
    with torch.no_grad():
        assert_close(seen.look_target.explained_outputs(), log_probs(tagger, seen)[first])
    predicted = [f"{each.word}/{each.label}" for each in tagger.tag(TEXT)]
    assert [name.rpartition("/")[0] for name in predicted] == WORDS
    found = seen.view_data("gradients")
    assert any("the log-probability of a label" in note for note in found.notes["gradients"])
    assert found.sides == {**seen.tokens, "tagged": predicted}
    inputs = {name: x.clone().requires_grad_() for name, x in record_inputs(seen.look_target).items()}
    with replace_inputs(seen.look_target, inputs):
        explained = log_probs(tagger, seen)[first]
    for output, number in enumerate(explained):
        (gradient,) = torch.autograd.grad(number, list(inputs.values()), retain_graph=True)
        by_hand = (gradient * inputs["encoder"])[0].sum(-1).detach()
        assert_close(seen.gradients().gradient_x_input[:, output], by_hand, rtol=1e-3, atol=1e-6)


def test_in_words_the_row_of_a_word_is_that_of_its_first_subword(seen: Inspection) -> None:
    subwords, words = (seen.view_data("gradients", words=merged) for merged in (False, True))
    assert words.sides["tagged"] == subwords.sides["tagged"]
    of_words = [list(word.token_indices) for word in seen.look_target.sides["encoder"].words]
    for by_subword, by_word in zip(subwords.arrays, words.arrays, strict=True):
        if by_subword.name in VIEWS:
            assert_close(by_word.values, torch.stack([by_subword.values[places].sum(0) for places in of_words]))
        else:
            assert_close(by_word.values, by_subword.values)
    assert all(word in render_text(words, 120) for word in words.sides["tagged"] if len(word) < 14)


def test_faithfulness_of_a_tagger_uses_its_outputs(tagger: Tagger, seen: Inspection) -> None:
    first, found = first_subwords(tagger), seen.faithfulness()
    views = {"attention": seen.attention()[-1].mean(0).T[:, first], "integrated_gradients": None}
    views["integrated_gradients"] = seen.gradients().integrated_gradients
    inputs = record_inputs(seen.look_target)["encoder"]
    for name, view in views.items():
        lost = []
        for output, place in enumerate(first):
            without = inputs.clone()
            without[0, int(view[:, output].argmax())] = 0.0
            with torch.no_grad():
                scores = tagger.network.heads["tags"](seen.look_target.run_layers())[0, place].log_softmax(-1)
                with replace_inputs(seen.look_target, {"encoder": without}):
                    again = tagger.network.heads["tags"](seen.look_target.run_layers())[0, place].log_softmax(-1)
            lost.append(scores.max() - again[scores.argmax()])
        assert float(found.drop[found.methods.index(name), 0]) == pytest.approx(float(sum(lost)) / len(lost), abs=1e-4)


def test_views_that_are_not_of_outputs_have_no_side_for_them(seen: Inspection) -> None:
    assert list(seen.view_data("attention").sides) == ["encoder"]
    assert list(seen.view_data("all").sides) == ["encoder", "tagged"]


def test_a_text_of_one_word(tagger: Tagger, tmp_path: Path) -> None:
    seen = tagger.look("tokyo")
    (name,) = seen.view_data("gradients").sides["tagged"]
    assert name == f"tokyo/{tagger.tag('tokyo')[0].label}"
    for suffix in (".html", ".csv", ".json"):
        assert seen.save(tmp_path / f"look{suffix}", "gradients", words=True).stat().st_size > 100
