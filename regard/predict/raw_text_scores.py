"""Scores of a tagger on running text, which it segments itself, against a reference (CoNLL-U).

A score on given words says nothing about text that the tagger segments differently. Called by tasks/tag.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.metrics import EntityScore, extract_entities
from regard.predict.tagging import TaggingPredictor
from regard.text.segmentation_scores import SegmentationCounts
from regard.text.tagged import TaggedSentence, is_entity_scheme
from regard.text.words import TextWord


def score_raw_text(predictor: TaggingPredictor, sentences: Sequence[TaggedSentence]) -> dict[str, float]:
    """Return the scores of the sentences whose text is known; nothing if there are none.

    Words are scored, and words with their labels, as in the CoNLL 2018 shared task; entities by type and characters.
    """
    known = [(each.text, each.labels) for each in sentences if each.text is not None]
    if not known:
        return {}
    counts, entities = SegmentationCounts(), EntityScore(0, 0, 0)
    for (text, labels), tagged in zip(known, predictor.tag_texts([text.text for text, _ in known]), strict=True):
        words, found_words = text.words(), [each.text_word for each in tagged]
        found_labels = [each.label for each in tagged]
        counts.add(words, labels, found_words, found_labels)
        gold, predicted = _entity_spans(words, labels), _entity_spans(found_words, found_labels)
        sums = zip(entities, (len(gold), len(predicted), len(gold & predicted)), strict=True)
        entities = EntityScore(*(total + n for total, n in sums))
    n_aligned = counts.n_aligned
    scores = {
        "raw_sentences": len(known),
        "raw_words_precision": counts.precision(n_aligned),
        "raw_words_recall": counts.recall(n_aligned),
        "raw_words_f1": counts.f1(n_aligned),
    }
    if predictor.is_regression:
        return scores
    has_entities = is_entity_scheme(predictor.labels.names)
    return {
        **scores,
        "raw_tags_f1": counts.f1(counts.n_same_label),
        **({"raw_entity_f1": entities.f1} if has_entities else {}),
    }


def _entity_spans(words: Sequence[TextWord], labels: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return the entities of a text, each with its characters."""
    if not is_entity_scheme(labels):
        return set()
    return {(each.label, words[each.start].start, words[each.end - 1].end) for each in extract_entities(labels)}
