"""The sweep over position schemes: verdicts from scores, and its synthetic corpora."""

from __future__ import annotations

import pytest

from regard.compare import positions
from regard.compare.compared_models import POSITION_SCHEMES
from regard.compare.experiment import Measurements

pytest.importorskip("babel")

from regard.compare import synthetic as made_up
from regard.text.tagged import is_entity_scheme

SPREAD = (-0.2, 0.0, 0.2)
"""Deviations of the scores of three seeds from their mean, the same for all schemes."""


def make_measurements(**scores: float) -> Measurements:
    def models(key: str, divide: float) -> list[dict[str, object]]:
        return [{"name": name, "scores": {key: scores.get(name, 50.0) / divide}} for name in POSITION_SCHEMES]

    return {
        "translate": {"n_test": 1000, "models": models("bleu", 1)},
        "tag": {"n_test": 1000, "models": models("f1", 100)},
    }


def test_schemes_better_than_none_support_the_claim() -> None:
    translation, sinusoidal, tagging, _ = positions.judge_claims(make_measurements(none=10))
    assert (translation.held, sinusoidal.held, tagging.held) == (True, True, True)
    assert "none 10.0" in translation.evidence
    assert "entity F1" in tagging.evidence


def test_schemes_no_better_than_none_refute_the_claim() -> None:
    assert [each.held for each in positions.judge_claims(make_measurements(none=60))][::2] == [False, False]
    one_worse = positions.judge_claims(make_measurements(none=50, learned=40, sinusoidal=60, relative=60, rotary=60))
    assert [each.held for each in one_worse][::2] == [False, False]  # of every scheme it is claimed
    one_equal = positions.judge_claims(make_measurements(none=40, relative=40))
    assert [each.held for each in one_equal][::2] == [None, None]
    assert "relative 40.0, none 40.0; only 2.0 apart would be clear" in one_equal[0].evidence


def test_possibly_worse_sinusoids_are_undecided() -> None:
    def verdicts(sinusoidal: float, n_test: int = 100) -> list[bool | None]:
        numbers = make_measurements(none=10, sinusoidal=sinusoidal)
        for about in numbers.values():
            about["n_test"] = n_test
        return [each.held for each in positions.judge_claims(numbers)][1::2]

    assert verdicts(60) == [True, True]
    assert verdicts(49.5) == [True, True]
    assert verdicts(46) == [None, None]  # 60 / sqrt(100) = 6 would be clear
    assert verdicts(46, n_test=1000) == [False, False]
    assert verdicts(30) == [False, False]


def test_undertrained_schemes_are_undecided() -> None:
    numbers = make_measurements(none=1, **dict.fromkeys(("sinusoidal", "learned", "relative", "rotary"), 9.0))
    findings = positions.judge_claims(numbers)
    assert {each.held for each in findings} == {None}
    assert all("too little was learned to tell" in each.evidence for each in findings)


def test_worse_sinusoids_refute_the_claim() -> None:
    finding = positions.judge_claims(make_measurements(none=10, sinusoidal=30, rotary=80))[1]
    assert finding.held is False
    assert "the best here was rotary, 80.0" in finding.evidence


def test_tags_of_a_fact_follow_the_bio_scheme() -> None:
    texts = made_up.generate_tagged(200, 3, seed=1)
    assert len({each.words for each in texts}) == 200
    labels = {label for each in texts for label in each.labels}
    assert is_entity_scheme(labels)
    assert {label[2:] for label in labels} == set(made_up.FACT_TAGS.values())
    assert all(len(each.words) == len(each.labels) and each.labels[0].startswith("B-") for each in texts)


def test_tags_of_a_word_depend_on_context() -> None:
    """Otherwise tagging would need no positions."""
    tags: dict[str, set[str]] = {}
    for each in made_up.generate_tagged(500, 3, seed=1):
        for word, label in zip(each.words, each.labels, strict=True):
            tags.setdefault(word, set()).add(label)
    several = [word for word, labels in tags.items() if len({label[2:] for label in labels}) > 1]
    assert len(several) > 20
    assert "PM" in several


def test_synthetic_pairs_are_lists_of_facts_in_both_languages() -> None:
    pairs = made_up.generate_pairs(300, 4, seed=2)
    assert len({pair.source for pair in pairs}) == 300
    facts = [pair.source.count("; ") + 1 for pair in pairs]
    assert set(facts) == {1, 2, 3, 4}
    assert all(pair.target.count(" ; ") + 1 == n for pair, n in zip(pairs, facts, strict=True))
    assert pairs == made_up.generate_pairs(300, 4, seed=2)
    assert pairs != made_up.generate_pairs(300, 4, seed=3)


@pytest.mark.parametrize(
    ("score", "columns"), [("accuracy", ["accuracy (test)"]), ("f1", ["entity F1 (test)", "accuracy %"])]
)
def test_table_shows_each_score_once(score: str, columns: list[str]) -> None:
    scores = {score: 0.9, "accuracy": 0.9}
    model = {"name": "none", "parameters": 1, "scores": scores, "curve": [{"valid_loss": 1.0}], "seconds": 1.0}
    table = positions._scores_table("tag", {"models": [model]})
    assert table.columns[2:-2] == columns
    assert table.rows == [["none", "1", *["90.0"] * len(columns), "1.000", "1"]]


def make_seeded(task: str, key: str, **scores: list[float]) -> Measurements:
    """Return scores of three seeds around 50, or as given."""
    models = [
        {"name": name, "seed": seed, "scores": {key: score / 100}}
        for name in POSITION_SCHEMES
        for seed, score in enumerate(scores.get(name, [50 + each for each in SPREAD]))
    ]
    return {task: {"n_test": 10, "baseline": 10.0 if task == "classify" else 0.0, "models": models}}


def make_tasks(classify: float, tag: float, qa: float, spread: tuple[float, ...] = SPREAD) -> Measurements:
    """Return measurements in which learned positions are better by so much in each task, with a spread over seeds."""
    return {
        **make_seeded("tag", "f1", learned=[50 + tag + each for each in spread]),
        **make_seeded("classify", "accuracy", learned=[50 + classify + each for each in spread]),
        **make_seeded("qa", "f1", learned=[50 + qa + each for each in spread]),
    }


def judge_tasks(measurements: Measurements) -> list[bool | None]:
    """Return the verdicts on learned positions: tagging, classification, spans, and all of them."""
    return [each.held for each in positions.judge_claims(measurements)][-4:]


def test_learned_for_sequences_and_fixed_for_tokens_supports_the_claim() -> None:
    assert judge_tasks(make_tasks(classify=3, tag=-3, qa=-3)) == [True, True, True, True]
    overall = positions.judge_claims(make_tasks(classify=3, tag=-3, qa=-3))[-1]
    assert "sequence classification +3.0 (+3.0 to +3.0) (held)" in overall.evidence


def test_one_task_refutes_the_claim() -> None:
    assert judge_tasks(make_tasks(classify=3, tag=3, qa=-3)) == [False, True, True, False]
    assert judge_tasks(make_tasks(classify=-3, tag=-3, qa=-3)) == [True, False, True, False]


def test_interval_over_seeds_decides() -> None:
    """Differences of -2, +3 and +5 between paired seeds: 2 +- 4.303 * 3.606 / sqrt(3) has both signs."""
    uncertain = make_tasks(classify=2, tag=-3, qa=-3, spread=(-4.2, 1.0, 3.2))
    assert judge_tasks(uncertain) == [None, None, None, None]
    finding = positions.judge_claims(uncertain)[-3]
    assert "minus the mean of the others +2.0 (-7.0 to +11.0)" in finding.evidence


def test_equal_scores_decide_nothing() -> None:
    assert judge_tasks(make_tasks(classify=0, tag=0, qa=0)) == [None, None, None, None]


def test_classifiers_no_better_than_the_most_frequent_class_decide_nothing() -> None:
    measurements = make_tasks(classify=3, tag=-3, qa=-3)
    measurements["classify"]["baseline"] = 49.0
    assert judge_tasks(measurements) == [True, None, True, None]
    finding = positions.judge_claims(measurements)[-3]
    assert "too little was learned to tell" in finding.evidence
    assert "49.0 of the most frequent class" in finding.evidence


def test_seeds_decide_on_sinusoids_and_on_order() -> None:
    clear = make_seeded("tag", "f1", none=[10.0, 11.0, 12.0], sinusoidal=[49.6, 49.9, 50.0])
    assert [each.held for each in positions.judge_claims(clear)] == [True, True]
    unclear = make_seeded("tag", "f1", none=[10.0, 90.0, 40.0], sinusoidal=[30.0, 60.0, 50.0])
    order, sinusoidal = positions.judge_claims(unclear)
    assert (order.held, sinusoidal.held) == (None, None)
    assert "; the interval of the difference is -" in order.evidence
    worse = make_seeded("tag", "f1", none=[10.0, 11.0, 12.0], sinusoidal=[40.0, 41.0, 40.5])
    assert positions.judge_claims(worse)[1].held is False


def test_class_of_a_list_is_the_order_of_two_facts() -> None:
    texts = made_up.generate_labelled(300, 4, seed=3)
    assert len({each.text for each in texts}) == 300
    assert {each.label for each in texts} == {"date", "money"}
    assert 0.4 < sum(each.label == "date" for each in texts) / 300 < 0.6
    assert {each.text.count("; ") + 1 for each in texts} == {2, 3, 4}
    currency = [each for each in texts if "$" in each.text.split("; ")[0]]
    assert currency
    assert {each.label for each in currency} == {"money"}
    assert texts == made_up.generate_labelled(300, 4, seed=3)


def test_answer_is_the_fact_of_the_kind_in_the_question() -> None:
    examples = made_up.generate_questions(300, 4, seed=4)
    assert len({each.context for each in examples}) == 300
    for question, context, ((text, start),), _ in examples:
        assert context[start : start + len(text)] == text
        assert text in context.split("; ")
        assert question.removeprefix("which ").removesuffix("?") in made_up.FACT_TAGS.values()
    percentages = [each.answers[0].text for each in examples if each.question == "which percentage?"]
    assert percentages
    assert all("%" in text or "percent" in text for text in percentages)
    assert {each.answers[0].start == 0 for each in examples} == {True, False}
