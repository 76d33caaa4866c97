"""CoNLL-U with running text: read, written, read again; and the scores of words found in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_texts import annotated

from regard.text.conllu import format_conllu
from regard.text.running_text import RunningText, SurfaceToken, align_tokens, join_tokens
from regard.text.segmentation_scores import SegmentationCounts
from regard.text.tagged import TaggedSentence, read_tagged_sentences

SENTENCE = (
    "# text = Don't  go du nord.\n"
    "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\t_\tAUX\t_\t_\t_\t_\t_\t_\n"
    "2\tn't\t_\tPART\t_\t_\t_\t_\t_\t_\n"
    "3\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_\n"
    "3.1\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_\n"
    "4-5\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "4\tde\t_\tADP\t_\t_\t_\t_\t_\t_\n"
    "5\tle\t_\tDET\t_\t_\t_\t_\t_\t_\n"
    "6\tnord\t_\tNOUN\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
    "7\t.\t_\tPUNCT\t_\t_\t_\t_\t_\t_\n\n"
)


def read(path: Path, text: str) -> list[TaggedSentence]:
    path.write_bytes(text.encode())
    return list(read_tagged_sentences([str(path)], with_text=True))


def test_running_text_is_read(tmp_path: Path) -> None:
    (sentence,) = read(tmp_path / "x.conllu", SENTENCE)
    assert sentence.text is not None
    assert [(word.form, word.start, word.end, *word.token) for word in sentence.text.words()] == [
        *(("Do", 0, 2, 0, 5), ("n't", 2, 5, 0, 5), ("go", 7, 9, 7, 9), ("de", 10, 12, 10, 12), ("le", 10, 12, 10, 12)),
        *(("nord", 13, 17, 13, 17), (".", 17, 18, 17, 18)),
    ]
    (marked,) = read(tmp_path / "x.conllu", SENTENCE.partition("\n")[2])  # the marks of missing spaces alone
    assert marked.text is not None
    assert marked.text.text == "Don't go du nord."
    (plain,) = read(tmp_path / "x.conllu", SENTENCE.partition("\n")[2].replace("SpaceAfter=No", "_"))
    assert plain.text is None


@pytest.mark.parametrize(
    ("old", "new"),
    [("Don't  go", "Do not go"), ("4-5", "4-99999999999999999999"), ("1-2", "8-9"), ("nord.", "nord. x")],
)
def test_another_text_than_that_of_the_words_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    sentences = read(tmp_path / "x.conllu", SENTENCE.replace(old, new) + SENTENCE)
    assert [each.text is None for each in sentences] == [True, False]
    assert [len(each.words) for each in sentences] == [7, 7]
    message = "1 of 2 sentences have a text that is not that of their words"
    assert message in capsys.readouterr().err.replace("\n", " ")


FORMS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=4)
TOKENS = st.lists(st.tuples(FORMS, st.lists(FORMS, max_size=3), st.booleans()), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(TOKENS)
def test_what_is_written_is_read_again(tmp_path: Path, items: list[tuple[str, list[str], bool]]) -> None:
    tokens = [
        SurfaceToken(surface, tuple(parts) if len(parts) > 1 else (surface,), space) for surface, parts, space in items
    ]
    text = align_tokens(join_tokens(tokens), tokens)
    assert text is not None
    words = text.words()
    labels = [f"L{number % 3}" for number in range(len(words))]
    (sentence,) = read(tmp_path / "x.conllu", format_conllu(text.text, words, labels, "upos"))
    assert (sentence.words, sentence.labels) == (tuple(word.form for word in words), tuple(labels))
    assert sentence.text == text


def test_white_space_and_other_labels() -> None:
    text = annotated("I don't=do+n't~.")
    written = format_conllu(" I \u2028 don't.\n", _shifted(text, 1, 5), ["A", "B", "C", "D"], "Label")
    assert written.splitlines()[:2] == ["# text = I don't.", "1\tI\t_\t_\t_\t_\t_\t_\t_\tLabel=A"]
    assert written.splitlines()[2] == "2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No"
    assert format_conllu(" ", [], [], "upos") == ""


def _shifted(text: RunningText, first: int, others: int) -> list:  # type: ignore[type-arg]
    moved = align_tokens(
        " I \u2028 don't.\n", [SurfaceToken(text.text[slice(*span)], forms) for span, forms in text.tokens]
    )
    assert moved is not None
    assert [span.start for span, _ in moved.tokens][:2] == [first, others]
    return moved.words()


@pytest.mark.parametrize(
    ("reference", "found", "n_right"),
    [
        ("a b~.", "a b~.", 3),
        ("abc d", "a~b~c d", 1),
        ("don't=do+n't go", "do~n't go", 3),
        ("don't=do+n't go", "don't go", 1),
        ("du=de+le nord", "du nord", 1),
        ("du=de+le nord", "du=de+la nord", 2),
        ("ab=a+b~cd=c+d", "abcd=a+b+c+d", 4),
        ("Du=De+le x", "Du=de+Le x", 3),
    ],
)
def test_words_are_aligned_as_in_the_shared_task(reference: str, found: str, n_right: int) -> None:
    counts = SegmentationCounts()
    words, found_words = annotated(reference).words(), annotated(found).words()
    counts.add(words, ["X"] * len(words), found_words, ["X", *["Y"] * (len(found_words) - 1)])
    assert counts.n_aligned == n_right
    assert counts.f1(counts.n_aligned) == 2 * n_right / (len(words) + len(found_words))
    assert counts.precision(n_right) == n_right / len(found_words)
    assert counts.recall(n_right) == n_right / len(words)
    assert counts.n_same_label == (words[0].form.lower() == found_words[0].form.lower())
