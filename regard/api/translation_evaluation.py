"""The evaluation of a translator: pairs by direction, and the scores of each and of all. translator.py calls this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from regard.data.buckets import buffered_read
from regard.errors import DataError, InputError
from regard.generate import DecodingConfig
from regard.metrics import perplexity, translation_score
from regard.predict.translation import TranslationPredictor
from regard.progress import track
from regard.text.languages import Direction, Directions, names_languages
from regard.text.multilingual import expand_row, list_directions, read_multilingual_rows
from regard.text.pairs import Pair, read_pairs

MEAN_SCORES = ("bleu", "chrf", "exact")
"""The scores that are averaged over directions."""


@dataclass(frozen=True)
class PairsInto:
    """Pairs to be translated into a language; their direction where it is known."""

    target_lang: str
    pairs: list[Pair]
    direction: str = ""


def read_pairs_by_direction(
    files: Sequence[str],
    columns: Sequence[str],
    directions: Directions,
    *,
    source_lang: str,
    target_lang: str,
    skip_empty: bool,
) -> list[PairsInto]:
    """Return the pairs of each direction: that of the options or, where the files name languages, all of the model."""
    if not names_languages(files):
        if len(directions.targets) > 1 and not target_lang:
            raise InputError(
                f"which direction? this model translates {directions}; give --source-lang and --target-lang"
            )
        target = directions.choose_target(target_lang, source_lang)
        direction = str(Direction(source_lang, target)) if source_lang and target else ""
        return [PairsInto(target, list(read_pairs(files, columns, skip_empty=skip_empty)), direction)]
    if target_lang or not directions.known:
        directions.choose_target(target_lang or directions.choose_target("", source_lang), source_lang)
    wanted = set(_select(directions, source_lang, target_lang))
    pairs: dict[Direction, list[Pair]] = defaultdict(list)
    for row in read_multilingual_rows(files, columns, None, skip_empty=skip_empty):
        for each, source, target in expand_row(row):
            if each in wanted:
                pairs[each].append(Pair(source, target))
    if not pairs:
        available = ", ".join(map(str, list_directions(files, None)))
        raise DataError(files[0], f"has {available}; asked for: {', '.join(map(str, sorted(wanted))) or 'none'}")
    return [PairsInto(each.target, pairs[each], str(each)) for each in directions.known if each in pairs]


def _select(directions: Directions, source_lang: str, target_lang: str) -> Iterator[Direction]:
    for direction in directions.known:
        if source_lang in ("", direction.source) and target_lang in ("", direction.target):
            yield direction


def score_pairs(
    predictor: TranslationPredictor, data: PairsInto, config: DecodingConfig, *, lowercase: bool
) -> dict[str, Any]:
    """Return the scores of one direction."""
    sources, references = zip(*data.pairs, strict=True)
    encoded = predictor.encode_sources(sources, data.target_lang)
    targets = predictor.tokenizers.target.encode_batch(references)
    nll, n_tokens = predictor.compute_nll(list(zip(encoded, targets, strict=True)))
    translated = predictor.translate(buffered_read(sources), config, with_alignment=False, to=data.target_lang)
    hypotheses = [best[0].text for _, best in track(translated, f"translating {data.direction}".strip(), len(sources))]
    scores = translation_score(hypotheses, references, lowercase=lowercase)
    return {
        "n": len(data.pairs),
        "bleu": scores.bleu,
        "bleu_signature": scores.bleu_signature,
        "chrf": scores.chrf,
        "chrf_signature": scores.chrf_signature,
        "exact": scores.exact,
        "perplexity": perplexity(nll, n_tokens),
        "tokens": n_tokens,
        "nll": nll,
    }


def merge_scores(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means over directions, the perplexity of all tokens, and BLEU of each where there are several."""
    listed = list(scores.values())
    counts = {key: sum(each[key] for each in listed) for key in ("n", "tokens", "nll")}
    means = {key: fmean(each[key] for each in listed) for key in MEAN_SCORES}
    each_bleu = {f"bleu_{name}": each["bleu"] for name, each in scores.items()} if len(listed) > 1 else {}
    merged = {**listed[0], **counts, **means, "perplexity": perplexity(counts["nll"], counts["tokens"])}
    del merged["nll"]
    return {**merged, **each_bleu}
