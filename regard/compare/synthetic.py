"""Synthetic corpora: short and long lists of dates, times, amounts and quantities (demo/cldr_corpus.py).

A list of k facts is about k times as long as one fact, so long texts are as correct as short ones. For tagging, every
word is labelled with the kind of its fact in the BIO scheme; only context says which fact a number belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from regard.demo import cldr_corpus as cldr
from regard.text.pairs import Pair
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


def _generate_tagged_facts(rng: Random) -> Iterator[TaggedSentence]:
    """Yield English facts with tagged words, without end."""
    while True:
        kind, pair = cldr.sample_pair(rng)
        if kind in FACT_TAGS:
            words = tuple(pair.source.split())
            name = FACT_TAGS[kind]
            yield TaggedSentence(words, (f"B-{name}", *[f"I-{name}"] * (len(words) - 1)))
