"""An encoder that answers questions about a text by a span of it, or reports that the text has no answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import one_hot

from regard.api.inputs import check_is_str, check_text, split_columns, split_data
from regard.api.text_encoder import TextEncoder
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.look.compute.look_target import LookTarget
from regard.look.inspection import Inspection
from regard.predict.question_answering import Answer, AnswerOptions, QuestionAnsweringPredictor, WindowSpan
from regard.predict.question_windows import ContextWindow, QuestionPair
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.qa import QuestionAnsweringTask


class QuestionAnswerer(TextEncoder):
    """An encoder that answers questions by a span of a given text.

    Example:
        >>> model = regard.QuestionAnswerer.load("runs/squad")
        >>> model.answer("Where does the plane land?", "The plane lands in Tokyo at 7:30 PM.").text
    """

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, QuestionAnsweringTask)
        self.task = task
        self.predictor: QuestionAnsweringPredictor = task.make_predictor(self.network, device)

    def _describe(self) -> list[str]:
        return ["can tell that there is no answer"] if self.task.has_no_answer else []

    @overload
    def answer(
        self,
        question: str,
        context: str,
        *,
        n_best: int = 1,
        no_answer: bool | None = None,
        threshold: float | None = None,
        max_answer_length: int | None = None,
    ) -> Answer: ...

    @overload
    def answer(
        self,
        question: Sequence[QuestionPair],
        context: None = None,
        *,
        n_best: int = 1,
        no_answer: bool | None = None,
        threshold: float | None = None,
        max_answer_length: int | None = None,
    ) -> list[Answer]: ...

    def answer(
        self,
        question: str | Sequence[QuestionPair],
        context: str | None = None,
        *,
        n_best: int = 1,
        no_answer: bool | None = None,
        threshold: float | None = None,
        max_answer_length: int | None = None,
    ) -> Answer | list[Answer]:
        """Answer a question by a span of its context, or each of a list.

        Args:
            question: A question; or a list of (question, context) tuples.
            context: The text that holds the answer, of any length: a long one is read in overlapping windows.
            n_best: The number of spans to return.
            no_answer: Allow the answer that there is none; by default if the model was trained on such questions.
            threshold: The margin in log-probability by which "no answer" must exceed the best span; by default that of
                the model, task.threshold.
            max_answer_length: The largest number of tokens of an answer; by default that of the model,
                task.max_answer_length.

        Returns:
            An `Answer`: `text`, which is ``context[start:end]``, `score` (its probability), `start`, `end` and
            `n_best` (the most likely spans, each with text, score, start and end); `no_answer_score` is the probability
            that there is no answer, where the model can tell. Without an answer, `text` is empty and `start` and `end`
            are None. For a list, a list of them, in the same order.

        Example:
            >>> found = model.answer("Where does the plane land?", "The plane lands in Tokyo at 7:30 PM.", n_best=3)
            >>> found.text, found.score, [each.text for each in found.n_best]
        """
        options = self.task.answer_options(
            n_best=n_best, no_answer=no_answer, threshold=threshold, max_answer_length=max_answer_length
        )
        if isinstance(question, str):
            if context is None:
                raise InputError("a question needs its context: answer(question, context)")
            return next(self._answer_pairs([(question, context)], options))
        if context is not None:
            raise InputError("a context goes with one question; give a list of (question, context) tuples")
        return list(self._answer_pairs(question, options))

    def answer_iterable(
        self,
        questions: Iterable[QuestionPair],
        *,
        n_best: int = 1,
        no_answer: bool | None = None,
        threshold: float | None = None,
        max_answer_length: int | None = None,
    ) -> Iterator[Answer]:
        """Answer questions from an iterable of any length, also an endless one.

        Questions are read 1,024 at a time; nothing more is held in memory.

        Args:
            questions: Tuples (question, context).
            n_best: As in `answer`.
            no_answer: As in `answer`.
            threshold: As in `answer`.
            max_answer_length: As in `answer`.

        Yields:
            The answer to each question, as `answer` returns it.
        """
        options = self.task.answer_options(
            n_best=n_best, no_answer=no_answer, threshold=threshold, max_answer_length=max_answer_length
        )
        return self._answer_pairs(questions, options)

    def _answer_pairs(self, questions: Iterable[QuestionPair], options: AnswerOptions) -> Iterator[Answer]:
        for batch in buffered_read(_check_pair(pair, number) for number, pair in enumerate(questions)):
            yield from self.predictor.answer(batch, options)

    def evaluate(
        self, data: str | Sequence[str], *, columns: str | Sequence[str] = (), skip_empty: bool = False
    ) -> dict[str, Any]:
        """Score the model on questions with answers.

        Args:
            data: A file, or several: SQuAD's .json, .jsonl or .parquet, also compressed.
            columns: The names of question, context and answers in .jsonl and .parquet; by default those the model was
                trained on.
            skip_empty: Leave out rows with an empty question or context, and count them, instead of refusing the file.

        Returns:
            A dict with task, n, exact_match and f1 as SQuAD defines them, as fractions; where some questions have no
            answer, also answerable_f1, unanswerable_f1, best_f1 and the best_threshold that gives it.
        """
        names = split_columns(columns) or self.config.data.columns
        return self.task.evaluate(self.network, split_data(data), names, skip_empty, self.device)

    def look(self, text: str, pair: str | None = None) -> Inspection:
        """Look inside the model while it reads a question and the context.

        Args:
            text: The question.
            pair: The context. Of a long one, the window with the answer is shown.

        Returns:
            An `Inspection` of two predictions, the start and the end of the answer, with all views of an encoder.
        """
        if pair is None or not pair.strip():
            raise InputError("a question is looked at with its context; give it with --pair, in Python as pair")
        answer, window, span = self.predictor.locate(check_text(text), pair, self.task.answer_options())
        about = {"model": str(self.path), "text": text, "pair": pair}
        description = f"{answer.text or 'no answer'} ({answer.score:.0%})"
        return Inspection(self._build_span_target(window, span), {**about, "prediction": description})

    def _build_span_target(self, window: ContextWindow, span: WindowSpan | None) -> LookTarget:
        """Build the forward pass that predicts the start and the end; without an answer, both are at [CLS]."""
        target, rows = self._build_hidden_state_target(window.encoded)
        predictor, n_tokens = self.predictor, rows.ids.shape[1]
        context = range(window.context_start, window.context_start + window.end - window.start)
        candidates = torch.tensor([0, *context], device=self.device)
        predicted = torch.tensor([0, 0] if span is None else [1 + span.start, 1 + span.end], device=self.device)
        positions = candidates[predicted]

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 2 candidates"]:
            return predictor.compute_logits(hidden, rows)[:, candidates].mT

        tokens = [target.sides["encoder"].tokens[position] for position in positions.tolist()]
        return replace(
            target,
            head=head,
            predicted_ids=predicted,
            output_labels=(f"start: {tokens[0]}", f"end: {tokens[1]}"),
            output_side="answer",
            output_unit="position",
            output_token_weights=lambda: one_hot(positions, n_tokens),
        )


def _check_pair(pair: object, number: int) -> QuestionPair:
    """Return a question and its context, both with text."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InputError(f"question {number:,}, counted from 0: expected (question, context), found {pair!r:.40}")
    for name, text in zip(("question", "context"), pair, strict=True):
        if not check_is_str(text, number).strip():
            raise InputError(f"question {number:,}, counted from 0: its {name} is empty; give at least one word")
    return pair[0], pair[1]
