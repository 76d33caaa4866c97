"""Text generation by a trained language model: texts become prompts, which are continued in batches, token by token.

document_tokenizer.py makes prompts of texts, generate/ chooses tokens, text/incremental_detokenizer.py turns them into
text. Nothing here depends on the model's architecture. The API calls `TextGenerator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch

from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.generate import DecodingLoopOptions, GenerationConfig, RepetitionPenalty, generate_tokens
from regard.models.interfaces import CausalLM
from regard.predict.document_tokenizer import DocumentTokenizer
from regard.predict.unknown_tokens import UnknownTokenCounter
from regard.progress import warn
from regard.text.incremental_detokenizer import IncrementalDetokenizer
from regard.text.tokenizer import Tokenizer

Ids = list[int]


@dataclass(frozen=True)
class Continuation:
    """A generated continuation of a prompt.

    `text` ends before a stop string and without the token that ends texts; `tokens`, their scores (log-probabilities,
    whatever the temperature) and `ids` are of all that was written. `ended` says why it ended: the "end" of the text,
    a "stop" string, or its "length". The score is the sum of those of its tokens.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    ids: tuple[int, ...]
    ended: str


class Prompt(NamedTuple):
    """The tokens of a prompt, at least one, and a key that determines its samples."""

    ids: Ids
    sampling_key: str


@dataclass(frozen=True)
class TextGenerator:
    """A language model with its tokenizer, on a device."""

    model: CausalLM
    document_tokenizer: DocumentTokenizer
    device: torch.device

    def generate(self, texts: Sequence[str], sampling: GenerationConfig) -> list[list[Continuation]]:
        """Return the `sampling.n` continuations of each text."""
        return [continuations for _, continuations in self.generate_batches([texts], sampling)]

    def generate_batches(
        self, text_batches: Iterable[Sequence[str]], sampling: GenerationConfig
    ) -> Iterator[tuple[str, list[Continuation]]]:
        """Yield each text with its `sampling.n` continuations, in input order; an empty text begins a document."""
        continuations = self.generate_each(text_batches, sampling)
        while group := list(islice(continuations, sampling.n)):
            yield group[0][0], [continuation for _, continuation in group]

    def generate_each(
        self, text_batches: Iterable[Sequence[str]], sampling: GenerationConfig
    ) -> Iterator[tuple[str, Continuation]]:
        """Yield each text with one continuation after another, as soon as their batch is generated.

        At the end, warnings count unknown characters and truncated prompts.
        """
        unknown, n_texts, n_long = UnknownTokenCounter(self.document_tokenizer.tokenizer), 0, 0
        for buffer in text_batches:
            begun = [self.document_tokenizer.make_prompt_ids(ids) for ids in unknown.encode(buffer)]
            numbered = enumerate(begun, n_texts)
            prompts = (Prompt(ids, f"{number} {time}") for number, ids in numbered for time in range(sampling.n))
            texts = (text for text in buffer for _ in range(sampling.n))
            yield from zip(texts, self._continue_prompts(prompts, sampling), strict=True)
            n_texts, n_long = n_texts + len(buffer), n_long + self._count_truncated(begun)
        unknown.warn()
        self._warn_about_truncated(n_long, n_texts)

    def stream(self, text: str, sampling: GenerationConfig) -> Iterator[str]:
        """Return an iterator over one continuation of a text; incomplete characters and stop strings are held back."""
        ids = self.document_tokenizer.make_prompt_ids(self.document_tokenizer.encode_texts([text])[0])
        self._warn_about_truncated(self._count_truncated([ids]), 1)
        return self._stream_prompt(Prompt(ids, "0 0"), sampling)

    def _stream_prompt(self, prompt: Prompt, sampling: GenerationConfig) -> Iterator[str]:
        row = self._make_row(prompt, sampling, incremental=True)
        for _ in self._generate_rows([prompt], [row], sampling):
            if row.new_text:
                yield row.new_text
        if rest := row.detokenizer.end():
            yield rest

    def _continue_prompts(self, prompts: Iterator[Prompt], sampling: GenerationConfig) -> Iterator[Continuation]:
        """Yield the continuation of each prompt; batch after batch is generated."""
        while batch := list(islice(prompts, sampling.batch)):
            rows = [self._make_row(each, sampling, incremental=bool(sampling.stop)) for each in batch]
            for _ in self._generate_rows(batch, rows, sampling):
                pass
            yield from (row.make_continuation() for row in rows)

    def _make_row(self, prompt: Prompt, sampling: GenerationConfig, *, incremental: bool) -> _GenerationRow:
        tokenizer = self.document_tokenizer.tokenizer
        spelling = IncrementalDetokenizer(tokenizer, prompt.ids, sampling.stop)
        return _GenerationRow(tokenizer, spelling, self.document_tokenizer.end_id, incremental=incremental)

    def _generate_rows(
        self, prompts: Sequence[Prompt], rows: Sequence[_GenerationRow], sampling: GenerationConfig
    ) -> Iterator[None]:
        """Generate all rows to their end; yield after each token."""
        end_id = self.document_tokenizer.end_id
        read = sentences_to_rows([prompt.ids[:-1] for prompt in prompts], pad_id=end_id).to(self.device)
        last = torch.tensor([prompt.ids[-1] for prompt in prompts], device=self.device)
        repetition = self._make_repetition_penalty(prompts, sampling.repetition_penalty)
        options = DecodingLoopOptions(
            sampler=sampling.make_sampler([prompt.sampling_key for prompt in prompts]),
            special_tokens=self.document_tokenizer.decoding_tokens,
            max_lengths=torch.full_like(last, sampling.max_tokens),
            logits_processor=repetition,
            stopping_criterion=lambda row, _: bool(rows[row].ended),
        )
        try:
            start, step = _in_inference_mode(self.model.start), _in_inference_mode(self.model.step)
            for chosen in generate_tokens(step, start(read), last, options):
                for row, token, score in zip(*chosen, strict=True):
                    rows[row].add(token, score)
                if repetition is not None:
                    repetition.update(chosen.rows, chosen.tokens)
                yield
        except torch.OutOfMemoryError:
            raise InputError(f"out of memory with {len(prompts)} texts at once; pass a smaller --batch") from None

    def _make_repetition_penalty(self, prompts: Sequence[Prompt], penalty: float) -> RepetitionPenalty | None:
        if penalty == 1:
            return None
        size = len(self.document_tokenizer.tokenizer)
        seen = torch.zeros(len(prompts), size, dtype=torch.bool, device=self.device)
        for row, prompt in zip(seen, prompts, strict=True):
            row[prompt.ids] = True
        return RepetitionPenalty(penalty, seen)

    def _count_truncated(self, prompts: Sequence[Ids]) -> int:
        """Return the number of prompts longer than the model's context."""
        context_length = self.model.context_length
        return 0 if context_length is None else sum(len(ids) > context_length for ids in prompts)

    def _warn_about_truncated(self, n_truncated: int, n_texts: int) -> None:
        if n_truncated:
            seen = f"it reads the last {self.model.context_length:,} of them"
            prompts = f"{n_truncated:,} of {n_texts:,} prompts have" if n_texts > 1 else "the prompt has"
            warn(f"{prompts} more tokens than the model sees at once; {seen}")


class _GenerationRow:
    """A text being written; `new` is what its last token made certain of it, where that must be known `at_once`."""

    def __init__(
        self, tokenizer: Tokenizer, detokenizer: IncrementalDetokenizer, end_id: int, *, incremental: bool
    ) -> None:
        self.tokenizer, self.detokenizer, self.end_id, self.incremental = tokenizer, detokenizer, end_id, incremental
        self.ids: Ids = []
        self.scores: list[float] = []
        self.new_text = self.ended = ""

    def add(self, token: int, score: float) -> None:
        self.ids.append(token)
        self.scores.append(score)
        if token == self.end_id:
            self.new_text, self.ended = "", "end"
        elif self.incremental:
            self.new_text = self.detokenizer.add(token)
            self.ended = "stop" if self.detokenizer.stopped else ""

    def make_continuation(self) -> Continuation:
        unspelled = () if self.incremental else self.ids[: -1 if self.ended else None]
        self.detokenizer.end(*unspelled)
        tokens, ended = self.tokenizer.display_tokens(self.ids), self.ended or "length"
        return Continuation(self.detokenizer.text, sum(self.scores), tokens, self.scores, tuple(self.ids), ended)


def _in_inference_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function run in inference mode; a generator cannot hold it open between its yields."""

    def run(*arguments: Any) -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return run
