"""Learning of a shortlist from pairs of texts, by the alignments that the translator itself makes between their words.

Each target is decoded as given, its words are aligned with those of the source (word_alignment.py), and every token of
a target word counts for every token of the source word that it is aligned with.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.predict.seq2seq_inputs import Ids
from regard.predict.shortlist import Shortlist
from regard.predict.translation import TranslationPredictor
from regard.predict.word_alignment import align_words
from regard.progress import warn
from regard.text.pairs import Pair


class _Counts:
    """Counts of target tokens, and of those aligned with each source token."""

    def __init__(self) -> None:
        self.target: Counter[int] = Counter()
        self.aligned: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self.n_pairs = self.n_too_long = 0


def learn_shortlist(
    predictor: TranslationPredictor, pairs: Iterable[Pair], *, per_token: int, common: int, model: str
) -> Shortlist:
    """Return the `per_token` target tokens most often aligned with each source token, and the `common` most frequent.

    `model` is the fingerprint of the translator.
    """
    if predictor.directions.is_tagged:
        raise InputError("a translator of several directions: shortlists are for those of one direction")
    counts = _Counts()
    for buffer in buffered_read(pairs):
        _count(predictor, buffer, counts)
    if counts.n_too_long:
        warn(f"{counts.n_too_long:,} of {counts.n_pairs:,} pairs are longer than the model accepts and are left out")
    if not counts.aligned:
        raise InputError("nothing is aligned: a shortlist needs pairs, and a translator with cross-attention")
    special = predictor.special_tokens.decoding_tokens
    always = dict.fromkeys((special.eos_id, *special.suppressed_ids))
    always |= dict.fromkeys(token for token, _ in counts.target.most_common(common))
    by_source = _fill(counts, len(predictor.tokenizers.source), per_token, special.eos_id)
    return Shortlist(torch.tensor(sorted(always)), by_source, model)


def _count(predictor: TranslationPredictor, pairs: list[Pair], counts: _Counts) -> None:
    """Add the tokens and the alignments of some pairs."""
    tokenizers = predictor.tokenizers
    sides = [
        tokenizers.source.encode_batch([pair.source for pair in pairs]),
        tokenizers.target.encode_batch([pair.target for pair in pairs]),
    ]
    fitting = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= predictor.max_tokens]
    counts.n_pairs, counts.n_too_long = counts.n_pairs + len(pairs), counts.n_too_long + len(pairs) - len(fitting)
    fitting.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    for (source, target), forced in zip(fitting, predictor.force_decode(fitting), strict=True):
        counts.target.update(target)
        attention = forced.attention[..., len(predictor.special_tokens.prefix_ids) :]
        _count_aligned(predictor, source, target, attention, counts)


def _count_aligned(
    predictor: TranslationPredictor, source: Ids, target: Ids, attention: Tensor, counts: _Counts
) -> None:
    source_words, target_words = predictor.tokenizers.source.words(source), predictor.tokenizers.target.words(target)
    for s, t in align_words(attention, target_words, source_words):
        tokens = [target[i] for i in target_words[t].token_indices]
        for i in source_words[s].token_indices:
            counts.aligned[source[i]].update(tokens)


def _fill(counts: _Counts, n_source: int, per_token: int, filler: int) -> Int[Tensor, "V K"]:
    """Return the tokens most often aligned with each source token; a common one fills up the rows."""
    by_source = torch.full((n_source, per_token), filler)
    for source, aligned in counts.aligned.items():
        best = [token for token, _ in aligned.most_common(per_token)]
        by_source[source, : len(best)] = torch.tensor(best)
    return by_source
