"""Question answering by span: the part of a context that answers a question (Devlin et al. 2019, 4.2 and 4.3).

An input is ``[CLS] question [SEP] context [SEP]``; every token of the context has a logit as the start and one as the
end of the answer, and [CLS] has both for no answer. A context longer than the input is read in overlapping windows,
each an example; a window without the answer has its start and end at [CLS]. Exact match and F1 are those of whole
questions (predict/question_answering.py), read from the text that the store holds beside the first window of each.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import SegmentedRows, TensorDataclass, arrange_by_segment
from regard.data.columns import BytesColumnSpec, ColumnSpec, ScalarColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example, ExampleReader
from regard.data.labels import Labels
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.metrics import answer_score, best_threshold, mean_answer_score
from regard.models.config import EncoderModelConfig
from regard.models.interfaces import EncoderModel
from regard.models.span_heads import SPAN_HEADS, locate_pair, span_logits
from regard.nn import IGNORE, Loss
from regard.predict.question_answering import (
    MAX_ANSWER_LENGTHS,
    THRESHOLDS,
    Answer,
    AnswerOptions,
    QuestionAnsweringPredictor,
)
from regard.predict.question_windows import ContextWindow, WindowEncoder, find_tokens
from regard.progress import warn
from regard.ranges import Range, check_table
from regard.tasks.shared.encoder_task import INPUT_LENGTHS, LabelledTask, input_entries, max_texts_per_row
from regard.tasks.task import ValidationMetric
from regard.text.squad import AnswerSpan, QuestionExample, question_paths, read_questions
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

ANSWER, NO_ANSWER = "answer", "no answer"
"""The labels of questions, counted in labels.json; a model that was trained without the second always answers."""


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringConfig:
    """The recipe's ``[task]`` table; lengths and the `stride` of windows are in tokens.

    With attention as `pooling`, start and end are scored against the pooled question: for recurrent encoders. A
    question has no answer where that is more likely than the best span by `threshold`, in log-probability.
    """

    name: Literal["qa"] = "qa"
    pooling: Literal["none", "attention"] = "none"
    length: Annotated[int, INPUT_LENGTHS] = 384
    stride: Annotated[int, Range(1, (1 << 15) - 1)] = 128
    max_answer_length: Annotated[int, MAX_ANSWER_LENGTHS] = 30
    threshold: Annotated[float, THRESHOLDS] = 0.0

    def __post_init__(self) -> None:
        check_table(self, "task")


@dataclass(frozen=True)
class SpanBatch(TensorDataclass):
    """Rows of questions with their contexts; `spans` holds the positions of start and end of each text of a row.

    The text of segment s is in column s - 1; a text without labels, and a column without a text, have `IGNORE`.
    """

    rows: SegmentedRows
    spans: Int[Tensor, "B S 2"]
    n_tokens: int
    n_input_tokens: int


class QuestionReader(ExampleReader):
    """Reader of questions as (context, question, answers): held out by context, so that none is in both parts."""

    unit = "questions"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return question_paths(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        for each in read_questions(data, columns, skip_empty=skip_empty):
            yield each.context, each.question, json.dumps(each.answers, ensure_ascii=False)


class QuestionAnsweringTask(LabelledTask):
    """From questions with answers to a model that answers questions."""

    name = "qa"
    verb = "answer"
    verb_arguments = '--question "..." --context "..."'
    Config = QuestionAnsweringConfig
    example_unit = "questions"
    has_cacheable_features = False  # separators are found by their ids, and validation answers questions in text
    validation_metric = ValidationMetric("f1", "F1", higher_is_better=True)

    @property
    def has_no_answer(self) -> bool:
        """True if the model was trained on questions without an answer."""
        return NO_ANSWER in self.labels.names

    @classmethod
    def make_reader(cls, config: QuestionAnsweringConfig, data: DataConfig) -> QuestionReader:
        return QuestionReader()

    @classmethod
    def from_corpus(
        cls,
        config: QuestionAnsweringConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> QuestionAnsweringTask:
        counts = Counter(NO_ANSWER if answers == "[]" else ANSWER for _, _, answers in corpus.train_examples())
        if ANSWER not in counts:
            raise ConfigError("no question has an answer: nothing to learn; is it the right column?")
        tokenizer = pretrained_tokenizer or train_tokenizer(
            corpus.train_texts(0, 1), tokenizer_config, cls.special_token_names
        )
        return cls(config, tokenizer, Labels.from_occurrences(counts.elements()))

    def build_heads(self, config: EncoderModelConfig) -> Mapping[str, nn.Module]:
        return {"span": SPAN_HEADS[self.config.pooling](config)}

    @property
    def store_columns(self) -> tuple[ColumnSpec, ...]:
        spans = ScalarColumnSpec("start"), ScalarColumnSpec("end")
        return *self.input_columns, *spans, BytesColumnSpec("question")

    def encode(self, examples: Sequence[Example]) -> list[list[Any]]:
        """Return every window with the positions of its answer, and each question in JSON at its first window."""
        windows, spans, texts = [], [], []
        encoder, previous = self._window_encoder(self.max_length), -1
        for number, window in encoder.encode([(question, context) for context, question, _ in examples]):
            windows.append(window.encoded)
            spans.append(_label_window(window, _parse_answers(examples[number][2])))
            texts.append(json.dumps(examples[number]).encode() if number != previous else b"")
            previous = number
        return [*input_entries(windows), [start for start, _ in spans], [end for _, end in spans], texts]

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        start, end = store.values("start"), store.values("end")
        if n_lost := int((start == IGNORE).sum()):
            warn(f"{n_lost:,} of {len(store):,} windows to {store.purpose} on have an answer without tokens: left out")
        if n_long := int((end - start >= self.config.max_answer_length).sum()):
            limit = f"task.max_answer_length = {self.config.max_answer_length}"
            warn(f"{n_long:,} answers to {store.purpose} on have more tokens than {limit} and will not be found whole")

    def make_batch(self, store: TokenStore, placement: Placement) -> SpanBatch:
        n_texts = max_texts_per_row(placement)
        sides = [
            arrange_by_segment(store.values(side)[placement.items].astype(np.int64), placement, n_texts, IGNORE)
            for side in ("start", "end")
        ]
        rows, n_labelled = self.pack_rows(store, placement), int((sides[0] != IGNORE).sum())
        return SpanBatch(rows, torch.stack(sides, -1), max(1, n_labelled), int((rows.segment > 0).sum()))

    def compute_loss(self, model: EncoderModel, batch: SpanBatch) -> Loss:
        """Return the mean of the cross-entropies of start and end, over the tokens of the context and [CLS]."""
        pair = locate_pair(batch.rows, self.template.sep_id, len(self.template.pair_separator_ids))
        logits = span_logits(model, model(batch.rows), batch.rows, pair, batch.spans.shape[1])
        return span_cross_entropy(logits, pair.second | pair.cls, batch.rows, batch.spans)

    def make_predictor(
        self, model: EncoderModel, device: torch.device, max_length: int | None = None
    ) -> QuestionAnsweringPredictor:
        """Return the predictor of a model; windows have `max_length` tokens, or as many as the model can read."""
        length = max_length or min(self.config.length, model.config.n_positions)
        return QuestionAnsweringPredictor(model, self._window_encoder(length), device)

    def answer_options(
        self,
        *,
        n_best: int = 1,
        no_answer: bool | None = None,
        threshold: float | None = None,
        max_answer_length: int | None = None,
    ) -> AnswerOptions:
        """Return the options of answering; in place of None, those of the model."""
        config = self.config
        return AnswerOptions(
            n_best=n_best,
            no_answer=self.has_no_answer if no_answer is None else no_answer,
            threshold=config.threshold if threshold is None else threshold,
            max_answer_length=config.max_answer_length if max_answer_length is None else max_answer_length,
        )

    def compute_validation_metrics(
        self, model: EncoderModel, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        examples = _read_stored_questions(store, items)
        predictor = self.make_predictor(model, device, self.max_length)
        return self.compute_metrics(examples, self._answer_all(predictor, examples))

    def evaluate(
        self, model: EncoderModel, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """Return exact match and F1 on questions with answers."""
        examples = list(read_questions(data, columns, skip_empty=skip_empty))
        answers = self._answer_all(self.make_predictor(model, device), examples)
        return {"task": self.name, "n": len(examples), **self.compute_metrics(examples, answers)}

    def _answer_all(self, predictor: QuestionAnsweringPredictor, examples: Sequence[QuestionExample]) -> list[Answer]:
        return predictor.answer([(each.question, each.context) for each in examples], self.answer_options())

    def compute_metrics(self, examples: Sequence[QuestionExample], answers: Sequence[Answer]) -> dict[str, float]:
        """Return exact match and F1; where some questions have no answer, also of both kinds, and the best threshold.

        `best_f1` is what `best_threshold` instead of the threshold in use would give (Rajpurkar et al. 2018).
        """
        gold = [[answer.text for answer in each.answers] for each in examples]
        scores = mean_answer_score([each.text for each in answers], gold)._asdict()
        if not self.has_no_answer or all(gold):
            return scores
        for name, has_answer in (("answerable", True), ("unanswerable", False)):
            chosen = [i for i, references in enumerate(gold) if bool(references) is has_answer]
            of_kind = mean_answer_score([answers[i].text for i in chosen], [gold[i] for i in chosen])
            scores |= {f"{name}_f1": of_kind.f1} if chosen else {}
        margins = [_no_answer_margin(each) for each in answers]
        spans = [each.n_best[0].text if each.n_best else "" for each in answers]
        if_answered = [answer_score(span, references).f1 for span, references in zip(spans, gold, strict=True)]
        best = best_threshold(margins, if_answered, [float(not references) for references in gold])
        return {**scores, "best_f1": best.score, "best_threshold": best.threshold}

    def _window_encoder(self, max_length: int) -> WindowEncoder:
        return WindowEncoder(self.tokenizer, self.template, max_length, self.config.stride)


def span_cross_entropy(
    logits: Float[Tensor, "B T 2"],
    candidates: Bool[Tensor, "B T"],
    rows: SegmentedRows,
    spans: Int[Tensor, "B S 2"],
) -> Loss:
    """Return the mean of the cross-entropies of start and end, each a softmax over the candidates of a text."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).masked_fill(~candidates[..., None], -math.inf)
    segment = rows.segment.long()[..., None].expand(-1, -1, 2)  # column 0 of what follows is padding
    shape = wide.shape[0], spans.shape[1] + 1, 2
    lowest = torch.finfo(wide.dtype).min
    maxima = wide.new_full(shape, lowest).scatter_reduce(1, segment, wide.detach(), "amax")
    sums = wide.new_zeros(shape).scatter_add(1, segment, (wide - maxima.gather(1, segment)).exp())
    labels = nn.functional.pad(spans, (0, 0, 1, 0), value=IGNORE)
    is_labelled = labels != IGNORE
    lse = torch.where(is_labelled, sums.clamp(min=torch.finfo(wide.dtype).tiny).log() + maxima, 0.0)
    is_target = rows.position[..., None] == labels.gather(1, segment)
    nll = (lse.sum() - torch.where(is_target, wide, 0.0).sum()) / 2
    return Loss(nll, nll.detach(), is_labelled[..., 0].sum())


def _label_window(window: ContextWindow, answers: Sequence[AnswerSpan]) -> tuple[int, int]:
    """Return the positions of the first answer's first and last token in a window; those of [CLS] if it is not inside.

    An answer of characters that the tokenizer drops has no tokens, so it cannot be learned: `IGNORE`.
    """
    if not answers:
        return 0, 0
    text, start = answers[0]
    if (tokens := find_tokens(window.context, start, start + len(text))) is None:
        return IGNORE, IGNORE
    return (window.position(tokens[0]), window.position(tokens[1])) if window.contains(*tokens) else (0, 0)


def _read_stored_questions(store: TokenStore, items: Int[np.ndarray, " items"]) -> list[QuestionExample]:
    """Return the questions whose first window is among these items."""
    texts = (store["question"][item].tobytes() for item in items.tolist())
    parsed = (json.loads(text) for text in texts if text)
    return [QuestionExample(question, context, _parse_answers(answers)) for context, question, answers in parsed]


def _parse_answers(answers: str) -> tuple[AnswerSpan, ...]:
    """Return the answers of an example, as `QuestionReader` writes them."""
    return tuple(AnswerSpan(*each) for each in json.loads(answers))


def _no_answer_margin(answer: Answer) -> float:
    """Return how much more likely no answer is than the best span, in log-probability."""
    assert answer.no_answer_score is not None
    best = answer.n_best[0].score if answer.n_best else 0.0
    return _log(answer.no_answer_score) - _log(best)


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-300))
