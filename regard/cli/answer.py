"""Answer questions by a span of a text, their context.

One question is given with --question, and its context with --context, or as a text file with --file. Without
--question, --file holds many questions, each with its context: .jsonl, .parquet or SQuAD's .json; - is JSONL from
standard input. One line for each question, in the same order: the answer and its probability. A model that was trained
on unanswerable questions too leaves the answer empty where the context holds none. --json prints one object for each
question: question, answer, score, start and end (characters of the context) and n_best. A context may be of any length:
a long one is read in overlapping windows.

    regard answer runs/squad --question "Where does the plane land?" --context "The plane lands in Tokyo at 7:30 PM."
    regard answer runs/squad --question "Where does the plane land?" --file news.en --n-best 3 --json
    regard answer runs/squad --file questions.jsonl --json
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    SkipEmptyOption,
    load_model,
    print_json,
    split_commas,
)
from regard.errors import DataError, InputError
from regard.progress import track

if TYPE_CHECKING:
    from regard.predict.question_answering import Answer
    from regard.text.squad import QuestionExample


def answer(
    model: ModelArgument,
    question: Annotated[str | None, typer.Option(help="The question.")] = None,
    context: Annotated[str | None, typer.Option(help="The text to find its answer in.")] = None,
    file: Annotated[
        str, typer.Option(help="A text file, the context of --question; or without it a file of questions.")
    ] = "",
    columns: Annotated[
        str, typer.Option(help="For a file of questions: the names of question,context in its rows.")
    ] = "",
    n_best: Annotated[int, typer.Option(help="The number of answers to each question, best first.")] = 1,
    no_answer: Annotated[
        bool | None,
        typer.Option("--no-answer/--always-answer", help="Allow or forbid an empty answer. Default: as in training."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Margin in log-probability by which no answer must be more likely than the best span. Default: 0."
        ),
    ] = None,
    max_answer_length: Annotated[
        int | None, typer.Option(help="The largest number of tokens of an answer. Default: 30.")
    ] = None,
    skip_empty: SkipEmptyOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from regard.api import QuestionAnswerer

    examples, total = _read_examples(question, context, file, columns, skip_empty)
    answerer = load_model(QuestionAnswerer, model, device, "answer", precision)
    results = (
        (each, result)
        for batch in _batch(examples)
        for each, result in zip(
            batch,
            answerer.answer(
                [(each.question, each.context) for each in batch],
                n_best=n_best,
                no_answer=no_answer,
                threshold=threshold,
                max_answer_length=max_answer_length,
            ),
            strict=True,
        )
    )
    for each, result in track(results, "answering", total):
        _print_json_answer(each, result) if as_json else _print_answer(result, n_best)


def _batch(examples: Iterable[QuestionExample]) -> Iterable[list[QuestionExample]]:
    from regard.data.buckets import buffered_read

    return buffered_read(examples)


def _read_examples(
    question: str | None, context: str | None, file: str, columns: str, skip_empty: bool
) -> tuple[Iterable[QuestionExample], int | None]:
    """Return the questions and their number, where it is known."""
    from regard.text.squad import QuestionExample, read_questions

    if question is None:
        if context is not None or not file:
            raise InputError("no question; give --question with --context or --file, or a file of questions by --file")
        names = split_commas(columns)
        if columns and len(names) != 2:
            raise InputError(f"--columns {columns}: expected two, those of the questions and of their contexts")
        chosen = (*names, "answers") if names else ()

        def read() -> Iterable[QuestionExample]:
            return read_questions([file], chosen, skip_empty=skip_empty, with_answers=False)

        return read(), None if file == "-" else sum(1 for _ in read())
    if (context is None) == (not file) or columns:
        raise InputError("a question has one context; give it with --context, or as a text file with --file")
    if not question.strip():
        raise InputError("--question is empty; give at least one word")
    text = _read_context(file) if context is None else context
    if not text.strip():
        raise (
            DataError(file, "no text; a context has at least one word")
            if file
            else InputError("--context is empty; give at least one word")
        )
    return [QuestionExample(question, text, ())], 1


def _read_context(file: str) -> str:
    from regard.text.files import read_text

    if file != "-" and Path(file).suffix.lower() in (".json", ".jsonl", ".parquet"):
        raise InputError(
            f"--file {file}: the context of --question is a text file; leave --question out to answer all its questions"
        )
    return read_text(file)


def _print_answer(answer: Answer, n_best: int) -> None:
    candidates = answer.n_best if n_best > 1 and answer.is_answered else (answer,)
    for each in candidates:
        print(f"{' '.join(each.text.split())}\t{each.score:.4f}", flush=True)


def _print_json_answer(example: QuestionExample, answer: Answer) -> None:
    known = {"id": example.question_id} if example.question_id else {}
    none = {} if answer.no_answer_score is None else {"no_answer_score": answer.no_answer_score}
    n_best = [
        {"answer": each.text, "score": each.score, "start": each.start, "end": each.end} for each in answer.n_best
    ]
    best = {"answer": answer.text, "score": answer.score, "start": answer.start, "end": answer.end}
    print_json({**known, "question": example.question, **best, **none, "n_best": n_best})
