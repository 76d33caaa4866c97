"""A trained language model: goes on with texts, says how likely text is, and is looked into while it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.model import Model, TokenIds, check_options, check_text
from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.generate import GenerationConfig
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.interfaces import CausalLM
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.lm import LanguageModelTask
from regard.tasks.shared.input_length import check_fits
from regard.tasks.shared.text_generation import Continuation


class LanguageModel(Model):
    """A trained language model."""

    stacks = ("decoder",)

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, LanguageModelTask)
        assert isinstance(network, CausalLM)
        self.task, self.network = task, network

    @property
    def _network(self) -> nn.Module:
        return self.network

    @property
    def _max_text_tokens(self) -> int:
        return self.network.config.n_positions - len(self.task.make_prompt_ids([1])) + 1

    @property
    def _vocabulary_size(self) -> int:
        return self.task.vocabulary_size

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
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
        found = [
            each for _, each in self.generate_iterable([[prompt] if isinstance(prompt, str) else prompt], **options)
        ]
        return found[0] if isinstance(prompt, str) else found

    def generate_iterable(
        self, prompts: Iterable[Sequence[str]], **options: Any
    ) -> Iterator[tuple[str, list[Continuation]]]:
        """Prompts as they come, a buffer at a time, each with its continuations, in order."""
        return self.task.generate_batches(self.network, prompts, _parse_sampling_options(options), self.device)

    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """The text of one continuation as it is written, in pieces of whole characters; options as in `generate`."""
        manner = _parse_sampling_options(options)
        if manner.n > 1:
            raise InputError(f"n {manner.n}: one text is written at a time; leave it out")
        return self.task.stream(self.network, prompt, manner, self.device)

    def evaluate(
        self, data: Sequence[str], *, window: int | None = None, stride: int | None = None, **others: Any
    ) -> dict[str, Any]:
        """Perplexity by token and by word, and bits by character, of plain text (tasks/shared/perplexity.py)."""
        if others:
            raise InputError(f"plain text is evaluated as it is; leave out: {', '.join(others)}")
        found = self.task.evaluate(self.network, data, self.device, window, stride)
        return {
            "task": self.task.name,
            "n": found.n_documents,
            "tokens": found.n_tokens,
            "words": found.n_words,
            "characters": found.n_characters,
            "loss": found.loss,
            "perplexity": found.perplexity,
            "word_perplexity": found.word_perplexity,
            "bits_per_character": found.bits_per_character,
            "window": found.window,
            "stride": found.stride,
        }

    def look(self, text: str, **options: Any) -> Inspection:
        """What the model does with a text while it reads it: each token predicts the next, the last what follows."""
        check_text(text)
        if options:
            raise InputError(f"a language model reads one text and searches nothing; leave out: {', '.join(options)}")
        ids = self.task.encode_texts([text])[0]
        check_fits(len(ids), self._max_text_tokens, fix="look at a part of it")
        subject = self._build_look_target(ids)
        with torch.inference_mode():
            share, index = subject.run()[0, -1].softmax(-1).max(-1)
        said = f"{self.task.tokenizer.display_tokens([int(index)])[0]} ({float(share):.0%})"
        return Inspection(subject, {"model": str(self.path), "text": text, "said": said})

    def _build_look_target(self, *sides: TokenIds) -> LookTarget:
        """What follows the last token is what the model finds most likely there."""
        ids, network, tokenizer = self.task.make_prompt_ids(sides[0]), self.network, self.task.tokenizer
        rows = sentences_to_rows([ids], pad_id=self.task.end_id).to(self.device)
        with torch.inference_mode():
            following = int(network(rows)[0, -1].argmax())
        written = tuple(tokenizer.display_tokens([*ids[1:], following]))
        return LookTarget(
            network,
            {"decoder": Side(tokenizer.display_tokens(ids), tokenizer.words(ids), "embedding.out", written)},
            run_layers=lambda: network.hidden_states(rows),
            head=network.logits,
            predicted_ids=torch.tensor([*ids[1:], following], device=self.device),
        )


def _parse_sampling_options(options: dict[str, Any]) -> GenerationConfig:
    """The options, of which `stop` may be one string."""
    check_options(options, GenerationConfig)
    stop = options.get("stop", ())
    return GenerationConfig(**options | {"stop": (stop,) if isinstance(stop, str) else tuple(stop)})
