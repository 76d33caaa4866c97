"""Methods that take an iterable give what those for a list give, one after another, also of an endless one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import language_models
import numpy as np
import pytest
from encoders import small, vocabulary
from questions import random_model
from saved_runs import kept

import regard
from regard.data.labels import Labels
from regard.data.word_vectors import WordVectorTable, read_word_vectors, write_word_vectors
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.tasks.tag import TagConfig, TaggingTask

SENTENCES = ["the cat sits", "a dog", "", "the red plane lands in tokyo"]
LABELS = Labels(("A", "B"), (1, 1))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Models with random weights, by their task."""
    folder, words = tmp_path_factory.mktemp("models"), vocabulary()
    tasks: dict[str, Any] = {
        "pretrain": PretrainingTask(PretrainConfig(objective="masked"), words),
        "classify": ClassificationTask(ClassifyConfig(length=32), words, LABELS),
        "tag": TaggingTask(TagConfig(length=32), words, LABELS),
        "qa": QuestionAnsweringTask(QuestionAnsweringConfig(length=32), words, Labels(("answer",), (1,))),
        "lm": language_models.task(),
    }
    build = {"lm": language_models.small, "qa": random_model}

    def load(name: str) -> Any:
        if not (folder / name).exists():
            kept(tasks[name], build.get(name, small)(tasks[name]).float(), folder / name)
        return regard.load(folder / name, device="cpu")

    return load


def same_for_iterables(given: Sequence[Any], expected: Sequence[Any], lazily: Callable[..., Iterator[Any]]) -> None:
    """Compare results with those for an iterable, which must not be read to its end first."""
    assert list(lazily(iter(given))) == expected
    assert type(next(lazily(cycle(given)))) is type(expected[0])


def test_generate(loaded: Callable[[str], Any]) -> None:
    model = loaded("lm")
    options = {"max_tokens": 5, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "n": 2, "seed": 3, "stop": "z"}
    expected = model.generate(["the cat", "a"], repetition_penalty=1.3, **options)
    assert list(model.generate_iterable(iter(["the cat", "a"]), repetition_penalty=1.3, **options)) == expected
    assert [len(each) for each in expected] == [2, 2]
    assert expected != model.generate(["the cat", "a"], **options)


def test_fill(loaded: Callable[[str], Any]) -> None:
    model = loaded("pretrain")
    masked = ["the [MASK] sits", "[MASK] [MASK]", "  "]
    same_for_iterables(masked, [model.fill(text) for text in masked], model.fill_iterable)
    assert [[len(words) for words in each] for each in model.fill_iterable(masked, k=3)] == [[3], [3, 3], []]
    assert len(model.fill(masked[0])[0]) == 5


def test_classify(loaded: Callable[[str], Any]) -> None:
    model = loaded("classify")
    same_for_iterables(SENTENCES, model.classify(SENTENCES), model.classify_iterable)


def test_tag(loaded: Callable[[str], Any]) -> None:
    model = loaded("tag")
    texts = ["the cat", "a dog's life"]
    same_for_iterables(texts, model.tag(texts), model.tag_iterable)
    assert list(model.tag_iterable(["don't stop."], split=True)) == [model.tag("don't stop.", split=True)]
    given = model.tag_words(["don't", "stop."])
    assert [(each.word, each.start, each.end) for each in given] == [("don't", 0, 5), ("stop.", 6, 11)]
    assert given == model.tag("don't stop.", split=True) != model.tag("don't stop.")


def test_answer(loaded: Callable[[str], Any]) -> None:
    model = loaded("qa")
    pairs = [("which city?", "the plane lands in tokyo"), ("which?", "the cat sits on the mat")]
    same_for_iterables(pairs, model.answer(pairs), model.answer_iterable)
    options = {"n_best": 3, "max_answer_length": 1}
    (found,) = model.answer_iterable(pairs[:1], **options)
    assert found == model.answer(*pairs[0], **options)
    assert len(found.n_best) == 3
    assert all(len(each.text.split()) == 1 for each in found.n_best)


def test_word_vectors(tmp_path: Path) -> None:
    table = WordVectorTable(["cat", "Dog"], np.array([[3, 4], [1, 0]], dtype=np.float32))
    write_word_vectors(tmp_path / "one.txt", table)
    vectors = regard.WordVectors.load(tmp_path / "one.txt")
    assert ("cat" in vectors, "CAT" in vectors, "Dog" in vectors, "dog" in vectors) == (True, False, True, False)
    assert repr(vectors) == f"WordVectors('{tmp_path}/one.txt', 2 words, width 2)"
    assert np.array_equal(vectors.embed(["CAT", "Dog"]), table.vectors)
    for name in ("two.txt", "two.bin"):
        assert vectors.save(tmp_path / name) == tmp_path / name
        again = read_word_vectors(tmp_path / name)
        assert again.words == ["cat", "Dog"]
        assert np.array_equal(again.vectors, table.vectors)


def test_names_of_regard_are_listed() -> None:
    assert {"load", "train", "Translator", "RegardError"} <= set(dir(regard))
    assert {"load", "Translator"} <= set(dir(regard.api))
