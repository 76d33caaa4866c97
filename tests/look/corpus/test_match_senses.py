"""Why two texts match, and one word in several sentences: against plain definitions, in every form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import sentences, small, vocabulary
from saved_runs import kept

import regard
from regard.errors import InputError
from regard.look.corpus.match import MatchEvidence
from regard.look.corpus.senses import WordSenses, extract_context, find_occurrences
from regard.look.render.plots.caption import CAPTION_TEMPLATES
from regard.look.render.tables import to_json
from regard.look.render.terminal import render_text
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

ONE, OTHER = "the cat sits on the red mat", "a slow dog runs in tokyo"
FORMS = (".html", ".json", ".csv", ".png", ".svg", ".pdf")
DOCS = Path(__file__).parents[3] / "docs" / "look.md"


def loaded(folder: Path, kind: str = "wordpiece", **table: Any) -> Any:
    task = PretrainingTask(PretrainConfig(length=32, **table), vocabulary(kind))
    return regard.load(kept(task, small(task), folder / "run"), device="cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded(tmp_path_factory.mktemp("compared"))


@pytest.mark.parametrize("table", [{}, {"pooling": "cls"}, {"normalised": True}])
def test_evidence_sums_to_the_cosine(table: dict[str, Any], tmp_path: Path) -> None:
    model = loaded(tmp_path, **table)
    u, v = (model.embed(text).astype(float) for text in (ONE, OTHER))
    cosine = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
    found: MatchEvidence = model.explain_match(ONE, OTHER)
    assert found.score == pytest.approx(cosine, abs=1e-6)
    assert found.score == pytest.approx(model.match(ONE, OTHER), abs=1e-6)
    for words in (False, True):
        data = found.view_data(words=words)
        assert data.about["score"] == found.score
        assert data.about["prediction"] == f"cosine {found.score:.4f}"
        for array in data.arrays:
            assert float(array.values.sum()) == pytest.approx(found.score, abs=1e-12)
            assert list(array.values.shape) == [len(data.sides[axis.over[0]]) for axis in array.axes]
    assert data.sides == {"text": ["[CLS]", *ONE.split(), "[SEP]"], "pair": ["[CLS]", *OTHER.split(), "[SEP]"]}
    first_alone = [note for note in data.notes["match"] if "is that of its first token" in note]
    assert bool(first_alone) == (table.get("pooling") == "cls")
    if first_alone:
        assert torch.count_nonzero(found.values) == 1
        assert float(found.values[0, 0]) == pytest.approx(found.score)


def test_evidence_equals_the_definition(model: Any) -> None:
    found: MatchEvidence = model.explain_match(ONE, OTHER)
    tokenizer, network, frame = model.encoder_task.tokenizer, model.network, model.encoder_task.template
    from regard.predict.encoder_inference import inputs_to_rows

    with torch.no_grad():
        h, k = (
            network(inputs_to_rows([frame.wrap(tokenizer.encode(text))], frame.pad_id))[0].double()
            for text in (ONE, OTHER)
        )
    u, v = h.mean(0), k.mean(0)
    for i in range(len(h)):
        for j in range(len(k)):
            expected = h[i] @ k[j] / (len(h) * len(k) * u.norm() * v.norm())
            assert float(found.values[i, j]) == pytest.approx(float(expected), abs=1e-7)


def test_the_two_texts_are_encoded_separately(model: Any) -> None:
    """What stands in one changes nothing in the other; the order of the two does not matter."""
    swapped = model.explain_match(OTHER, ONE)
    torch.testing.assert_close(model.explain_match(ONE, OTHER).values, swapped.values.T)
    assert model.explain_match(ONE, ONE).score == pytest.approx(1)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_occurrences_of_a_word_in_any_script(kind: str) -> None:
    tokenizer = vocabulary(kind)
    for text, count in {
        "the cat sits": 1,
        "Cat, cat. (cat) cat's": 3,  # of words alone "Cat" is unknown, and 's is a word
        "category scat": 0,
        "dog": 0,
        "": 0,
    }.items():
        ids = tokenizer.encode(text)
        found = list(find_occurrences(tokenizer, ids, "cat"))
        assert len(found) == count, (text, tokenizer.display_tokens(ids))
        for token_indices in found:
            assert tokenizer.decode([ids[place] for place in token_indices]).strip(" ").lower() == "cat"


def test_context_of_an_occurrence() -> None:
    tokenizer = vocabulary()
    ids = tokenizer.encode("the slow red dog runs on the mat in tokyo")
    (token_indices,) = find_occurrences(tokenizer, ids, "runs")
    assert extract_context(tokenizer, ids, token_indices) == "red dog runs on the mat"
    (token_indices,) = find_occurrences(tokenizer, ids, "slow")
    assert extract_context(tokenizer, ids, token_indices) == "the slow red dog"


@pytest.fixture(scope="module")
def senses(model: Any) -> WordSenses:
    found: WordSenses = model.senses("Cat", [ONE, "no such thing", "a cat in tokyo", "dog and cat and cat"])
    return found


def test_static_vectors_are_equal_and_contextual_ones_are_not(senses: WordSenses, model: Any) -> None:
    assert [each.text for each in senses.occurrences] == [ONE, "a cat in tokyo", *["dog and cat and cat"] * 2]
    assert not senses.distances[0].any()
    assert float(senses.mean_distances[0]) == 0
    off = ~torch.eye(4, dtype=torch.bool)
    assert (senses.distances[2:, off] > 1e-6).all()  # at 0, equal places make equal vectors still
    words = model.embed_words_or_tokens([ONE, "a cat in tokyo"], layers=2)
    u, v = (vectors[names.index("cat")].astype(float) for names, vectors in words)
    assert float(senses.distances[-1, 0, 1]) == pytest.approx(
        1 - u @ v / np.linalg.norm(u) / np.linalg.norm(v), abs=1e-6
    )
    torch.testing.assert_close(senses.distances, senses.distances.mT)
    torch.testing.assert_close(senses.mean_distances, senses.distances.sum((1, 2)) / 12)


def test_docs_list_every_fact_of_view_data(senses: WordSenses, model: Any) -> None:
    shown = [senses, model.explain_match(ONE, OTHER), model.cluster(sentences(9), 2), model.look(ONE, pair=OTHER)]
    facts = {fact for each in shown for fact in each.view_data().about} | {
        fact for some in CAPTION_TEMPLATES for fact in some
    }
    named = set(re.findall(r"`(\w+)`", DOCS.read_text(encoding="utf-8").split("| `about` of |")[1].split("\n\n")[0]))
    assert facts <= named, facts - named


def test_projection_keeps_the_distance_of_two_points(model: Any) -> None:
    found: WordSenses = model.senses("cat", [ONE, "a cat in tokyo"])
    for vectors, points in zip(found._vectors, found.projections, strict=True):
        assert float((points[0] - points[1]).norm()) == pytest.approx(float((vectors[0] - vectors[1]).norm()), abs=1e-7)


def test_view_data_of_senses(senses: WordSenses) -> None:
    found = json.loads(to_json(senses.view_data()))
    by_name = {array["name"]: array for array in found["arrays"]}
    assert by_name["distance"]["shape"] == [4, 4, 4]
    assert by_name["map"]["shape"] == [4, 4, 2]
    assert by_name["mean"]["axes"][0]["labels"] == ["static", "0", "1", "2"]
    assert found["sides"]["occurrence"][0] == "1 the cat sits on the"
    assert found["notes"]["senses"][0].startswith("static vectors of 'Cat' are equal; after the last layer")
    assert found["notes"]["senses"][1] == f"1: {ONE}"


def test_match_and_senses_in_every_format(senses: WordSenses, model: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for number, (shown, asked) in enumerate([(senses, {}), (model.explain_match(ONE, OTHER), {"words": True})]):
        for suffix in FORMS:
            assert shown.save(tmp_path / f"{number}{suffix}", **asked).stat().st_size > 500
        text = render_text(shown.view_data(**asked), 60)
        assert max(map(len, text.splitlines())) <= 60
        assert "<iframe" in shown._repr_html_()


def test_texts_that_cannot_be_compared(model: Any) -> None:
    long = sentences(1, least=40, most=40)[0]
    with pytest.raises(InputError, match="the text has 40 tokens; this model takes at most 30; split it"):
        model.explain_match(ONE, long)
    for text in ("", " "):
        with pytest.raises(InputError, match="the text is empty"):
            model.explain_match(ONE, text)
    for texts, message in {
        (ONE,): "'cat' occurs once in these texts; give two sentences with it, or more",
        (OTHER,): "'cat' occurs nowhere in these texts",
        (): "'cat' occurs nowhere in these texts",
        (ONE, f"cat {long}"): "'cat' occurs once in these texts",
    }.items():
        with pytest.raises(InputError, match=message):
            model.senses("cat", texts)
    for word in ("", "two words"):
        with pytest.raises(InputError, match=f"expected one word, found '{word}'; give one"):
            model.senses(word, [ONE, OTHER])


def test_the_first_of_many_occurrences(model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(model.senses("cat", [ONE] * 9, max_occurrences=5).occurrences) == 5
    assert "'cat' occurs more often; the first 5 times are taken" in capsys.readouterr().err
    assert len(model.senses("cat", [ONE] * 5, max_occurrences=5).occurrences) == 5
    assert capsys.readouterr().err == ""
