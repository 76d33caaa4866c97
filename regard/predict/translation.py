"""Translation by a trained encoder-decoder: search, forced decoding and likelihoods of given targets.

`translate` reads any number of texts, works in order of length and gives results in input order. Searches are in
generate/, the layout of rows in seq2seq_inputs.py. The API calls all of it, tasks/translate.py `generate` for BLEU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import repeat

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import Seq2SeqBatch
from regard.data.buckets import batch_by_length
from regard.errors import InputError, NonFiniteError
from regard.generate import DecodingConfig, Hypothesis, make_hypothesis
from regard.models.finite_outputs import check_finite
from regard.models.interfaces import Seq2SeqModel
from regard.nn import record
from regard.nn.quantization import is_quantized
from regard.predict.input_length import check_fits
from regard.predict.seq2seq_batching import Seq2SeqBatching, round_up_to_slots
from regard.predict.seq2seq_inputs import Ids, Seq2SeqSpecialTokens, pairs_to_rows
from regard.predict.shortlist import Shortlist
from regard.predict.word_alignment import align_words
from regard.predict.worker_threads import count_workers, map_batches_in_threads
from regard.progress import warn
from regard.text.languages import ONE_DIRECTION, Directions
from regard.text.tokenizer import Tokenizer, TokenizerPair

MAX_ATTENTION_CELLS = 1 << 18
"""Pairs of a target and a source token whose attention is recorded at once, in every layer and head."""

MIN_DIVIDED = 4
"""Sentences that a core gets at least when one batch is divided among them."""

MAX_PARTS = 16
"""Parts that the sentences of a buffer are divided into on a CPU, each decoded by one core."""

LIKELIHOOD_BATCH_SIZE = 64
"""Given targets whose likelihood is worked out at once."""

MAX_EXTRA_TOKENS = 50
"""Tokens a translation may have more than its source."""


@dataclass(frozen=True)
class Translation:
    """One translation: the score's formula is in generate/hypothesis.py; alignment pairs (source, target) words.

    `ids` are those of its tokens. `attention` is what each of them looked at in the source, in every layer and head,
    where it was asked for.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    alignment: list[tuple[int, int]]
    ids: tuple[int, ...] = ()
    source_tokens: list[str] = field(default_factory=list)
    attention: Float[Tensor, "L H T S"] | None = field(default=None, compare=False, repr=False)


EMPTY_TRANSLATION = Translation("", 0.0, [], [], [])


@dataclass(frozen=True)
class ForcedDecoding:
    """A given target, scored by the model, with what each of its tokens looked at (layers, heads, target, source)."""

    hypothesis: Hypothesis
    attention: Float[Tensor, "L H T S"]


@dataclass(frozen=True)
class TranslationPredictor:
    """A translation model with its vocabularies, on a device."""

    model: Seq2SeqModel
    tokenizers: TokenizerPair
    special_tokens: Seq2SeqSpecialTokens
    device: torch.device
    directions: Directions = ONE_DIRECTION
    shortlist: Shortlist | None = None

    def encode_sources(self, texts: Sequence[str], to: str | Sequence[str] = "") -> list[list[int]]:
        """Return the ids of texts to be translated into a language, its token first where the model has several.

        Every text may have a language, or a direction, of its own.
        """
        names = [to] * len(texts) if isinstance(to, str) else [each.rpartition("-")[-1] for each in to]
        prefixes = {
            name: list(map(self.tokenizers.source.token_to_id, self.directions.source_tokens(name)))
            for name in set(names)
        }
        encoded = self.tokenizers.source.encode_batch(texts)
        return [[*prefixes[name], *ids] for name, ids in zip(names, encoded, strict=True)]

    @cached_property
    def batching(self) -> Seq2SeqBatching:
        """The batches in which sentences are decoded; they keep captured CUDA graphs."""
        shortlist, n_target, is_joint = self.shortlist, len(self.tokenizers.target), self.tokenizers.is_joint
        allow = None if shortlist is None else partial(shortlist.allow, n_target=n_target, is_joint=is_joint)
        return Seq2SeqBatching(self.model, self.special_tokens, self.device, allow)

    def translate(
        self,
        text_batches: Iterable[Sequence[str]],
        config: DecodingConfig,
        *,
        with_alignment: bool = True,
        with_attention: bool = False,
        to: str = "",
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Yield each text with its best translations, in input order; a buffer is decoded in order of length.

        A model of several languages translates into the language `to`. A blank text has a blank translation, so that
        the lines of a file stay side by side.
        """
        n_texts = n_cut = 0
        for buffer in text_batches:
            numbers = [number for number, text in enumerate(buffer, n_texts) if text.strip()]
            sources = self.encode_sources([buffer[number - n_texts] for number in numbers], to)
            n_texts += len(buffer)
            self.check_lengths(zip(numbers, sources, strict=True), self.tokenizers.source)
            n_best = self.generate(sources, config, numbers)
            n_cut += sum(hypotheses[0].is_truncated for hypotheses in n_best)
            pairs = [(ids, best) for ids, hypotheses in zip(sources, n_best, strict=True) for best in hypotheses]
            written = self._make_translations(
                pairs, needs_attention=with_alignment or with_attention, with_attention=with_attention
            )
            best = ([next(written) for _ in hypotheses] for hypotheses in n_best)
            for text in buffer:
                yield text, next(best) if text.strip() else [EMPTY_TRANSLATION]
        if n_cut:
            limit = f"{MAX_EXTRA_TOKENS} tokens more than the source"
            warn(f"{n_cut:,} of {n_texts:,} translations were truncated at their limit, {limit}")

    def generate(
        self, sources: Sequence[Ids], config: DecodingConfig, text_indices: Sequence[int] | None = None
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source, in input order; the longest are decoded first.

        `text_indices` number the sources among all texts of the call; with the seed they determine what is sampled.
        """
        numbers = range(len(sources)) if text_indices is None else text_indices

        def generate(chosen: list[int]) -> list[list[Hypothesis]]:
            return self._generate_group([sources[i] for i in chosen], config, [numbers[i] for i in chosen])

        hypotheses: dict[int, list[Hypothesis]] = {}
        for chosen, group in map_batches_in_threads(generate, self._group(sources, config), self.device):
            hypotheses.update(zip(chosen, group, strict=True))
        return [hypotheses[i] for i in range(len(sources))]

    def _group(self, sources: Sequence[Ids], config: DecodingConfig) -> list[list[int]]:
        """Return the sources that one decoder gets: samples by batches; others in parts, on a CPU several.

        Each part has long and short ones, and its batch is kept full with those that wait.
        """
        if config.sample:
            size = self._batch_size(len(sources), config.batch)
            return list(batch_by_length([len(source) for source in sources], size))
        n_parts = self._count_parts(len(sources), config.batch) if self.device.type == "cpu" else min(len(sources), 1)
        by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        return [by_length[first::n_parts] for first in range(n_parts)]

    def _count_parts(self, n_sources: int, batch_size: int) -> int:
        """Return the number of parts: one for each core in int8, a power of two of at least a batch otherwise.

        Numbers of float32 may round otherwise beside other sentences, so it does not depend on the number of cores.
        """
        if is_quantized(self.model):
            return min(count_workers(self.device), max(n_sources // MIN_DIVIDED, 1), n_sources)
        n_batches = -(-n_sources // batch_size)
        return min(1 << max(n_batches - 1, 0).bit_length(), MAX_PARTS, n_sources)

    def _batch_size(self, n_sources: int, largest: int) -> int:
        """Return the sentences of a batch: of int8, few sentences are divided among the cores.

        A batch of float32 stays whole, since its numbers may round otherwise beside other sentences.
        """
        divided = -(-n_sources // count_workers(self.device))
        return divided if is_quantized(self.model) and MIN_DIVIDED <= divided < largest else largest

    def _generate_group(
        self, sources: Sequence[Ids], config: DecodingConfig, text_indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        try:
            hypotheses = self._sample(sources, config, text_indices) if config.sample else self._search(sources, config)
        except torch.OutOfMemoryError:
            n = min(len(sources), config.batch)
            raise InputError(f"out of memory with {n} texts at once; pass a smaller --batch") from None
        if not all(hypotheses):
            raise NonFiniteError
        return [each[: config.n_best] for each in hypotheses]

    def _search(self, sources: Sequence[Ids], config: DecodingConfig) -> list[list[Hypothesis]]:
        """Search for the best hypotheses, in a batch that is kept full."""
        search = config.make_search(self.special_tokens.decoding_tokens)
        hypotheses: dict[int, list[Hypothesis]] = {}
        with self.batching.open_batcher(search, round_up_to_slots(len(sources), config.batch)) as batcher:
            handles = batcher.submit(sources, self._max_lengths(sources))
            while not batcher.is_idle:
                batcher.step()
                hypotheses.update(batcher.take_finished())
        return [hypotheses[handle] for handle in handles]

    @torch.inference_mode()
    def _sample(
        self, sources: Sequence[Ids], config: DecodingConfig, text_indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Draw hypotheses of one batch."""
        if self.shortlist is not None:
            raise InputError("a shortlist belongs to beam search and greedy search; leave it out to sample")
        return config.sample_hypotheses(
            self.model.step,
            lambda: self.batching.start(sources),
            torch.tensor(self._max_lengths(sources), device=self.device),
            self.special_tokens.decoding_tokens,
            text_indices,
        )

    def _max_lengths(self, sources: Sequence[Ids]) -> list[int]:
        longest = self.model.config.n_positions - len(self.special_tokens.prefix_ids)
        return [min(len(source) + MAX_EXTRA_TOKENS, longest) for source in sources]

    def force_decode(
        self, pairs: Sequence[tuple[Ids, Ids]], alpha: float = DecodingConfig.alpha
    ) -> Iterator[ForcedDecoding]:
        """Score given targets (ids without ``<eos>``), with what each of their tokens looked at; in input order."""
        self.check_pairs(pairs)
        for group in _group_by_attention_size(pairs, MAX_ATTENTION_CELLS):
            yield from self._force_decode_batch(group, alpha)

    def _force_decode_batch(self, pairs: Sequence[tuple[Ids, Ids]], alpha: float) -> Iterator[ForcedDecoding]:
        model, batch, before = self.model, self.make_batch(pairs), len(self.special_tokens.prefix_ids)
        with torch.inference_mode(), record(model, "decoder.*.cross_attention.weights", required=False) as recorded:
            log_probs = model(batch.source, batch.target_in).float().log_softmax(-1)
        scores = check_finite(log_probs.gather(-1, batch.target_out.clamp(min=0)[..., None]).squeeze(-1).cpu())
        nothing = scores.new_zeros(len(pairs), 0, 0, *scores.shape[1:], batch.source.ids.shape[1])
        attention = torch.stack(list(recorded.values()), 1).cpu() if recorded else nothing  # (B, L, H, T, S)
        for row, (source, target) in enumerate(pairs):
            written = slice(before, before + len(target) + 1)
            hypothesis = make_hypothesis([*target, self.special_tokens.eos_id], scores[row, written].tolist(), alpha)
            yield ForcedDecoding(hypothesis, attention[row, :, :, written, : before + len(source) + 1])

    def compute_nll(self, pairs: Sequence[tuple[Ids, Ids]]) -> tuple[float, int]:
        """Return the negative log-likelihood of given targets and their number of tokens, ``<eos>`` included."""
        self.check_pairs(pairs)
        words, bias = self.model.softmax_embedding, self.model.output_bias
        nll, n_tokens = 0.0, 0
        for chosen in batch_by_length([len(target) for _, target in pairs], LIKELIHOOD_BATCH_SIZE):
            batch = self.make_batch([pairs[i] for i in chosen])
            with torch.inference_mode():
                decoded = self.model.hidden_states(batch.source, batch.target_in)
                loss = words.cross_entropy(decoded, batch.target_out, bias)
            nll, n_tokens = nll + check_finite(loss.nll).item(), n_tokens + int(loss.n_tokens)
        return nll, n_tokens

    def make_batch(self, pairs: Sequence[tuple[Ids, Ids]]) -> Seq2SeqBatch:
        """Return a batch of pairs of ids given without special tokens, one per row, on the device."""
        return pairs_to_rows(pairs, self.special_tokens).to(self.device)

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens of a text."""
        return self.model.config.n_positions - 1 - len(self.special_tokens.prefix_ids)

    def check_lengths(self, texts: Iterable[tuple[int, Ids]], tokenizer: Tokenizer, text_name: str = "text") -> None:
        """Refuse what the model cannot take whole; the texts come with their numbers, from 0."""
        for number, ids in texts:
            text = f"{text_name} {number + 1:,}, '{tokenizer.decode(ids[:40])[:30]}...',"
            check_fits(len(ids), self.max_tokens, text=text, fix="split it into sentences")

    def check_pairs(self, pairs: Sequence[tuple[Ids, Ids]]) -> None:
        """Refuse pairs of which the model cannot take a side whole."""
        self.check_lengths(enumerate(source for source, _ in pairs), self.tokenizers.source)
        self.check_lengths(enumerate(target for _, target in pairs), self.tokenizers.target, "target")

    def _make_translations(
        self, pairs: Sequence[tuple[Ids, Hypothesis]], *, needs_attention: bool, with_attention: bool
    ) -> Iterator[Translation]:
        """Yield the hypotheses as translations, with alignment and attention where asked for."""
        source, target, n_tags = self.tokenizers.source, self.tokenizers.target, int(self.directions.is_tagged)
        before = len(self.special_tokens.prefix_ids) + n_tags  # what the model reads before the first word
        targets = [(ids, best.ids[:-1]) for ids, best in pairs]
        looks = self.force_decode(targets) if needs_attention else repeat(None, len(targets))
        for (ids, best), forced in zip(pairs, looks, strict=True):
            yield Translation(
                text=target.decode(best.ids),
                score=best.score,
                tokens=target.display_tokens(best.ids),
                token_scores=list(best.token_scores),
                alignment=align_words(
                    forced.attention[..., before:], target.words(best.ids[:-1]), source.words(ids[n_tags:])
                )
                if forced
                else [],
                ids=best.ids,
                source_tokens=source.display_tokens(self.special_tokens.wrap_source(ids)) if with_attention else [],
                attention=forced.attention if forced and with_attention else None,
            )


def _group_by_attention_size(pairs: Iterable[tuple[Ids, Ids]], max_cells: int) -> Iterator[list[tuple[Ids, Ids]]]:
    """Yield consecutive pairs in groups of at most `max_cells` padded attention weights, at least one pair each."""
    group: list[tuple[Ids, Ids]] = []
    longest = [0, 0]
    for pair in pairs:
        longest = [max(before, len(side) + 1) for before, side in zip(longest, pair, strict=True)]
        if group and (len(group) + 1) * math.prod(longest) > max_cells:
            yield group
            group, longest = [], [len(side) + 1 for side in pair]
        group.append(pair)
    if group:
        yield group
