"""Language models: plain text in, a model of what comes next, text out (SPEC 4.4, 4.5).

A document begins behind the token that ends documents, and ends with it. Long ones are read in windows of
`task.length` tokens, each beginning with the token that the one before predicts last, so every token is predicted
exactly once in an epoch; later epochs cut at other places (data/windows.py):

    document    <|endoftext|>  The  cat  sat  on  the  mat  <|endoftext|>
    window 1    <|endoftext|>  The  cat  sat                                  predicts  The cat sat on
    window 2                                  on  the  mat                    predicts  the mat <|endoftext|>

Of the model this asks for `loss`, `start` and `step`, whatever it is made of. tasks/writing.py goes on with prompts,
tasks/likelihood.py evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.config import Table, Tables
from regard.data.batches import NextBatch, next_batch
from regard.data.corpus import SHORTEST_ROW, Corpus, DataConfig, Example, Reader
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.data.windows import cut
from regard.errors import ConfigError, InputError
from regard.generate import Manner, Marks
from regard.models.exchange import Found
from regard.models.families import NEXT, family_of
from regard.models.interfaces import NextModel
from regard.models.presets import ModelConfig, with_preset
from regard.nn import Loss
from regard.progress import warn
from regard.tasks.likelihood import Likelihood, likelihood
from regard.tasks.single import Single, check_length, refuse_columns
from regard.tasks.task import Amount, Goal
from regard.tasks.unknown import Unknown, warn_of_unknown
from regard.tasks.writing import Continuation, Ids, Pen, Prompt
from regard.text.documents import Stretch, paths_of, read_stretches
from regard.text.tokenizer import FILE, WRITING, Tokenizer
from regard.text.vocabulary import TokenizerConfig, train_tokenizer

LENGTHS = range(SHORTEST_ROW, 1 << 15)
"""What ``task.length`` may be."""

CPU_LENGTH, CPU_BATCH, CPU_TOKENS = 64, 1024, 4_000_000
"""Training on a CPU: tokens of a window, of a step, and of all steps."""

TOO_GOOD = "; one token stands for all of these, so perplexity and bits are lower than they should be"


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
        check_length(self.length, LENGTHS)


@dataclass(frozen=True)
class Documents:
    """The documents of files; of little text in parts so short that some can be held out."""

    unit = "documents, and parts of long ones"
    whole: bool = False
    few: bool = True

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return paths_of(data)

    def read(self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        refuse_columns(columns)
        return read_stretches(data, whole=self.whole, few=self.few)


class Lm(Single):
    """From plain text to a model that goes on with it."""

    name = "lm"
    verb = "generate"
    Config = LmConfig
    families = NEXT
    specials = WRITING
    columns = ("text",)
    inherited = ("prompts", "start", "end")
    goal = Goal("valid_perplexity", "perplexity", higher_is_better=False)

    @classmethod
    def habits(cls, amount: Amount, device: torch.device) -> dict[str, Any]:
        return language_modelling(amount, device)

    @classmethod
    def usual(cls, device: torch.device, model: Table) -> dict[str, Any]:
        length = CPU_LENGTH if device.type == "cpu" and not model.get("start") else LmConfig.length
        return {"length": min(length, cls._positions(model))}

    @classmethod
    def _positions(cls, model: Table, where: str = "") -> int:
        """How many a ``[model]`` table asks for, itself or by its preset; if it does not, as many as there may be."""
        shape = with_preset({"preset": "", **model}, family_of(cls.families, model, where).Config)
        most: int = shape.get("n_positions", LENGTHS[-1])
        return most

    @classmethod
    def check(cls, given: Tables, where: str) -> None:
        length, most = given["task"].get("length", 0), cls._positions(given["model"], where)
        # Who asks for rows that are no wider than that knows it: so says what was written down of a run on little text.
        if min(length, given["data"].get("max_length", length)) > most:
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
        return cls(config, ready or train_tokenizer(corpus.texts(0), tokenizer, cls.specials, spaced=False))

    @classmethod
    def load(cls, config: LmConfig, tokenizer: TokenizerConfig, directory: Path) -> Lm:
        return cls(config, Tokenizer.load(directory / FILE, () if config.end else ("end",)))

    @classmethod
    def adopt(cls, found: Found) -> Lm:
        return cls(LmConfig(**found.task), found.tokenizers.source)

    @cached_property
    def end(self) -> int:
        """The token that ends a document."""
        return self.tokenizer.named(self.config.end) if self.config.end else self.tokenizer.special("end")

    @cached_property
    def start(self) -> int:
        """The token before a document."""
        return self.tokenizer.named(self.config.start) if self.config.start else self.end

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        return [self.sequences([Stretch(*example) for example in examples])]

    def sequences(
        self, stretches: Sequence[Stretch], encode: Callable[[Sequence[str]], list[Ids]] | None = None
    ) -> list[Ids]:
        """The tokens of each stretch behind the one before it, and with the end where its document ends."""
        texts = (encode or self.tokenizer.encode_batch)([each.text for each in stretches])
        before = iter(self.tokenizer.encode_batch([each.before for each in stretches if each.before]))
        first = [next(before)[-1] if each.before else self.start for each in stretches]
        ends = [[] if each.more else [self.end] for each in stretches]
        return [[lead, *ids, *end] for lead, ids, end in zip(first, texts, ends, strict=True)]

    def remark(self, store: TokenStore) -> None:
        """Say if windows cannot be filled, and count what the vocabulary does not know.

        A stretch begins with a token that another one predicts.
        """
        unknown, column = self.tokenizer.find("unknown"), store["text"]
        first = column.ids[column.offsets[:-1]]
        n_tokens = len(column.ids) - len(first)
        if n_tokens < self.length:
            warn(f"{n_tokens:,} tokens to {store.purpose} on do not fill one window of task.length = {self.length}")
        if unknown is not None:
            n_unknown = np.count_nonzero(column.ids == unknown) - np.count_nonzero(first == unknown)
            warn_of_unknown(int(n_unknown), n_tokens, of=f" to {store.purpose} on")

    def encode_texts(self, texts: Sequence[str]) -> list[Ids]:
        """The tokens of texts; a warning says which of their characters the vocabulary does not know."""
        unknown = Unknown(self.tokenizer)
        found = unknown.encode(texts)
        unknown.warn()
        return found

    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """Those of the windows."""
        spans: Int[np.ndarray, "N 1"] = cut(store, "text", self.length).spans[:, None]
        return spans

    def width(self, lengths: Int[np.ndarray, "N sides"]) -> int:
        """As long as windows are, or all of the text where that is shorter."""
        return max(SHORTEST_ROW, min(self.length, int(lengths.sum())))

    def batch(self, store: TokenStore, placement: Placement) -> NextBatch:
        return next_batch(cut(store, "text", self.length), placement, pad=self.end)

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
        documents, unknown = read_stretches(data, whole=self.config.documents == "files"), Unknown(self.tokenizer)
        sequences = partial(self.sequences, encode=unknown.encode)
        found = likelihood(model, sequences, documents, width, stride or width, device)
        unknown.warn(TOO_GOOD)
        return found

    def begun(self, ids: Ids) -> Ids:
        """The tokens of a text as the model reads them: behind the token before documents, where it begins one."""
        return [self.start, *ids] if self.config.prompts == "begin" or not ids else ids

    def continued(
        self, model: Any, windows: Iterable[Sequence[str]], manner: Manner, device: torch.device
    ) -> Iterator[tuple[str, list[Continuation]]]:
        """Each text with its continuations, `manner.n` of them, in order; behind the empty text a document begins.

        At the end warnings count what the model could not read of all texts.
        """
        pen, unknown, n_texts, n_long = self._pen(model, manner, device), Unknown(self.tokenizer), 0, 0
        for window in windows:
            begun = [self.begun(ids) for ids in unknown.encode(window)]
            numbered = enumerate(begun, n_texts)
            prompts = [Prompt(ids, f"{number} {time}") for number, ids in numbered for time in range(manner.n)]
            found = iter(pen.write(prompts))
            yield from ((text, [next(found) for _ in range(manner.n)]) for text in window)
            n_texts, n_long = n_texts + len(window), n_long + _n_long(model, begun)
        unknown.warn()
        _warn_of_long(model, n_long, n_texts)

    def write(self, model: Any, texts: Sequence[str], manner: Manner, device: torch.device) -> list[list[Continuation]]:
        """The continuations of each text."""
        return [found for _, found in self.continued(model, [texts], manner, device)]

    def stream(self, model: Any, text: str, manner: Manner, device: torch.device) -> Iterator[str]:
        """One continuation of a text, piece by piece."""
        ids = self.begun(self.encode_texts([text])[0])
        _warn_of_long(model, _n_long(model, [ids]), 1)
        return self._pen(model, manner, device).stream(Prompt(ids, "0 0"))

    def _pen(self, model: Any, manner: Manner, device: torch.device) -> Pen:
        never = tuple(self.tokenizer.specials - {self.end})
        return Pen(model, self.tokenizer, Marks(self.start, self.end, never), manner, device)


def _n_long(model: Any, prompts: Sequence[Ids]) -> int:
    """How many of these prompts the model does not see whole."""
    return 0 if model.context is None else sum(len(ids) > model.context for ids in prompts)


def _warn_of_long(model: Any, n_long: int, n_texts: int) -> None:
    if n_long:
        seen = f"it reads the last {model.context:,} of them"
        prompts = f"{n_long:,} of {n_texts:,} prompts have" if n_texts > 1 else "the prompt has"
        warn(f"{prompts} more tokens than the model sees at once; {seen}")


def language_modelling(amount: Amount, device: torch.device) -> dict[str, Any]:
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
    return {
        **table,
        "batch_tokens": CPU_BATCH,
        "steps": lambda batch: max(200, 100 * round(tokens / batch / 100)),
        "validate_every": lambda steps: max(100, steps // 10),
    }
