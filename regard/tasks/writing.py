"""How a language model goes on with prompts: rows side by side, token by token, each to its end.

lm.py makes prompts of texts; generate/ says which token is next, text/spelling.py what the tokens spell. Nothing here
knows what a model is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.generate import Manner, Marks, Repetition, Way, walk
from regard.text.spelling import Spelling
from regard.text.tokenizer import Tokenizer

Ids = list[int]


@dataclass(frozen=True)
class Continuation:
    """What a model wrote behind a prompt.

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
    name: str


@dataclass(frozen=True)
class Pen:
    """A model with the vocabulary it writes in, and the manner in which it is asked to."""

    model: Any
    tokenizer: Tokenizer
    marks: Marks
    manner: Manner
    device: torch.device

    def write(self, prompts: Sequence[Prompt]) -> list[Continuation]:
        """What follows each prompt; some are gone on with at once."""
        rows: list[_Row] = []
        for start in range(0, len(prompts), self.manner.batch):
            part = prompts[start : start + self.manner.batch]
            rows += (written := [self._row(each, at_once=bool(self.manner.stop)) for each in part])
            for _ in self._walk(part, written):
                pass
        return [row.continuation() for row in rows]

    def stream(self, prompt: Prompt) -> Iterator[str]:
        """What follows a prompt, piece by piece; what is half a character, or may begin a stop string, waits."""
        row = self._row(prompt, at_once=True)
        for _ in self._walk([prompt], [row]):
            if row.new:
                yield row.new
        if rest := row.spelling.end():
            yield rest

    def _row(self, prompt: Prompt, *, at_once: bool) -> _Row:
        spelling = Spelling(self.tokenizer, prompt.ids, self.manner.stop)
        return _Row(self.tokenizer, spelling, self.marks.end, at_once=at_once)

    def _walk(self, prompts: Sequence[Prompt], rows: Sequence[_Row]) -> Iterator[None]:
        """Write all rows to their end; gives a sign after each token."""
        read = sentences_to_rows([prompt.ids[:-1] for prompt in prompts], pad=self.marks.end).to(self.device)
        last = torch.tensor([prompt.ids[-1] for prompt in prompts], device=self.device)
        repetition = self._repetition(prompts)
        way = Way(
            pick=self.manner.pick([prompt.name for prompt in prompts]),
            marks=self.marks,
            limits=torch.full_like(last, self.manner.max_tokens),
            change=repetition,
            ended=lambda row, _: bool(rows[row].ended),
        )
        try:
            start, step = _without_gradient(self.model.start), _without_gradient(self.model.step)
            for chosen in walk(step, start(read), last, way):
                for row, token, score in zip(*chosen, strict=True):
                    rows[row].add(token, score)
                if repetition is not None:
                    repetition.note(chosen.rows, chosen.tokens)
                yield
        except torch.OutOfMemoryError:
            raise InputError(f"out of memory with {len(prompts)} texts at once; pass a smaller --batch") from None

    def _repetition(self, prompts: Sequence[Prompt]) -> Repetition | None:
        if self.manner.repetition_penalty == 1:
            return None
        seen = torch.zeros(len(prompts), len(self.tokenizer), dtype=torch.bool, device=self.device)
        for row, prompt in zip(seen, prompts, strict=True):
            row[prompt.ids] = True
        return Repetition(self.manner.repetition_penalty, seen)


class _Row:
    """A text being written; `new` is what its last token made certain of it, where that must be known `at_once`."""

    def __init__(self, tokenizer: Tokenizer, spelling: Spelling, end: int, *, at_once: bool) -> None:
        self.tokenizer, self.spelling, self.end, self.at_once = tokenizer, spelling, end, at_once
        self.ids: Ids = []
        self.scores: list[float] = []
        self.new = self.ended = ""

    def add(self, token: int, score: float) -> None:
        self.ids.append(token)
        self.scores.append(score)
        if token == self.end:
            self.new, self.ended = "", "end"
        elif self.at_once:
            self.new = self.spelling.add(token)
            self.ended = "stop" if self.spelling.stopped else ""

    def continuation(self) -> Continuation:
        unspelled = () if self.at_once else self.ids[: -1 if self.ended else None]
        self.spelling.end(*unspelled)
        tokens, ended = self.tokenizer.pieces(self.ids), self.ended or "length"
        return Continuation(self.spelling.text, sum(self.scores), tokens, self.scores, tuple(self.ids), ended)


def _without_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which keeps no graph: text is given out between its calls."""

    def run(*arguments: Any) -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return run
