"""Language models: plain text in, a model of what comes next, text out (SPEC 4.4, 4.5).

A document begins behind the token that ends documents, and ends with it. Long ones are cut into windows of
`task.length` tokens that share one token with the next, so every token is predicted exactly once in an epoch:

    document    <|endoftext|>  The  cat  sat  on  the  mat  <|endoftext|>
    window 1    <|endoftext|>  The  cat  sat                                  predicts  The cat sat on
    window 2                                  on  the  mat                    predicts  the mat <|endoftext|>

Of the model this asks for `loss`, `start` and `step`, whatever it is made of. tasks/likelihood.py evaluates it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from regard.config import Tables
from regard.data.batches import NextBatch, next_batch, sentences_to_rows
from regard.data.corpus import SHORTEST_ROW, Corpus, DataConfig, Example, Reader
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, InputError
from regard.generate import Manner, Marks, Repetition, Way, walk
from regard.models.exchange import Found
from regard.models.families import NEXT
from regard.models.interfaces import NextModel
from regard.models.presets import ModelConfig
from regard.nn import Loss
from regard.progress import warn
from regard.tasks.likelihood import Likelihood, likelihood
from regard.tasks.task import Amount, Goal, Task
from regard.text.documents import Stretch, paths_of, read_stretches
from regard.text.spelling import Spelling
from regard.text.tokenizer import FILE, WRITING, Tokenizer, Tokenizers
from regard.text.vocabulary import TokenizerConfig, train_tokenizer

LENGTHS = range(SHORTEST_ROW, 1 << 15)
"""What ``task.length`` may be."""

CPU_LENGTH, CPU_BATCH, CPU_TOKENS = 64, 1024, 4_000_000
"""Training on a CPU: tokens of a window, of a step, and of all steps."""

BROKEN = "the model's scores are not numbers; its weights are damaged, or its training went wrong"

NAMED = 5
"""Unknown characters that a warning names."""

Ids = list[int]


@dataclass(frozen=True, kw_only=True)
class LmConfig:
    """The recipe's ``[task]`` table.

    `documents` are parted by blank lines, or each file is one. A prompt is the beginning of a document, or, "bare", any
    part of one, as GPT-2 takes it. `start` and `end` name the tokens before and after documents in vocabularies from
    elsewhere, where both are not the one that ends texts.
    """

    name: Literal["lm"] = "lm"
    length: int = 256
    documents: Literal["parted", "files"] = "parted"
    prompts: Literal["begin", "bare"] = "begin"
    start: str = ""
    end: str = ""

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise ConfigError(f"task.length = {self.length}; expected {LENGTHS[0]} to {LENGTHS[-1]:,} tokens")


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
class Documents:
    """The documents of files; of little text in parts so short that some can be held out."""

    whole: bool = False
    few: bool = True

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return paths_of(data)

    def read(self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        if columns:
            raise ConfigError(f"columns: {', '.join(columns)}: plain text is read here, which has none; leave them out")
        return read_stretches(data, whole=self.whole, few=self.few)


class Lm(Task):
    """From plain text to a model that goes on with it."""

    name = "lm"
    verb = "generate"
    Config = LmConfig
    families = NEXT
    columns = ("text",)
    inherited = ("prompts", "start", "end")
    goal = Goal("valid_perplexity", "perplexity", higher_is_better=False)

    def __init__(self, config: LmConfig, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.tokenizers = Tokenizers(tokenizer, tokenizer)
        self.length = config.length

    @classmethod
    def habits(cls, amount: Amount, device: torch.device) -> dict[str, Any]:
        return habits(amount, device)

    @classmethod
    def usual(cls, device: torch.device) -> dict[str, Any]:
        return {"length": CPU_LENGTH} if device.type == "cpu" else {}

    @classmethod
    def check(cls, given: Tables, where: str) -> None:
        length, most = given["task"].get("length", 0), given["model"].get("n_positions", LENGTHS[-1])
        if length > most:
            raise ConfigError(
                f"{where}: task.length = {length}, but model.n_positions = {most}; "
                f"give task.length={most} or less, or more positions"
            )

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return Documents.paths(data)

    @staticmethod
    def read(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return Documents().read(data, columns, skip_empty=skip_empty)

    @classmethod
    def reader(cls, config: LmConfig, data: DataConfig) -> Reader:
        return Documents(whole=config.documents == "files", few=not data.valid)

    @classmethod
    def learn(cls, config: LmConfig, tokenizer: TokenizerConfig, corpus: Corpus, ready: Tokenizer | None = None) -> Lm:
        if tokenizer.kind == "wordpiece":
            accepted = "accepted: bpe, unigram, characters"
            raise ConfigError(f'tokenizer.kind = "wordpiece" forgets spaces and line ends; {accepted}')
        return cls(config, ready or train_tokenizer(corpus.texts(0), tokenizer, WRITING, spaced=False))

    @classmethod
    def load(cls, config: LmConfig, tokenizer: TokenizerConfig, directory: Path) -> Lm:
        return cls(config, Tokenizer.load(directory / FILE, () if config.end else ("end",)))

    @classmethod
    def adopt(cls, found: Found) -> Lm:
        return cls(LmConfig(**found.task), found.tokenizers.source)

    def save(self, directory: Path) -> None:
        self.tokenizer.save(directory / FILE)

    @cached_property
    def end(self) -> int:
        """The token that ends a document."""
        return self.tokenizer.named(self.config.end) if self.config.end else self.tokenizer.special("end")

    @cached_property
    def start(self) -> int:
        """The token before a document."""
        return self.tokenizer.named(self.config.start) if self.config.start else self.end

    @property
    def fingerprint(self) -> str:
        return f"{self.tokenizer.fingerprint} {self.config!r}"

    @property
    def vocabulary(self) -> int:
        return len(self.tokenizer)

    def within(self, most: int) -> Lm:
        if most < SHORTEST_ROW:
            raise ConfigError(f"model.n_positions = {most}; expected at least {SHORTEST_ROW}")
        shorter = copy(self)
        shorter.length = min(self.length, most)
        return shorter

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """The windows of these stretches of documents."""
        stretches = [Stretch(*example) for example in examples]
        return [[window for ids in self.sequences(stretches) for window in _windows(ids, self.length)]]

    def sequences(self, stretches: Sequence[Stretch]) -> list[Ids]:
        """The tokens of each stretch behind the one before it, and with the end where its document ends."""
        texts = self.encode_texts([each.text for each in stretches])
        before = iter(self.tokenizer.encode_batch([each.before for each in stretches if each.before]))
        first = [next(before)[-1] if each.before else self.start for each in stretches]
        ends = [[] if each.more else [self.end] for each in stretches]
        return [[lead, *ids, *end] for lead, ids, end in zip(first, texts, ends, strict=True)]

    def encode_texts(self, texts: Sequence[str]) -> list[Ids]:
        """The tokens of texts; a warning says which of their characters the vocabulary does not know."""
        found, unknown = self.tokenizer.encode_batch(texts), self.tokenizer.find("unknown")
        if unknown is not None and any(unknown in ids for ids in found):
            _warn_of_unknown(texts, found, unknown)
        return found

    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """One position less than a window has tokens: its last is only predicted."""
        return store.lengths("text", extra=-1)

    def width(self, lengths: Int[np.ndarray, "N sides"]) -> int:
        """As long as windows are, or all of the text where that is shorter."""
        return max(SHORTEST_ROW, min(self.length, int(lengths.sum())))

    def batch(self, store: TokenStore, placement: Placement) -> NextBatch:
        return next_batch(store["text"], placement, pad=self.end)

    def build(self, config: ModelConfig) -> NextModel:
        model: NextModel = self.families[config.architecture].Model(config, self.vocabulary)
        return model

    def loss(self, model: Any, batch: NextBatch) -> Loss:
        found: Loss = model.loss(batch.rows, batch.following)
        return found

    def score(self, model: Any, store: TokenStore, device: torch.device) -> dict[str, float]:
        return {}

    def evaluate(
        self,
        model: Any,
        data: Sequence[str],
        device: torch.device,
        window: int | None = None,
        stride: int | None = None,
    ) -> Likelihood:
        """How likely the model finds plain text: its documents in windows, each a `stride` after the one before."""
        most: int = model.config.n_positions
        width = min(self.length, most) if window is None else window
        if not 1 <= width <= most:
            raise InputError(f"window {width}: expected 1 to {most:,}, the positions of this model")
        if stride is not None and not 1 <= stride <= width:
            raise InputError(f"stride {stride}: expected 1 to {width:,}, the window")
        documents = read_stretches(data, whole=self.config.documents == "files")
        return likelihood(model, self.sequences, documents, width, stride or width, device)

    def begun(self, ids: Ids) -> Ids:
        """The tokens of a text as the model reads them: behind the token before documents, where it begins one."""
        return [self.start, *ids] if self.config.prompts == "begin" or not ids else ids

    def write(
        self, model: Any, texts: Sequence[str], manner: Manner, device: torch.device, first: int = 0
    ) -> list[list[Continuation]]:
        """The continuations of each text, `manner.n` of them; `first` is the number of the first among all texts.

        Behind the empty text a document begins.
        """
        numbered = enumerate(map(self.begun, self.encode_texts(texts)), first)
        prompts = [Prompt(ids, f"{number} {time}") for number, ids in numbered for time in range(manner.n)]
        rows: list[_Row] = []
        for start in range(0, len(prompts), manner.batch):
            part = prompts[start : start + manner.batch]
            rows += (written := [_Row(self, each, manner) for each in part])
            for _ in self._walk(model, part, written, manner, device):
                pass
        found = iter([row.continuation() for row in rows])
        return [[next(found) for _ in range(manner.n)] for _ in texts]

    def stream(self, model: Any, text: str, manner: Manner, device: torch.device) -> Iterator[str]:
        """One continuation of a text, piece by piece; what is half a character, or may begin a stop string, waits."""
        prompt = Prompt(self.begun(self.encode_texts([text])[0]), "0 0")
        row = _Row(self, prompt, manner)
        for _ in self._walk(model, [prompt], [row], manner, device):
            if row.new:
                yield row.new
        if rest := row.spelling.end():
            yield rest

    def _walk(
        self, model: Any, prompts: Sequence[Prompt], rows: Sequence[_Row], manner: Manner, device: torch.device
    ) -> Iterator[None]:
        """Write all rows to their end; gives a sign after each token."""
        read = sentences_to_rows([prompt.ids[:-1] for prompt in prompts], pad=self.end).to(device)
        last = torch.tensor([prompt.ids[-1] for prompt in prompts], device=device)
        repetition = self._repetition(prompts, manner.repetition_penalty, device)
        way = Way(
            pick=manner.pick([prompt.name for prompt in prompts]),
            marks=Marks(self.start, self.end, never=tuple(self.tokenizer.specials - {self.end})),
            limits=torch.full_like(last, manner.max_tokens),
            change=repetition,
            ended=lambda row, _: bool(rows[row].ended),
        )
        try:
            for chosen in walk(_without_gradient(model.step), _without_gradient(model.start)(read), last, way):
                if not all(map(math.isfinite, chosen.scores)):
                    raise InputError(BROKEN)
                for row, token, score in zip(*chosen, strict=True):
                    rows[row].add(token, score)
                if repetition is not None:
                    repetition.note(chosen.rows, chosen.tokens)
                yield
        except torch.OutOfMemoryError:
            raise InputError(f"out of memory with {len(prompts)} texts at once; pass a smaller --batch") from None

    def _repetition(self, prompts: Sequence[Prompt], penalty: float, device: torch.device) -> Repetition | None:
        if penalty == 1:
            return None
        seen = torch.zeros(len(prompts), self.vocabulary, dtype=torch.bool, device=device)
        for row, prompt in zip(seen, prompts, strict=True):
            row[prompt.ids] = True
        return Repetition(penalty, seen)


class _Row:
    """A text being written; `new` is what its last token made certain of it."""

    def __init__(self, task: Lm, prompt: Prompt, manner: Manner) -> None:
        self.task = task
        self.spelling = Spelling(task.tokenizer, prompt.ids, manner.stop)
        self.ids: Ids = []
        self.scores: list[float] = []
        self.new = self.ended = ""

    def add(self, token: int, score: float) -> None:
        self.ids.append(token)
        self.scores.append(score)
        if token == self.task.end:
            self.new, self.ended = "", "end"
            return
        self.new = self.spelling.add(token)
        self.ended = "stop" if self.spelling.stopped else ""

    def continuation(self) -> Continuation:
        self.spelling.end()
        tokens, ended = self.task.tokenizer.pieces(self.ids), self.ended or "length"
        return Continuation(self.spelling.text, sum(self.scores), tokens, self.scores, tuple(self.ids), ended)


def _without_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which keeps no graph: text is given out between its calls."""

    def run(*arguments: Any) -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return run


def _windows(ids: Ids, length: int) -> list[Ids]:
    """So many tokens at a time, and the next one, with which the next window begins."""
    return [ids[start : start + length + 1] for start in range(0, len(ids) - 1, length)]


def _warn_of_unknown(texts: Sequence[str], found: Sequence[Ids], unknown: int) -> None:
    """Count the unknown tokens and, where every character is a token, name some of them."""
    n_unknown, n_tokens = sum(ids.count(unknown) for ids in found), sum(map(len, found))
    named: dict[str, None] = {}
    for text, ids in zip(texts, found, strict=True):
        if len(ids) == len(text):
            named |= dict.fromkeys(character for character, index in zip(text, ids, strict=True) if index == unknown)
    shown = ": " + " ".join(map(repr, list(named)[:NAMED])) + (" ..." if len(named) > NAMED else "") if named else ""
    warn(f"{n_unknown:,} of {n_tokens:,} tokens are unknown to the vocabulary, which never saw them{shown}")


def habits(amount: Amount, device: torch.device) -> dict[str, Any]:
    """How a language model is trained: a cosine from a rate that falls with the width, and decay.

    A CPU reads four million tokens, in minutes, or all of the text once where there is more, but none fifty times.
    """
    rate = min(2e-3, 0.4 / amount.d_model)
    table = {
        "learning_rate": round(rate / 10 if amount.started else rate, 6),
        "schedule": "cosine",
        "weight_decay": 0.1,
        "average": 1,
    }
    if device.type != "cpu":
        return table
    tokens = min(50 * amount.n_tokens, max(CPU_TOKENS, amount.n_tokens))
    steps = max(200, 100 * round(tokens / CPU_BATCH / 100))
    return {**table, "batch_tokens": CPU_BATCH, "steps": steps, "validate_every": max(100, steps // 10)}
