"""Scores others can compare: BLEU and chrF by sacrebleu, on plain detokenised text, with their signatures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TranslationScore:
    """Corpus scores of translations against one reference each; exact is the share that equals its reference."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float


def translation_score(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> TranslationScore:
    """BLEU and chrF of a corpus."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    same = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return TranslationScore(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        exact=same / len(references),
    )


def perplexity(nll: float, n_tokens: int) -> float:
    """``exp(nll / tokens)``; infinite rather than an overflow where a model is hopeless."""
    mean = nll / n_tokens
    return math.exp(mean) if mean < 700 else math.inf
