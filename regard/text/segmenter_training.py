"""Training of a word segmenter on running text with its words, as CoNLL-U has it.

Each question of word_segmenter.py is learned from the distinct answers that the corpus gives to it: a chunk that occurs
a thousand times between neighbours of the same kinds is one example. Sentences are read alone, and again between the
sentences before and after them, since a text to be tagged may have several sentences. Called by tasks/tag.py.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from regard.text.linear_classifier import PerceptronTrainer, Weights
from regard.text.running_text import RunningText, is_spelled
from regard.text.word_features import (
    NOT_SPLIT_BY_DEFAULT,
    SPLIT_BY_DEFAULT,
    Chunk,
    ChunkFeatures,
    expansion_features,
    find_chunks,
    join_features,
    lowercase,
    shape,
)
from regard.text.word_segmenter import INSIDE, N_CLASSES, PART, TOKEN, Expansion, WordSegmenter, open_positions

MAX_SENTENCES = 50_000
"""Sentences that a segmenter is learned from, at most: the first ones."""
N_EPOCHS, MAX_EPOCHS, FEW_EXAMPLES = 6, 50, 20_000
"""Passes over the examples; more if there are few, so that most of the averaged weights are learned ones."""
RARE_SPLIT = 0.002
"""The fraction of positions between letters where words begin, below which only particular words are split."""
PRIOR = 10
"""The weight of the default words before anything is learned: more than the margin of the classifier."""
FEW_SPLITS = 5
"""The number of positions between letters where words begin, up to which only particular words are split."""

Classes = tuple[int, ...]
Example = TypeVar("Example")
Answer = TypeVar("Answer", bound=Hashable)
Question = TypeVar("Question", bound=Hashable)
Tally = defaultdict[Question, Counter[Answer]]
"""The number of times that a question got each of its answers."""


def train_segmenter(read: Callable[[], Iterator[RunningText]]) -> WordSegmenter | None:
    """Return a segmenter learned from the texts that every call of `read` returns; None if there are none."""
    chunks: Tally[Chunk, Classes] = defaultdict(Counter)
    forms: Tally[str, tuple[str, ...]] = defaultdict(Counter)
    n_sentences, has_joins = 0, False
    for before, text, after in _with_neighbours(islice(read(), MAX_SENTENCES)):
        n_sentences += 1
        classes = _character_classes(text)
        has_joins |= _count_chunks(chunks, classes, before, text, after)
        for surface, words in _surfaces(text):
            forms[surface][() if is_spelled(surface, words) else words] += 1
    if n_sentences == 0:
        return None
    splits_letters, split_runs = _find_split_runs(chunks)
    boundaries = _learn_boundaries(chunks, splits_letters, split_runs)
    expansions = _find_expansions(forms)
    joins: Tally[tuple[str, str, str, bool], int] = defaultdict(Counter)
    expands: Tally[tuple[str, str, str], int] = defaultdict(Counter)
    ambiguous = {lowercase(surface) for surface, each in expansions.items() if each.is_ambiguous}
    if has_joins or ambiguous:
        for text in islice(read(), MAX_SENTENCES):
            _count_joins(joins, text)
            _count_expanded(expands, text, ambiguous)
    return WordSegmenter(
        n_sentences,
        boundaries,
        splits_letters,
        split_runs,
        _learn_binary({question: join_features(*question) for question in joins}, joins) if has_joins else {},
        expansions,
        _learn_binary({question: expansion_features(*question) for question in expands}, expands),
    )


def _with_neighbours(
    texts: Iterable[RunningText],
) -> Iterator[tuple[RunningText | None, RunningText, RunningText | None]]:
    """Yield each text with the one before and the one after it."""
    before: RunningText | None = None
    current: RunningText | None = None
    for after in texts:
        if current is not None:
            yield before, current, after
        before, current = current, after
    if current is not None:
        yield before, current, None


def _character_classes(text: RunningText) -> list[int]:
    """Return the class of each character of a text."""
    classes = [INSIDE] * len(text.text)
    for word in text.words():
        if word.start != word.token.start:
            classes[word.start] = PART
    for span, _ in text.tokens:
        classes[span.start] = TOKEN
    return classes


def _count_chunks(
    counts: Tally[Chunk, Classes],
    classes: Sequence[int],
    before: RunningText | None,
    text: RunningText,
    after: RunningText | None,
) -> bool:
    """Count the chunks of a text, alone and between its neighbours; return True if a word continues after a space."""
    chunks = list(find_chunks(text.text))
    has_joins = False
    for number, (start, chunk) in enumerate(chunks):
        has_joins |= classes[start] == INSIDE
        inner = tuple(classes[start + 1 : start + len(chunk.text)])
        counts[chunk][inner] += 1
        if number == 0 and before is not None:
            counts[chunk._replace(before=shape(before.text.rstrip()[-1:]))][inner] += 1
        if number == len(chunks) - 1 and after is not None:
            counts[chunk._replace(after=shape(after.text.lstrip()[:1]))][inner] += 1
    return has_joins


def _surfaces(text: RunningText) -> Iterator[tuple[str, tuple[str, ...]]]:
    return ((text.text[span.start : span.end], forms) for span, forms in text.tokens)


def _find_split_runs(counts: Tally[Chunk, Classes]) -> tuple[bool, frozenset[str]]:
    """Return whether words often begin between letters, and the runs of letters in which they do."""
    n_positions, n_splits, split_runs = 0, 0, set()
    for chunk, answers in counts.items():
        features = ChunkFeatures(chunk)
        if features.letters is None:
            continue
        start, end = features.letters
        inner = [INSIDE, *_most_frequent(answers)][start + 1 : end]
        n_positions, n_splits = n_positions + len(inner), n_splits + len(inner) - inner.count(INSIDE)
        if any(inner):
            split_runs.add(features.lower[start:end])
    return n_splits >= FEW_SPLITS + RARE_SPLIT * n_positions, frozenset(split_runs)


def _learn_boundaries(counts: Tally[Chunk, Classes], splits_letters: bool, split_runs: frozenset[str]) -> Weights:
    """Learn where words begin from the most frequent segmentation of each chunk, starting at the default words."""
    n_examples = Counter[str]()
    for chunk, answers in counts.items():
        n_examples[lowercase(chunk.text)] += sum(answers.values())
    examples = []
    for chunk, answers in counts.items():
        features = ChunkFeatures(chunk)
        is_known = n_examples[features.lower] > 1
        positions = {
            position: features.window_features(position, is_known=is_known)
            for position in open_positions(features, splits_letters, split_runs)
        }
        if positions:
            examples.append((features, positions, (TOKEN, *_most_frequent(answers))))
    trainer = PerceptronTrainer(N_CLASSES, {SPLIT_BY_DEFAULT: [0, PRIOR, 0], NOT_SPLIT_BY_DEFAULT: [PRIOR, 0, 0]})
    for epoch in _epochs(examples):
        for features, positions, gold in epoch:
            before, last, word_start = TOKEN, 0, 0
            for position, window in positions.items():
                before = before if position == last + 1 else INSIDE
                before = trainer.learn(window + features.history_features(position, word_start, before), gold[position])
                last, word_start = position, position if before != INSIDE else word_start
    return trainer.averaged_weights()


def _find_expansions(counts: Tally[str, tuple[str, ...]]) -> dict[str, Expansion]:
    """Return the most frequent forms of each token that does not spell its words."""
    single_words = {lowercase(surface) for surface, answers in counts.items() if answers[()]}
    expansions = {}
    for surface, answers in counts.items():
        if expanded := Counter({forms: n for forms, n in answers.items() if forms}):
            expansions[surface] = Expansion(_most_frequent(expanded), lowercase(surface) in single_words)
    return dict(sorted(expansions.items()))


def _count_joins(counts: Tally[tuple[str, str, str, bool], int], text: RunningText) -> None:
    classes = _character_classes(text)
    starts, chunks = zip(*find_chunks(text.text), strict=True)
    joined = [classes[start] == INSIDE for start in starts]
    padded = [*(chunk.text for chunk in chunks), ""]
    for number in range(1, len(chunks)):
        counts[padded[number - 1], padded[number], padded[number + 1], joined[number - 1]][joined[number]] += 1


def _count_expanded(counts: Tally[tuple[str, str, str], int], text: RunningText, ambiguous: set[str]) -> None:
    tokens = [("", ()), *_surfaces(text), ("", ())]
    for (before, _), (surface, words), (after, _) in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if lowercase(surface) in ambiguous:
            counts[before, surface, after][not is_spelled(surface, words)] += 1


def _learn_binary(features: Mapping[Question, Sequence[str]], counts: Tally[Question, int]) -> Weights:
    trainer = PerceptronTrainer(2)
    examples = [(inputs, int(_most_frequent(counts[question]))) for question, inputs in features.items()]
    for epoch in _epochs(examples):
        for inputs, gold in epoch:
            trainer.learn(inputs, gold)
    return trainer.averaged_weights()


def _epochs(examples: list[Example]) -> Iterator[list[Example]]:
    """Yield the examples in another order for each pass over them."""
    generator = random.Random(0)
    for _ in range(min(MAX_EPOCHS, max(N_EPOCHS, FEW_EXAMPLES // max(1, len(examples))))):
        generator.shuffle(examples)
        yield examples


def _most_frequent(counts: Counter[Answer]) -> Answer:
    """Return the most frequent answer; of equally frequent ones, the first that was given."""
    return max(counts, key=counts.__getitem__)
