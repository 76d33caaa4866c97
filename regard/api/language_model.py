"""A trained language model: continues texts, scores them, and shows its inside while it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.inputs import check_text, check_texts, split_data
from regard.api.model import Model, TokenIds
from regard.data.batches import sentences_to_rows
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.generate import GenerationConfig
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.interfaces import CausalLM
from regard.predict.input_length import check_fits
from regard.predict.text_generation import Continuation, TextGenerator
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.lm import LanguageModelTask


class LanguageModel(Model):
    """A trained language model.

    Example:
        >>> model = regard.LanguageModel.load("runs/books")
        >>> model.generate("Once upon a time")[0].text
    """

    stacks = ("decoder",)
    network: CausalLM

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, LanguageModelTask)
        assert isinstance(network, CausalLM)
        self.task, self.network = task, network
        self.predictor: TextGenerator = task.make_predictor(network, device)

    @property
    def _max_text_tokens(self) -> int:
        tokenizer = self.task.document_tokenizer
        one_token = [tokenizer.start_id]
        n_special_tokens = len(tokenizer.make_prompt_ids(one_token)) - len(one_token)
        return self.network.config.n_positions - n_special_tokens

    @property
    def _vocabulary_size(self) -> int:
        return self.task.vocabulary_size

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        return self.task.document_tokenizer.encode_texts(example)

    @overload
    def generate(  # type: ignore[overload-overlap]
        self,
        prompt: str = "",
        *,
        max_tokens: int = GenerationConfig.max_tokens,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        n: int = 1,
        seed: int = 0,
        batch: int = GenerationConfig.batch,
    ) -> list[Continuation]: ...

    @overload
    def generate(
        self,
        prompt: Sequence[str],
        *,
        max_tokens: int = GenerationConfig.max_tokens,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        n: int = 1,
        seed: int = 0,
        batch: int = GenerationConfig.batch,
    ) -> list[list[Continuation]]: ...

    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        max_tokens: int = GenerationConfig.max_tokens,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        n: int = 1,
        seed: int = 0,
        batch: int = GenerationConfig.batch,
    ) -> list[Continuation] | list[list[Continuation]]:
        """Continue a prompt, or each prompt of a list.

        A continuation ends where the model ends the document, before a `stop` string, or after `max_tokens`. The same
        seed gives the same texts.

        Args:
            prompt: The text to continue, or a list of such texts. After an empty prompt, a new document begins.
            max_tokens: The largest number of tokens of a continuation.
            temperature: The logits are divided by it; 0 takes the most likely token each time.
            top_k: Draw from the k most likely tokens only; None or 0 is all tokens.
            top_p: Draw from the smallest set of tokens whose probabilities sum to `top_p`.
            repetition_penalty: Above 1, tokens that occurred before are less likely (Keskar et al. 2019).
            stop: A string, or several, before which the text ends.
            n: The number of continuations of each prompt.
            seed: Fixes what is drawn.
            batch: The number of continuations generated at a time.

        Returns:
            For one prompt a list of `n` `Continuation`: `text`, `score` (log-probability), `tokens`, `token_scores` and
            `ended` ("end", "stop" or "length"). For a list of prompts, a list of such lists, in the same order.

        Example:
            >>> model.generate("Once upon a time", temperature=0.8, top_p=0.9)[0].text
        """
        config = GenerationConfig(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            stop=_split_stop(stop),
            n=n,
            seed=seed,
            batch=batch,
        )
        prompts = list(check_texts([prompt] if isinstance(prompt, str) else prompt))
        continuations = [each for _, each in self.generate_batches([prompts], config)]
        return continuations[0] if isinstance(prompt, str) else continuations

    def generate_iterable(
        self,
        prompts: Iterable[str],
        *,
        max_tokens: int = GenerationConfig.max_tokens,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        n: int = 1,
        seed: int = 0,
        batch: int = GenerationConfig.batch,
    ) -> Iterator[list[Continuation]]:
        """Continue prompts from an iterable of any length, also an endless one.

        Prompts are read 1,024 at a time; nothing more is held in memory.

        Args:
            prompts: Texts to continue.
            max_tokens, temperature, top_k, top_p, repetition_penalty, stop, n, seed, batch: As in `generate`.

        Yields:
            The continuations of each prompt, in the order of the prompts.
        """
        config = GenerationConfig(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            stop=_split_stop(stop),
            n=n,
            seed=seed,
            batch=batch,
        )
        batches = buffered_read(check_texts(prompts))
        return (continuations for _, continuations in self.generate_batches(batches, config))

    def generate_batches(
        self, batches: Iterable[Sequence[str]], config: GenerationConfig
    ) -> Iterator[tuple[str, list[Continuation]]]:
        """Continue batches of prompts; yield every prompt with its continuations, in order.

        Args:
            batches: Lists of prompts.
            config: The options of `generate`, as a `regard.generate.GenerationConfig`.
        """
        self._refuse_backward("continue a text")
        return self.predictor.generate_batches(batches, config)

    def generate_each(
        self, batches: Iterable[Sequence[str]], config: GenerationConfig
    ) -> Iterator[tuple[str, Continuation]]:
        """Continue batches of prompts; yield every prompt with one continuation after another, as they are generated.

        Args:
            batches: Lists of prompts.
            config: The options of `generate`, as a `regard.generate.GenerationConfig`.
        """
        self._refuse_backward("continue a text")
        return self.predictor.generate_each(batches, config)

    def stream(
        self,
        prompt: str = "",
        *,
        max_tokens: int = GenerationConfig.max_tokens,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        seed: int = 0,
    ) -> Iterator[str]:
        """Continue one prompt and yield the text while it is generated, in strings of whole characters.

        Args:
            prompt: The text to continue.
            max_tokens, temperature, top_k, top_p, repetition_penalty, stop, seed: As in `generate`.

        Example:
            >>> for text in model.stream("Once upon a time"):
            ...     print(text, end="", flush=True)
        """
        config = GenerationConfig(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            stop=_split_stop(stop),
            seed=seed,
        )
        self._refuse_backward("continue a text")
        return self.predictor.stream(prompt, config)

    def evaluate(
        self, data: str | Sequence[str], *, window: int | None = None, stride: int | None = None
    ) -> dict[str, Any]:
        """Score the model on plain text.

        Args:
            data: A file of plain text, or several.
            window: The number of tokens read at once; by default the context length of the model.
            stride: The number of tokens from one window to the next (docs/language-models.md).

        Returns:
            A dict with task, n (documents), tokens, words, characters, loss (per token), perplexity (per token),
            word_perplexity, bits_per_character, window and stride.
        """
        scores = self.task.evaluate(self.network, split_data(data), self.device, window, stride)
        return {
            "task": self.task.name,
            "n": scores.n_documents,
            "tokens": scores.n_tokens,
            "words": scores.n_words,
            "characters": scores.n_characters,
            "loss": scores.loss,
            "perplexity": scores.perplexity,
            "word_perplexity": scores.word_perplexity,
            "bits_per_character": scores.bits_per_character,
            "window": scores.window,
            "stride": scores.stride,
        }

    def look(self, text: str) -> Inspection:
        """Look inside the model while it reads a text: each token predicts the next one.

        Args:
            text: The text.

        Returns:
            An `Inspection`: `attention("decoder")`, `effective_attention("decoder")`, `gradients()` and others, each a
            torch tensor or a set of them; `show()` in a notebook or terminal, `save("look.html")` anywhere.
        """
        ids = self._encode_texts([check_text(text)])[0]
        check_fits(len(ids), self._max_text_tokens, fix="look at a part of it")
        target = self._build_look_target(ids)
        with torch.inference_mode():
            probability, token_id = target.run()[0, -1].softmax(-1).max(-1)
        prediction = f"{self.task.tokenizer.display_tokens([int(token_id)])[0]} ({float(probability):.0%})"
        return Inspection(target, {"model": str(self.path), "text": text, "prediction": prediction})

    def _refuse_backward(self, verb: str) -> None:
        if self.task.reads_backward:
            problem = f'{self.path}: reads texts backward (task.direction = "backward") and cannot {verb}'
            raise InputError(f"{problem}; evaluate it, or start a classifier or tagger from it with --from")

    def _build_look_target(self, *sides: TokenIds) -> LookTarget:
        """Build the forward pass of a text; the last position predicts its most likely token."""
        self._refuse_backward("be looked into")
        ids = self.task.document_tokenizer.make_prompt_ids(sides[0])
        network, tokenizer = self.network, self.task.tokenizer
        rows = sentences_to_rows([ids], pad_id=self.task.end_id).to(self.device)
        with torch.inference_mode():
            next_id = int(network(rows)[0, -1].argmax())
        next_tokens = tuple(tokenizer.display_tokens([*ids[1:], next_id]))
        return LookTarget(
            network,
            {"decoder": Side(tokenizer.display_tokens(ids), tokenizer.words(ids), "embedding.out", next_tokens)},
            run_layers=lambda: network.hidden_states(rows),
            head=network.logits,
            predicted_ids=torch.tensor([*ids[1:], next_id], device=self.device),
        )


def _split_stop(stop: str | Sequence[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)
