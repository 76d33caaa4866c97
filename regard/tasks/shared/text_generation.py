"""Text generation of a language model: prompts in batches, token by token.

lm.py makes prompts of texts; generate/ chooses tokens, text/incremental_detokenizer.py turns them into text. Nothing
here depends on the model's architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.generate import DecodingLoopOptions, GenerationConfig, RepetitionPenalty, SpecialTokens, generate_tokens
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
    """The tokens of a prompt, one at least, and a name that says what is drawn for it."""

    ids: Ids
    sampling_key: str


@dataclass(frozen=True)
class TextGenerator:
    """A language model with its tokenizer and generation options."""

    model: Any
    tokenizer: Tokenizer
    special_tokens: SpecialTokens
    sampling: GenerationConfig
    device: torch.device

    def generate(self, prompts: Sequence[Prompt]) -> list[Continuation]:
        """Return the continuation of each prompt, generated in batches."""
        rows: list[_GenerationRow] = []
        for start in range(0, len(prompts), self.sampling.batch):
            part = prompts[start : start + self.sampling.batch]
            rows += (written := [self._make_row(each, incremental=bool(self.sampling.stop)) for each in part])
            for _ in self._generate_rows(part, written):
                pass
        return [row.make_continuation() for row in rows]

    def stream(self, prompt: Prompt) -> Iterator[str]:
        """Yield the continuation of a prompt incrementally; incomplete characters and stop strings are held back."""
        row = self._make_row(prompt, incremental=True)
        for _ in self._generate_rows([prompt], [row]):
            if row.new_text:
                yield row.new_text
        if rest := row.detokenizer.end():
            yield rest

    def _make_row(self, prompt: Prompt, *, incremental: bool) -> _GenerationRow:
        spelling = IncrementalDetokenizer(self.tokenizer, prompt.ids, self.sampling.stop)
        return _GenerationRow(self.tokenizer, spelling, self.special_tokens.eos_id, incremental=incremental)

    def _generate_rows(self, prompts: Sequence[Prompt], rows: Sequence[_GenerationRow]) -> Iterator[None]:
        """Generate all rows to their end; yield after each token."""
        read = sentences_to_rows([prompt.ids[:-1] for prompt in prompts], pad_id=self.special_tokens.eos_id).to(
            self.device
        )
        last = torch.tensor([prompt.ids[-1] for prompt in prompts], device=self.device)
        repetition = self._make_repetition_penalty(prompts)
        options = DecodingLoopOptions(
            sampler=self.sampling.make_sampler([prompt.sampling_key for prompt in prompts]),
            special_tokens=self.special_tokens,
            max_lengths=torch.full_like(last, self.sampling.max_tokens),
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

    def _make_repetition_penalty(self, prompts: Sequence[Prompt]) -> RepetitionPenalty | None:
        if self.sampling.repetition_penalty == 1:
            return None
        seen = torch.zeros(len(prompts), len(self.tokenizer), dtype=torch.bool, device=self.device)
        for row, prompt in zip(seen, prompts, strict=True):
            row[prompt.ids] = True
        return RepetitionPenalty(self.sampling.repetition_penalty, seen)


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
