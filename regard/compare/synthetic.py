"""Data for those who bring none: lists of dates, times, amounts and quantities (demo/cldr_corpus.py), short and long.

A list of k facts is about k times as long as one, so long texts are as right as short ones. For tagging, every word
has the kind of fact it stands in, from B- at its first word on; which fact a number belongs to, only its place says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from regard.demo import cldr_corpus as cldr
from regard.text.pairs import Pair
from regard.text.tagged import TaggedSentence

FACT_SEPARATORS = Pair("; ", " ; ")
"""What parts the facts of a list, in English and in French."""

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
"""Kinds of facts whose words are tagged; sentences, which are made of others, are not among them."""


def generate_pairs(count: int, max_facts: int, seed: int) -> list[Pair]:
    """So many lists of one to `most` facts in both languages, none of them twice."""
    rng = Random(seed)
    french: dict[str, str] = {}
    while len(french) < count:
        facts = [cldr.sample_pair(rng)[1] for _ in range(rng.randint(1, max_facts))]
        english, of_it = (
            between.join(side) for between, side in zip(FACT_SEPARATORS, zip(*facts, strict=True), strict=True)
        )
        french[english] = of_it
    return [Pair(*item) for item in french.items()]


def generate_tagged(count: int, max_facts: int, seed: int) -> list[TaggedSentence]:
    """So many lists of one to `most` facts, their words tagged, none of them twice; nothing but words parts facts."""
    rng = Random(seed)
    facts = _generate_tagged_facts(rng)
    labels: dict[tuple[str, ...], tuple[str, ...]] = {}
    while len(labels) < count:
        chosen = list(islice(facts, rng.randint(1, max_facts)))
        words = tuple(word for fact in chosen for word in fact.words)
        labels[words] = tuple(label for fact in chosen for label in fact.labels)
    return [TaggedSentence(*item) for item in labels.items()]


def _generate_tagged_facts(rng: Random) -> Iterator[TaggedSentence]:
    """Facts without end, each in English, its words tagged."""
    while True:
        kind, pair = cldr.sample_pair(rng)
        if kind in FACT_TAGS:
            words = tuple(pair.source.split())
            name = FACT_TAGS[kind]
            yield TaggedSentence(words, (f"B-{name}", *[f"I-{name}"] * (len(words) - 1)))
