"""A trained language model: goes on with texts, says how likely text is, and is looked into while it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.model import Ids, Model, check_options, one_text
from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.generate import Manner
from regard.look.seen import Seen
from regard.look.subject import Side, Subject
from regard.models.interfaces import NextModel
from regard.tasks import Task
from regard.tasks.lm import Lm
from regard.tasks.writing import Continuation
from regard.train.run import RunConfig


class Writer(Model):
    """A trained language model."""

    stacks = ("decoder",)

    def __init__(self, path: Path, settings: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, settings, task, network, device)
        assert isinstance(task, Lm)
        assert isinstance(network, NextModel)
        self.task, self.network = task, network

    @property
    def _network(self) -> nn.Module:
        return self.network

    @property
    def _longest(self) -> int:
        return self.network.config.n_positions - len(self.task.begun([1])) + 1

    @property
    def _vocabulary(self) -> int:
        return self.task.vocabulary

    def _encoded(self, example: Sequence[str]) -> list[Ids]:
        return self.task.encode_texts(example)

    @overload
    def generate(self, prompt: str = "", **options: Any) -> list[Continuation]: ...

    @overload
    def generate(self, prompt: Sequence[str], **options: Any) -> list[list[Continuation]]: ...

    def generate(
        self, prompt: str | Sequence[str] = "", **options: Any
    ) -> list[Continuation] | list[list[Continuation]]:
        """Continuations of a prompt; of several prompts, a list for each. Without one, a document begins.

        Options are those of `Manner`: max_tokens, temperature (0 is greedy), top_k, top_p, repetition_penalty, stop,
        n, seed, batch.
        """
        found = [each for _, each in self.continued([[prompt] if isinstance(prompt, str) else prompt], **options)]
        return found[0] if isinstance(prompt, str) else found

    def continued(self, windows: Iterable[Sequence[str]], **options: Any) -> Iterator[tuple[str, list[Continuation]]]:
        """Prompts as they come, a window at a time, each with its continuations, in order."""
        return self.task.continued(self.network, windows, _manner(options), self.device)

    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """The text of one continuation as it is written, in pieces of whole characters; options as in `generate`."""
        manner = _manner(options)
        if manner.n > 1:
            raise InputError(f"n {manner.n}: one text is written at a time; leave it out")
        return self.task.stream(self.network, prompt, manner, self.device)

    def evaluate(
        self, data: Sequence[str], *, window: int | None = None, stride: int | None = None, **others: Any
    ) -> dict[str, Any]:
        """Perplexity by token and by word, and bits by character, of plain text (tasks/likelihood.py)."""
        if others:
            raise InputError(f"plain text is evaluated as it is; leave out: {', '.join(others)}")
        found = self.task.evaluate(self.network, data, self.device, window, stride)
        return {
            "task": self.task.name,
            "n": found.documents,
            "tokens": found.tokens,
            "words": found.words,
            "characters": found.characters,
            "loss": found.loss,
            "perplexity": found.perplexity,
            "word_perplexity": found.word_perplexity,
            "bits_per_character": found.bits_per_character,
            "window": found.window,
            "stride": found.stride,
        }

    def look(self, text: str, **options: Any) -> Seen:
        """What the model does with a text while it reads it: each token predicts the next, the last what follows."""
        one_text(text)
        if options:
            raise InputError(f"a language model reads one text and searches nothing; leave out: {', '.join(options)}")
        ids = self.task.encode_texts([text])[0]
        if len(ids) > self._longest:
            raise InputError(
                f"the text has {len(ids):,} tokens; this model takes {self._longest:,}; look at a part of it"
            )
        subject = self._subject(ids)
        with torch.inference_mode():
            share, index = subject.run()[0, -1].softmax(-1).max(-1)
        said = f"{self.task.tokenizer.pieces([int(index)])[0]} ({float(share):.0%})"
        return Seen(subject, {"model": str(self.path), "text": text, "said": said})

    def _subject(self, *sides: Ids) -> Subject:
        """What follows the last token is what the model finds most likely there."""
        ids, network, tokenizer = self.task.begun(sides[0]), self.network, self.task.tokenizer
        rows = sentences_to_rows([ids], pad=self.task.end).to(self.device)
        with torch.inference_mode():
            following = int(network(rows)[0, -1].argmax())
        return Subject(
            network,
            {"decoder": Side(tokenizer.pieces(ids), tokenizer.words(ids), "embedding.out")},
            body=lambda: network.hidden(rows),
            head=network.logits,
            predicted=torch.tensor([*ids[1:], following], device=self.device),
        )


def _manner(options: dict[str, Any]) -> Manner:
    """The options, of which `stop` may be one string."""
    check_options(options, Manner)
    stop = options.get("stop", ())
    return Manner(**options | {"stop": (stop,) if isinstance(stop, str) else tuple(stop)})
