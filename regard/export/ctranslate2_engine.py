"""Translation by CTranslate2 instead of regard: `regard translate --engine ctranslate2`.

The model is a directory that `regard export --to ctranslate2` wrote, or any translator, which is exported for the
duration of the command. Scores are those of regard's formula, computed by the engine for the tokens that it wrote. The
engine searches with its own length penalty, ``length^alpha``, samples by other rules, and returns the attention of one
layer at most, so there are no samples and no word alignments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.data.buckets import batch_by_length
from regard.disk import read_json
from regard.errors import CheckpointError, InputError
from regard.export.ctranslate2_format import REGARD_KEY, CTranslate2Format
from regard.export.exporting import open_source, write_and_compare
from regard.generate import DecodingConfig, make_hypothesis
from regard.predict.input_length import check_fits
from regard.predict.translation import EMPTY_TRANSLATION, MAX_EXTRA_TOKENS, Translation
from regard.progress import warn
from regard.text.languages import ONE_DIRECTION, Directions
from regard.text.tokenizer import TOKENIZER_FILE, Tokenizer, TokenizerPair

MODEL_FILE, CONFIG_FILE = "model.bin", "config.json"

STORED_KEYS = {"first", "n_positions", "suppressed"}
"""The keys of what regard stores in config.json."""

Ids = Sequence[int]


@contextmanager
def open_engine(path: Path, device: torch.device) -> Iterator[CTranslate2Translator]:
    """Open an exported translator, or export one into a directory that is removed at the end."""
    CTranslate2Format().require_engine()
    if (path / MODEL_FILE).exists():
        yield CTranslate2Translator.open(path, device)
        return
    with TemporaryDirectory(prefix="regard-") as aside:
        source = open_source(path)
        if not source.is_translator:
            raise InputError(f"{path}: a model for {source.task.name}; --engine ctranslate2 is for translators")
        directory = Path(aside) / "model"
        write_and_compare(source, directory, CTranslate2Format(), "")
        yield CTranslate2Translator.open(directory, device)


@dataclass(frozen=True)
class CTranslate2Translator:
    """An exported translator, with the special tokens of its config.json."""

    engine: Any
    tokenizers: TokenizerPair
    prefix: list[str]
    end: str
    suppressed: list[list[str]]
    n_positions: int
    directions: Directions = ONE_DIRECTION

    @classmethod
    def open(cls, directory: Path, device: torch.device) -> CTranslate2Translator:
        """Load an exported directory; on a CPU every core translates batches of its own, which is fastest."""
        config = read_json(directory / CONFIG_FILE)
        ours = config.get(REGARD_KEY)
        if not isinstance(ours, dict) or not ours.keys() >= STORED_KEYS:
            problem = "not a translator that `regard export --to ctranslate2` wrote"
            raise CheckpointError(f"{directory}: {problem}; export the model again")
        source = Tokenizer.load(directory / TOKENIZER_FILE)
        target_path = directory / TokenizerPair.TARGET_FILE
        target = Tokenizer.load(target_path) if target_path.exists() else source
        first = ours["first"]
        return cls(
            _load_engine(directory, device),
            TokenizerPair(source, target),
            [first] if first else [],
            config["eos_token"],
            [[token] for token in ours["suppressed"]],
            ours["n_positions"],
            Directions.of_task(ours.get("directions", ()), "", ""),
        )

    def translate_batches(
        self, batches: Iterable[Sequence[str]], config: DecodingConfig, *, with_scores: bool, to: str = ""
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Yield every text with its translations into a language, in order; without scores these are not a number."""
        if config.sample:
            raise InputError("--sample: --engine ctranslate2 searches only; leave one of them out")
        tags = list(map(self.tokenizers.source.token_to_id, self.directions.source_tokens(to)))
        n_texts = n_cut = 0
        for texts in batches:
            numbers = [number for number, text in enumerate(texts) if text.strip()]
            encoded = self.tokenizers.source.encode_batch([texts[number] for number in numbers])
            sources = [[*tags, *ids] for ids in encoded]
            self._check_lengths(sources, [number + n_texts for number in numbers])
            n_texts += len(texts)
            translations_by_number = dict(
                zip(numbers, self._translate(sources, config, with_scores=with_scores), strict=True)
            )
            limits = (self._max_length(source) for source in sources)
            n_cut += sum(
                len(best[0].ids) >= limit for best, limit in zip(translations_by_number.values(), limits, strict=True)
            )
            yield from (
                (text, translations_by_number.get(number, [EMPTY_TRANSLATION])) for number, text in enumerate(texts)
            )
        if n_cut:
            at_limit = f"truncated at their limit, {MAX_EXTRA_TOKENS} tokens more than the source"
            warn(f"{n_cut:,} of {n_texts:,} translations were {at_limit}")

    def _check_lengths(self, sources: Sequence[Ids], numbers: Sequence[int]) -> None:
        limit = self.n_positions - 1 - len(self.prefix)
        for number, ids in zip(numbers, sources, strict=True):
            check_fits(len(ids), limit, text=f"text {number + 1:,}", fix="split it into sentences")

    def _max_length(self, source: Ids) -> int:
        """Return the tokens that a translation has at most, the end included."""
        return min(len(source) + MAX_EXTRA_TOKENS, self.n_positions - len(self.prefix))

    def _cut(self, tokens: list[str], source: Ids) -> list[str]:
        """Return the tokens of a hypothesis without prefix, cut at the limit of its own source."""
        return tokens[len(self.prefix) : len(self.prefix) + self._max_length(source) - 1]

    def _translate(
        self, sources: Sequence[Ids], config: DecodingConfig, *, with_scores: bool
    ) -> list[list[Translation]]:
        """Return the translations of each source; all batches are handed to the engine before the first is awaited."""
        source_tokens = [[*self.prefix, *_names(self.tokenizers.source, ids), self.end] for ids in sources]
        started = []
        for chosen in batch_by_length(list(map(len, sources)), config.batch):
            limit = max(self._max_length(sources[i]) for i in chosen)
            started.append((chosen, self._start([source_tokens[i] for i in chosen], config, limit)))
        best: dict[int, list[list[str]]] = {}
        for chosen, results in started:
            best.update(
                (i, [self._cut(tokens, sources[i]) for tokens in result.result().hypotheses])
                for i, result in zip(chosen, results, strict=True)
            )
        return [self._make_translations(source_tokens[i], best[i], config, with_scores) for i in range(len(sources))]

    def _start(self, sources: list[list[str]], config: DecodingConfig, limit: int) -> Any:
        return self.engine.translate_batch(
            sources,
            target_prefix=[self.prefix] * len(sources) if self.prefix else None,
            beam_size=config.beam_width,
            num_hypotheses=config.n_best,
            length_penalty=config.alpha,
            max_input_length=0,
            max_decoding_length=limit - 1 + len(self.prefix),
            min_decoding_length=0,
            suppress_sequences=self.suppressed or None,
            asynchronous=True,
        )

    def _make_translations(
        self, source: list[str], hypotheses: list[list[str]], config: DecodingConfig, with_scores: bool
    ) -> list[Translation]:
        """Return the hypotheses as translations, best first by regard's score."""
        target = self.tokenizers.target
        ids = [tuple(target.token_to_id(token) for token in (*tokens, self.end)) for tokens in hypotheses]
        if not with_scores:
            return [Translation(target.decode(each), math.nan, [], [], [], each) for each in ids]
        scored = self.engine.score_batch(
            [source] * len(hypotheses), [self.prefix + tokens for tokens in hypotheses], max_input_length=0
        )
        translations = []
        for each, result in zip(ids, scored, strict=True):
            best = make_hypothesis(each, result.log_probs[len(self.prefix) :], config.alpha)
            text, tokens = target.decode(best.ids), target.display_tokens(best.ids)
            translations.append(Translation(text, best.score, tokens, list(best.token_scores), [], best.ids))
        return sorted(translations, key=lambda translation: -translation.score)


def _load_engine(directory: Path, device: torch.device) -> Any:
    import ctranslate2

    if device.type == "cuda":
        return ctranslate2.Translator(str(directory), device="cuda", device_index=device.index or 0)
    if device.type != "cpu":
        raise InputError(f"--device {device.type}: --engine ctranslate2 has cpu and cuda")
    return ctranslate2.Translator(str(directory), device="cpu", inter_threads=torch.get_num_threads(), intra_threads=1)


def _names(tokenizer: Tokenizer, ids: Ids) -> list[str]:
    return [tokenizer.id_to_token(index) for index in ids]
