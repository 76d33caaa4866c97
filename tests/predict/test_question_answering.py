"""Answers against a brute-force search over all spans of all windows, and the characters they stand for."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
import torch
from encoders import CPU, DISTINCT, distinct_words, vocabulary
from questions import random_model

from regard.data.labels import Labels
from regard.errors import InputError
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.question_answering import Answer, AnswerOptions, QuestionAnsweringPredictor, score_window
from regard.predict.question_windows import ContextWindow, WindowEncoder, find_tokens
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate
from regard.text.tokenizer import TokenizedText, Tokenizer

WORDS = vocabulary(size=60)  # so small that words have several pieces


def make_task(tokenizer: Tokenizer = WORDS, **settings: object) -> QuestionAnsweringTask:
    return QuestionAnsweringTask(QuestionAnsweringConfig(**settings), tokenizer, Labels(("answer",)))  # type: ignore[arg-type]


def predictor_of(task: QuestionAnsweringTask, **shape: object) -> QuestionAnsweringPredictor:
    return task.make_predictor(random_model(task, **shape), CPU)


def plain_answers(
    predictor: QuestionAnsweringPredictor, question: str, context: str, max_length: int
) -> tuple[dict[tuple[int, int], float], float]:
    """The probability of every span by its characters, the best of all windows, and the least of no answer."""
    spans: dict[tuple[int, int], float] = {}
    no_answer = math.inf
    for _, window in predictor.windows.encode([(question, context)]):
        rows = inputs_to_rows([window.encoded], predictor.windows.template.pad_id)
        with torch.no_grad():
            logits = predictor.model.heads["span"].out(predictor.model(rows))[0].double()
        positions = [0, *range(window.context_start, window.context_start + len(window.offsets))]
        start, end = ({p: math.exp(logits[p, side]) for p in positions} for side in (0, 1))
        start, end = ({p: value / sum(side.values()) for p, value in side.items()} for side in (start, end))
        no_answer = min(no_answer, start[0] * end[0])
        for i in positions[1:]:
            for j in positions[1:]:
                if i <= j < i + max_length:
                    first, last = (window.offsets[p - window.context_start] for p in (i, j))
                    key = first[0], last[1]
                    spans[key] = max(spans.get(key, 0.0), start[i] * end[j])
    return spans, no_answer


@pytest.mark.parametrize(("length", "limit"), [(64, 4), (24, 3), (24, 30)])
def test_answers_equal_a_brute_force_search(length: int, limit: int) -> None:
    task = make_task(distinct_words(), length=length, stride=5)
    predictor = predictor_of(task)
    draw = random.Random(length)
    pairs = [(" ".join(draw.sample(DISTINCT, 3)), " ".join(draw.sample(DISTINCT, n))) for n in (1, 7, 30)]
    n_windows = len(list(predictor.windows.encode(pairs)))
    assert n_windows > 3 if length == 24 else n_windows == 3
    answers = predictor.answer(pairs, AnswerOptions(n_best=5, max_answer_length=limit, no_answer=True))
    for (question, context), answer in zip(pairs, answers, strict=True):
        spans, no_answer = plain_answers(predictor, question, context, limit)
        expected = sorted(spans.values(), reverse=True)[:5]
        assert [each.score for each in answer.n_best] == pytest.approx(expected, rel=1e-4)
        for each in answer.n_best:
            assert spans[each.start, each.end] == pytest.approx(each.score, rel=1e-4)
            assert context[each.start : each.end] == each.text
        assert answer.no_answer_score == pytest.approx(no_answer, rel=1e-4)
        assert answer.is_answered == (expected[0] >= no_answer)


def test_no_answer_by_its_threshold() -> None:
    predictor, pair = predictor_of(make_task()), ("the cat", "a dog sits on the mat")
    (sure,) = predictor.answer([pair], AnswerOptions())
    assert (sure.no_answer_score, sure.is_answered) == (None, True)
    (found,) = predictor.answer([pair], AnswerOptions(no_answer=True, threshold=-100.0))
    assert found == Answer("", found.score, None, None, found.score, sure.n_best)
    margin = math.log(found.score) - math.log(sure.score)
    for threshold, is_answered in ((margin - 1e-6, False), (margin + 1e-6, True)):
        (answer,) = predictor.answer([pair], AnswerOptions(no_answer=True, threshold=threshold))
        assert answer.is_answered is is_answered


def test_answers_do_not_depend_on_the_batch() -> None:
    predictor, options = predictor_of(make_task(length=24, stride=8)), AnswerOptions(n_best=2, no_answer=True)
    pairs = [("the cat", "a dog sits"), ("cat", "the slow red plane lands in tokyo on seven " * 4), ("a", "mat")]
    batched = predictor.answer(pairs, options)
    for pair, expected in zip(pairs, batched, strict=True):
        (alone,) = predictor.answer([pair], options)
        assert alone.text == expected.text
        assert alone.score == pytest.approx(expected.score, rel=1e-4)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters"])
def test_answers_are_characters_of_the_context(kind: str) -> None:
    """Also between odd white space, accents and characters of several bytes, which the vocabulary may not know."""
    task = make_task(vocabulary(kind, 300))
    context = "  The  cat\tsits\non the mat—Ça va? 東京 🙂 red.  "
    (answer,) = predictor_of(task).answer([("cat?", context)], AnswerOptions(n_best=50, max_answer_length=9))
    assert len(answer.n_best) == 50
    for each in answer.n_best:
        assert each.text == context[each.start : each.end] == each.text.strip() != ""


def test_tokens_of_characters() -> None:
    (context,) = WORDS.encode_with_offsets(["the plane lands in tokyo"])
    covered = find_tokens(context, 4, 9)
    assert covered is not None
    assert context.offsets[covered[0]][0] == 4
    assert context.offsets[covered[1]][1] == 9
    assert find_tokens(context, 3, 4) is None  # white space
    part = find_tokens(context, 5, 6)
    assert part is not None
    assert covered[0] <= part[0] <= part[1] <= covered[1]


@pytest.mark.parametrize("stride", [1, 4, 100])
def test_windows_cover_the_context(stride: int) -> None:
    tokenizer = distinct_words()
    template = SpecialTokenTemplate.from_tokenizer(tokenizer)
    encoder = WindowEncoder(tokenizer, template, 20, stride)
    question, context = " ".join(DISTINCT[:4]), " ".join(DISTINCT[4:60])
    windows = [window for _, window in encoder.encode([(question, context)])]
    assert {token for each in windows for token in range(each.start, each.end)} == set(range(56))
    for before, after in pairwise(windows):
        assert 0 < after.start - before.start <= min(stride, 10)  # 13 tokens of room, of which a quarter is shared
    for each in windows:
        assert len(each.encoded.ids) == 20
        assert each.encoded.ids[1:5] == tokenizer.encode(question)
        for i, (start, end) in enumerate(each.offsets):
            assert tokenizer.encode(context[start:end]) == [each.encoded.ids[each.context_start + i]]


def test_a_question_that_leaves_no_room_is_refused() -> None:
    predictor = predictor_of(make_task(distinct_words(), length=24))
    with pytest.raises(InputError, match=r"the question 'am .*' has 20 tokens; at most 15 leave room for its context"):
        predictor.answer([(" ".join(DISTINCT[:20]), "am an")], AnswerOptions())
    assert predictor.answer([(" ".join(DISTINCT[:15]), "am an")], AnswerOptions())[0].text


def test_a_token_without_characters_starts_no_answer() -> None:
    context = TokenizedText([5, 6, 7], [(0, 0), (0, 3), (4, 4)])
    window = ContextWindow(EncodedInput([2, 4, 3, 5, 6, 7, 3], 3, 1, 3), context, 0, 3)
    logits = torch.zeros(7, 2)
    logits[[3, 5]] = 9.0
    assert [span[:2] for span in score_window(logits, window, AnswerOptions(n_best=9)).spans] == [(1, 1)]


def test_impossible_options_are_refused() -> None:
    with pytest.raises(InputError, match="n-best 0: expected at least 1"):
        AnswerOptions(n_best=0)
    with pytest.raises(InputError, match="threshold nan: expected at least -1,000,000,000"):
        AnswerOptions(threshold=math.nan)
