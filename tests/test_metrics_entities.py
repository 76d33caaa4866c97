"""Entities in strict IOB2 and their scores: worked by hand, and against a plain search for every span."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import Entity, EntityScore, entity_scores, extract_entities

labels_of_words = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=8)
tagged_twice = st.lists(
    st.lists(st.tuples(*[st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])] * 2), max_size=8), max_size=5
)


def plain_entities(labels: list[str]) -> list[Entity]:
    """Return every span of B-X and then I-X only that is not followed by I-X."""
    entities = []
    for start in range(len(labels)):
        for end in range(start + 1, len(labels) + 1):
            prefix, _, label = labels[start].partition("-")
            inside = f"I-{label}"
            whole = labels[end : end + 1] != [inside] and all(other == inside for other in labels[start + 1 : end])
            if prefix == "B" and whole:
                entities.append(Entity(label, start, end))
    return entities


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("I-PER I-PER", []),
        ("O I-PER B-LOC", [("LOC", 2, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1)]),
        ("B-PER I-LOC I-PER", [("PER", 0, 1)]),
        ("B-PER O I-PER", [("PER", 0, 1)]),
        ("S-PER NOUN E-PER", []),
        ("B-A-B I-A-B", [("A-B", 0, 2)]),
        ("", []),
    ],
)
def test_entities_worked_by_hand(labels: str, expected: list[tuple[str, int, int]]) -> None:
    assert extract_entities(labels.split()) == [Entity(*entity) for entity in expected]


def test_scores_worked_by_hand() -> None:
    """Correct: one PER. Wrong: a truncated PER, a LOC predicted as ORG; missed: a LOC, predicted, but not strictly."""
    gold = ["B-PER I-PER O B-LOC", "B-PER I-PER O", "B-LOC O"]
    predicted = ["B-PER I-PER O B-ORG", "B-PER O O", "I-LOC O"]
    scores = entity_scores([line.split() for line in gold], [line.split() for line in predicted])
    assert scores.by_type == {"LOC": EntityScore(2, 0, 0), "ORG": EntityScore(0, 1, 0), "PER": EntityScore(2, 2, 1)}
    assert list(scores.by_type) == ["LOC", "ORG", "PER"]
    assert scores.micro == (4, 3, 1)
    assert (scores.micro.precision, scores.micro.recall, scores.micro.f1) == (1 / 3, 1 / 4, pytest.approx(2 / 7))
    assert (scores.by_type["PER"].precision, scores.by_type["PER"].recall, scores.by_type["PER"].f1) == (0.5, 0.5, 0.5)
    assert (scores.by_type["LOC"].precision, scores.by_type["ORG"].recall, scores.by_type["ORG"].f1) == (0.0, 0.0, 0.0)


def test_the_same_span_of_two_sentences_counts_twice() -> None:
    assert entity_scores([["B-X"], ["B-X"]], [["B-X"], ["O"]]).micro == EntityScore(2, 1, 1)


def test_no_entities_at_all() -> None:
    scores = entity_scores([["O"], []], [["O"], []])
    assert (scores.micro.precision, scores.micro.recall, scores.micro.f1, scores.by_type) == (0.0, 0.0, 0.0, {})


def test_both_sides_must_be_equally_long() -> None:
    for gold, predicted in (([["O"]], [["O"], ["O"]]), ([["O", "O"]], [["O"]])):
        with pytest.raises(AssertionError, match="sentences differ in length"):
            entity_scores(gold, predicted)


@given(labels_of_words)
def test_entities_against_the_definition(labels: list[str]) -> None:
    assert extract_entities(labels) == plain_entities(labels)


@given(tagged_twice)
def test_laws(sentences: list[list[tuple[str, str]]]) -> None:
    gold = [[label for label, _ in sentence] for sentence in sentences]
    predicted = [[label for _, label in sentence] for sentence in sentences]
    scores, swapped = entity_scores(gold, predicted), entity_scores(predicted, gold)
    assert (scores.micro.precision, scores.micro.recall) == (swapped.micro.recall, swapped.micro.precision)
    assert scores.micro.f1 == swapped.micro.f1
    assert scores.micro == tuple(map(sum, zip((0, 0, 0), *scores.by_type.values(), strict=True)))
    perfect = entity_scores(gold, gold).micro
    assert perfect.f1 == (1.0 if perfect.n_gold else 0.0)
