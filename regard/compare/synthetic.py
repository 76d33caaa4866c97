"""Synthetic corpora: short and long lists of dates, times, amounts and quantities (demo/cldr_corpus.py).

A list of k facts is about k times as long as one fact, so long texts are as correct as short ones. For tagging, every
word is labelled with the kind of its fact in the BIO scheme; only context says which fact a number belongs to. The
class of a list is the order of its date and its amount; a question names a kind, and the fact of that kind is the
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from regard.demo import cldr_corpus as cldr
from regard.text.labelled import LabelledExample
from regard.text.pairs import Pair
from regard.text.squad import AnswerSpan, QuestionExample
from regard.text.tagged import TaggedSentence

FACT_SEPARATORS = Pair("; ", " ; ")
"""Separators of the facts of a list, in English and in French."""

FACT_TAGS = {
    cldr.date_in_words: "date",
    cldr.date_by_skeleton: "date",
    cldr.date_range: "dates",
    cldr.clock_time: "time",
    cldr.time_range: "times",
    cldr.date_and_time: "moment",
    cldr.weekday_and_time: "moment",
    cldr.relative_time: "distance",
    cldr.duration: "duration",
    cldr.duration_in_words: "duration",
    cldr.money: "money",
    cldr.money_in_words: "money",
    cldr.compact_money: "money",
    cldr.quantity: "quantity",
    cldr.number: "number",
    cldr.compact_number: "number",
    cldr.percentage: "percentage",
}
"""Tags of the kinds of facts; sentences, which combine other facts, have none."""

ORDERED_KINDS, OTHER_KINDS = ("date", "money"), "other"
"""The two kinds whose order is the class of a list, and the name of all others."""


def generate_pairs(count: int, max_facts: int, seed: int) -> list[Pair]:
    """Return `count` different lists of one to `max_facts` facts in both languages."""
    rng = Random(seed)
    french: dict[str, str] = {}
    while len(french) < count:
        facts = [cldr.sample_pair(rng)[1] for _ in range(rng.randint(1, max_facts))]
        english, translation = (
            separator.join(side) for separator, side in zip(FACT_SEPARATORS, zip(*facts, strict=True), strict=True)
        )
        french[english] = translation
    return [Pair(*item) for item in french.items()]


def generate_tagged(count: int, max_facts: int, seed: int) -> list[TaggedSentence]:
    """Return `count` different lists of one to `max_facts` facts as tagged words, without separators."""
    rng = Random(seed)
    facts = _generate_tagged_facts(rng)
    labels: dict[tuple[str, ...], tuple[str, ...]] = {}
    while len(labels) < count:
        chosen = list(islice(facts, rng.randint(1, max_facts)))
        words = tuple(word for fact in chosen for word in fact.words)
        labels[words] = tuple(label for fact in chosen for label in fact.labels)
    return [TaggedSentence(*item) for item in labels.items()]


def generate_labelled(count: int, max_facts: int, seed: int) -> list[LabelledExample]:
    """Return `count` different lists of two to `max_facts` facts, a date and an amount of money among them.

    The label is the kind of the earlier of these two: so only their order matters, at any position in the list.
    """
    rng = Random(seed)
    facts: dict[str, list[str]] = {**{kind: [] for kind in ORDERED_KINDS}, OTHER_KINDS: []}
    stream = _generate_facts(rng)
    labels: dict[str, str] = {}
    while len(labels) < count:
        n_others = rng.randint(0, max_facts - len(ORDERED_KINDS))
        chosen = rng.sample(kinds := [*ORDERED_KINDS, *[OTHER_KINDS] * n_others], len(kinds))
        while any(len(facts[kind]) < chosen.count(kind) for kind in facts):
            kind, text = next(stream)
            facts[kind if kind in ORDERED_KINDS else OTHER_KINDS].append(text)
        text = FACT_SEPARATORS.source.join(facts[kind].pop() for kind in chosen)
        labels[text] = min(ORDERED_KINDS, key=chosen.index)
    return [LabelledExample(text, "", label) for text, label in labels.items()]


def generate_questions(count: int, max_facts: int, seed: int) -> list[QuestionExample]:
    """Return `count` different lists of two to `max_facts` facts of different kinds, each with a question for one."""
    rng = Random(seed)
    facts = _generate_facts(rng)
    questions: dict[str, QuestionExample] = {}
    while len(questions) < count:
        by_kind = dict(islice(facts, rng.randint(2, max_facts)))
        if len(by_kind) > 1:
            context, (kind, answer) = FACT_SEPARATORS.source.join(by_kind.values()), rng.choice(list(by_kind.items()))
            start = _start_of_fact(list(by_kind), kind, by_kind)
            questions[context] = QuestionExample(f"which {kind}?", context, (AnswerSpan(answer, start),))
    return list(questions.values())


def _start_of_fact(kinds: list[str], kind: str, by_kind: dict[str, str]) -> int:
    """Return the character at which the fact of a kind starts in the list."""
    before = kinds[: kinds.index(kind)]
    return sum(len(by_kind[each]) + len(FACT_SEPARATORS.source) for each in before)


def _generate_tagged_facts(rng: Random) -> Iterator[TaggedSentence]:
    """Yield English facts with tagged words, without end."""
    for kind, text in _generate_facts(rng):
        words = tuple(text.split())
        yield TaggedSentence(words, (f"B-{kind}", *[f"I-{kind}"] * (len(words) - 1)))


def _generate_facts(rng: Random) -> Iterator[tuple[str, str]]:
    """Yield kinds of facts and English facts of them, without end."""
    while True:
        generator, pair = cldr.sample_pair(rng)
        if generator in FACT_TAGS:
            yield FACT_TAGS[generator], pair.source


class SyntheticCorpus(NamedTuple):
    """A generator of examples, from their number, the most facts of one and the seed; and its examples in words."""

    generate: Callable[[int, int, int], Sequence[Any]]
    description: str


SYNTHETIC_CORPORA = {
    "translate": SyntheticCorpus(
        generate_pairs, "lists of one to {max_facts} dates, times, amounts and quantities, English to French"
    ),
    "tag": SyntheticCorpus(
        generate_tagged, "lists of one to {max_facts} facts, every word tagged with the kind of its fact"
    ),
    "classify": SyntheticCorpus(
        generate_labelled, "lists of two to {max_facts} facts, by the order of the date and the amount in them"
    ),
    "qa": SyntheticCorpus(
        generate_questions, "lists of two to {max_facts} facts, each with a question for the fact of one kind"
    ),
}
"""Synthetic corpora by task."""
