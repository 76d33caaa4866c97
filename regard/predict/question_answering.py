"""Question answering by span: the part of a context that answers a question, or "no answer".

The start and the end of a span have the probabilities ``softmax(s)_i`` and ``softmax(e)_j`` over the context tokens of
a window and [CLS], which stands for no answer in it; ``P(span) = softmax(s)_i softmax(e)_j`` with i <= j (Devlin et al.
2019, 4.2 and 4.3). The best span of all windows of a long context wins. With `no_answer`, there is none where [CLS] has
a higher probability in every window. The API calls it, and tasks/qa.py for exact match and F1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import SegmentedRows
from regard.models.interfaces import EncoderModel
from regard.models.span_heads import locate_pair, span_logits
from regard.predict.encoder_inference import forward_batches
from regard.predict.question_windows import ContextWindow, QuestionPair, WindowEncoder
from regard.ranges import Range, check_options

MAX_ANSWER_LENGTHS = Range(1, (1 << 15) - 1)
THRESHOLDS = Range(-1e9, 1e9)
"""Differences of log-probabilities."""


@dataclass(frozen=True)
class AnswerCandidate:
    """A span of a context as an answer: its text, its probability, its characters from `start` up to `end`."""

    text: str
    score: float
    start: int
    end: int


@dataclass(frozen=True)
class Answer:
    """The answer to a question: the most likely span, ``context[start:end]``, with its probability as `score`.

    If the context has no answer, `text` is empty, `start` and `end` are None and `score` is the probability of that.
    `no_answer_score` is this probability in any case, for models that can tell. `n_best` are the most likely spans.
    """

    text: str
    score: float
    start: int | None
    end: int | None
    no_answer_score: float | None
    n_best: tuple[AnswerCandidate, ...]

    @property
    def is_answered(self) -> bool:
        """True if the context has an answer."""
        return self.start is not None


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of question answering; answers are at most `max_answer_length` tokens long.

    With `no_answer`, a question has none where its log-probability exceeds that of the best span by `threshold`.
    """

    n_best: Annotated[int, Range(1, 1000)] = 1
    max_answer_length: Annotated[int, MAX_ANSWER_LENGTHS] = 30
    no_answer: bool = False
    threshold: Annotated[float, THRESHOLDS] = 0.0

    def __post_init__(self) -> None:
        check_options(self)


class WindowSpan(NamedTuple):
    """A span of the tokens of a window, counted from its first context token, and its log-probability."""

    start: int
    end: int
    log_prob: float


class WindowScores(NamedTuple):
    """The most likely spans of a window, best first, and the log-probability that it holds no answer."""

    spans: list[WindowSpan]
    no_answer: float


def score_window(logits: Float[Tensor, "T 2"], window: ContextWindow, options: AnswerOptions) -> WindowScores:
    """Return the most likely spans of a window; tokens without characters neither start nor end one."""
    first, offsets = window.context_start, window.offsets
    n_tokens = len(offsets)
    candidates = torch.cat((logits[:1], logits[first : first + n_tokens])).double().log_softmax(0)
    no_answer, own = float(candidates[0].sum()), candidates[1:]
    is_empty = torch.tensor([start == end for start, end in offsets], dtype=torch.bool)
    start, end = own.masked_fill(is_empty[:, None], -math.inf).unbind(1)
    in_order = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu().tril(options.max_answer_length - 1)
    joint = (start[:, None] + end).masked_fill(~in_order, -math.inf).flatten()
    return WindowScores(_select_best(joint, offsets, options.n_best), no_answer)


def _select_best(joint: Float[Tensor, " spans"], offsets: Sequence[tuple[int, int]], n_best: int) -> list[WindowSpan]:
    """Return the most likely spans of distinct characters: several tokens may be bytes of one character."""
    n_candidates = n_best
    while True:
        top = joint.topk(min(n_candidates, len(joint)))
        distinct: dict[tuple[int, int], WindowSpan] = {}
        for index, log_prob in zip(top.indices.tolist(), top.values.tolist(), strict=True):
            first, last = divmod(index, len(offsets))
            if log_prob > -math.inf:
                distinct.setdefault((offsets[first][0], offsets[last][1]), WindowSpan(first, last, log_prob))
        if len(distinct) >= n_best or n_candidates >= len(joint):
            return list(distinct.values())[:n_best]
        n_candidates *= 4


def combine_windows(
    context: str, windows: Sequence[tuple[ContextWindow, WindowScores]], options: AnswerOptions
) -> Answer:
    """Return the answer from the spans of all windows of a context; a span in several windows counts once."""
    best: dict[tuple[int, int], float] = {}
    for window, scores in windows:
        offsets = window.offsets
        for span in scores.spans:
            characters = offsets[span.start][0], offsets[span.end][1]
            best[characters] = max(span.log_prob, best.get(characters, -math.inf))
    ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))[: options.n_best]
    candidates = tuple(
        AnswerCandidate(context[start:end], math.exp(log_prob), start, end) for (start, end), log_prob in ranked
    )
    no_answer = min(scores.no_answer for _, scores in windows)
    no_answer_score = math.exp(no_answer) if options.no_answer else None
    if not ranked or (options.no_answer and no_answer - ranked[0][1] > options.threshold):
        return Answer("", math.exp(no_answer), None, None, no_answer_score, candidates)
    first = candidates[0]
    return Answer(first.text, first.score, first.start, first.end, no_answer_score, candidates)


@dataclass(frozen=True)
class QuestionAnsweringPredictor:
    """A model that answers questions, with the encoder of its inputs, on a device."""

    model: EncoderModel
    windows: WindowEncoder
    device: torch.device

    def answer(self, questions: Sequence[QuestionPair], options: AnswerOptions) -> list[Answer]:
        """Return the answer to each question about its context."""
        by_question: list[list[tuple[ContextWindow, WindowScores]]] = [[] for _ in questions]
        for number, window, scores in self._score_windows(questions, options):
            by_question[number].append((window, scores))
        return [
            combine_windows(context, each, options) for (_, context), each in zip(questions, by_question, strict=True)
        ]

    def locate(
        self, question: str, context: str, options: AnswerOptions
    ) -> tuple[Answer, ContextWindow, WindowSpan | None]:
        """Return the answer, the window with the best span, and that span, or None if there is no answer."""
        scored = [(window, scores) for _, window, scores in self._score_windows([(question, context)], options)]
        window, scores = max(scored, key=lambda each: each[1].spans[0].log_prob if each[1].spans else -math.inf)
        answer = combine_windows(context, scored, options)
        return answer, window, scores.spans[0] if answer.is_answered else None

    def _score_windows(
        self, questions: Sequence[QuestionPair], options: AnswerOptions
    ) -> Iterator[tuple[int, ContextWindow, WindowScores]]:
        """Yield the windows of questions, each with the index of its question, and their best spans."""
        numbered = list(self.windows.encode(questions))
        inputs, pad_id = [window.encoded for _, window in numbered], self.windows.template.pad_id
        for index, logits in forward_batches(
            self.model, inputs, self.compute_logits, pad_id=pad_id, device=self.device
        ):
            number, window = numbered[index]
            yield number, window, score_window(logits.float(), window, options)

    def compute_logits(self, hidden: Float[Tensor, "B T D"], rows: SegmentedRows) -> Float[Tensor, "B T 2"]:
        """Return the start and the end logit of every token."""
        template = self.windows.template
        return span_logits(
            self.model, hidden, rows, locate_pair(rows, template.sep_id, len(template.pair_separator_ids))
        )
